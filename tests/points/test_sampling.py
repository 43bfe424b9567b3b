"""Choosing points: the order that depends on the shape alone."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geocaps.points.sampling import canonical_order, evenly, reduced


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
def test_the_order_does_not_depend_on_the_order_given(points):
    shuffled = points[np.random.default_rng(9).permutation(len(points))]
    order = canonical_order(shuffled)
    assert sorted(order) == list(range(len(points)))
    np.testing.assert_array_equal(shuffled[order], points[canonical_order(points)])
    np.testing.assert_array_equal(shuffled[reduced(shuffled, 7)], points[reduced(points, 7)])


@pytest.mark.parametrize("count", [2_048, 10_000, 100_000])
@pytest.mark.parametrize("at", [0.0, 1e4], ids=["at the origin", "far off"])
def test_a_rotated_and_moved_cloud_keeps_its_order(count, at):
    """On what ties most: points of a shape and of its three mirror images, equally far from the centroid."""
    quarter = np.random.default_rng(0).normal(size=(count // 4, 3)) * [1.0, 0.5, 0.2]
    signs = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    # The point farthest from the centroid has no image: the cloud as a whole is not symmetric.
    cloud = np.concatenate([(quarter[:, None] * signs).reshape(-1, 3), [[5.0, 1.0, 0.5], [0.5, 4.0, 1.0]]])
    order = canonical_order(cloud)
    for seed in range(3):
        rotation = Rotation.random(random_state=seed).as_matrix()
        np.testing.assert_array_equal(canonical_order(cloud @ rotation.T + at * rotation[0]), order)


def test_a_reduction_is_spread_evenly_over_the_order():
    points = np.random.default_rng(0).normal(size=(1000, 3))
    np.testing.assert_array_equal(reduced(points, 10), canonical_order(points)[::100])
    np.testing.assert_array_equal(reduced(points, 5000), canonical_order(points))


def test_evenly():
    assert evenly(4, 8).tolist() == [0, 2, 4, 6]
    assert evenly(3, 3).tolist() == [0, 1, 2]
    assert evenly(0, 5).tolist() == []
