"""Orientation of objects: like one example (``geocaps.canonical(sources, like=...)``), or upright (``up="z"``).

*Like an example*: every object is compared with it, and with those that it resembles most. Each tie gives the rotation
between two objects, and the example's orientation is propagated along all ties. An object that resembles the example
little is oriented like its neighbours.

*Upright*: up may be one of six directions, both ways along the axes of the object's surface. The support that the
object would have (a wide base under its centre of mass, unlike the top) gives a probability for each, which is often
wrong for a single object. Similar objects stand alike: ties transfer directions from one to the other, so that the
object's kind outweighs its own evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int
from scipy.spatial import ConvexHull, QhullError, cKDTree
from torch import Tensor

from geocaps.apps.encoding import Encoding
from geocaps.errors import InvalidInputError, UsageError
from geocaps.geometry.sampling import reduced
from geocaps.geometry.similarity import Similarity
from geocaps.model.look import CUBE, turn_similarity
from geocaps.model.ties import Ties, synchronised, ties

AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
"""The choices for up in the results."""
_POINTS = 768
_SLAB = 0.06  # of the radius: what is this low supports the object
_STEADY = 0.02  # the centre of mass is at least this far inside the support, in widths of the object
_NEIGHBOURS, _SHARPNESS, _SWEEPS = 12, 12.0, 20
_OWN = 0.4  # weight of an object's own support, relative to its kind
_FLOOR = 0.01  # added to the votes of the kind: a direction without votes is not impossible
_SIX = np.concatenate([np.eye(3), -np.eye(3)])
# fmt: off
WEIGHTS = np.array([
    3.972, 5.005, -10.47, 0.5616, 0.6078, -3.798, -7.397, 47.46, -0.3102, 0.06726, -1.239, 9.681,
    9.575, 0.05944, 1.869, 2.191, 8.453, -120.0, 0.4339, 0.7979, -8.868, -0.1622, -0.6566, -0.7478,
])
# fmt: on
"""Weights of :func:`evidence`, fitted to the embedded objects, whose up is known (``benchmarks/upright.py --fit``)."""


@dataclass(frozen=True)
class Described:
    """The data for orienting an object: its 24 frames, a descriptor for each, and its centre."""

    rotations: Float64[np.ndarray, "24 3 3"]
    descriptor: Tensor  # [24, d]
    center: Float64[np.ndarray, "3"]

    @classmethod
    def of(cls, encoding: Encoding) -> Described:
        frames = encoding.parse.frames
        if frames is None:
            raise InvalidInputError("orientation by an example needs a model with our object layer, not the paper's")
        rotations = frames.pose.rotation_matrix()[0].double().numpy()
        return cls(rotations, frames.descriptor[0], encoding.pose.translation)


@dataclass(frozen=True)
class Oriented:
    """``T_world_object`` of an oriented object, the confidence, and the basis of the orientation."""

    pose: Similarity
    confidence: float
    by: str = "example"


# ── like an example ───────────────────────────────────────────────────────────────────────────────────────────────────


def oriented_like(example: Described, objects: Sequence[Described]) -> list[Oriented]:
    """The orientation of each object that matches the example's, by the votes of its neighbours and the example.

    The confidence is the share of these votes.
    """
    everyone = torch.stack([example.descriptor, *(one.descriptor for one in objects)])
    chance = synchronised(_with_example(ties(everyone), everyone))
    common = int(chance[0].argmax())
    found = []
    for one, row in zip(objects, chance[1:], strict=True):
        frame = int(row.argmax())
        # The object's common frame where the example has its own: in the example's coordinates.
        rotation = one.rotations[frame] @ example.rotations[common].T
        found.append(Oriented(Similarity(rotation, one.center), float(row[frame])))
    return found


def _with_example(tied: Ties, everyone: Tensor) -> Ties:
    """The ties with one more from each object to the example, which may not be among its nearest."""
    similarity, turn = turn_similarity(everyone[1:], everyone[:1].expand(len(everyone) - 1, -1, -1)).max(dim=1)
    nearest = tied.neighbour[0, 0]  # instead of a tie to itself, the example has that to its nearest twice
    columns = (
        (tied.neighbour, np.concatenate([[nearest], np.zeros(len(turn), dtype=np.int64)])),
        (tied.turn, np.concatenate([[tied.turn[0, 0]], turn.numpy()])),
        (tied.similarity, np.concatenate([[tied.similarity[0, 0]], similarity.double().numpy()])),
    )
    return Ties(*(np.column_stack(column) for column in columns))


# ── upright ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Standing:
    """The data for standing an object up."""

    described: Described
    pose: Similarity  # its canonical pose
    log_support: Float64[np.ndarray, "6"]  # log probability of each direction to be up, by the support

    @classmethod
    def of(cls, encoding: Encoding) -> Standing:
        described = Described.of(encoding)
        points = reduced(encoding.cloud.points, _POINTS) - described.center
        points = points / np.linalg.norm(points, axis=1).max()
        score = np.array([evidence(points, up) for up in _SIX @ described.rotations[0].T]) @ WEIGHTS
        return cls(described, encoding.pose, score - np.logaddexp.reduce(score))


def check_axis(up: str) -> None:
    if up not in AXES:
        raise UsageError(f"up must be x, y or z, not {up}")


def stood_up(objects: Sequence[Standing], axis: str) -> list[Oriented]:
    """Each object in its canonical pose, rotated to stand along an axis, by its support and by its kind."""
    together = len(objects) > 1
    log_up = np.stack([one.log_support for one in objects])
    chance = (
        _by_kind(torch.stack([one.described.descriptor for one in objects]), log_up) if together else np.exp(log_up)
    )
    found = []
    for one, row in zip(objects, chance, strict=True):
        best = int(row.argmax())
        up = one.described.rotations[0] @ _SIX[best]
        # The same rotation for all objects whose canonical frames stand alike, so that they keep facing one way.
        turn = _least_turn(np.array(AXES[axis]), _SIX[(_SIX @ (one.pose.rotation.T @ up)).argmax()])
        exact = _least_turn(one.pose.rotation @ turn @ AXES[axis], up)
        pose = Similarity(exact @ one.pose.rotation @ turn, one.pose.translation)
        found.append(Oriented(pose, float(row[best]), "kind" if together else "stability"))
    return found


def evidence(points: Float64[np.ndarray, "n 3"], up: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "24"]:
    """Evidence for a direction to be up: features of the object's support, top, height and symmetry."""
    height = points @ up
    low, high = height.min(), height.max()
    tall = max(float(high - low), 1e-6)
    flat = points @ _beside(up)
    area = max(_area(flat), 1e-6)
    width, middle = np.sqrt(area), flat.mean(axis=0)
    values: list[float] = []
    for slab in (height < low + _SLAB, height > high - _SLAB):
        margin = float(np.clip(_margin(flat[slab], middle) / width, -0.5, 0.5))
        values += [_area(flat[slab]) / area, margin, float(slab.mean())]
    mirrored = points - 2 * np.outer(height - (low + high) / 2, up)
    quarter, three = np.quantile(height, [0.25, 0.75])
    values += [
        float(height.mean() - low) / tall,
        min(float(cKDTree(points).query(mirrored)[0].mean()), 0.3),
        float(np.log(tall / width)),
        float(np.log(max(_area(flat[height < quarter]), 1e-4) / max(_area(flat[height > three]), 1e-4))),
    ]
    base, base_margin, top, top_margin = values[0], values[1], values[3], values[4]
    more = [base * base_margin, top * top_margin, float(base_margin > _STEADY), float(top_margin > _STEADY)]
    return np.array([*values, *np.square(values), *more])


def _by_kind(descriptors: torch.Tensor, log_up: Float64[np.ndarray, "m 6"]) -> Float64[np.ndarray, "m 6"]:
    """Probabilities from each object's own support and its neighbours, by repeated voting."""
    tied = ties(descriptors, _NEIGHBOURS)
    weight = np.exp(_SHARPNESS * (tied.similarity - 1))
    weight /= weight.sum(axis=1, keepdims=True)
    carried = _carried()[tied.turn]
    chance = np.exp(log_up)
    for _ in range(_SWEEPS):
        said = np.take_along_axis(chance[tied.neighbour], carried, axis=2)
        score = _OWN * log_up + np.log((said * weight[..., None]).sum(axis=1) + _FLOOR)
        chance = np.exp(score - np.logaddexp.reduce(score, axis=1, keepdims=True))
    return chance


def _carried() -> Int[np.ndarray, "24 6"]:
    """The neighbour's direction that corresponds to each of an object's six, for each turn between them."""
    turned = np.einsum("gij,sj->gsi", CUBE.double().numpy(), _SIX)
    return (turned @ _SIX.T).argmax(axis=2)


def _least_turn(start: Float64[np.ndarray, "3"], end: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 3"]:
    """The smallest rotation of one unit vector to another; for a half turn, about a fixed axis."""
    cosine = float(start @ end)
    if cosine < -1 + 1e-9:
        beside = _beside(start)[:, 0]
        return 2 * np.outer(beside, beside) - np.eye(3)
    cross = np.cross(start, end)
    matrix = np.array([[0, -cross[2], cross[1]], [cross[2], 0, -cross[0]], [-cross[1], cross[0], 0]])
    return np.eye(3) + matrix + matrix @ matrix / (1 + cosine)


def _beside(up: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 2"]:
    """Two directions orthogonal to up and to each other."""
    first = np.cross(up, np.eye(3)[np.abs(up).argmin()])
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(up, first)], axis=1)


def _area(points: Float64[np.ndarray, "n 2"]) -> float:
    try:
        return float(ConvexHull(points).volume)
    except (QhullError, ValueError):  # fewer than three points, or all on one line
        return 0.0


def _margin(points: Float64[np.ndarray, "n 2"], place: Float64[np.ndarray, "2"]) -> float:
    """Distance of a place inside the convex hull of the points; negative outside."""
    try:
        planes = ConvexHull(points).equations
    except (QhullError, ValueError):
        return -1.0
    return -float((planes[:, :2] @ place + planes[:, 2]).max())
