"""Choosing points of a cloud, in numpy: an order that depends on the shape alone, and every so many of it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def canonical_order(points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
    """An order of the points that does not depend on the order they came in, nor (but for rounding) on their pose.

    By distance from the centroid; coordinates break ties. Everything after it may sum, sample and break ties in index
    order, and still give the same bits for a permuted cloud and the same choice for a rotated one.
    """
    exact = points.astype(np.float64)
    # A sum over sorted values: np.mean over the given order would already depend on it in the last bit.
    centroid = np.sort(exact, axis=0).mean(axis=0)
    radius = np.linalg.norm(exact - centroid, axis=1)
    # Rounded, so that the rounding of a rotated copy moves few points past each other.
    key = np.round(radius / max(radius.max(), 1e-300), 9)
    order = np.argsort(key)
    ascending = key[order]
    same = ascending[1:] == ascending[:-1]
    tied = np.append(same, False) | np.insert(same, 0, False)
    among = order[tied]
    # The given order decides last, between copies of one point: the first sort was not a stable one.
    order[tied] = among[np.lexsort((among, exact[among, 2], exact[among, 1], exact[among, 0], ascending[tied]))]
    return order


def evenly(count: int, available: int) -> Int[np.ndarray, "count"]:
    """``count`` indices spread evenly over ``available`` ones."""
    return (np.arange(count) * available) // max(count, 1)
