"""Seeded sequences of partial views of a moving object, with the true poses, for evaluating trackers.

The viewer is at the origin. Lengths are in units of the object's radius; its size is its diameter, 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from geocaps.data.corruption import gaussian_noise, visible_from
from geocaps.data.synthetic import CLASS_NAMES, make_shape
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity

Draw = Callable[[int, torch.Generator], Float[Tensor, "n 3"]]
"""Draws new points, at most the given number, of a surface inside the unit sphere."""

FRAMES, NOISE = 60, 0.005
MOST_TURN, MOST_SHIFT = math.radians(10), 0.05 * 2
"""Largest motion from frame to frame; the shift is 5 % of the size."""
MOST_HIDDEN = 0.8
VANISHED = 10
"""Number of frames in which a vanishing object is not seen at all."""
_DISTANCE, _ROOM = 5.0, 1.0  # of the viewer from the middle of the motion, and how far the object leaves it
_DRAWN = 3  # times as many points as a frame shows: less than half of them face the viewer
_REFERENCE = 2048
_STREAM = 7919  # keeps the random streams of objects and of motions apart


@dataclass(frozen=True)
class Sequence:
    """Frames of one moving object, with the truth for each."""

    name: str
    reference: Float64[np.ndarray, "m 3"]
    frames: tuple[Float64[np.ndarray, "_ 3"], ...]
    poses: Similarity
    """``T_frame_reference`` of each frame."""
    hidden: Float64[np.ndarray, "f"]
    """Share of the visible points that is covered: 1 if nothing is seen."""
    vanishes: bool


def sequence(number: int, *, points: int = 1024, vanishes: bool | None = None) -> Sequence:
    """The sequence with this number, of an embedded object, the same on every machine. One in ten vanishes."""
    shape = make_shape(CLASS_NAMES[number % len(CLASS_NAMES)], _STREAM + number)

    def draw(count: int, generator: torch.Generator) -> Float[Tensor, "n 3"]:
        return shape.sample(count, generator).points

    one_in_ten = number % 10 == 9 if vanishes is None else vanishes
    return moving(f"{shape.class_name} {number}", draw, number, points=points, vanishes=one_in_ten)


def sequence_of(
    name: str, cloud: Float[np.ndarray, "n 3"], number: int, *, points: int = 1024, vanishes: bool | None = None
) -> Sequence:
    """The same for a given cloud: half of its points are the reference, and frames are drawn from the others."""
    if len(cloud) < 4:
        raise InvalidInputError(f"{name} has {len(cloud)} points: at least 4 are needed, for a reference and frames")
    center = cloud.mean(axis=0, dtype=np.float64)
    local = (cloud - center) / np.linalg.norm(cloud - center, axis=1).max()
    order = torch.randperm(len(local), generator=torch.Generator().manual_seed(_STREAM + number)).numpy()
    half = len(local) // 2
    own, others = local[order[:half]], torch.from_numpy(local[order[half:]])

    def draw(count: int, generator: torch.Generator) -> Float[Tensor, "n 3"]:
        return others[torch.randperm(len(others), generator=generator)[:count]]

    one_in_ten = number % 10 == 9 if vanishes is None else vanishes
    return moving(name, draw, number, points=points, vanishes=one_in_ten, reference=own)


def moving(
    name: str,
    draw: Draw,
    seed: int,
    *,
    points: int = 1024,
    vanishes: bool = False,
    reference: Float64[np.ndarray, "m 3"] | None = None,
) -> Sequence:
    """An object on a smooth path, seen from one side, covered for a while by a passing wall or gone for ten frames.

    A frame is a new sampling of the surface without its hidden points, with noise. The wall enters on one side of the
    picture and leaves on the other; it covers up to 80 %, in 10 to 15 frames.
    """
    generator = torch.Generator().manual_seed(seed)
    if reference is None:
        reference = draw(_REFERENCE, generator).double().numpy()
    rotation, position = _way(FRAMES, generator)
    covered = _vanishing(FRAMES, generator) if vanishes else _wall(FRAMES, generator)
    across = torch.rand((), generator=generator).item() * 2 * math.pi
    seen, hidden = [], []
    for frame in range(FRAMES):
        sight = -rotation[frame].T @ position[frame]
        local, _ = visible_from(
            draw(_DRAWN * points, generator), torch.from_numpy(sight), max(float(np.linalg.norm(sight)), 1.5)
        )
        kept = local[torch.randperm(len(local), generator=generator)[:points]]
        shown = gaussian_noise(kept, NOISE, generator).double().numpy() @ rotation[frame].T + position[frame]
        start, end = covered[frame]
        # Along a direction in the picture, in the order in which the wall reaches them.
        along = (shown[:, 0] * math.cos(across) + shown[:, 1] * math.sin(across)) / shown[:, 2]
        place = np.argsort(np.argsort(along, kind="stable"), kind="stable") / len(along)
        left = shown[(place < start) | (place >= end)]
        seen.append(left)
        hidden.append(1 - len(left) / len(shown))
    return Sequence(name, reference, tuple(seen), Similarity(rotation, position), np.array(hidden), vanishes)


def _way(frames: int, generator: torch.Generator) -> tuple[Float64[np.ndarray, "f 3 3"], Float64[np.ndarray, "f 3"]]:
    """Rotations and positions: sums of slow waves, scaled so that the fastest frames are within the bounds."""
    turn = _waves(frames, generator)
    speed = (0.3 + 0.7 * torch.rand(2, generator=generator)).tolist()
    turn *= speed[0] * MOST_TURN / np.linalg.norm(turn, axis=1).max()
    place = _waves(frames + 1, generator)
    place *= speed[1] * MOST_SHIFT / np.linalg.norm(np.diff(place, axis=0), axis=1).max()
    place = place[:frames] - place[:frames].mean(axis=0)
    place *= min(1.0, _ROOM / np.abs(place).max())
    start = torch.randn(4, generator=generator, dtype=torch.float64).numpy()
    rotation = [Similarity.from_wxyz(start, np.zeros(3)).rotation]
    for vector in turn[1:]:
        rotation.append(Similarity.from_rotvec(vector).rotation @ rotation[-1])
    return np.stack(rotation), place + np.array([0, 0, _DISTANCE])


def _waves(frames: int, generator: torch.Generator) -> Float64[np.ndarray, "f 3"]:
    """Three waves for each axis, with periods of 40 to 120 frames."""
    rate = 2 * math.pi / (40 + 80 * torch.rand(3, 3, generator=generator, dtype=torch.float64).numpy())
    phase = 2 * math.pi * torch.rand(3, 3, generator=generator, dtype=torch.float64).numpy()
    return np.sin(np.arange(frames)[:, None, None] * rate + phase).sum(axis=-1)


def _wall(frames: int, generator: torch.Generator) -> Float64[np.ndarray, "f 2"]:
    """The covered interval in each frame, as shares of the visible points in the order of the wall."""
    first = _between(frames // 6, frames // 2, generator)
    lasts = _between(10, 15, generator)
    width = 0.5 + (MOST_HIDDEN - 0.5) * torch.rand((), generator=generator).item()
    front = (np.arange(frames) - first + 1) / (lasts + 1) * (1 + width)
    during = (front > 0) & (front < 1 + width)
    return np.where(during[:, None], np.stack([front - width, front], axis=-1), 0.0)


def _vanishing(frames: int, generator: torch.Generator) -> Float64[np.ndarray, "f 2"]:
    first = _between(frames // 6, frames // 2, generator)
    gone = (np.arange(frames) >= first) & (np.arange(frames) < first + VANISHED)
    return np.stack([np.zeros(frames), np.where(gone, 1.0, 0.0)], axis=-1)


def _between(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
