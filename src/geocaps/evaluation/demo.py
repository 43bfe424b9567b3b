"""``geocaps demo``: encoding, alignment and retrieval on embedded objects, with nothing to download.

Two independent samplings of each object are rotated at random, and so is a third one, cropped by 30 %. Capsules are
computed from one cloud at a time; they retrieve the object, and their poses give the rotation between two clouds.
``align`` sees both clouds, like PCA with ICP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from geocaps.apps.align import align
from geocaps.apps.drawing import BLUE, ORANGE, Grid, draw_points, label_colors
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.atomic import make_folder
from geocaps.data import PointDataset
from geocaps.data import load as load_data
from geocaps.evaluation.answers import encode_all
from geocaps.evaluation.baselines import BASELINES, measure_baseline
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import MODEL, Measured, alignment_scope, measure_rows, views_of
from geocaps.evaluation.report import Table, html_page, inline_image, write_file
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

_CAPSULES = "capsules, each cloud alone"
_ALIGN = "geocaps align, both clouds"
_BESIDE = {
    _ALIGN: "align",
    "PCA, each cloud alone": "pca",
    "PCA, four flips, ICP, both clouds": "pca_icp",
}
_FIGURES = ("rae_mean", "rae_median", "within_15", "pair_milliseconds", "top1", "nn1")
_SHOWN, _STREAM = 5, 51
_POINTS, _SEED = 1024, 0
_TURNED = "chair"
_FRONT = np.array([-1, 1, -1])  # the embedded shapes face away from the viewer: half a turn shows their fronts
_EXPLAINED = (
    "{objects} embedded objects, two independent samplings of each, both rotated at random. Capsules are computed from "
    "one cloud at a time. The last three columns are retrieval by capsules: how often the first sampling that is "
    "nearest to a second one is of the same object (top-1) or class (1-NN class); and top-1 for a sampling from which "
    "30 % was cropped."
)
_SEEN = (
    "A chair in five poses, coloured by part, and each of the five clouds in its canonical pose; scans from which 30 % "
    "was cropped; the whole objects decoded from their capsules; and the nearest embedded objects, with the scans "
    "aligned to them."
)


@dataclass(frozen=True)
class Demo:
    """The figures of the demo, and the files that it wrote."""

    story: tuple[str, ...]
    table: Table
    rows: dict[str, dict[str, float]]
    objects: int
    seconds: float
    picture: Path
    page: Path


def run_demo(model: Model, folder: Path, *, per_class: int) -> Demo:
    """Encode, align and retrieve the embedded shapes; writes ``demo.png`` and ``demo.html``."""
    started = time.perf_counter()
    make_folder(folder)
    dataset = load_data("shapes", per_class=per_class)
    scope = alignment_scope(dataset)
    pairs = Pairs(dataset, _POINTS, _SEED)
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    views = views_of(model, pairs, first, "resampled")
    crops = views_of(model, pairs, first, "partial")
    measured = {_CAPSULES: measure_rows(model, views)[MODEL]}
    for text, name in _BESIDE.items():
        measured[text] = measure_baseline(BASELINES[name], views.pairs, scope.aligned)
    rows = {}
    for text, one in measured.items():
        summary = one.summary(dataset, scope)
        rows[text] = {name: float(summary[name]) for name in _FIGURES if name in summary}
    cropped = measure_rows(model, crops)[MODEL]
    rows[_CAPSULES]["top1_crop"] = float(cropped.summary(dataset, scope)["top1"])
    aligned = np.flatnonzero(scope.aligned).tolist()
    table = _table(rows, len(dataset), len(aligned))
    assert crops.second is not None
    shown = aligned[:: max(1, len(aligned) // _SHOWN)][:_SHOWN]
    scans = [(index, crops.second.encodings[index], _nearest(cropped, index)) for index in shown]
    image = _picture(_turned_copies(model, dataset), dataset, scans)
    picture = write_file(folder, "demo.png", image)
    body = [
        "<h1>geocaps demo</h1>",
        f"<p>{_EXPLAINED.format(objects=len(dataset))}</p>",
        table.html(),
        inline_image("demo", image, _SEEN),
    ]
    page = write_file(folder, "demo.html", html_page("geocaps demo", body).encode())

    def share(text: str, name: str, of: int) -> str:
        return f"{round(rows[text][name] * of)} of {of}"

    story = (
        f"parsed {len(dataset)} objects into {model.config.parts.parts} parts each, {1000 * first.seconds:.0f} ms each",
        f"the same canonical pose (within 15°) for {share(_CAPSULES, 'within_15', len(aligned))} rotated copies",
        f"aligned {share(_ALIGN, 'within_15', len(aligned))} pairs, in {rows[_ALIGN]['pair_milliseconds']:.0f} ms each",
        f"found {share(_CAPSULES, 'top1_crop', len(dataset))} objects from a 70 % crop in another pose",
        f"wrote {picture} and {page}",
    )
    return Demo(story, table, rows, len(dataset), time.perf_counter() - started, picture, page)


def _table(rows: dict[str, dict[str, float]], objects: int, aligned: int) -> Table:
    header = (
        "method",
        "rotation error (mean)",
        "median",
        "within 15°",
        "ms/pair",
        "top-1",
        "1-NN class",
        "top-1, crop",
    )
    lines = []
    for name, row in rows.items():
        found = tuple(f"{100 * row[at]:.1f} %" if at in row else "–" for at in ("top1", "nn1", "top1_crop"))
        cells = (f"{row['rae_mean']:.3f}", f"{row['rae_median']:.3f}", f"{100 * row['within_15']:.1f} %")
        lines.append((name, *cells, f"{row['pair_milliseconds']:.1f}", *found))
    title = f"{aligned} asymmetric of {objects} embedded objects; error is angle/π, 0.703 for a random guess"
    return Table(title, header, tuple(lines))


def _nearest(measured: Measured, query: int) -> int:
    assert measured.distances is not None
    return int(np.argmin(measured.distances[query]))


def _turned_copies(model: Model, dataset: PointDataset) -> list[Encoding]:
    """One object as it is stored, and rotated five times."""
    index = dataset.labels.tolist().index(dataset.class_names.index(_TURNED))
    generator = random_stream(_SEED, _STREAM)
    cloud = dataset.samplings(index, _POINTS, 1, generator)[0]
    turns = Pose.random(_SHOWN, generator=generator)
    return list(model.encode_many([cloud, *turns.apply(cloud.expand(_SHOWN, -1, -1)).to(torch.float32)]))


def _picture(copies: Sequence[Encoding], dataset: PointDataset, scans: Sequence[tuple[int, Encoding, int]]) -> bytes:
    """A picture of the claims: one pose for all rotated copies; scans completed, and retrieved."""
    grid = Grid(5, _SHOWN)
    for row, text in enumerate(
        (
            "One chair in five poses",
            "Each of the five in its canonical pose",
            "Scans from which 30 % was cropped",
            "Completed from their capsules",
            "Retrieved: the nearest object, with the scan aligned to it",
        )
    ):
        grid.heading(row, text)
    # One rotation for all makes the canonical frame upright, so it hides no difference between the five.
    upright = copies[0].pose
    for column, one in enumerate(copies[1:]):
        colors = label_colors(one.labels, len(one.parts))
        draw_points(grid.panel(0, column), one.cloud.points, colors)
        draw_points(grid.panel(1, column), _FRONT * upright.apply(one.canonical()), colors)
    for column, (index, scan, found) in enumerate(scans):
        own, name = dataset.points(index), dataset.class_names[dataset.labels[index]]
        stands = align(scan.cloud.points, own)
        seen = _FRONT * stands.apply(scan.cloud.points)
        draw_points(grid.panel(2, column, name), seen, ORANGE)
        draw_points(grid.panel(3, column), _FRONT * stands.apply(scan.complete()), BLUE)
        right = "the same object" if found == index else f"another: {dataset.class_names[dataset.labels[found]]}"
        panel = grid.panel(4, column, right, "#117733" if found == index else "#cc3311")
        other = dataset.points(found)
        draw_points(panel, _FRONT * other, BLUE)
        laid = stands if found == index else align(scan.cloud.points, other)
        draw_points(panel, _FRONT * laid.apply(scan.cloud.points), ORANGE)
    grid.caption("Shown upright, as the embedded objects are stored.", {"scan": ORANGE, "decoded, or retrieved": BLUE})
    return grid.png()
