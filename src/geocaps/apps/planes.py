"""Large planes of a scan: floors, walls and table tops, found by deterministic RANSAC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64
from scipy.spatial import cKDTree

_SUBSET, _TRIPLES = 2000, 600
_NEAREST = 1.7  # spacings of a grid of points for each distance to the nearest of random ones
_FITS = 6
_EXACT = 0.1
_NOISE = 6.0  # times the usual distance of a plane's points from it: nearer points belong to it


@dataclass(frozen=True)
class Plane:
    """A plane ``normal · x = offset``, and the points on it."""

    normal: Float64[np.ndarray, "3"]
    offset: float
    on: Bool[np.ndarray, "n"]
    extent: Float64[np.ndarray, "2"]
    """Extent of its points along its two axes, without the outermost twentieths."""
    thickness: float
    """Largest distance of its points from it."""

    def height(self, points: Float[np.ndarray, "m 3"]) -> Float64[np.ndarray, "m"]:
        return points @ self.normal - self.offset


def spacing_of(points: Float64[np.ndarray, "n 3"]) -> float:
    """The usual distance between neighbours on the surfaces of a scan."""
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    some = points[np.random.default_rng(0).permutation(len(points))[:500]]
    return float(np.median(tree.query(some, k=2)[0][:, 1])) * _NEAREST


def planes(points: Float64[np.ndarray, "n 3"], tolerance: float, least: float = 0.05) -> Iterator[Plane]:
    """Planes with at least the share ``least`` of the points, the one with most points first.

    ``tolerance`` is the largest distance of points from a plane during the search; the final points of a plane follow
    from their usual distance.
    """
    left = np.arange(len(points))
    while len(left) >= max(least * len(points), 3):
        random = np.random.default_rng(0)
        subset = points[random.choice(left, min(_SUBSET, len(left)), replace=False)]
        first, second, third = subset[random.integers(len(subset), size=(3, _TRIPLES))]
        normal = np.cross(second - first, third - first)
        length = np.linalg.norm(normal, axis=1)
        first, normal = first[length > 0], normal[length > 0] / length[length > 0, None]
        if not len(normal):
            return
        offset = np.einsum("ij,ij->i", normal, first)
        near = np.abs(subset @ normal.T - offset) < tolerance
        best = int(near.sum(axis=0).argmax())
        found = _fitted(points, left, normal[best], float(offset[best]), tolerance)
        if found is None or found.on.sum() < least * len(points):
            return
        yield found
        left = left[~found.on[left]]


def _fitted(
    points: Float64[np.ndarray, "n 3"], left: np.ndarray, normal: np.ndarray, offset: float, tolerance: float
) -> Plane | None:
    center, axes, thickness = np.zeros(3), np.eye(3), tolerance
    # Thinner at each step, down to the noise of its points, because objects on a plane would lift and tilt it.
    for _ in range(_FITS):
        away = np.abs(points[left] @ normal - offset)
        near = points[left[away < thickness]]
        if len(near) < 3:
            return None
        thickness = min(thickness, _noise(away[away < thickness], tolerance))
        center = near.mean(axis=0)
        axes = np.linalg.eigh((near - center).T @ (near - center))[1]
        normal = axes[:, 0]
        offset = float(normal @ center)
    away = np.abs(points[left] @ normal - offset)
    thickness = min(tolerance, _noise(away[away <= thickness], tolerance))
    on = np.zeros(len(points), dtype=bool)
    on[left[away <= thickness]] = True
    along = (points[on] - center) @ axes[:, 1:]
    extent = np.subtract(*np.quantile(along, [0.95, 0.05], axis=0))
    return Plane(normal, offset, on, extent, thickness)


def _noise(away: Float64[np.ndarray, "k"], tolerance: float) -> float:
    """The largest distance of points that belong to a plane, with an allowance for exact planes."""
    return max(_NOISE * float(np.median(away)), _EXACT * tolerance) if len(away) else tolerance
