"""Hypotheses of where a model lies in a scan: pairs of oriented points vote (Drost et al. 2010).

What does not depend on the pose (the distance of two points, the angles of their normals with the line between them and
with each other) finds the pairs of the model that a pair of the scan may be. Each votes for the point of the model that
the first point is, and for the turn about its normal. Normals have no sign here: every point of the model stands twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int
from scipy.spatial import cKDTree

_BAND = 0.08, 0.7  # distances of the points of a pair, in diameters of the model
_DISTANCES, _ANGLES, _TURNS = 12, 6, 24  # bins over the band, over a right angle, over a full turn
_MODEL_POINTS = 220  # that pairs are made of
_PARTNERS, _APART = 120, 0.06  # of a point of the scan, and their distance from each other
_COMMON = 150  # pairs of the model that look alike: if more do, they say too little
_MOST_VOTES, _MOST_CELLS = 3_000_000, 7_000_000
_PEAKS = 6  # hypotheses of a point of the scan
_BLOCK = 32


@dataclass(frozen=True)
class _Pairs:
    """Pairs by the number of their first point: the bin of what does not depend on the pose, and the turn."""

    first: Int[np.ndarray, "p"]
    key: Int[np.ndarray, "p"]
    turn: Float64[np.ndarray, "p"]


def hypotheses(
    model: tuple[Float64[np.ndarray, "m 3"], Float64[np.ndarray, "m 3"]],
    scan: tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3"]],
) -> tuple[Float32[np.ndarray, "h 3 3"], Float32[np.ndarray, "h 3"]]:
    """Rotations and translations from the model to the scan; of both come points and normals, in diameters."""
    some = np.random.default_rng(0).permutation(len(model[0]))[:_MODEL_POINTS]
    points, normals = np.tile(model[0][some], (2, 1)), np.concatenate([model[1][some], -model[1][some]])
    own, partner = np.nonzero(~np.tile(np.eye(len(some), dtype=bool), (2, 2))[:, : len(some)])
    frames_m, frames_s = _frames(normals), _frames(scan[1])
    known = _pairs(points, normals, frames_m, own, partner)
    most = max(min(len(scan[0]), _MOST_CELLS // (len(points) * _TURNS)), 1)
    chosen = np.random.default_rng(0).permutation(len(scan[0]))[:most]
    others = one_a_voxel(scan[0], _APART)
    tree = cKDTree(scan[0][others])
    near = tree.query(scan[0][chosen], min(_PARTNERS, len(others)), distance_upper_bound=_BAND[1])[1].reshape(most, -1)
    place, beside = np.nonzero(near < len(others))
    seen = _pairs(*scan, frames_s, chosen[place], others[near[place, beside]])
    rank = np.full(len(scan[0]), -1)
    rank[chosen] = np.arange(most)
    place, peaks = _peaks(known, seen, rank[seen.first], len(points))
    of_scan, (of_model, turn) = chosen[place], np.divmod(peaks, _TURNS)
    angle = (turn + 0.5) * (2 * np.pi / _TURNS)
    about = np.zeros((len(angle), 3, 3))
    about[:, 0, 0] = 1
    about[:, 1, 1] = about[:, 2, 2] = np.cos(angle)
    about[:, 2, 1], about[:, 1, 2] = np.sin(angle), -np.sin(angle)
    rotation = frames_s[of_scan] @ about @ frames_m[of_model].swapaxes(1, 2)
    shift = scan[0][of_scan] - np.einsum("hij,hj->hi", rotation, points[of_model])
    return rotation.astype(np.float32), shift.astype(np.float32)


def one_a_voxel(points: Float64[np.ndarray, "n 3"], size: float) -> Int[np.ndarray, "m"]:
    """The first point of each voxel of a grid."""
    cell = ((points - points.min(axis=0)) / size).astype(np.int64)
    shape = cell.max(axis=0) + 1
    return np.unique((cell[:, 0] * shape[1] + cell[:, 1]) * shape[2] + cell[:, 2], return_index=True)[1]


def _frames(normals: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3 3"]:
    """Columns: the normal and any two directions across it."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    across = np.cross(normals, helper)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return np.stack([normals, across, np.cross(normals, across)], axis=-1)


def _pairs(
    points: np.ndarray, normals: np.ndarray, frames: np.ndarray, first: np.ndarray, second: np.ndarray
) -> _Pairs:
    line = points[second] - points[first]
    distance = np.linalg.norm(line, axis=1)
    low, high = _BAND
    near = np.flatnonzero((distance > low) & (distance < high))
    first, second, distance = first[near], second[near], distance[near]
    local = np.einsum("pi,pij->pj", line[near], frames[first])
    line = line[near] / distance[:, None]
    other = normals[second]
    angles = (
        np.arccos(np.clip(local[:, 0] / distance, -1, 1)),
        np.arccos(np.clip(np.abs(np.einsum("ij,ij->i", other, line)), 0, 1)),
        np.arccos(np.clip(np.abs(np.einsum("ij,ij->i", other, normals[first])), 0, 1)),
    )
    key = ((distance - low) * (_DISTANCES / (high - low))).astype(np.int64)
    for angle, bins in zip(angles, (2 * _ANGLES, _ANGLES, _ANGLES), strict=True):
        key = key * bins + np.minimum((angle * (2 * _ANGLES / np.pi)).astype(np.int64), bins - 1)
    return _Pairs(first, key, np.arctan2(local[:, 2], local[:, 1]))


def _peaks(
    known: _Pairs, seen: _Pairs, rank: Int[np.ndarray, "p"], models: int
) -> tuple[Int[np.ndarray, "h"], Int[np.ndarray, "h"]]:
    """The cells (point of the model, turn) with most votes, of each point of the scan; rare pairs count more.

    ``rank`` is the number of the point of the scan that each of the seen pairs begins with, in ascending order.
    """
    order = np.argsort(known.key, kind="stable")
    ordered = known.key[order]
    start = np.searchsorted(ordered, seen.key)
    count = np.searchsorted(ordered, seen.key, side="right") - start
    asked = np.flatnonzero((count > 0) & (count <= _COMMON))
    excess = count[asked].sum() / _MOST_VOTES
    if excess > 1:
        asked = asked[np.random.default_rng(0).random(len(asked)) < 1 / excess]
    start, count, rank = start[asked], count[asked], rank[asked]
    per_turn = (_TURNS - 1e-9) / (2 * np.pi)  # a whole turn ends in the last bin
    known_turn, seen_turn = (one * per_turn for one in (known.turn[order], seen.turn[asked] + 2 * np.pi))
    cells, known_cell = models * _TURNS, known.first[order] * _TURNS
    places, peaks = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    # Some points of the scan at a time: what stays in cache is quicker.
    first = np.arange(0, int(rank.max(initial=-1)) + 1, _BLOCK)
    edges = [*np.searchsorted(rank, first).tolist(), len(rank)]
    for low, high, least in zip(edges[:-1], edges[1:], first, strict=True):
        each = count[low:high]
        of = np.repeat(np.arange(low, high), each)
        match = np.arange(len(of)) + np.repeat(start[low:high] - np.cumsum(each) + each, each)
        turn = seen_turn[of] - known_turn[match]
        turn[turn >= _TURNS] -= _TURNS
        cell = (rank[of] - least) * cells + known_cell[match] + turn.astype(np.int64)
        votes = np.bincount(cell, (1 / np.sqrt(each))[of - low], _BLOCK * cells).reshape(_BLOCK, cells)
        row = np.arange(_BLOCK)
        for _ in range(_PEAKS):
            best = votes.argmax(axis=1)
            voted = votes[row, best] > 0
            places.append(least + row[voted])
            peaks.append(best[voted])
            votes[row, best] = 0
    return np.concatenate(places), np.concatenate(peaks)
