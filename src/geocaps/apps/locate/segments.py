"""Hypotheses of where a model lies in a scan: what stands alone in the scan is laid on views of the model.

Thin, flat and long objects have hardly any pairs of points that tell more than a plane does, but their outline tells
where they are: the principal axes of a connected piece of the scan are those of what one side of the model shows.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32, Float64, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from geocaps.apps.align.hypotheses import SIGNS
from geocaps.apps.locate.evidence import Surface

_VIEWS, _AWAY = 48, 4.0  # of the model, and how many diameters away their viewers stand
_LEAST = 24  # points of a piece
_UNLIKE = 0.3  # difference of the logarithms of sizes from which a piece is no view of the model


def hypotheses(
    model: Float64[np.ndarray, "m 3"], seen: list[np.ndarray], scan: Float64[np.ndarray, "n 3"], gap: float
) -> tuple[Float32[np.ndarray, "h 3 3"], Float32[np.ndarray, "h 3"]]:
    """Rotations and translations, in diameters of the model; pieces of the scan are ``gap`` apart from each other.

    ``seen`` are the numbers of the points of the model that are seen in each of several views.
    """
    label = components(scan, gap)
    pieces = [scan[label == one] for one in np.flatnonzero(np.bincount(label) >= _LEAST)]
    rotation, shift = [np.empty((0, 3, 3))], [np.empty((0, 3))]
    views = [_axes(model[one]) for one in seen]
    for center, axes, size in map(_axes, pieces):
        for view_center, view_axes, view_size in views:
            if np.abs(np.log(size[1:] / view_size[1:])).max() < _UNLIKE:
                turns = (axes * SIGNS[:, None]) @ view_axes.T
                rotation.append(turns)
                shift.append(center - turns @ view_center)
    return np.concatenate(rotation).astype(np.float32), np.concatenate(shift).astype(np.float32)


def components(points: Float64[np.ndarray, "n 3"], gap: float) -> Int[np.ndarray, "n"]:
    """The number of the connected piece that each point belongs to."""
    pairs = cKDTree(points).query_pairs(gap, output_type="ndarray")
    graph = coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(len(points),) * 2)
    return connected_components(graph, directed=False)[1]


def views(
    model: Float64[np.ndarray, "m 3"], normals: Float64[np.ndarray, "m 3"], spacing: float
) -> tuple[Float64[np.ndarray, "v 3"], list[np.ndarray]]:
    """Directions that are spread evenly over the sphere, and the numbers of the points that are seen from each."""
    height = 1 - (2 * np.arange(_VIEWS) + 1) / _VIEWS
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(_VIEWS)
    wide = np.sqrt(1 - height**2)
    directions = np.stack([wide * np.cos(turn), height, wide * np.sin(turn)], axis=1)
    seen = [Surface.of(model, normals, _AWAY * one, spacing, spacing / 2).unhidden for one in directions]
    return directions, [np.flatnonzero(one) for one in seen]


def _axes(points: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, principal axes as columns (a proper rotation), and sizes along them, least first."""
    center = points.mean(axis=0)
    offset = points - center
    variance, axes = np.linalg.eigh(offset.T @ offset / len(points))
    axes[:, 0] *= np.linalg.det(axes)
    return center, axes, np.sqrt(np.maximum(variance, 1e-12))
