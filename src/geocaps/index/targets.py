"""Objects that a query is laid on: their near points, looked up in one of them or in many at once, and what is left.

Lengths are in radii of the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float32, Float64, Int
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree

from geocaps.apps.align.icp import ahead, dot, step
from geocaps.apps.align.prepare import plane_normals
from geocaps.geometry.similarity import Similarity

_CELLS, _MARGIN = 24, 0.3  # of a table of near points: cells along each side, and room around the object
_NEIGHBOURS = 16
# A point farther from the surface than the reach is unexplained; most of the evidence lies within the width.
REACH, _WIDTH, _PLANE_SHARE = 0.1, 0.02, 0.97


def surface_normals(points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
    near = cKDTree(points).query(points, min(_NEIGHBOURS, len(points)))[1]
    return plane_normals(np.ascontiguousarray(points.T).take(near, axis=1)).T


def evidence(point: Float[np.ndarray, "m"], plane: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Minus the log likelihood of noise with heavy tails, from 0 to 1: small systematic gaps speak, too."""
    blend = _PLANE_SHARE * plane + (1 - _PLANE_SHARE) * point
    return np.where(point < REACH**2, np.log1p(blend / _WIDTH**2) / np.log1p((REACH / _WIDTH) ** 2), 1.0)


@dataclass(frozen=True)
class Target:
    """An object's points and normals, and what finds the near ones."""

    points: Float64[np.ndarray, "n 3"]
    normals: Float64[np.ndarray, "n 3"]

    @cached_property
    def table(self) -> Table:
        return Table.of(self.points)

    @cached_property
    def tree(self) -> cKDTree:
        return cKDTree(self.points)

    @cached_property
    def own_evidence(self) -> Float[np.ndarray, "n"]:
        """What a perfect match would have: of each point against the nearest other one."""
        near = self.tree.query(self.points, min(2, len(self.points)))[1].reshape(len(self.points), -1)[:, -1]
        gap = self.points - self.points[near]
        return evidence((gap**2).sum(axis=1), (gap * self.normals[near]).sum(axis=1) ** 2)

    def partners(self, moved: Float[np.ndarray, "m 3"]) -> Int[np.ndarray, "m"]:
        """The nearest points; what is out of reach has a partner that is, too."""
        return np.minimum(self._nearest(moved, REACH)[1], len(self.points) - 1)

    def residuals(
        self, moved: Float[np.ndarray, "m 3"], unit: float = 1.0
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
        """Square distances to the nearest point and to its plane, times a square unit; the reach where none is near."""
        distance, near = self._nearest(moved, REACH / unit)
        close = np.isfinite(distance)
        point, plane = np.full((2, len(moved)), REACH**2)
        gap = moved[close] - self.points[near[close]]
        point[close] = (unit * distance[close]) ** 2
        plane[close] = (unit * (gap * self.normals[near[close]]).sum(axis=1)) ** 2
        return point, plane

    def _nearest(self, moved: Float[np.ndarray, "m 3"], reach: float) -> tuple[np.ndarray, np.ndarray]:
        # A search that may stop early is much quicker where nothing is near.
        return self.tree.query(moved, distance_upper_bound=reach)


@dataclass(frozen=True)
class Table:
    """For each cell of a grid about an object a near point of it."""

    low: Float64[np.ndarray, "3"]
    cell: float
    near: Int[np.ndarray, "cells"]

    @classmethod
    def of(cls, points: Float[np.ndarray, "n 3"]) -> Table:
        low = points.min(axis=0) - _MARGIN
        cell = float((points.max(axis=0) + _MARGIN - low).max()) / _CELLS
        holder = np.full((_CELLS,) * 3, -1, dtype=np.int16)
        holder[tuple(((points - low) / cell).astype(np.int64).T)] = np.arange(len(points))
        nearest = distance_transform_edt(holder < 0, return_distances=False, return_indices=True)
        return cls(low, cell, holder[tuple(nearest)].reshape(-1))


@dataclass(frozen=True)
class Targets:
    """All candidates of a query, one after the other; float32, as hypotheses are many."""

    points: Float32[np.ndarray, "3 n"]
    normals: Float32[np.ndarray, "3 n"]
    first: Int[np.ndarray, "c"]  # of each candidate's points
    low: Float32[np.ndarray, "3 c"]
    inverse_cell: Float32[np.ndarray, "c"]
    near: Int[np.ndarray, "all_cells"]

    @classmethod
    def of(cls, objects: Sequence[Target]) -> Targets:
        def columns(arrays: list[np.ndarray]) -> Float32[np.ndarray, "3 n"]:
            return np.ascontiguousarray(np.concatenate(arrays).T.astype(np.float32))

        tables = [one.table for one in objects]
        return cls(
            points=columns([one.points for one in objects]),
            normals=columns([one.normals for one in objects]),
            first=np.cumsum([0, *(len(one.points) for one in objects[:-1])]),
            low=np.stack([table.low for table in tables], axis=1).astype(np.float32),
            inverse_cell=np.array([1 / table.cell for table in tables], dtype=np.float32),
            near=np.concatenate([table.near for table in tables]),
        )

    def partners(self, of: Int[np.ndarray, "h"], moved: Float[np.ndarray, "3 h m"]) -> Int[np.ndarray, "h m"]:
        """Indices of points near the moved ones, each among those of its own candidate."""
        place = (moved - self.low[:, of, None]) * self.inverse_cell[of, None]
        x, y, z = np.clip(place, 0, _CELLS - 1, out=place).astype(np.int32)
        cell = (x * _CELLS + y) * _CELLS + z + (of * _CELLS**3).astype(np.int32)[:, None]
        return self.near.take(cell) + self.first[of, None]

    def pairs(
        self, of: Int[np.ndarray, "h"], motions: Similarity, columns: Float32[np.ndarray, "3 m"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The moved points, their partners and the normals there, each ``[3, h, m]``."""
        moved = ahead(motions, columns).astype(np.float32)
        partner = self.partners(of, moved)
        return moved, self.points.take(partner, axis=1), self.normals.take(partner, axis=1)

    def refined(
        self,
        of: Int[np.ndarray, "h"],
        motions: Similarity,
        columns: Float32[np.ndarray, "3 m"],
        reaches: Sequence[float],
    ) -> Similarity:
        """ICP, point to plane, from the query to the objects only."""
        equal = np.ones(columns.shape[1], dtype=np.float32)
        for reach in reaches:
            motions = step(self.pairs(of, motions, columns), equal, motions, reach, False)
        return motions

    def costs(
        self,
        of: Int[np.ndarray, "h"],
        motions: Similarity,
        columns: Float32[np.ndarray, "3 m"],
        reach: float,
        plane_share: float,
    ) -> Float[np.ndarray, "h"]:
        """Truncated square distances: a point without partner counts 1 and no more."""
        moved, partner, normal = self.pairs(of, motions, columns)
        gap = moved - partner
        point = dot(gap, gap)
        blend = plane_share * dot(gap, normal) ** 2 + (1 - plane_share) * point
        return np.where(point < reach**2, blend / reach**2, 1).mean(axis=1)
