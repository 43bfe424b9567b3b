"""Retrieval without learning: distances from each second view to each first view."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, pdist

from geocaps.evaluation.baselines.classic import PROPER_FLIPS, Cloud, principal_frame
from geocaps.evaluation.baselines.matching import fpfh
from geocaps.points.sampling import canonical_order, evenly

CHAMFER_POINTS = 256
D2_POINTS = 512
D2_BINS = 64
D2_REACH = 3.0
"""D2 distances are in units of their mean; three times the mean holds nearly all of them."""

Distances = Float64[np.ndarray, "q g"]


def pca_chamfer(queries: Sequence[Cloud], gallery: Sequence[Cloud]) -> Distances:
    """Chamfer distance in the principal frames, the least over the four proper sign choices."""
    posed = [[_principal(points) for points in clouds] for clouds in (queries, gallery)]
    trees = [[cKDTree(points) for points in clouds] for clouds in posed]
    flipped = [[(points @ PROPER_FLIPS).reshape(-1, 3) for points in clouds] for clouds in posed]
    found = np.empty((len(queries), len(gallery)))
    for q, g in np.ndindex(found.shape):
        to_gallery = trees[1][g].query(flipped[0][q])[0]
        # A flip is its own inverse, so flipping the gallery's points is flipping the query's.
        to_query = trees[0][q].query(flipped[1][g])[0]
        found[q, g] = (_mean_square(to_gallery) + _mean_square(to_query)).min()
    return found


def d2(queries: Sequence[Cloud], gallery: Sequence[Cloud]) -> Distances:
    """L2 between D2 shape distributions (Osada et al. 2002): histograms of the distances between points."""
    return cdist([_d2_histogram(points) for points in queries], [_d2_histogram(points) for points in gallery])


def fpfh_mean(queries: Sequence[Cloud], gallery: Sequence[Cloud]) -> Distances:
    """L2 between the mean FPFH of the clouds (Open3D)."""
    return cdist([fpfh(points).mean(axis=1) for points in queries], [fpfh(points).mean(axis=1) for points in gallery])


def _principal(points: Cloud) -> Cloud:
    points = _fewer(points, CHAMFER_POINTS)
    return (points - points.mean(axis=0)) @ principal_frame(points)


def _d2_histogram(points: Cloud) -> Float64[np.ndarray, "bins"]:
    distances = pdist(_fewer(points, D2_POINTS))
    counts = np.histogram(distances / max(distances.mean(), 1e-300), bins=D2_BINS, range=(0, D2_REACH))[0]
    return counts / len(distances)


def _fewer(points: Cloud, count: int) -> Cloud:
    """At most ``count`` points, chosen alike for a turned cloud."""
    points = points[canonical_order(points)]
    return points[evenly(min(count, len(points)), len(points))]


def _mean_square(distances: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "4"]:
    return (distances.reshape(len(PROPER_FLIPS), -1) ** 2).mean(axis=1)
