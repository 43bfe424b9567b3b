"""Choosing points: the order that depends on the shape alone."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from geocaps.geometry.sampling import canonical_order, evenly, reduced, thinned


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
    np.testing.assert_array_equal(shuffled[thinned(shuffled, 7)], points[thinned(points, 7)])
    np.testing.assert_array_equal(reduced(shuffled, 40), reduced(points, 40))
    assert len(reduced(points, 40)) <= 40


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


def test_a_thinned_cloud_is_spread_evenly_over_the_order():
    points = np.random.default_rng(0).normal(size=(1000, 3))
    np.testing.assert_array_equal(thinned(points, 10), canonical_order(points)[::100])
    np.testing.assert_array_equal(thinned(points, 5000), canonical_order(points))


def shell(count, seed=0):
    """A bent ellipsoid without symmetry."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points * [1.0, 0.6, 0.4] + 0.3 * points[:, [1, 2, 0]] ** 2


@pytest.mark.parametrize("count", [2_048, 10_000, 100_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rotated_cloud_gives_the_rotated_reduction(count, dtype):
    """Also where the rotated copy was rounded to float32, as in files."""
    cloud = shell(count).astype(dtype)
    found = reduced(cloud, 1024)
    assert len(found) == 1024
    assert len(np.unique(found, axis=0)) > 950
    for seed in range(3):
        rotation = Rotation.random(random_state=seed).as_matrix()
        rotated = (cloud @ rotation.T).astype(dtype)
        np.testing.assert_allclose(reduced(rotated, 1024), found @ rotation.T, atol=1e-3)


@pytest.mark.parametrize("count", [3_000, 30_000])
def test_reduced_points_are_means_of_voxels(count):
    """They are dense enough to lie near every point, and far enough apart for one of them to a voxel."""
    cloud = shell(count) + 100.0
    found = reduced(cloud, 500)
    assert cKDTree(found).query(cloud)[0].max() < 0.2
    assert cKDTree(cloud).query(found)[0].max() < 0.1
    found = np.unique(found, axis=0)
    spacing = cKDTree(found).query(found, k=2)[0][:, 1]
    assert np.median(spacing) > 0.05, "means of one voxel each keep their distance"


def test_stray_points_leave_the_reduction_of_the_object_fine():
    """Twenty points at up to thirty radii: the object itself is still told apart by hundreds of points."""
    stray = np.random.default_rng(1).uniform(-30, 30, size=(20, 3))
    found = reduced(np.concatenate([shell(50_000), stray]), 1024)
    assert (np.linalg.norm(found, axis=1) < 2).sum() > 500


def test_few_points_come_as_they_are():
    points = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    np.testing.assert_array_equal(reduced(points, 100), points[canonical_order(points)])


def test_evenly():
    assert evenly(4, 8).tolist() == [0, 2, 4, 6]
    assert evenly(3, 3).tolist() == [0, 1, 2]
    assert evenly(0, 5).tolist() == []
