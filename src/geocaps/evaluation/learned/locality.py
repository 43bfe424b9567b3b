"""How local the parts of a decomposition are, and whether two samplings of an object are decomposed alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from geocaps.apps.encode import Model
from geocaps.evaluation.learned.point_capsules import PointCapsules
from geocaps.evaluation.metrics import Summary, adjusted_rand_index, means
from geocaps.evaluation.pairs import Pairs
from geocaps.geometry.frames import farthest_points
from geocaps.model.losses import chamfer

_NEIGHBOURS = 8


class Parted(NamedTuple):
    """A decomposed cloud: the part of each point (-1: of none), and what each part decodes to, if it does."""

    labels: Int[np.ndarray, "n"]
    surfaces: Float[np.ndarray, "j m 3"] | None


Parter = Callable[[Float[np.ndarray, "n 3"]], Parted]
"""What decomposes a cloud."""


def of_capsules(model: Model) -> Parter:
    """Our part capsules."""

    def parted(points: Float[np.ndarray, "n 3"]) -> Parted:
        seen = model.encode(points)
        return Parted(seen.labels, seen.reconstruct("parts").points)

    return parted


def of_point_capsules(network: PointCapsules) -> Parter:
    """The latent capsules of a 3D Point Capsule Network: a point belongs to that whose patch is nearest."""

    def parted(points: Float[np.ndarray, "n 3"]) -> Parted:
        patches = network.patches(torch.from_numpy(points).float()[None])[0].double().numpy()
        nearest = cKDTree(patches.reshape(-1, 3)).query(points)[1]
        return Parted(nearest // patches.shape[1], patches)

    return parted


def of_farthest_points(count: int) -> Parter:
    """A partition without learning, for comparison: the nearest of ``count`` farthest points."""

    def parted(points: Float[np.ndarray, "n 3"]) -> Parted:
        centers = points[farthest_points(torch.from_numpy(points)[None], count)[0].numpy()]
        return Parted(cKDTree(centers).query(points)[1], None)

    return parted


def locality(points: Float[np.ndarray, "n 3"], labels: Int[np.ndarray, "n"]) -> dict[str, float]:
    """``parts``: how many have points. ``radius``: the mean distance of a point from the centroid of its part, over
    that from the centroid of the object. ``connected``: the share of points in the largest piece of their part.

    A piece is connected in the graph of the 8 nearest neighbours.
    """
    part = np.unique(labels, return_inverse=True)[1]
    size = np.bincount(part)
    center = np.stack([np.bincount(part, weights=axis) for axis in points.T], axis=1) / size[:, None]
    near = cKDTree(points).query(points, k=_NEIGHBOURS + 1)[1][:, 1:]
    start = np.repeat(np.arange(len(points)), near.shape[1])
    same = part[start] == part[near.ravel()]
    edges = coo_array((np.ones(same.sum()), (start[same], near.ravel()[same])), shape=(len(points), len(points)))
    piece = connected_components(edges, directed=False)[1]
    largest = np.zeros(len(size), dtype=np.int64)
    np.maximum.at(largest, part, np.bincount(piece)[piece])
    return {
        "parts": float(len(size)),
        "radius": _spread(points - center[part]) / _spread(points - points.mean(axis=0)),
        "connected": float(largest.sum() / len(points)),
    }


def surface_radius(surfaces: Float[np.ndarray, "j m 3"], points: Float[np.ndarray, "n 3"]) -> float:
    """The same radius for decoded surfaces, whose points all count alike."""
    own = _spread((surfaces - surfaces.mean(axis=1, keepdims=True)).reshape(-1, 3))
    return own / _spread(points - points.mean(axis=0))


def _spread(offset: Float[np.ndarray, "n 3"]) -> float:
    return float(np.linalg.norm(offset, axis=1).mean())


def measure_parts(parter: Parter, pairs: Pairs, chosen: Sequence[int], *, turned: bool) -> Summary:
    """Locality, agreement between two samplings (adjusted Rand index), and reconstruction (Chamfer), over objects.

    The clouds are those of the protocol ``resampled``, ``turned`` as there or in the stored orientation.
    """
    rows = [_one(parter, pairs, index, turned) for index in chosen]
    return means({name: np.array([row[name] for row in rows]) for name in rows[0]}) | {"objects": len(rows)}


def _one(parter: Parter, pairs: Pairs, index: int, turned: bool) -> dict[str, float]:
    pair, pose = pairs.pair(index, "resampled"), pairs.pose(index)
    upright = [pose.observe(pair.first.double()), (pair.turn @ pose).observe(pair.second.double())]
    given = [pair.first.double(), pair.second.double()] if turned else upright
    first, second = (parter(cloud.numpy()) for cloud in given)
    nearest = cKDTree(upright[0].numpy()).query(upright[1].numpy())[1]
    known = (first.labels[nearest] >= 0) & (second.labels >= 0)
    points, own = given[0].numpy(), first.labels >= 0
    found = locality(points[own], first.labels[own])
    found["agreement"] = adjusted_rand_index(first.labels[nearest][known], second.labels[known])
    if first.surfaces is not None:
        found["surface_radius"] = surface_radius(first.surfaces, points)
        decoded = torch.from_numpy(first.surfaces.reshape(1, -1, 3)).double()
        found["chamfer"] = float(chamfer(given[0][None], decoded))
    return found
