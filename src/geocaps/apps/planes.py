"""Large planes of a scan: floors, walls and table tops, found by deterministic RANSAC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

_SUBSET, _TRIPLES = 2000, 600
_NOISE = 3.5  # times the usual distance of a plane's points from it: what lies nearer belongs to it


@dataclass(frozen=True)
class Plane:
    """``normal · x = offset``, and which points lie on it."""

    normal: Float64[np.ndarray, "3"]
    offset: float
    on: Bool[np.ndarray, "n"]
    extent: Float64[np.ndarray, "2"]
    """How far its points reach along its two axes, without the outermost twentieths."""
    thickness: float
    """Farthest that a point of it lies from it."""

    def height(self, points: Float64[np.ndarray, "m 3"]) -> Float64[np.ndarray, "m"]:
        return points @ self.normal - self.offset


def planes(points: Float64[np.ndarray, "n 3"], tolerance: float, least: float = 0.05) -> Iterator[Plane]:
    """Planes that hold at least the share ``least`` of the points, the one with most points first.

    ``tolerance`` is how far points may lie from a plane while it is looked for; what belongs to it in the end is told
    by the usual distance of its points.
    """
    left = np.arange(len(points))
    while len(left) >= max(least * len(points), 3):
        random = np.random.default_rng(0)
        subset = points[random.choice(left, min(_SUBSET, len(left)), replace=False)]
        first, second, third = subset[random.integers(len(subset), size=(3, _TRIPLES))]
        normal = np.cross(second - first, third - first)
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
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
    center = np.zeros(3)
    axes = np.eye(3)
    for _ in range(3):
        near = points[left[np.abs(points[left] @ normal - offset) < tolerance]]
        if len(near) < 3:
            return None
        center = near.mean(axis=0)
        axes = np.linalg.eigh((near - center).T @ (near - center))[1]
        normal = axes[:, 0]
        offset = float(normal @ center)
    away = np.abs(points[left] @ normal - offset)
    usual = float(np.median(away[away < tolerance]))
    thickness = min(_NOISE * 1.5 * usual, 2 * tolerance)
    on = np.zeros(len(points), dtype=bool)
    on[left[away <= thickness]] = True
    along = (points[on] - center) @ axes[:, 1:]
    extent = np.subtract(*np.quantile(along, [0.95, 0.05], axis=0))
    return Plane(normal, offset, on, extent, thickness)
