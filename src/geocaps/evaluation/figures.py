"""Figures of an evaluation, as PNGs: parts, reconstructions, canonical frames, errors, confidence, retrieval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from geocaps.apps.drawing import Grid, draw_points, draw_surfaces, label_colors, part_colors, to_png
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding, Encodings
from geocaps.apps.rendering import Scene
from geocaps.data import PointDataset
from geocaps.evaluation.answers import encode_all, model_points, turned_parts
from geocaps.evaluation.protocols import alignment_scope
from geocaps.evaluation.run import Evaluation
from geocaps.geometry.sampling import at_most
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

_EXAMPLES = 5
_TURNED_OBJECTS = 3
_ANGLES = 50
_NEAREST = 10
_SHOWN = 1024
_CELL = 0.01
_STREAM = 50
_SAME, _CLASS, _OTHER = "#117733", "#4477aa", "#cc3311"


def draw_all(evaluation: Evaluation) -> dict[str, bytes]:
    """Each of :data:`FIGURES` as a PNG."""
    return {name: drawn(evaluation) for name, (_, drawn) in FIGURES.items()}


def parts(evaluation: Evaluation) -> bytes:
    """For each object, its points coloured by part, and the surfaces of the parts."""
    examples = _examples(evaluation, _EXAMPLES)
    grid = Grid(2, len(examples))
    for column, index in enumerate(examples):
        seen = _stored(evaluation, index)
        surface = seen.reconstruct("parts")
        colors = part_colors(len(surface.points))
        panel = grid.panel(0, column, _name(evaluation, index))
        draw_points(panel, seen.cloud.points, label_colors(seen.labels, len(colors)))
        draw_surfaces(grid.panel(1, column), surface.points, surface.triangles, colors)
    return grid.png()


def reconstructions(evaluation: Evaluation) -> bytes:
    """For each object, the input, and its reconstructions by one layer and by two, as points and as surfaces."""
    examples = _examples(evaluation, _EXAMPLES)
    titles = ("input", "part layer, points", "part layer, surfaces", "object layer, points", "object layer, surfaces")
    grid = Grid(len(examples), len(titles))
    for row, index in enumerate(examples):
        seen = _stored(evaluation, index)
        panels = [grid.panel(row, column, title if row == 0 else "") for column, title in enumerate(titles)]
        draw_points(panels[0], seen.cloud.points)
        for at, layer in ((1, "parts"), (3, "object")):
            surface = seen.reconstruct(layer)
            colors = part_colors(len(surface.points))
            flat = surface.points.reshape(-1, 3)
            draw_points(panels[at], flat, np.repeat(colors, surface.points.shape[1], axis=0))
            draw_surfaces(panels[at + 1], surface.points, surface.triangles, colors)
    return grid.png()


def canonical(evaluation: Evaluation) -> bytes:
    """Objects rotated through 50 angles about a random axis, superimposed: as given, and in their canonical frames."""
    examples = _examples(evaluation, _TURNED_OBJECTS)
    titles = ("50 inputs", "canonical, same points", "canonical, resampled")
    grid = Grid(len(examples), len(titles))
    for row, index in enumerate(examples):
        panels = [grid.panel(row, column, title if row == 0 else "") for column, title in enumerate(titles)]
        generator = random_stream(evaluation.settings.seed, _STREAM, index)
        clouds = evaluation.dataset.samplings(index, evaluation.settings.points, _ANGLES, generator)
        turns = _full_turn(generator)
        # In the frame in which the object is stored, so that the picture is upright.
        upright = evaluation.model.encode(clouds[0]).pose
        repeated = clouds[:1].expand(_ANGLES, -1, -1)
        _superimpose(panels[0], turns.apply(repeated).numpy(), repeated)
        for panel, given in ((panels[1], repeated), (panels[2], clouds)):
            _superimpose(panel, upright.apply(_canonical(evaluation.model, turns.apply(given))), given)
    return grid.png()


def settings(models: Mapping[str, Model], dataset: PointDataset, points: int, seed: int) -> bytes:
    """One object, its part capsules rotated by 50 angles, superimposed in the canonical frames that each model finds.

    As in the paper (Table 1), every frame is found from a random start of its own.
    """
    index = int(np.flatnonzero(alignment_scope(dataset).aligned)[0])
    generator = random_stream(seed, _STREAM, index)
    cloud = dataset.samplings(index, points, 1, generator)[0]
    turns = _full_turn(generator)
    repeated = cloud.expand(_ANGLES, -1, -1)
    grid = Grid(1, 1 + len(models))
    _superimpose(grid.panel(0, 0, "50 inputs"), turns.apply(repeated).numpy(), repeated)
    for column, (name, model) in enumerate(models.items(), start=1):
        frames = canonical_of_turned_parts(model, cloud, turns, random_stream(seed, _STREAM, index, 1))
        _superimpose(grid.panel(0, column, name), frames.numpy(), repeated)
    return grid.png()


def canonical_of_turned_parts(
    model: Model, cloud: Float[Tensor, "n 3"], turns: Pose, generator: torch.Generator
) -> Float[Tensor, "k n 3"]:
    """A cloud, turned by each of ``turns [k]``, in the canonical frame that is found for its part capsules, turned.

    All are turned back alike, so that the picture is as upright as the cloud.
    """
    one = model.encode(cloud)
    seen = Encodings([one] * turns.shape[0])
    found = turned_parts(model, seen, turns, 1, generator).object.pose
    return one.parse.object.pose.apply(found.observe(turns.apply(model_points(model, seen))))


def errors(evaluation: Evaluation) -> bytes:
    """Histograms of the rotation error under each protocol, for the model and the baselines that align."""
    count = len(evaluation.protocols)
    figure = Figure(figsize=(2.6 * count + 0.6, 2.8), dpi=100, layout="constrained")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    bins = np.linspace(0, 180, 37)
    aligned = evaluation.scope.aligned
    for axes, (protocol, measured) in zip(panels, evaluation.protocols.items(), strict=True):
        methods = {"geocaps": measured} | {
            name: rows[protocol] for name, rows in evaluation.baselines.items() if protocol in rows
        }
        for name, one in methods.items():
            if one.errors is not None:
                share = np.full(int(aligned.sum()), 1 / max(1, aligned.sum()))
                filled = {"histtype": "stepfilled", "alpha": 0.4} if name == "geocaps" else {"histtype": "step"}
                axes.hist(one.errors[aligned] * 180, bins=bins, weights=share, label=name, **filled)
        axes.set_title(protocol, fontsize=9)
        axes.set_xlabel("error, degrees", fontsize=8)
        axes.set_xticks([0, 45, 90, 135, 180])
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("share of objects", fontsize=8)
    panels[-1].legend(fontsize=7)
    return to_png(figure)


def reliability(evaluation: Evaluation) -> bytes:
    """Confidence against the share of right answers, for each protocol; the size of a dot is the number of answers."""
    figure = Figure(figsize=(4.2, 3.8), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1)
    for name, measured in evaluation.protocols.items():
        rows = measured.summary(evaluation.dataset, evaluation.scope).get("reliability", [])
        stated, right = [row["confidence"] for row in rows], [row["right"] for row in rows]
        answers = sum(row["answers"] for row in rows)
        axes.plot(stated, right, linewidth=1, label=name)
        axes.scatter(stated, right, s=[4 + 120 * row["answers"] / answers for row in rows])
    axes.set_xlabel("stated confidence", fontsize=8)
    axes.set_ylabel("share within 15° of the other cloud's answer", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)
    return to_png(figure)


def retrieval(evaluation: Evaluation) -> bytes:
    """Queries, and the nearest objects in the gallery: the same object, the same class, or another class."""
    protocol = "resampled" if "resampled" in evaluation.protocols else next(iter(evaluation.protocols))
    distances = evaluation.protocols[protocol].distances
    assert distances is not None
    labels = evaluation.dataset.labels
    queries = at_most(_EXAMPLES, len(evaluation.dataset)).tolist()
    nearest = min(_NEAREST, len(evaluation.dataset))
    grid = Grid(len(queries), 1 + nearest)
    for row, query in enumerate(queries):
        panel = grid.panel(row, 0, f"query: {_name(evaluation, query)}")
        draw_points(panel, evaluation.pairs.pair(query, protocol).second.numpy())
        for rank, found in enumerate(np.argsort(distances[query], kind="stable")[:nearest].tolist()):
            same_class = labels[found] == labels[query] >= 0
            color = _SAME if found == query else _CLASS if same_class else _OTHER
            title = f"{rank + 1}. {_name(evaluation, found)}{' ✓' if found == query else ''}"
            points = evaluation.dataset.points(found)
            draw_points(grid.panel(row, 1 + rank, title, color), points[at_most(_SHOWN, len(points))])
    return grid.png()


FIGURES: dict[str, tuple[str, Callable[[Evaluation], bytes]]] = {
    "parts": ("Part decompositions: the points of each part, and the surfaces of the part capsules.", parts),
    "reconstructions": (
        "Reconstructions: the input; by the part layer, as points and as surfaces; by the object layer, the same.",
        reconstructions,
    ),
    "canonical": (
        "An object rotated through 50 angles about a random axis, superimposed: as given; in its canonical frame, with "
        "the same points each time; the same with a new sampling each time.",
        canonical,
    ),
    "errors": ("Rotation errors of the objects over which alignment is averaged.", errors),
    "reliability": ("Confidence against the share of right answers; on the grey line it is exact.", reliability),
    "retrieval": (
        "Retrieval: a query, and its nearest objects, shown as they are stored. Green: the same object; blue: the same "
        "class; red: another class.",
        retrieval,
    ),
}


def _examples(evaluation: Evaluation, count: int) -> list[int]:
    places = np.flatnonzero(evaluation.scope.aligned)
    return places[at_most(count, len(places))].tolist()


def _name(evaluation: Evaluation, index: int) -> str:
    label = evaluation.dataset.labels[index]
    # Names in a collection begin alike; their ends are different.
    return evaluation.dataset.class_names[label] if label >= 0 else evaluation.dataset.object_ids[index][-16:]


def _stored(evaluation: Evaluation, index: int) -> Encoding:
    return evaluation.model.encode(evaluation.dataset.points(index))


def _full_turn(generator: torch.Generator) -> Pose:
    """-180° to 180° in 50 steps about one random axis."""
    axis = torch.nn.functional.normalize(torch.randn(3, generator=generator), dim=0)
    half = torch.linspace(-math.pi, math.pi, _ANGLES)[:, None] / 2
    return Pose(torch.zeros(_ANGLES, 3), torch.cat([half.cos(), half.sin() * axis], dim=1))


def _canonical(model: Model, clouds: Float[Tensor, "k n 3"]) -> Float[np.ndarray, "k n 3"]:
    """Each cloud in its canonical frame."""
    return np.stack([one.canonical() for one in encode_all(model, list(clouds)).encodings])


def _superimpose(panel: Scene, clouds: Float[np.ndarray, "k n 3"], colored_by: Float[Tensor, "k n 3"]) -> None:
    """All clouds in one panel; points are coloured by their height on the object, so that flips are visible."""
    height = colored_by[..., 1].flatten().numpy()
    span = max(float(height.max() - height.min()), 1e-9)
    colors = colormaps["viridis"]((height - height.min()) / span)[:, :3]
    points = clouds.reshape(-1, 3)
    # Only one of several points in the same place is drawn: the size of the discs depends on the spacing.
    cells = np.rint(points / (_CELL * np.abs(points).max()))
    kept = np.unique(cells, axis=0, return_index=True)[1]
    draw_points(panel, points[kept], colors[kept])
