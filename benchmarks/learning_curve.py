"""Figures over the steps of a training: rotation error and top-1 of the checkpoints that it left.

    python benchmarks/learning_curve.py runs/curve/* --data modelnet40_dev.npz --objects 300 --out runs/curve_figures

A training keeps ``last`` and ``best``: copy ``last`` from time to time, and name the copies here. Each checkpoint is
measured on the same views, those of ``geocaps eval``, of at most ``--objects`` objects that are spread evenly over the
data (their test split where they have one). The steps are those that its ``card.md`` states. Prints a Markdown table,
and writes it as ``learning_curve.md`` and everything as ``learning_curve.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from geocaps.apps.encode import Model
from geocaps.apps.encode import load as load_model
from geocaps.data import PointDataset, load
from geocaps.evaluation.answers import encode_all
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope, measure
from geocaps.evaluation.report import Table, write_file, write_json
from geocaps.evaluation.run import described
from geocaps.geometry.sampling import at_most
from geocaps.model.checkpoint import CARD, find_checkpoint

POINTS, SEED = 1024, 0
PROTOCOLS = ("resampled", "partial")
COLUMNS = {"rae_mean": "RAE", "within_15": "≤ 15°", "top1": "top-1"}
STEP = re.compile(r"stage (?P<stage>\w+), step (?P<step>\d+) of (?P<steps>\d+)")

Figures = dict[str, Any]


@dataclass
class Options:
    checkpoints: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Checkpoint folders."""
    data: str
    """What is measured on: its test split where it has one."""
    out: Path
    """Folder for learning_curve.md and learning_curve.json."""
    objects: int = 300
    """At most so many objects, spread evenly."""


def main(options: Options) -> None:
    if not options.checkpoints:
        raise SystemExit("name at least one checkpoint folder")
    dataset = load(options.data)
    if "test" in dataset.splits:
        dataset = dataset.split("test")
    dataset = dataset.subset(at_most(options.objects, len(dataset)))
    make_folder(options.out)
    curve = []
    for folder in options.checkpoints:
        curve.append({"checkpoint": str(folder), **trained(folder), "protocols": measured(load_model(folder), dataset)})
        print(f"{folder}: measured", flush=True)
    curve.sort(key=lambda one: one["step"] or 0)
    found = {"data": described(dataset), "points": POINTS, "seed": SEED, "curve": curve}
    write_json(options.out, "learning_curve.json", found)
    text = table(curve, dataset).markdown() + "\n"
    write_file(options.out, "learning_curve.md", text.encode())
    print(text)


def trained(folder: Path) -> Figures:
    """Stage and step that the checkpoint's card states; None where it states none."""
    card = find_checkpoint(folder) / CARD
    stated = STEP.search(card.read_text(encoding="utf-8")) if card.exists() else None
    return {"stage": stated and stated["stage"], "step": stated and int(stated["step"])}


def measured(model: Model, dataset: PointDataset) -> Figures:
    """The figures of ``geocaps eval`` under each protocol."""
    scope, pairs = alignment_scope(dataset), Pairs(dataset, POINTS, SEED)
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    return {name: measure(model, pairs, first, name).summary(dataset, scope) for name in PROTOCOLS}


def table(curve: list[Figures], dataset: PointDataset) -> Table:
    header = [f"{protocol}: {title}" for protocol in PROTOCOLS for title in COLUMNS.values()]
    lines = []
    for one in curve:
        rows = [(name, one["protocols"][protocol][name]) for protocol in PROTOCOLS for name in COLUMNS]
        cells = [f"{value:.3f}" if name.startswith("rae") else f"{100 * value:.1f} %" for name, value in rows]
        lines.append((one["checkpoint"], "–" if one["step"] is None else f"{one['step']:,}", *cells))
    aligned = int(alignment_scope(dataset).aligned.sum())
    title = f"Figures over steps, {dataset.name}, {len(dataset)} objects, of which {aligned} are aligned"
    return Table(title, ("checkpoint", "steps", *header), tuple(lines))


if __name__ == "__main__":
    main(tyro.cli(Options))
