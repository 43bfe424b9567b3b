"""Makes the pictures of the README and of docs/concepts.md from the shipped weights and embedded objects:
python scripts/make_images.py [FOLDER]. Those of the web page are taken by scripts/view_screenshots.py."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

import geocaps
from geocaps.apps.drawing import (
    BLUE,
    ORANGE,
    STRAY_COLOR,
    Grid,
    draw_points,
    draw_surfaces,
    label_colors,
    part_colors,
)
from geocaps.apps.encoding import Encoding
from geocaps.apps.rendering import Scene
from geocaps.apps.track.files import FROM_SENSOR
from geocaps.data.corruption import crop_half_space, gaussian_noise
from geocaps.data.sequences import sequence_of
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.viewer.session import routing_steps, voting_steps

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FURNITURE = geocaps.datasets.load("furniture")
CHAIR = "armchair"
POINTS = 1024
AXIS_COLORS = np.array([(0.80, 0.20, 0.07), (0.07, 0.47, 0.20), (0.0, 0.33, 0.80)])
COLORS = 200
"""Enough for shaded discs, and a file of a third of the size."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = geocaps.load()
    for name, draw in PICTURES.items():
        shown = Image.open(io.BytesIO(draw(model).png())).convert("RGB")
        shown.quantize(COLORS, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)
        print(f"wrote {folder / name}.png")


# ── the README ────────────────────────────────────────────────────────────────────────────────────────────────────────


def poses(model: geocaps.Model) -> Grid:
    """One chair in five arbitrary poses; below, each brought to its canonical pose on its own."""
    chair = stored(CHAIR)
    turned = Pose.random(5, generator=seeded(7)).apply(chair.expand(5, -1, -1))
    upright = upright_turn(model, chair)
    grid = Grid(2, 5, same_scale=True)
    grid.heading(0, "One chair in five arbitrary poses …")
    grid.heading(1, "… and in its canonical pose, found for each cloud alone")
    for column, cloud in enumerate(turned):
        found = model.encode(cloud)
        colors = label_colors(found.labels, len(found.parts))
        draw_points(grid.panel(0, column), found.cloud.points, colors)
        draw_points(grid.panel(1, column), upright.apply(found.canonical()), colors)
    grid.caption("One colour for each of the 32 parts that it is parsed into, without labels.")
    return grid


def orient(model: geocaps.Model) -> Grid:
    """A folder of chairs, turned like one of them."""
    names = ["oakChair", "plasticChair", "antiqueChair", "chairWithCushion", "osakaChair"]
    clouds = turned_clouds(names, seed=3)
    found = geocaps.canonical(clouds, model, like=stored(CHAIR))
    grid = Grid(2, len(names), same_scale=True)
    for column, (name, one) in enumerate(zip(names, found, strict=True)):
        draw_points(grid.panel(0, column, name), one.given)
        draw_points(grid.panel(1, column), one.points)
    return grid


def align(model: geocaps.Model) -> Grid:
    """70 % of a chair, noisy and turned, laid on the whole."""
    whole, scan = scanned(CHAIR, seed=2)
    found = geocaps.align(scan, whole)
    grid = Grid(1, 3, same_scale=True)
    draw_points(grid.panel(0, 0, "scan"), scan, ORANGE)
    draw_points(grid.panel(0, 1, "model"), whole, BLUE)
    both = grid.panel(0, 2, f"aligned, confidence {found.confidence:.2f}")
    draw_points(both, whole, BLUE)
    draw_points(both, found.apply(scan), ORANGE)
    return grid


def search(model: geocaps.Model) -> Grid:
    """The nearest of 175 embedded objects to a 70 % scan of one of them."""
    _, scan = scanned("plasticChair", seed=5)
    with tempfile.TemporaryDirectory() as folder:
        index = geocaps.Index(Path(folder) / "shapes.lance", model=model)
        index.add(FURNITURE)
        hits = index.search(scan, k=3)
    grid = Grid(1, 4)
    draw_points(grid.panel(0, 0, "scan"), scan, ORANGE)
    for column, hit in enumerate(hits, 1):
        panel = grid.panel(0, column, f"{column}. {hit.name.partition('#')[2]}")
        # Seen as the hit lies in its file: upright.
        draw_points(panel, hit.points)
        draw_points(panel, hit.pose.observe(scan), ORANGE)
    return grid


def transfer(model: geocaps.Model) -> Grid:
    """Legs, seat and back of one chair; the same on others, in other poses."""
    names = ["oakChair", "chairWithCushion", "plasticChair", "antiqueChair"]
    painted = stored("osakaChair").double().numpy()
    labels = np.select([painted[:, 1] > 0.08, painted[:, 1] > -0.14], [2, 1], 0)
    found = geocaps.transfer((painted, labels), turned_clouds(names, seed=11), model)
    grid = Grid(1, 5, same_scale=True)
    draw_points(grid.panel(0, 0, "painted by hand"), painted, part_colors(3)[labels])
    for column, one in enumerate(found, 1):
        draw_points(grid.panel(0, column, names[column - 1]), one.points, part_colors(3)[one.labels])
    return grid


def complete(model: geocaps.Model) -> Grid:
    """What the object capsule makes of a scan of which 30 % is missing, beside the whole."""
    chair = stored("chair2")
    whole = chair.double().numpy()
    scan = crop_half_space(chair, 0.7, seeded(23))[0].double().numpy()
    grid = Grid(1, 3, same_scale=True)
    draw_points(grid.panel(0, 0, "scan"), scan, ORANGE)
    draw_points(grid.panel(0, 1, "completed"), geocaps.complete(scan, model).points)
    draw_points(grid.panel(0, 2, "the whole, never shown"), whole, STRAY_COLOR)
    return grid


def track(model: geocaps.Model) -> Grid:
    """A moving chair behind a passing wall: where its reference is found, hidden parts in grey."""
    made = sequence_of(CHAIR, stored(CHAIR).numpy(), 4, points=700, vanishes=False)
    covered = np.flatnonzero(made.hidden > 0)
    shown = np.linspace(covered[0] - 1, covered[-1] + 1, 5).astype(int).tolist()
    tracker = geocaps.Tracker(made.reference, model=model)
    grid = Grid(1, len(shown), same_scale=True)
    for index in range(shown[0], shown[-1] + 1):
        found = tracker.update(made.frames[index])
        if index in shown:
            panel = grid.panel(0, shown.index(index), f"frame {index}: {made.hidden[index]:.0%} covered")
            colors = np.where(found.parts_visible[:, None], part_colors(len(found.visible)), STRAY_COLOR)
            draw_points(panel, FROM_SENSOR * found.pose.apply(tracker.reference), colors[tracker.part_labels])
            draw_points(panel, FROM_SENSOR * made.frames[index], (0.1, 0.1, 0.1), size=0.6)
    return grid


# ── concepts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def concepts_parts(model: geocaps.Model) -> Grid:
    """Points, their parts, each part capsule's frame, and the surfaces that the capsules fold."""
    found = model.encode(stored(CHAIR))
    points, surface = found.cloud.points, found.reconstruct("parts")
    colors = part_colors(len(surface.points))
    grid = Grid(1, 4, panel=300, same_scale=True)
    draw_points(grid.panel(0, 0, "points"), points)
    draw_points(grid.panel(0, 1, "the part of each point"), points, label_colors(found.labels, len(colors)))
    posed = grid.panel(0, 2, "poses of the part capsules")
    draw_points(posed, points, label_colors(found.labels, len(colors)), pale=True)
    draw_frames(posed, found.parts.pose.matrix(), 0.12 * found.radius)
    draw_surfaces(grid.panel(0, 3, "surfaces they fold"), surface.points, surface.triangles, colors)
    return grid


def concepts_routing(model: geocaps.Model) -> Grid:
    """Algorithm 1: parts start at farthest points and settle, iteration by iteration."""
    points = in_model_frame(model, stored(CHAIR))
    steps = routing_steps(model.network, points.double())
    colors = part_colors(len(steps[0].surfaces))
    triangles = model.encode(points).reconstruct("parts").triangles
    grid = Grid(2, len(steps), panel=300)
    for column, step in enumerate(steps):
        title = "start" if column == 0 else f"iteration {column}"
        draw_points(grid.panel(0, column, title), points.numpy(), colors[step.labels.numpy()])
        draw_surfaces(grid.panel(1, column), step.surfaces.double().numpy(), triangles, colors)
    return grid


def concepts_viewpoints(model: geocaps.Model) -> Grid:
    """Algorithm 2: the starting viewpoints, each with its probability, and where its votes lead."""
    points = in_model_frame(model, stored(CHAIR))
    first, *_, last = voting_steps(model.network, model.encode(points).parse, random=0, seed=0)
    count = min(4, len(first.viewpoints.translation))
    order = range(count) if first.probability is None else first.probability.argsort(descending=True)[:count].tolist()
    grid = Grid(2, count, panel=300)
    for column, start in enumerate(order):
        probability = "" if first.probability is None else f", {float(first.probability[start]):.0%}"
        for row, (step, title) in enumerate(((first, f"start {column + 1}{probability}"), (last, "after the votes"))):
            panel = grid.panel(row, column, title)
            draw_points(panel, points.numpy(), pale=True)
            draw_frames(panel, step.viewpoints[start][None].matrix().numpy(), 0.8)
    grid.caption("Axes of a viewpoint: x red, y green, z blue.")
    return grid


def concepts_canonical(model: geocaps.Model) -> Grid:
    """One object in five poses, in its canonical frames, and the same with other points of its surface each time."""
    turns = Pose.random(5, generator=seeded(7))
    chair = stored(CHAIR)
    some = torch.stack([chair[torch.randperm(len(chair), generator=seeded(at))[:POINTS]] for at in range(5)])
    same, other = turns.apply(some[:1].expand(5, -1, -1)), turns.apply(some)
    upright = upright_turn(model, some[0])
    grid = Grid(3, 5, same_scale=True)
    grid.heading(0, "As it came")
    grid.heading(1, "Canonical, from the same points each time")
    grid.heading(2, "Canonical, from other points of its surface each time")
    for column in range(5):
        for row, found in enumerate((model.encode(same[column]),) * 2 + (model.encode(other[column]),)):
            seen = found.cloud.points if row == 0 else upright.apply(found.canonical())
            draw_points(grid.panel(row, column), seen, label_colors(found.canonical_labels, len(found.parts)))
    return grid


PICTURES: dict[str, Callable[[geocaps.Model], Grid]] = {
    "poses": poses,
    "use_orient": orient,
    "use_align": align,
    "use_search": search,
    "use_transfer": transfer,
    "use_complete": complete,
    "use_track": track,
    "concepts_parts": concepts_parts,
    "concepts_routing": concepts_routing,
    "concepts_viewpoints": concepts_viewpoints,
    "concepts_canonical": concepts_canonical,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stored(name: str) -> Tensor:
    """An embedded object, upright as it is stored."""
    return torch.from_numpy(FURNITURE.points([one.partition("#")[2] for one in FURNITURE.object_ids].index(name)))


def turned_clouds(names: list[str], seed: int) -> list[Float[np.ndarray, "n 3"]]:
    turns = Pose.random(len(names), generator=seeded(seed))
    return [turns[at].apply(stored(name)).double().numpy() for at, name in enumerate(names)]


def scanned(name: str, seed: int) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "m 3"]]:
    """Half of an object's points, and of the others 70 %, on one side of a plane, with noise and turned."""
    generator = seeded(seed)
    points = stored(name)
    order = torch.randperm(len(points), generator=generator)
    scan = gaussian_noise(crop_half_space(points[order[POINTS:]], 0.7, generator)[0], 0.005, generator)
    return points[order[:POINTS]].double().numpy(), Pose.random(generator=generator).apply(scan).double().numpy()


def upright_turn(model: geocaps.Model, cloud: Tensor) -> Similarity:
    """From the canonical frame to that of the object as it is stored: one turn for all, which hides no difference."""
    return model.encode(cloud).pose


def in_model_frame(model: geocaps.Model, points: Tensor) -> Tensor:
    found: Encoding = model.encode(points)
    return model.prepare(found.cloud)[0].float()


def draw_frames(panel: Scene, matrices: Float[np.ndarray, "k 4 4"], length: float) -> None:
    """Each pose as three short lines from its origin: x red, y green, z blue."""
    starts = matrices[:, None, :3, 3]
    ends = starts + length * matrices[:, :3, :3].transpose(0, 2, 1)
    lines = np.stack([np.broadcast_to(starts, ends.shape), ends], axis=2)
    panel.add_lines(lines.reshape(-1, 2, 3), np.tile(AXIS_COLORS, (len(matrices), 1)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
