"""Makes the pictures of docs/concepts.md from the shipped weights: python scripts/make_images.py [FOLDER]."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import geocaps
from geocaps.apps.drawing import Grid, draw_points, draw_surfaces, label_colors, part_colors
from geocaps.data.synthetic import Shape, make_shape
from geocaps.geometry.se3 import Pose
from geocaps.viewer.session import routing_steps, voting_steps

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHAIR_SEED = 1
POINTS = 1024
AXIS_COLORS = ("#cc3311", "#117733", "#0055cc")


def main(folder: Path) -> None:
    model = geocaps.load()
    chair = make_shape("chair", CHAIR_SEED)
    for name, grid in (
        ("concepts_parts.png", parts(model, chair)),
        ("concepts_routing.png", routing(model, chair)),
        ("concepts_viewpoints.png", viewpoints(model, chair)),
        ("concepts_canonical.png", canonical(model, chair)),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(grid.png())
        print(f"wrote {folder / name}")


def parts(model: geocaps.Model, chair: Shape) -> Grid:
    """Points, their parts, each part capsule's frame, and the surfaces that the capsules fold."""
    found = model.encode(sampled(chair))
    points, labels = found.cloud.points, found.labels
    surface = found.reconstruct("parts")
    colors = part_colors(len(surface.points))
    paint = label_colors(labels, len(colors))
    grid = Grid(1, 4)
    draw_points(grid.panel(0, 0, "points"), points)
    draw_points(grid.panel(0, 1, "the part of each point"), points, paint, size=4.0)
    posed = grid.panel(0, 2, "poses of the part capsules")
    draw_points(posed, points, paint, size=4.0, alpha=0.3)
    draw_frames(posed, found.parts.pose.matrix(), 0.15 * float(found.normalization.scale))
    draw_surfaces(grid.panel(0, 3, "surfaces they fold"), surface.points, surface.triangles, colors)
    return grid


def routing(model: geocaps.Model, chair: Shape) -> Grid:
    """Algorithm 1: parts start at farthest points and settle, iteration by iteration."""
    points = in_model_frame(model, sampled(chair))
    steps = routing_steps(model.network, points.double())
    colors = part_colors(len(steps[0].surfaces))
    grid = Grid(2, len(steps))
    triangles = model.encode(points).reconstruct("parts").triangles
    for column, step in enumerate(steps):
        title = "start" if column == 0 else f"iteration {column}"
        draw_points(grid.panel(0, column, title), points.numpy(), colors[step.labels.numpy()], size=4.0)
        draw_surfaces(grid.panel(1, column), step.surfaces.numpy(), triangles, colors)
    return grid


def viewpoints(model: geocaps.Model, chair: Shape) -> Grid:
    """Algorithm 2: the starting viewpoints, each with its probability, and where its votes lead."""
    points = in_model_frame(model, sampled(chair))
    first, *_, last = voting_steps(model.network, model.encode(points).parse, random=0, seed=0)
    count = min(4, len(first.viewpoints.translation))
    order = range(count) if first.probability is None else first.probability.argsort(descending=True)[:count].tolist()
    grid = Grid(2, count)
    for column, start in enumerate(order):
        probability = "" if first.probability is None else f", {float(first.probability[start]):.0%}"
        for row, (step, title) in enumerate(((first, f"start {column + 1}{probability}"), (last, "after the votes"))):
            panel = grid.panel(row, column, title)
            draw_points(panel, points.numpy(), size=4.0, alpha=0.4)
            draw_frames(panel, step.viewpoints[start][None].matrix().numpy(), 0.9)
    return grid


def canonical(model: geocaps.Model, chair: Shape) -> Grid:
    """One object in five poses, in its canonical frames, and the same with other points of its surface each time."""
    turns = Pose.random(5, generator=torch.Generator().manual_seed(2))
    same = turns.apply(sampled(chair).expand(5, -1, -1))
    other = turns.apply(torch.stack([sampled(chair, seed) for seed in range(5)]))
    # One turn for all, so that canonical frames are drawn upright: it hides no difference between them.
    upright = model.encode(sampled(chair)).pose
    grid = Grid(3, 5)
    for column in range(5):
        for row, (view, title) in enumerate(
            ((same, "as it came"), (same, "canonical, the same points"), (other, "canonical, other points"))
        ):
            found = model.encode(view[column])
            seen = view[column].double().numpy() if row == 0 else upright.apply(found.canonical())
            colors = label_colors(found.labels, len(found.parts))
            draw_points(grid.panel(row, column, title if column == 0 else ""), seen, colors, size=3.0)
    return grid


def sampled(shape: Shape, seed: int = 0) -> Tensor:
    return shape.sample(POINTS, torch.Generator().manual_seed(seed)).points


def in_model_frame(model: geocaps.Model, points: Tensor) -> Tensor:
    return model.prepare(model.encode(points).cloud)[0].float()


def draw_frames(axes: object, matrices: Float[np.ndarray, "k 4 4"], length: float) -> None:
    """Each pose as three short lines from its origin: x red, y green, z blue."""
    for axis, color in enumerate(AXIS_COLORS):
        for matrix in matrices:
            start = matrix[:3, 3]
            line = np.stack([start, start + length * matrix[:3, axis]])
            # The data's y axis points up, matplotlib's z.
            axes.plot(line[:, 0], -line[:, 2], line[:, 1], color=color, linewidth=1.2)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
