"""Reduction to fewer points, in numpy: an order that depends on the shape alone, and means of the cloud's own voxels.

Nothing here depends on the order in which the points came, to the last bit: every sum is one of whole numbers. And
nothing depends on the cloud's pose but for rounding: frames come from the cloud's own outermost points.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Float64, Int

_OFF_CENTRE = (0.37, 0.23, 0.11)
"""Where an order is measured from, along three directions that rotate with the cloud: off every axis of symmetry."""
_SAME = 1e-9
"""Squared distances closer than this share are the same but for rounding."""
_STEPS = 2.0**30
"""Whole steps from the centroid to the farthest point: their sum over 2**23 points is exact in float64."""
_BLOCK = 1 << 14
"""Points worked on at a time: what stays in cache is quicker than freshly mapped memory."""
_FINE_POINTS = 1 << 13
"""Larger clouds are gathered in fine voxels first, once, so that the search for the voxels' size is quick."""
_FINE_CELLS = 1 << 18
_FINE_REACH = 3.0
"""Root mean square radii that fine voxels cover; what lies beyond is counted in the outermost ones."""
_FINEST = 2.0**14
_HALVINGS = 12
_TINY = np.finfo(np.float64).tiny

Columns = Float64[np.ndarray, "3 n"]


def canonical_order(points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
    """An order of the points that depends neither on the order they came in nor on the cloud's pose.

    By distance from a place that rotates with the cloud and lies off its axes of symmetry: distances from the centroid
    would tie wherever the object is symmetric, and rounding would decide. Everything after it may sum, sample and break
    ties in index order, and still give the same bits for a permuted cloud and the same choice for a rotated one. Only
    an exactly symmetric cloud leaves a choice, among equivalent orders.
    """
    columns = _columns(points)
    centroid, square = _from_centroid(columns)
    frame = _own_frame(columns, centroid, square)
    key = _square_distance(columns, centroid + np.sqrt(square.max()) * (np.array(_OFF_CENTRE) @ frame))
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


def thinned(points: Float[np.ndarray, "n 3"], count: int) -> Int[np.ndarray, "k"]:
    """The indices of at most ``count`` points, spread evenly over :func:`canonical_order`, in that order."""
    return canonical_order(points)[evenly(min(count, len(points)), len(points))]


def reduced(points: Float[np.ndarray, "n 3"], count: int) -> Float64[np.ndarray, "k 3"]:
    """``count`` points that stand for the cloud: the means of nearly as many voxels, of which a few come twice.

    A cloud of no more than ``count`` points is returned as it is, in canonical order. The voxels lie in the cloud's own
    frame, so a rotated cloud gives the rotated points, to the last digits that the coordinates are stored with: a point
    that rounding moves into the next voxel hardly moves the two means. Linear in the number of points.
    """
    if len(points) <= count:
        return points[canonical_order(points)].astype(np.float64)
    columns = _columns(points)
    centroid, square = _from_centroid(columns)
    frame = _own_frame(columns, centroid, square)
    step = max(np.sqrt(square.max()), _TINY) / _STEPS
    sums = np.empty_like(columns)
    for block in _blocks(columns):
        sums[:, block] = np.rint(frame @ ((columns[:, block] - centroid[:, None]) / step))
    weight = np.ones(len(points))
    if len(points) > _FINE_POINTS:
        reach = _FINE_REACH * np.sqrt(square.mean()) / step
        weight, sums = _gathered(_fine_voxel(sums, reach), weight, sums)
    _, voxel = np.unique(_finest_voxel(sums / weight, count), return_inverse=True)
    weight, sums = _gathered(voxel, weight, sums)
    means = (sums / weight).T * step @ frame + centroid
    # The same number for every large cloud, so that they can be encoded in one batch.
    return means[evenly(count, len(means))]


def evenly(count: int, available: int) -> Int[np.ndarray, "count"]:
    """``count`` indices spread evenly over ``available`` ones."""
    return (np.arange(count) * available) // max(count, 1)


# ── the cloud's own frame ─────────────────────────────────────────────────────────────────────────────────────────────


def _columns(points: Float[np.ndarray, "n 3"]) -> Columns:
    """One contiguous row for each coordinate: numpy is ten times as quick along it."""
    return np.ascontiguousarray(points.T, dtype=np.float64)


def _blocks(columns: Columns) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, columns.shape[1], _BLOCK))


def _from_centroid(columns: Columns) -> tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "n"]]:
    """The mean, by sums of whole numbers, and the squared distance of every point from it."""
    low = columns.min(axis=1)
    step = max(float((columns.max(axis=1) - low).max()), _TINY) / _STEPS
    total = np.zeros(3)
    for block in _blocks(columns):
        total += np.rint((columns[:, block] - low[:, None]) / step).sum(axis=1)
    centroid = low + step * (total / columns.shape[1])
    return centroid, _square_distance(columns, centroid)


def _own_frame(
    columns: Columns, centroid: Float64[np.ndarray, "3"], square: Float64[np.ndarray, "n"]
) -> Float64[np.ndarray, "3 3"]:
    """Rows: to the point farthest from the centroid, to the one farthest from that axis, and their cross product."""
    first = _unit(columns[:, _farthest(columns, square)] - centroid)
    beside = square - (first @ columns - first @ centroid) ** 2
    second = columns[:, _farthest(columns, beside)] - centroid
    second = _unit(second - (second @ first) * first)
    return np.stack([first, second, np.cross(first, second)])


def _unit(vector: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
    return vector / max(float(np.linalg.norm(vector)), _TINY)


def _square_distance(columns: Columns, place: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "n"]:
    square = np.empty(columns.shape[1])
    for block in _blocks(columns):
        offset = columns[:, block] - place[:, None]
        (offset * offset).sum(axis=0, out=square[block])
    return square


def _farthest(columns: Columns, square: Float64[np.ndarray, "n"]) -> int:
    """The point of the largest squared distance; of several (within rounding) the one with the largest coordinates."""
    near = np.flatnonzero(square >= (1 - _SAME) * square.max())
    return int(near[np.lexsort(columns[:, near])[-1]])


# ── voxels ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fine_voxel(places: Columns, reach: float) -> Int[np.ndarray, "n"]:
    """The number of each point's voxel, of about 2**18 that fill the cloud's box."""
    low = np.maximum(places.min(axis=1), -reach)
    extent = np.minimum(places.max(axis=1), reach) - low
    extent = np.maximum(extent, max(extent.max() / 64, _TINY))
    size = np.cbrt(extent.prod() / _FINE_CELLS)
    sides = np.ceil(extent / size).astype(np.int64) + 1
    voxel = np.empty(places.shape[1], dtype=np.int64)
    for block in _blocks(places):
        x, y, z = np.clip((places[:, block] - low[:, None]) / size, 0, sides[:, None] - 1).astype(np.int64)
        voxel[block] = (x * sides[1] + y) * sides[2] + z
    return voxel


def _finest_voxel(places: Columns, count: int) -> Int[np.ndarray, "n"]:
    """The voxel of each point, as a number: of the smallest size at which no more than ``count`` are filled."""
    low, span = places.min(axis=1, keepdims=True), float(np.ptp(places, axis=1).max()) or 1.0

    def voxel(size: float) -> Int[np.ndarray, "n"]:
        x, y, z = ((places - low) / size).astype(np.int64)
        return (x << 42) | (y << 21) | z

    small, large = span / _FINEST, 2 * span
    for _ in range(_HALVINGS):
        middle = np.sqrt(small * large)
        filled = np.sort(voxel(middle))
        if np.count_nonzero(filled[1:] != filled[:-1]) < count:
            large = middle
        else:
            small = middle
    return voxel(large)


def _gathered(
    voxel: Int[np.ndarray, "n"], weight: Float64[np.ndarray, "n"], sums: Columns
) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "3 k"]]:
    """Weights and sums (whole numbers, so exact) of what shares a voxel."""
    total = np.bincount(voxel, weights=weight)
    filled = np.flatnonzero(total)
    return total[filled], np.stack([np.bincount(voxel, weights=row)[filled] for row in sums])
