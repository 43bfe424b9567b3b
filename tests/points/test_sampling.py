"""Choosing points: the order that depends on the shape alone."""

import numpy as np
import pytest

from geocaps.points.sampling import canonical_order, evenly


def by_four_keys(points):
    """The definition, taken literally: rounded radius, then x, y, z."""
    exact = points.astype(np.float64)
    centroid = np.sort(exact, axis=0).mean(axis=0)
    radius = np.linalg.norm(exact - centroid, axis=1)
    key = np.round(radius / max(radius.max(), 1e-300), 9)
    return np.lexsort((exact[:, 2], exact[:, 1], exact[:, 0], key))


def grid(side):
    """Full of ties."""
    line = np.arange(side, dtype=np.float64)
    return np.stack(np.meshgrid(line, line, line), axis=-1).reshape(-1, 3)


@pytest.mark.parametrize(
    "points",
    [
        np.random.default_rng(0).normal(size=(5000, 3)),
        np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32),
        np.random.default_rng(2).normal(size=(2000, 3)) + np.array([5e5, 5.4e6, 100]),
        grid(9),
        np.repeat(grid(4), 3, axis=0),
        np.round(np.random.default_rng(3).normal(size=(5000, 3)), 1),
        np.zeros((50, 3)),
        np.ones((1, 3)),
    ],
    ids=["random", "float32", "map", "grid", "repeated", "rounded", "one place", "one point"],
)
def test_the_order_is_that_of_the_four_keys(points):
    shuffled = points[np.random.default_rng(9).permutation(len(points))]
    np.testing.assert_array_equal(canonical_order(shuffled), by_four_keys(shuffled))
    np.testing.assert_array_equal(shuffled[canonical_order(shuffled)], points[canonical_order(points)])


def test_evenly():
    assert evenly(4, 8).tolist() == [0, 2, 4, 6]
    assert evenly(3, 3).tolist() == [0, 1, 2]
    assert evenly(0, 5).tolist() == []
