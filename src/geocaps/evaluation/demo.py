"""``geocaps demo``: encoding, alignment and retrieval on embedded objects, with nothing to download.

Two independent samplings of each object are rotated at random. Capsules are computed from one cloud at a time; their
poses give the rotation between two clouds, and they retrieve the object. ``align`` sees both clouds, as PCA with ICP
does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geocaps.apps.drawing import Grid, draw_points, draw_surfaces, label_colors, part_colors
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.data import load as load_data
from geocaps.evaluation.answers import encode_all
from geocaps.evaluation.baselines import BASELINES, measure_baseline
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import MODEL, alignment_scope, measure_rows, views_of
from geocaps.evaluation.report import Table, html_page, inline_image, make_folder, write_file

_CAPSULES = "capsules, each cloud alone"
_BESIDE = {
    "geocaps align, both clouds": "align",
    "PCA, each cloud alone": "pca",
    "PCA, four flips, ICP, both clouds": "pca_icp",
}
_FIGURES = ("rae_mean", "rae_median", "within_15", "pair_milliseconds", "top1", "nn1")
_SHOWN = 6
_EXPLAINED = (
    "{objects} embedded objects, two independent samplings of each, both rotated at random. Capsules are computed from "
    "one cloud at a time. The last two columns are retrieval by capsules: how often the nearest of the "
    "{objects} first samplings to a second sampling is of the same object (top-1), and of the same class (1-NN class)."
)


@dataclass(frozen=True)
class Demo:
    """What the demo measured, and where it wrote."""

    table: Table
    rows: dict[str, dict[str, float]]
    objects: int
    seconds: float
    picture: Path
    page: Path


def run_demo(model: Model, folder: Path, *, per_class: int = 2, points: int = 1024, seed: int = 0) -> Demo:
    """Encode, align and retrieve the embedded shapes; writes ``demo.png`` and ``demo.html``."""
    started = time.perf_counter()
    make_folder(folder)
    dataset = load_data("shapes", per_class=per_class)
    scope = alignment_scope(dataset)
    pairs = Pairs(dataset, points, seed)
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    views = views_of(model, pairs, first, "resampled")
    measured = {_CAPSULES: measure_rows(model, views)[MODEL]}
    for text, name in _BESIDE.items():
        measured[text] = measure_baseline(BASELINES[name], views.pairs, scope.aligned)
    rows = {}
    for text, one in measured.items():
        summary = one.summary(dataset, scope)
        rows[text] = {name: float(summary[name]) for name in _FIGURES if name in summary}
    aligned = np.flatnonzero(scope.aligned).tolist()
    table = _table(rows, len(dataset), len(aligned))
    image = _picture([first.encodings[i] for i in aligned[:: max(1, len(aligned) // _SHOWN)][:_SHOWN]])
    picture = write_file(folder, "demo.png", image)
    body = [
        "<h1>geocaps demo</h1>",
        f"<p>{_EXPLAINED.format(objects=len(dataset))}</p>",
        table.html(),
        inline_image(
            "demo", image, "From top to bottom: input in a random pose, parts, decoded part surfaces, canonical pose."
        ),
    ]
    page = write_file(folder, "demo.html", html_page("geocaps demo", body).encode())
    return Demo(table, rows, len(dataset), time.perf_counter() - started, picture, page)


def _table(rows: dict[str, dict[str, float]], objects: int, aligned: int) -> Table:
    header = ("method", "rotation error (mean)", "median", "within 15°", "ms/pair", "top-1", "1-NN class")
    lines = []
    for name, row in rows.items():
        found = (f"{100 * row['top1']:.1f} %", f"{100 * row['nn1']:.1f} %") if "top1" in row else ("–", "–")
        cells = (f"{row['rae_mean']:.3f}", f"{row['rae_median']:.3f}", f"{100 * row['within_15']:.1f} %")
        lines.append((name, *cells, f"{row['pair_milliseconds']:.1f}", *found))
    title = f"{aligned} asymmetric of {objects} embedded objects; error is angle/π, a random guess has 0.703"
    return Table(title, header, tuple(lines))


def _picture(seen: Sequence[Encoding]) -> bytes:
    """For each object: the input, its part capsules, their surfaces, and the canonical pose."""
    grid = Grid(4, len(seen))
    for column, one in enumerate(seen):
        points = one.cloud.points
        colors = part_colors(len(one.parts))
        surface = one.reconstruct("parts")
        draw_points(grid.panel(0, column, "input" if column == 0 else ""), points)
        draw_points(
            grid.panel(1, column, "parts" if column == 0 else ""), points, label_colors(one.labels, len(one.parts))
        )
        surfaces = grid.panel(2, column, "part surfaces" if column == 0 else "")
        draw_surfaces(surfaces, surface.points, surface.triangles, colors)
        draw_points(
            grid.panel(3, column, "canonical" if column == 0 else ""),
            one.canonical(),
            label_colors(one.labels, len(one.parts)),
        )
    return grid.png()
