"""The systems that the paper compares with, in small versions, trained here for the same time and measured.

    python benchmarks/compared.py --train shapenetpart.npz --eval modelnet40_dev.npz --minutes 8 --out runs/compared

PointNetLK and the quaternion capsules are trained with true rotations, the 3D Point Capsule Network without any labels;
all on the split ``train`` for ``--minutes`` of processor time each. A finished run stays in ``--out`` and is not
repeated. ``--steps`` gives the three numbers of steps instead, so that a run can be repeated exactly.

Rotation errors are those of ``geocaps eval``, on the same pairs of clouds; rows "untrained" show how much is due to the
construction alone. Parts are compared on ``--objects`` objects, evenly spread, of the split ``val`` and of ``--eval``.
Results: ``compared.json``, ``compared.md``, ``compared.png``.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geocaps
from geocaps.apps.drawing import Grid, draw_points, part_colors
from geocaps.data import PointDataset
from geocaps.evaluation.answers import encode_all
from geocaps.evaluation.baselines import BASELINES, Baseline, measure_baseline
from geocaps.evaluation.learned import locality
from geocaps.evaluation.learned.fitting import Fitting, trained
from geocaps.evaluation.learned.point_capsules import PointCapsules
from geocaps.evaluation.learned.pointnetlk import PointNetLK, cube_rotations
from geocaps.evaluation.learned.quaternion_capsules import QuaternionCapsules
from geocaps.evaluation.metrics import Summary
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import PAPER_CLASSES, alignment_scope, chance, measure
from geocaps.evaluation.report import Table, write_file, write_json
from geocaps.geometry.sampling import at_most

PROTOCOLS = ("points", "resampled", "partial")
SYSTEMS = {
    "point_capsules": PointCapsules,
    "quaternion_capsules": QuaternionCapsules,
    "pointnetlk": PointNetLK,
}
OURS = "capsules (the weights given)"
STATED = {"PointNetLK, from the identity": 0.38, "quaternion capsules": 0.17, "pca": 0.42, OURS: 0.42}
"""The paper's figures under ``points`` (section 4.1), in one trial."""
COLUMNS = {
    "parts": "parts in use",
    "radius": "radius: points",
    "surface_radius": "radius: decoded",
    "connected": "in the largest piece",
    "agreement": "agreement",
    "chamfer": "Chamfer × 10³",
}
SHOWN = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="data set with the splits train and val, aligned, y up")
    parser.add_argument("--eval", required=True, help="data set to measure on")
    parser.add_argument("--minutes", type=float, default=8.0, help="of processor time, for the training of each system")
    parser.add_argument("--steps", type=int, nargs=len(SYSTEMS), help=f"in place of minutes: of {', '.join(SYSTEMS)}")
    parser.add_argument("--objects", type=int, default=100, help="of each set, for the comparison of parts")
    parser.add_argument("--weights", help="our checkpoint; the shipped one by default")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    data, target = geocaps.datasets.load(args.train), geocaps.datasets.load(args.eval)
    systems, runs = {}, {}
    for number, (name, make) in enumerate(SYSTEMS.items()):
        fitting = Fitting(minutes=args.minutes, steps=args.steps and args.steps[number])
        say = functools.partial(print, f"{name}:", flush=True)
        systems[name], runs[name] = trained(make, data.split("train"), fitting, args.out / name, say)
        print(f"{name}: {runs[name]['steps']} steps in {runs[name]['minutes']:.1f} minutes")
    model = geocaps.load(args.weights)
    errors = rotations(systems, model, target)
    parts = {
        name: compared_parts(systems["point_capsules"], model, dataset, args.objects)
        for name, dataset in ((f"{data.name} val", data.split("val")), (target.name, target))
    }
    write_json(args.out, "compared.json", {"runs": runs, "rotations": errors, "parts": parts})
    tables = [rotation_table(errors, target.name), *(parts_table(name, rows) for name, rows in parts.items())]
    text = "\n\n".join(table.markdown() for table in tables) + "\n"
    write_file(args.out, "compared.md", text.encode())
    write_file(args.out, "compared.png", picture(systems["point_capsules"], model, data.split("val")))
    print(text)


# ── rotations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def rotations(systems: Mapping[str, Any], model: geocaps.Model, target: PointDataset) -> dict[str, dict[str, Summary]]:
    """The rotation errors of all methods under each protocol, on the objects of asymmetric classes."""
    dataset = target.of_classes([name for name in PAPER_CLASSES if name in target.class_names])
    scope, pairs, starts = alignment_scope(dataset), Pairs(dataset, model.config.points, seed=0), cube_rotations()
    torch.manual_seed(0)
    untrained = {name: make().eval() for name, make in SYSTEMS.items()}
    methods = {"PointNetLK, from the identity": functools.partial(systems["pointnetlk"].align, starts=starts[:1])}
    for some, note in ((systems, ""), (untrained, ", untrained")):
        align = functools.partial(some["pointnetlk"].align, starts=starts)
        methods |= {f"PointNetLK, best of 24 starts{note}": align}
        methods |= {f"quaternion capsules{note}": some["quaternion_capsules"].align}
    methods["pca"] = BASELINES["pca"].align
    first = encode_all(model, [pairs.first(index) for index in range(len(pairs))])
    found: dict[str, dict[str, Summary]] = {}
    for protocol in PROTOCOLS:
        made = [pairs.pair(index, protocol) for index in range(len(pairs))]
        rows = {name: measure_baseline(Baseline(name, align), made, scope.aligned) for name, align in methods.items()}
        rows[OURS] = measure(model, pairs, first, protocol)
        found[protocol] = {name: row.summary(dataset, scope) for name, row in rows.items()}
        floor = chance(protocol, dataset, 1)
        found[protocol]["chance: a random answer"] = {"rae_mean": floor["rae_random"], "within_15": floor["within_15"]}
        found[protocol]["chance: the identity"] = {
            "rae_mean": floor["rae_identity"],
            "within_15": floor["identity_within_15"],
        }
        for name, row in found[protocol].items():
            print(f"{protocol}: {name}: {row['rae_mean']:.3f}", flush=True)
    return found


def rotation_table(errors: Mapping[str, Mapping[str, Summary]], name: str) -> Table:
    header = ["method", "stated by the paper"]
    for protocol in errors:
        header += [f"{protocol}: mean [95 %]", "median", "≤ 15°"]
    rows = []
    for method in errors[PROTOCOLS[0]]:
        cells = [method, str(STATED.get(method, "–"))]
        for found in errors.values():
            row = found[method]
            interval = row.get("rae_mean_ci")
            cells.append(f"{row['rae_mean']:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""))
            cells.append(f"{row['rae_median']:.3f}" if "rae_median" in row else "–")
            cells.append(f"{100 * row['within_15']:.1f} %")
        rows.append(tuple(cells))
    return Table(f"Rotation error, {name}", tuple(header), tuple(rows))


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def compared_parts(
    network: PointCapsules, model: geocaps.Model, dataset: PointDataset, objects: int
) -> dict[str, Summary]:
    """Figures of the parts of both on the same clouds; theirs also on turned ones, for which it was not trained."""
    pairs, chosen = Pairs(dataset, model.config.points, seed=0), at_most(objects, len(dataset)).tolist()
    theirs = locality.of_point_capsules(network)
    rows: dict[str, tuple[locality.Parter, bool]] = {
        "3D Point Capsule Network, stored orientation": (theirs, False),
        "3D Point Capsule Network, turned": (theirs, True),
        OURS: (locality.of_capsules(model), True),
        "nearest of as many farthest points": (locality.of_farthest_points(network.latent), True),
    }
    found = {}
    for name, (parter, turned) in rows.items():
        started = time.process_time()
        found[name] = locality.measure_parts(parter, pairs, chosen, turned=turned)
        print(f"{dataset.name}: parts of {name}: {time.process_time() - started:.0f} s", flush=True)
    return found


def parts_table(name: str, rows: Mapping[str, Summary]) -> Table:
    lines = []
    for method, row in rows.items():
        cells = []
        for column in COLUMNS:
            value = row.get(column)
            factor, digits = {"parts": (1, 1), "connected": (100, 1), "chamfer": (1000, 2)}.get(column, (1, 3))
            cells.append("–" if value is None else f"{factor * value:.{digits}f}" + " %" * (column == "connected"))
        lines.append((method, *cells))
    return Table(f"Parts, {name}, {row['objects']} objects", ("parts of", *COLUMNS.values()), tuple(lines))


def picture(network: PointCapsules, model: geocaps.Model, dataset: PointDataset) -> bytes:
    """A few objects in their stored orientation: the points of each part, and what the parts decode to."""
    classes = np.unique(dataset.labels)[at_most(SHOWN, len(np.unique(dataset.labels)))]
    examples = [int(np.flatnonzero(dataset.labels == code)[0]) for code in classes]
    grid = Grid(4, len(examples), panel=200)
    methods: dict[str, Callable] = {
        "3D Point Capsule Network": locality.of_point_capsules(network),
        "part capsules": locality.of_capsules(model),
    }
    pairs = Pairs(dataset, model.config.points, seed=0)
    for number, (name, parter) in enumerate(methods.items()):
        grid.heading(2 * number, f"{name}: the points of each part")
        grid.heading(2 * number + 1, f"{name}: what the parts decode to")
        for column, index in enumerate(examples):
            points = pairs.pose(index).observe(pairs.first(index).double()).numpy()
            labels, surfaces = parter(points)
            assert surfaces is not None
            colors = part_colors(len(surfaces))
            draw_points(grid.panel(2 * number, column), points[labels >= 0], colors[labels[labels >= 0]])
            decoded = np.repeat(colors, surfaces.shape[1], axis=0)
            draw_points(grid.panel(2 * number + 1, column), surfaces.reshape(-1, 3), decoded)
    return grid.png()


if __name__ == "__main__":
    main()
