"""Retrieval without learning: distances from each second view to each first view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from geocaps.evaluation.baselines.classic import PROPER_FLIPS, Cloud, principal_frame
from geocaps.evaluation.baselines.matching import fpfh
from geocaps.geometry.sampling import thinned

CHAMFER_POINTS = 256
D2_POINTS = 512
D2_BINS = 64
D2_REACH = 3.0
"""D2 distances are in units of their mean; three times the mean holds nearly all of them."""

Distances = Float64[np.ndarray, "q g"]


class Posed(NamedTuple):
    """A cloud in its principal frame: its four sign choices one after the other, and a tree of the first."""

    flipped: Cloud
    tree: cKDTree


def posed(points: Cloud) -> Posed:
    points = _fewer(points, CHAMFER_POINTS)
    local = (points - points.mean(axis=0)) @ principal_frame(points)
    return Posed((local @ PROPER_FLIPS).reshape(-1, 3), cKDTree(local))


def posed_chamfer(queries: Sequence[Posed], gallery: Sequence[Posed]) -> Distances:
    """Chamfer distance in the principal frames, the least over the four proper sign choices."""
    found = np.empty((len(queries), len(gallery)))
    for q, g in np.ndindex(found.shape):
        to_gallery = gallery[g].tree.query(queries[q].flipped)[0]
        # A flip is its own inverse, so flipping the gallery's points is flipping the query's.
        to_query = queries[q].tree.query(gallery[g].flipped)[0]
        found[q, g] = (_mean_square(to_gallery) + _mean_square(to_query)).min()
    return found


def d2_histogram(points: Cloud) -> Float64[np.ndarray, "bins"]:
    """The D2 shape distribution (Osada et al. 2002): a histogram of the distances between points."""
    distances = pdist(_fewer(points, D2_POINTS))
    counts = np.histogram(distances / max(distances.mean(), 1e-300), bins=D2_BINS, range=(0, D2_REACH))[0]
    return counts / len(distances)


def mean_fpfh(points: Cloud) -> Float64[np.ndarray, "33"]:
    """The mean FPFH of the points (Open3D)."""
    return fpfh(points).mean(axis=1)


def _fewer(points: Cloud, count: int) -> Cloud:
    """At most ``count`` points, chosen alike for a turned cloud."""
    return points[thinned(points, count)]


def _mean_square(distances: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "4"]:
    return (distances.reshape(len(PROPER_FLIPS), -1) ** 2).mean(axis=1)
