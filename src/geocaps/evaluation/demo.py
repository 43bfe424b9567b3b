"""``geocaps demo``: encoding, alignment and retrieval on embedded objects, with nothing to download.

Two independent samplings of each object are rotated at random. Capsules are computed from one cloud at a time; their
poses give the rotation between two clouds, their features retrieve the object. ``align`` sees both clouds, as PCA with
ICP does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geocaps.apps.align.align import align
from geocaps.apps.drawing import Grid, draw_points, draw_surfaces, part_colors
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.data import load as load_data
from geocaps.evaluation.baselines import pca, pca_icp
from geocaps.evaluation.metrics import alignment_summary, feature_distances, retrieval_summary
from geocaps.evaluation.pairs import Pair, Pairs
from geocaps.evaluation.protocols import alignment_scope
from geocaps.evaluation.report import Table, html_page, inline_image, make_folder, write_file
from geocaps.geometry.similarity import Similarity

_SHOWN = 6
_EXPLAINED = (
    "{objects} embedded objects, two independent samplings of each, both rotated at random. Capsules are computed from "
    "one cloud at a time. The last two columns are retrieval by the capsule's feature: how often the nearest of the "
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
    made = Pairs(dataset, points, seed)
    pairs = [made.pair(index, "resampled") for index in range(len(dataset))]

    before = time.perf_counter()
    first = model.encode_many([pair.first for pair in pairs])
    second = model.encode_many([pair.second for pair in pairs])
    per_cloud = (time.perf_counter() - before) / (2 * len(pairs))

    scope = np.flatnonzero(alignment_scope(dataset).aligned)
    turned = [pairs[index] for index in scope]
    capsule_turns = [second[int(i)].pose @ first[int(i)].pose.inverse() for i in scope]
    rows = {"capsules, each cloud alone": _row(turned, capsule_turns, per_cloud)}
    retrieval = retrieval_summary(
        feature_distances(second.parse.object.feature, first.parse.object.feature), dataset.labels
    )
    rows["capsules, each cloud alone"] |= {"top1": float(retrieval["top1"]), "nn1": float(retrieval["nn1"])}
    rows["geocaps align, both clouds"] = _timed(turned, lambda a, b: Similarity.from_matrix(align(a, b).matrix))
    rows["PCA, each cloud alone"] = _timed(turned, lambda a, b: Similarity(pca(a, b)))
    rows["PCA, four flips, ICP, both clouds"] = _timed(turned, lambda a, b: Similarity(pca_icp(a, b)))

    table = _table(rows, len(dataset), len(turned))
    image = _picture([first[int(i)] for i in scope[:: max(1, len(scope) // _SHOWN)][:_SHOWN]])
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


def _timed(pairs: Sequence[Pair], method: Callable[[np.ndarray, np.ndarray], Similarity]) -> dict[str, float]:
    before = time.perf_counter()
    turns = [method(pair.first.double().numpy(), pair.second.double().numpy()) for pair in pairs]
    return _row(pairs, turns, (time.perf_counter() - before) / len(pairs))


def _row(pairs: Sequence[Pair], turns: Sequence[Similarity], seconds: float) -> dict[str, float]:
    true = [Similarity(pair.turn.rotation_matrix().numpy()) for pair in pairs]
    errors = [float(turn.angle_to(known)) / math.pi for turn, known in zip(turns, true, strict=True)]
    summary = alignment_summary(np.array(errors))
    return {
        "rae_mean": float(summary["rae_mean"]),
        "rae_median": float(summary["rae_median"]),
        "within_15": float(summary["within_15"]),
        "milliseconds": 1000 * seconds,
    }


def _table(rows: dict[str, dict[str, float]], objects: int, aligned: int) -> Table:
    header = ("method", "rotation error (mean)", "median", "within 15°", "ms", "top-1", "1-NN class")
    lines = []
    for name, row in rows.items():
        found = (f"{100 * row['top1']:.1f} %", f"{100 * row['nn1']:.1f} %") if "top1" in row else ("–", "–")
        cells = (f"{row['rae_mean']:.3f}", f"{row['rae_median']:.3f}", f"{100 * row['within_15']:.1f} %")
        lines.append((name, *cells, f"{row['milliseconds']:.1f}", *found))
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
        draw_points(grid.panel(1, column, "parts" if column == 0 else ""), points, colors[one.labels])
        surfaces = grid.panel(2, column, "part surfaces" if column == 0 else "")
        draw_surfaces(surfaces, surface.points, surface.triangles, colors)
        draw_points(grid.panel(3, column, "canonical" if column == 0 else ""), one.canonical(), colors[one.labels])
    return grid.png()
