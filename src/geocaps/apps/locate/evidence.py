"""What a scan says about a place: that there is surface, that it is empty, or nothing, where the scan cannot see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int
from scipy.ndimage import distance_transform_edt

_CELLS = 2_000_000
_HIDING, _DEPTH = 0.04, 0.05  # share of a scan that may lie so far (of its extent) behind others, seen from a viewer
_GRAZING = 0.25  # least cosine between a normal and the line of sight
_PIXELS = 2.5  # width of a pixel of a range image, in spacings of the points that make it


@dataclass(frozen=True)
class Sight:
    """Places as a viewer sees them: their direction, as two angles, and their distance; arrays that broadcast."""

    height: Float[np.ndarray, "*batch"]
    turn: Float[np.ndarray, "*flat"]
    distance: Float[np.ndarray, "*batch"]

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Sight:
        """From coordinates about the viewer; those of a grid need not be written out."""
        # About y: sensors look along z as a rule, and directions along the axis are the crowded ones.
        across = np.sqrt(x * x + z * z)
        return cls(np.arctan2(y, across) + np.pi / 2, np.arctan2(x, z) + np.pi, np.sqrt(across * across + y * y))

    def pixels(self, step: float) -> tuple[Int[np.ndarray, "*batch"], Int[np.ndarray, "*flat"]]:
        return (self.height / step).astype(np.int64), (self.turn / step).astype(np.int64)


@dataclass(frozen=True)
class RangeImage:
    """How far a viewer sees in each direction: the nearest point of each pixel; infinite where none is."""

    viewer: Float64[np.ndarray, "3"]
    step: float
    corner: tuple[int, int]
    """Row and column of the first pixel: only what lies around the points is kept, with an empty border."""
    depth: Float64[np.ndarray, "rows columns"]

    def behind(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n"]:
        """How far each point lies behind what is seen in its direction; NaN where nothing is seen."""
        return self.behind_in(Sight.of(*(points - self.viewer).T))

    def behind_in(self, sight: Sight) -> Float[np.ndarray, "*batch"]:
        row, column = sight.pixels(self.step)
        rows, columns = self.depth.shape
        row = np.clip(row - self.corner[0], 0, rows - 1)
        column = np.clip(column - self.corner[1], 0, columns - 1)
        seen = self.depth.reshape(-1).take(row * columns + column)
        return np.where(np.isfinite(seen), sight.distance - seen, np.nan)


def range_image(points: Float64[np.ndarray, "n 3"], viewer: Float64[np.ndarray, "3"], spacing: float) -> RangeImage:
    """``spacing`` is the usual one of the points on surfaces that face the viewer."""
    return _image(viewer, Sight.of(*(points - viewer).T), spacing)


def _image(viewer: Float64[np.ndarray, "3"], sight: Sight, spacing: float) -> RangeImage:
    step = max(_PIXELS * spacing / max(float(np.median(sight.distance)), 1e-300), 2e-3)
    row, column = sight.pixels(step)
    corner = int(row.min()) - 1, int(column.min()) - 1
    rows, columns = int(row.max()) + 2 - corner[0], int(column.max()) + 2 - corner[1]
    depth = np.full(rows * columns, np.inf)
    np.minimum.at(depth, (row - corner[0]) * columns + column - corner[1], sight.distance)
    return RangeImage(viewer, step, corner, depth.reshape(rows, columns))


def could_see(points: Float64[np.ndarray, "n 3"], image: RangeImage) -> bool:
    """Whether a scan may have been taken from there: hardly any point of it hides another."""
    depth = _DEPTH * float(np.ptp(points, axis=0).max())
    return bool((image.behind(points) > depth).mean() < _HIDING)


@dataclass(frozen=True)
class Surface:
    """Points of a surface that a viewer looks at."""

    sight: Sight
    recession: Float64[np.ndarray, "n"]
    """How much the surface recedes within a pixel one radian wide: so far behind may a point lie that is seen."""
    unhidden: Bool[np.ndarray, "n"]
    """Which of them no other part of the surface hides."""

    @classmethod
    def of(
        cls,
        points: Float64[np.ndarray, "n 3"],
        normals: Float64[np.ndarray, "n 3"],
        viewer: Float64[np.ndarray, "3"],
        spacing: float,
        slack: float,
    ) -> Surface:
        towards = points - viewer
        sight = Sight.of(*towards.T)
        cosine = np.clip(np.abs(np.einsum("ij,ij->i", towards, normals)) / sight.distance, _GRAZING, 1)
        recession = sight.distance * np.sqrt(1 / cosine**2 - 1)
        own = _image(viewer, sight, spacing)
        return cls(sight, recession, own.behind_in(sight) < slack + own.step * recession)


@dataclass(frozen=True)
class Grid:
    """The evidence for surface in each cell: from 1 (on it) over 0 (cannot be seen) to -1 (empty)."""

    origin: Float64[np.ndarray, "3"]
    step: float
    value: Float32[np.ndarray, "x y z"]
    nearest: Int[np.ndarray, "x y z"]
    """The scan's point that is nearest to a cell, of those on its surface."""
    normals: Float32[np.ndarray, "n 3"]
    """Of the scan's points."""

    def score(
        self,
        rotation: Float32[np.ndarray, "h 3 3"],
        translation: Float32[np.ndarray, "h 3"],
        probes: Float32[np.ndarray, "h 3 m"],
        normals: Float32[np.ndarray, "h 3 m"],
    ) -> Float32[np.ndarray, "h"]:
        """The mean over the points of a model in each pose; surface must lie the same way as theirs."""
        x, y, z = self.value.shape
        places = rotation @ probes
        places += (translation - self.origin.astype(np.float32))[:, :, None]
        places *= np.float32(1 / self.step)
        limit = np.array([x, y, z], dtype=np.float32)[:, None] - 1
        np.clip(places, 0, limit, out=places)
        cell = places.astype(np.int32)
        flat = (cell[:, 0] * y + cell[:, 1]) * z + cell[:, 2]
        value = self.value.reshape(-1).take(flat)
        met = self.normals[self.nearest.reshape(-1).take(flat)]
        alike = np.abs(np.einsum("hcm,hmc->hm", rotation @ normals, met))
        return np.where(value > 0, value * np.clip(2 * alike - 1, 0, 1), value).mean(axis=1)


def evidence_grid(
    points: Float64[np.ndarray, "n 3"],
    normals: Float64[np.ndarray, "n 3"],
    ignored: Float64[np.ndarray, "k 3"],
    images: list[RangeImage],
    reach: float,
    margin: float,
) -> Grid:
    """``points`` are surface, which fades over ``reach``; ``ignored`` ones (of planes) neither speak for nor against.

    The border of the grid says nothing.
    """
    low = points.min(axis=0) - margin
    size = points.max(axis=0) + margin - low
    step = max(reach / 1.5, float(np.prod(size) / _CELLS) ** (1 / 3))
    shape = tuple(np.maximum(np.ceil(size / step), 3).astype(np.int64))
    holder = np.full(shape, -1, dtype=np.int32)
    holder[tuple(((points - low) / step).astype(np.int64).T)] = np.arange(len(points), dtype=np.int32)
    x, y, z = distance_transform_edt(holder < 0, return_distances=False, return_indices=True)
    nearest = holder.take((x * shape[1] + y) * shape[2] + z)
    across, deep, high = (np.arange(size, dtype=np.int32) for size in shape)
    square = (x - across[:, None, None]) ** 2 + (y - deep[:, None]) ** 2 + (z - high) ** 2
    value = np.clip(1.5 - np.sqrt(square, dtype=np.float32) * np.float32(step / reach), 0, 1)
    for image in images:
        x, y, z = ((low + step * 0.5 - image.viewer)[:, None] + step * np.arange(max(shape))).astype(np.float32)
        sight = Sight.of(x[: shape[0], None, None], y[: shape[1], None], z[: shape[2]])
        value[(value == 0) & (image.behind_in(sight) < -reach)] = -1
    for axis in range(3):
        edge = np.moveaxis(value, axis, 0)
        edge[0] = edge[-1] = 0
    near = ((ignored - low) / step).astype(np.int64)
    near = near[((near >= 0) & (near < shape)).all(axis=1)]
    near = near[holder[tuple(near.T)] < 0]  # what lies flat on a plane is surface
    value[tuple(near.T)] = np.minimum(value[tuple(near.T)], 0)
    return Grid(low, step, value, nearest, normals.astype(np.float32))
