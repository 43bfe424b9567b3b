"""Composed scenes, seeded, with the truth about every point: for measuring how scans are parsed and objects located.

Embedded objects stand or lie on a floor, some against each other, and are scanned from one to three sides. A scan is in
the coordinates of its first sensor, which stands at the origin and looks along z. Lengths: objects have a radius of
about 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from scipy.spatial import cKDTree

from geocaps.data.synthetic import CLASS_NAMES, Shape, make_shape
from geocaps.geometry.similarity import Similarity

FLOOR = -1
"""The instance of a point that belongs to no object."""
NOISE = 0.005
_UPRIGHT = 0.65  # share of the objects that stand; the others lie on a side
_TOUCHING = 0.4  # share of the objects after the first that are pushed against an earlier one
_APART = 0.12  # least distance of objects that do not touch
_CONTACT = 0.02
_SIZES = 0.7, 1.2
_MARGIN = 0.8  # of floor around the objects
_OUTLINE = 1500  # points that stand for an object while it is placed
_DENSE = 5  # samples of all surfaces for each point of the scan: most of them are hidden
_PIXEL = 2.5  # width of a sensor's pixel, in spacings of the samples
_TRIES = 60
_STREAM = 104729  # keeps the random streams of scenes and of objects apart


@dataclass(frozen=True)
class Member:
    """One object of a scene."""

    shape: Shape
    pose: Similarity
    """``T_scan_object``, with the scale."""
    visible: float
    """Share of the whole surface that is seen."""
    unhidden: float
    """Share of what would be seen, were it alone, that is seen."""

    def model(self, points: int = 4096) -> Float64[np.ndarray, "n 3"]:
        """The whole surface in the object's own frame, in the units of the scan: as a user has it."""
        drawn = self.shape.sample(points, torch.Generator().manual_seed(_STREAM)).points.double().numpy()
        return float(self.pose.scale) * drawn


@dataclass(frozen=True)
class Scene:
    """A scan, and what is true of it."""

    points: Float64[np.ndarray, "n 3"]
    instance: Int[np.ndarray, "n"]
    """The object that each point belongs to; -1 for the floor."""
    members: tuple[Member, ...]
    viewers: Float64[np.ndarray, "v 3"]
    """Where the sensors stand; the first at the origin."""


def scene(number: int, *, points: int = 40000) -> Scene:
    """The scene of a number: two to eight objects, seen from one to three sides; the same on every machine."""
    generator = torch.Generator().manual_seed(_STREAM + number)
    shapes = furnishings()
    count = 2 + int(torch.randint(7, (), generator=generator))
    drawn = [shapes[int(one)] for one in torch.randint(len(shapes), (count,), generator=generator)]
    return compose(drawn, generator, points=points, views=1 + number % 3)


def furnishings() -> tuple[Shape, ...]:
    """The generator's catalogue: two objects of each embedded class."""
    return tuple(make_shape(name, seed) for name in CLASS_NAMES for seed in (0, 1))


def search_scene(number: int, *, points: int = 100000) -> tuple[Shape, float, Scene]:
    """A known object, its size, and a scan from one side with up to three instances of it among other objects.

    One scene in four has none. The others are of other classes.
    """
    generator = torch.Generator().manual_seed(2 * _STREAM + number)
    wanted = make_shape(CLASS_NAMES[number % len(CLASS_NAMES)], number)
    instances = number % 4
    others = [name for name in CLASS_NAMES if name != wanted.class_name]
    clutter = 5 + int(torch.randint(6, (), generator=generator))
    drawn = [
        make_shape(others[int(one)], number * 31 + place)
        for place, one in enumerate(torch.randint(len(others), (clutter,), generator=generator))
    ]
    order = torch.randperm(instances + clutter, generator=generator).tolist()
    size = _between(*_SIZES, generator)
    shapes = [[*[wanted] * instances, *drawn][place] for place in order]
    return wanted, size, compose(shapes, generator, points=points, views=1, sizes={id(wanted): size})


def compose(
    shapes: Sequence[Shape],
    generator: torch.Generator,
    *,
    points: int,
    views: int = 1,
    sizes: dict[int, float] | None = None,
) -> Scene:
    """Objects put down one after the other, scanned; ``sizes`` are those of shapes (by ``id``) that are not drawn."""
    poses: list[Similarity] = []
    outlines: list[np.ndarray] = []
    for shape in shapes:
        size = (sizes or {}).get(id(shape)) or _between(*_SIZES, generator)
        local = size * shape.sample(_OUTLINE, generator).points.double().numpy()
        turn = _resting(generator)
        shift = _place(local @ turn.T, outlines, generator)
        outlines.append(local @ turn.T + shift)
        poses.append(Similarity(turn, shift, size))
    middle, reach = _extent(outlines)
    floor = reach + _MARGIN
    surfaces = [
        (shape, pose, float(pose.scale) ** 2 * float(shape.surface.areas.sum()))
        for shape, pose in zip(shapes, poses, strict=True)
    ]
    density = _DENSE * points / (math.pi * floor**2 + sum(area for *_, area in surfaces))
    cloud, normals, instance = _sampled(surfaces, density, middle, floor, generator)
    viewers = _viewers(middle, reach, views, generator)
    pixel = _PIXEL / math.sqrt(density)
    seen = np.zeros(len(cloud), dtype=bool)
    alone = np.zeros(len(cloud), dtype=bool)
    for viewer in viewers:
        step = pixel / float(np.linalg.norm(middle - viewer))
        seen |= _seen(cloud, normals, viewer, step, 4 * pixel)
        for place in range(len(shapes)):
            own = np.flatnonzero(instance == place)
            alone[own] |= _seen(cloud[own], normals[own], viewer, step, 4 * pixel)
    kept = np.flatnonzero(seen)
    kept = kept[np.sort(torch.randperm(len(kept), generator=generator)[:points].numpy())]
    noise = NOISE * torch.randn((len(kept), 3), generator=generator, dtype=torch.float64).numpy()
    sensor = _sensor(viewers[0], middle)
    members = []
    for place, (shape, pose) in enumerate(zip(shapes, poses, strict=True)):
        own = instance == place
        shown = float((seen & own).sum())
        members.append(
            Member(shape, sensor @ pose, shown / float(own.sum()), shown / max(float((alone & own).sum()), 1))
        )
    return Scene(sensor.apply(cloud[kept] + noise), instance[kept], tuple(members), sensor.apply(viewers))


# ── putting objects down: z is up, the floor is at 0 ──────────────────────────────────────────────────────────────────


def _resting(generator: torch.Generator) -> Float64[np.ndarray, "3 3"]:
    """Upright (y of the object is up) or lying on one of four sides, turned about the vertical."""
    upright = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    if _between(0.0, 1.0, generator) > _UPRIGHT:
        side = int(torch.randint(4, (), generator=generator))
        upright = _about(0 if side < 2 else 1, math.pi / 2 * (1 - 2 * (side % 2))) @ upright
    return _about(2, _between(0.0, 2 * math.pi, generator)) @ upright


def _place(
    local: Float64[np.ndarray, "n 3"], others: list[np.ndarray], generator: torch.Generator
) -> Float64[np.ndarray, "3"]:
    """Where an object goes: somewhere near that is free, or against one of the others."""
    down = np.array([0, 0, -local[:, 2].min()])
    if not others:
        return down - [*local[:, :2].mean(axis=0), 0]
    standing = cKDTree(np.concatenate(others))
    touching = _between(0.0, 1.0, generator) < _TOUCHING
    target = others[int(torch.randint(len(others), (), generator=generator))]
    gap = _CONTACT if touching else _APART
    for attempt in range(_TRIES):
        angle = _between(0.0, 2 * math.pi, generator)
        towards = np.array([math.cos(angle), math.sin(angle), 0.0])
        start = down + np.array([*(target[:, :2].mean(axis=0) - local[:, :2].mean(axis=0)), 0])
        # From outside inwards: the last place that is free.
        steps = np.arange(4.5, 0.0, -0.02) if touching or attempt > _TRIES // 2 else [_between(1.2, 3.0, generator)]
        last = None
        for step in steps:
            shift = start + step * towards
            if float(standing.query(local + shift, distance_upper_bound=gap)[0].min()) <= gap:
                break
            last = shift
        if last is not None:
            return last
    raise AssertionError("an object outside all others is free")


def _extent(outlines: list[np.ndarray]) -> tuple[Float64[np.ndarray, "3"], float]:
    """Middle of what stands on the floor, at half its height, and how far it reaches."""
    low, high = (of(np.concatenate(outlines), axis=0) for of in (np.min, np.max))
    middle = (low + high) / 2
    reach = max(float(np.linalg.norm((one - middle)[:, :2], axis=1).max()) for one in outlines)
    return middle, reach


# ── what sensors see of it ────────────────────────────────────────────────────────────────────────────────────────────


def _sampled(
    surfaces: list[tuple[Shape, Similarity, float]],
    density: float,
    middle: Float64[np.ndarray, "3"],
    floor: float,
    generator: torch.Generator,
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
    """Points, normals and instances of all surfaces, equally dense."""
    count = round(density * math.pi * floor**2)
    radius = floor * np.sqrt(torch.rand(count, generator=generator, dtype=torch.float64).numpy())
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64).numpy()
    flat = np.stack([np.cos(angle), np.sin(angle), np.zeros(len(angle))], axis=1) * radius[:, None]
    clouds, normals = [flat + np.array([middle[0], middle[1], 0])], [np.broadcast_to([0.0, 0, 1], flat.shape)]
    instance = [np.full(len(flat), FLOOR)]
    for place, (shape, pose, area) in enumerate(surfaces):
        drawn = shape.sample(max(round(density * area), 1), generator)
        clouds.append(pose.apply(drawn.points.double().numpy()))
        normals.append(drawn.normals.double().numpy() @ pose.rotation.T)
        instance.append(np.full(len(clouds[-1]), place))
    return np.concatenate(clouds), np.concatenate(normals), np.concatenate(instance)


def _viewers(
    middle: Float64[np.ndarray, "3"], reach: float, views: int, generator: torch.Generator
) -> Float64[np.ndarray, "v 3"]:
    """Sensors 70° and more apart, which look down by 20° to 50°."""
    first = _between(0.0, 2 * math.pi, generator)
    places = []
    for view in range(views):
        turn = first + view * _between(math.radians(70), math.radians(140), generator)
        height = _between(math.radians(20), math.radians(50), generator)
        away = (1.5 + _between(1.0, 2.0, generator)) * max(reach, 1.0)
        direction = [math.cos(turn) * math.cos(height), math.sin(turn) * math.cos(height), math.sin(height)]
        places.append(middle + away * np.array(direction))
    return np.array(places)


def _seen(
    cloud: Float64[np.ndarray, "n 3"],
    normals: Float64[np.ndarray, "n 3"],
    viewer: Float64[np.ndarray, "3"],
    step: float,
    slope: float,
) -> Bool[np.ndarray, "n"]:
    """Faces the viewer, and is the nearest in its pixel (``step`` radians wide) to within the slope of a surface."""
    sight = cloud - viewer
    depth = np.linalg.norm(sight, axis=1)
    column = ((np.arctan2(sight[:, 1], sight[:, 0]) + math.pi) / step).astype(np.int64)
    row = ((np.arcsin(sight[:, 2] / depth) + math.pi / 2) / step).astype(np.int64)
    cell = row * (int(2 * math.pi / step) + 1) + column
    facing = np.einsum("ij,ij->i", sight, normals) < 0
    nearest = np.full(int(cell.max()) + 1, np.inf)
    np.minimum.at(nearest, cell[facing], depth[facing])
    return facing & (depth <= nearest[cell] + slope)


def _sensor(viewer: Float64[np.ndarray, "3"], target: Float64[np.ndarray, "3"]) -> Similarity:
    """From the room to the sensor's coordinates: x to the right, y down, z ahead."""
    ahead = (target - viewer) / np.linalg.norm(target - viewer)
    right = np.cross(ahead, [0.0, 0, 1])
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(ahead, right), ahead])
    return Similarity(rotation, -rotation @ viewer)


def _about(axis: int, angle: float) -> Float64[np.ndarray, "3 3"]:
    half = np.zeros(4)
    half[0], half[1 + axis] = math.cos(angle / 2), math.sin(angle / 2)
    return Similarity.from_wxyz(half, np.zeros(3)).rotation


def _between(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()
