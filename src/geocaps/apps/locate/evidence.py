"""What a scan says about a place: that there is surface, that it is empty, or nothing, where the scan cannot see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int
from scipy.ndimage import distance_transform_edt

_CELLS = 2_000_000
_HIDING, _DEPTH = 0.04, 0.05  # share of a scan that may lie so far (of its extent) behind others, seen from a viewer
_GRAZING = 0.25  # least cosine between a normal and the line of sight
_PIXELS = 2.5  # width of a pixel of a range image, in spacings of the points that make it


@dataclass(frozen=True)
class RangeImage:
    """How far a viewer sees in each direction: the nearest point of each pixel; infinite where none is."""

    viewer: Float64[np.ndarray, "3"]
    step: float
    depth: Float64[np.ndarray, "pixels"]

    def behind(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n"]:
        """How far each point lies behind what is seen in its direction; NaN where nothing is seen."""
        pixel, distance = _pixels(points - self.viewer, self.step)
        seen = self.depth[pixel]
        return np.where(np.isfinite(seen), distance - seen, np.nan)

    def slope(
        self, points: Float64[np.ndarray, "n 3"], normals: Float64[np.ndarray, "n 3"]
    ) -> Float64[np.ndarray, "n"]:
        """How much a surface recedes within a pixel: so far behind may a point lie that is seen."""
        sight = points - self.viewer
        distance = np.linalg.norm(sight, axis=1)
        cosine = np.clip(np.abs(np.einsum("ij,ij->i", sight, normals)) / distance, _GRAZING, 1)
        return self.step * distance * np.sqrt(1 / cosine**2 - 1)


def range_image(points: Float64[np.ndarray, "n 3"], viewer: Float64[np.ndarray, "3"], spacing: float) -> RangeImage:
    """``spacing`` is the usual one of the points on surfaces that face the viewer."""
    away = float(np.median(np.linalg.norm(points - viewer, axis=1)))
    step = max(_PIXELS * spacing / max(away, 1e-300), 2e-3)
    pixel, distance = _pixels(points - viewer, step)
    rows, columns = _shape(step)
    depth = np.full(rows * columns, np.inf)
    order = np.argsort(-distance, kind="stable")  # the nearest is written last
    depth[pixel[order]] = distance[order]
    return RangeImage(viewer, step, depth)


def could_see(points: Float64[np.ndarray, "n 3"], image: RangeImage) -> bool:
    """Whether a scan may have been taken from there: hardly any point of it hides another."""
    depth = _DEPTH * float(np.ptp(points, axis=0).max())
    return bool((image.behind(points) > depth).mean() < _HIDING)


def _shape(step: float) -> tuple[int, int]:
    return int(np.pi / step) + 1, int(2 * np.pi / step) + 1


def _pixels(sight: Float64[np.ndarray, "n 3"], step: float) -> tuple[Int[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    distance = np.linalg.norm(sight, axis=1)
    # About y: sensors look along z as a rule, and directions along the axis are the crowded ones.
    turn = np.arctan2(sight[:, 0], sight[:, 2]) + np.pi
    height = np.arcsin(np.clip(sight[:, 1] / np.maximum(distance, 1e-300), -1, 1)) + np.pi / 2
    return (height / step).astype(np.int64) * _shape(step)[1] + (turn / step).astype(np.int64), distance


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
        probes: Float32[np.ndarray, "m 3"],
        normals: Float32[np.ndarray, "m 3"] | None = None,
    ) -> Float32[np.ndarray, "h"]:
        """The mean over the points of a model in each pose; with ``normals``, surface must lie the same way."""
        x, y, z = self.value.shape
        places = (rotation.reshape(-1, 3) @ probes.T).reshape(len(rotation), 3, -1)
        places += (translation - self.origin.astype(np.float32))[:, :, None]
        places *= np.float32(1 / self.step)
        limit = np.array([x, y, z], dtype=np.float32)[:, None] - 1
        np.clip(places, 0, limit, out=places)
        cell = places.astype(np.int32)
        flat = (cell[:, 0] * y + cell[:, 1]) * z + cell[:, 2]
        value = self.value.reshape(-1).take(flat)
        if normals is not None:
            turned = (rotation.reshape(-1, 3) @ normals.T).reshape(len(rotation), 3, -1)
            met = self.normals[self.nearest.reshape(-1).take(flat)]
            alike = np.abs(np.einsum("hcm,hmc->hm", turned, met))
            value = np.where(value > 0, value * np.clip(2 * alike - 1, 0, 1), value)
        return value.mean(axis=1)


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
    distance, cells = distance_transform_edt(holder < 0, return_indices=True)
    nearest = holder[tuple(cells)]
    value = np.clip(1.5 - distance * (step / reach), 0, 1).astype(np.float32)
    if images:
        unknown = np.flatnonzero(value.reshape(-1) == 0)
        centers = np.stack(np.unravel_index(unknown, shape), axis=1)
        free = _free(low + step * (centers + 0.5), images, reach)
        value.reshape(-1)[unknown[free]] = -1
    for axis in range(3):
        edge = np.moveaxis(value, axis, 0)
        edge[0] = edge[-1] = 0
    near = ((ignored - low) / step).astype(np.int64)
    near = near[((near >= 0) & (near < shape)).all(axis=1)]
    near = near[holder[tuple(near.T)] < 0]  # what lies flat on a plane is surface
    value[tuple(near.T)] = np.minimum(value[tuple(near.T)], 0)
    return Grid(low, step, value, nearest, normals.astype(np.float32))


def _free(places: Float64[np.ndarray, "n 3"], images: list[RangeImage], reach: float) -> Bool[np.ndarray, "n"]:
    """Whether some viewer sees through a place."""
    free = np.zeros(len(places), dtype=bool)
    for image in images:
        free |= image.behind(places) < -reach  # False for NaN
    return free
