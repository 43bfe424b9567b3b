"""Rooms with embedded furniture, each seen by two spinning LiDARs: seeded pairs of scans of very uneven density.

Lengths are metres, y is up. A scan keeps its scanner's frame, turned at random: a registration knows neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from scipy.spatial import cKDTree

from geocaps.data.synthetic import make_shape
from geocaps.geometry.similarity import Similarity

RINGS, COLUMNS = 64, 1750
"""Rays of a scan: elevations, and azimuths of a whole turn."""
_ELEVATION = np.radians(45.0)
_SECTOR = np.radians(250.0)
"""A scanner sees a part of the turn: whoever carries it stands behind it."""
NOISE = 0.01
OVERLAP = 0.6
"""Share of the surface that both scans of a pair should have seen."""
_APART = (1.2, 3.0)  # between the two scanners
_FURNITURE = {"bed": 1.1, "chair": 0.55, "desk": 0.8, "shelf": 1.0, "sofa": 0.9, "table": 0.8, "toilet": 0.45}
"""Classes of furniture, and the radius of each."""
_PIECES, _BOXES = 7, 3
_DENSE = 40_000  # points that stand for the surface of one piece
_GAP = 0.3  # between things that stand in a room
_SAME = 0.1  # what lies within this distance of a scan was seen by it
_BISECTIONS = 7
_PARALLEL = 1e-12  # a ray's component along an axis is never zero: it would be divided by


@dataclass(frozen=True)
class RoomScans:
    """Two scans of one room, ``T_second_first``, and the share of the surface that both have seen."""

    first: Float64[np.ndarray, "n 3"]
    second: Float64[np.ndarray, "m 3"]
    pose: Similarity
    overlap: float


def room_scans(seed: int) -> RoomScans:
    """The pair of a seed, as near to ``OVERLAP`` as turning one scanner about its axis brings it."""
    rng = np.random.default_rng(seed)
    room = _room(rng, seed)
    places = _scanner_places(room, rng)
    whole = [_scan(room, place, rng) for place in places]
    facing = float(rng.uniform(-np.pi, np.pi))
    first = _sector(whole[0], places[0], facing)
    aside = 0.0
    low, high = 0.0, np.pi
    for _ in range(_BISECTIONS):
        aside = (low + high) / 2
        shared = _shared(first, _sector(whole[1], places[1], facing + aside))
        low, high = (aside, high) if shared > OVERLAP else (low, aside)
    second = _sector(whole[1], places[1], facing + aside)
    frames = [Similarity.from_wxyz(rng.normal(size=4), place) for place in places]
    return RoomScans(
        frames[0].observe(first),
        frames[1].observe(second),
        frames[1].inverse() @ frames[0],
        _shared(first, second),
    )


@dataclass(frozen=True)
class _Room:
    size: Float64[np.ndarray, "3"]  # from the origin
    boxes: Float64[np.ndarray, "b 2 3"]  # lowest and highest corner
    furniture: Float64[np.ndarray, "n 3"]
    standing: Float64[np.ndarray, "k 3"]  # x, z and radius of everything


def _room(rng: np.random.Generator, seed: int) -> _Room:
    size = rng.uniform([5.5, 2.5, 4.5], [8.0, 3.0, 6.5])
    standing: list[tuple[float, float, float]] = []
    boxes, furniture = [_partition(size, rng)], []
    for _ in range(_BOXES):  # cupboards, against a wall
        half = rng.uniform([0.2, 0.4, 0.2], [0.6, 1.1, 0.45])
        x, z = _free(size, float(np.hypot(half[0], half[2])), standing, rng)
        z = half[2] if rng.random() < 0.5 else size[2] - half[2]
        boxes.append(np.array([[x - half[0], 0, z - half[2]], [x + half[0], 2 * half[1], z + half[2]]]))
    for piece in range(_PIECES):
        name = str(rng.choice(list(_FURNITURE)))
        radius = _FURNITURE[name] * rng.uniform(0.85, 1.15)
        generator = torch.Generator().manual_seed(100 * seed + piece)
        points = radius * make_shape(name, 100 * seed + piece).sample(_DENSE, generator).points.double().numpy()
        angle = rng.uniform(-np.pi, np.pi)
        turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
        x, z = _free(size, radius, standing, rng)
        furniture.append(points @ turn.T + [x, -points[:, 1].min(), z])
    placed = np.concatenate(furniture)
    inside = ((placed > 0) & (placed < size)).all(axis=1)
    return _Room(size, np.stack(boxes), placed[inside], np.array(standing))


def _partition(size: Float64[np.ndarray, "3"], rng: np.random.Generator) -> Float64[np.ndarray, "2 3"]:
    """A wall that comes out of a side of the room: without it, an empty room looks the same when turned."""
    at, depth = rng.uniform(0.3, 0.7) * size[0], rng.uniform(0.2, 0.4) * size[2]
    return np.array([[at - 0.06, 0, 0], [at + 0.06, size[1], depth]])


def _free(
    size: Float64[np.ndarray, "3"], radius: float, standing: list[tuple[float, float, float]], rng: np.random.Generator
) -> tuple[float, float]:
    """A place for a thing, as far from the others as one in twenty tries is; it is noted as standing there."""
    tries = rng.uniform([radius, radius], [size[0] - radius, size[2] - radius], size=(20, 2))
    others = np.array(standing).reshape(-1, 3)
    room = (np.linalg.norm(tries[:, None] - others[:, :2], axis=2) - others[:, 2]).min(axis=1, initial=np.inf)
    x, z = tries[int(room.argmax())].tolist()
    standing.append((x, z, radius))
    return x, z


def _scanner_places(room: _Room, rng: np.random.Generator) -> Float64[np.ndarray, "2 3"]:
    """Of many pairs of places at the right distance, the one with the most room around it."""
    margin = 0.5
    tries = rng.uniform([margin, 0.7, margin], room.size - [margin, 0.9, margin], size=(400, 2, 3))
    apart = np.linalg.norm(tries[:, 0] - tries[:, 1], axis=1)
    tries = tries[(apart > _APART[0]) & (apart < _APART[1])]
    away = np.linalg.norm(tries[:, :, None, [0, 2]] - room.standing[:, :2], axis=3) - room.standing[:, 2]
    box = np.maximum(room.boxes[:, 0] - tries[:, :, None], tries[:, :, None] - room.boxes[:, 1]).max(axis=3)
    clear = np.minimum(away.min(axis=(1, 2)), box.min(axis=(1, 2)))
    return tries[int(np.minimum(clear, _GAP).argmax())]


def _scan(room: _Room, place: Float64[np.ndarray, "3"], rng: np.random.Generator) -> Float64[np.ndarray, "n 3"]:
    """What every ray meets first: a wall, a box, or the nearest point of the furniture in its cell of the sphere."""
    elevation = np.linspace(-_ELEVATION, _ELEVATION, RINGS)[:, None]
    azimuth = (2 * np.pi / COLUMNS) * np.arange(COLUMNS) - np.pi
    flat = np.cos(elevation)
    ray = np.stack(
        np.broadcast_arrays(flat * np.cos(azimuth), np.sin(elevation), flat * np.sin(azimuth)), axis=-1
    ).reshape(-1, 3)
    ray = np.where(np.abs(ray) < _PARALLEL, _PARALLEL, ray)
    depth = (np.where(ray > 0, room.size - place, -place) / ray).min(axis=1)
    for low, high in room.boxes:
        ends = (np.stack([low, high]) - place)[:, None] / ray
        enters, leaves = ends.min(axis=0).max(axis=1), ends.max(axis=0).min(axis=1)
        depth = np.where((enters > 0) & (enters < leaves), np.minimum(depth, enters), depth)
    seen = place + depth[:, None] * ray
    offset = room.furniture - place
    far = np.linalg.norm(offset, axis=1)
    ring = np.rint((np.arcsin(offset[:, 1] / far) + _ELEVATION) * (RINGS - 1) / (2 * _ELEVATION)).astype(np.int64)
    column = np.rint((np.arctan2(offset[:, 2], offset[:, 0]) + np.pi) * COLUMNS / (2 * np.pi)).astype(np.int64)
    cell = ring * COLUMNS + column % COLUMNS
    nearest = np.lexsort((far, cell))
    nearest = nearest[(ring[nearest] >= 0) & (ring[nearest] < RINGS)]
    nearest = nearest[np.unique(cell[nearest], return_index=True)[1]]
    nearest = nearest[far[nearest] < depth[cell[nearest]]]
    seen[cell[nearest]] = room.furniture[nearest]
    return seen + NOISE * rng.normal(size=(len(seen), 1)) * ray


def _sector(
    scan: Float64[np.ndarray, "n 3"], place: Float64[np.ndarray, "3"], facing: float
) -> Float64[np.ndarray, "m 3"]:
    azimuth = np.arctan2(scan[:, 2] - place[2], scan[:, 0] - place[0])
    aside = np.abs((azimuth - facing + np.pi) % (2 * np.pi) - np.pi)
    return scan[aside < _SECTOR / 2]


def _shared(first: Float64[np.ndarray, "n 3"], second: Float64[np.ndarray, "m 3"]) -> float:
    """Mean share of each scan's surface (one point a voxel) that the other has seen."""
    thin = []
    for scan in (first, second):
        thin.append(scan[np.unique(np.floor(scan / _SAME).astype(np.int64), axis=0, return_index=True)[1]])
    shares = [
        (cKDTree(other).query(one, distance_upper_bound=_SAME)[0] < _SAME).mean()
        for one, other in ((thin[0], second), (thin[1], first))
    ]
    return float(np.mean(shares))
