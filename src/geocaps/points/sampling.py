"""Choosing points of a cloud, in numpy: an order that depends on the shape alone, and a reduction that follows it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int

_OFF_CENTRE = (0.37, 0.23, 0.11)
"""Where the order is measured from, along three directions that rotate with the cloud: off every axis of symmetry."""
_SAME = 1e-9
"""Squared distances closer than this share are the same but for rounding."""
_STEPS = 2.0**30
"""Whole steps across a cloud: their sum over 2**23 points is exact in float64."""
_BLOCK = 1 << 14
"""Points worked on at a time: what stays in cache is quicker than freshly mapped memory."""


def canonical_order(points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
    """An order of the points that depends neither on the order they came in nor on the cloud's pose.

    By distance from a place that rotates with the cloud and lies off its axes of symmetry: distances from the centroid
    would tie wherever the object is symmetric, and rounding would decide. Everything after it may sum, sample and break
    ties in index order, and still give the same bits for a permuted cloud and the same choice for a rotated one. Only
    an exactly symmetric cloud leaves a choice, among equivalent orders.
    """
    columns = np.ascontiguousarray(points.T, dtype=np.float64)
    key = _square_distance(columns, _off_centre(columns))
    order = np.argsort(key)
    ascending = key[order]
    same = ascending[1:] == ascending[:-1]
    if same.any():
        tied = np.append(same, False) | np.insert(same, 0, False)
        among = order[tied]
        # Coordinates decide, and the given order only between copies of one point.
        x, y, z = columns[:, among]
        order[tied] = among[np.lexsort((among, z, y, x, key[among]))]
    return order


def reduced(points: Float[np.ndarray, "n 3"], count: int) -> Int[np.ndarray, "k"]:
    """At most ``count`` points, spread evenly over :func:`canonical_order`, in that order."""
    return canonical_order(points)[evenly(min(count, len(points)), len(points))]


def evenly(count: int, available: int) -> Int[np.ndarray, "count"]:
    """``count`` indices spread evenly over ``available`` ones."""
    return (np.arange(count) * available) // max(count, 1)


def _off_centre(columns: Float64[np.ndarray, "3 n"]) -> Float64[np.ndarray, "3"]:
    """A place beside the centroid, by way of two of the cloud's own outermost points and what stands on both."""
    centroid = _centroid(columns)
    square = _square_distance(columns, centroid)
    first = columns[:, _farthest(columns, square)] - centroid
    # The farthest point from the axis through the first.
    along = first @ columns - first @ centroid
    second = (
        columns[:, _farthest(columns, square - along**2 / max(first @ first, np.finfo(np.float64).tiny))] - centroid
    )
    third = np.cross(first, second) / max(np.linalg.norm(first), np.finfo(np.float64).tiny)
    return centroid + np.array(_OFF_CENTRE) @ np.stack([first, second, third])


def _centroid(columns: Float64[np.ndarray, "3 n"]) -> Float64[np.ndarray, "3"]:
    """The mean, by sums of whole numbers: the same bits in any order of the points."""
    low = columns.min(axis=1)
    step = max(float((columns.max(axis=1) - low).max()), np.finfo(np.float64).tiny) / _STEPS
    total = np.zeros(3)
    for start in range(0, columns.shape[1], _BLOCK):
        total += np.rint((columns[:, start : start + _BLOCK] - low[:, None]) / step).sum(axis=1)
    return low + step * (total / columns.shape[1])


def _square_distance(columns: Float64[np.ndarray, "3 n"], place: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "n"]:
    square = np.empty(columns.shape[1])
    for start in range(0, len(square), _BLOCK):
        offset = columns[:, start : start + _BLOCK] - place[:, None]
        (offset * offset).sum(axis=0, out=square[start : start + _BLOCK])
    return square


def _farthest(columns: Float64[np.ndarray, "3 n"], square: Float64[np.ndarray, "n"]) -> int:
    """The point of the largest squared distance; of several (within rounding) the one with the largest coordinates."""
    near = np.flatnonzero(square >= (1 - _SAME) * square.max())
    return int(near[np.lexsort(columns[:, near])[-1]])
