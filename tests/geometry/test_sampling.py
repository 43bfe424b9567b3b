"""Choosing points: the order that depends on the shape alone."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from geocaps.geometry.sampling import canonical_order, evenly, not_stray, reduced, thinned


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
        np.random.default_rng(4).normal(size=(40_000, 3)).astype(np.float32),
        np.random.default_rng(5).standard_cauchy(size=(20_000, 3)),
        grid(21),
        np.random.default_rng(6).normal(size=(20_000, 1)) * [1.0, 2.0, 3.0],
        np.ones((9_000, 3)),
    ],
    ids=[
        *("random", "float32", "map", "grid", "repeated", "rounded", "one place", "one point"),
        *("large", "large, strays everywhere", "large grid", "large line", "large, one place"),
    ],
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


@pytest.mark.parametrize("count", [2_048, 20_000])
@pytest.mark.parametrize("along", [[1.0, 1.0, 1.0], [0.0, 2.0, -1.0]])
def test_points_on_a_line_stay_on_it(count, along):
    """Only rounding is left beside it, which is no direction of its own."""
    cloud = np.random.default_rng(0).uniform(-1, 2, size=(count, 1)) ** 3 * along
    found = reduced(cloud, 100)
    assert np.linalg.norm(np.cross(found, along), axis=1).max() < 1e-6
    rotation = Rotation.random(random_state=0).as_matrix()
    np.testing.assert_allclose(reduced(cloud @ rotation.T, 100), found @ rotation.T, atol=1e-6)


def test_the_cloud_given_is_left_as_it_is():
    """Also where its memory already lies as the reduction wants it."""
    cloud = np.asfortranarray(shell(10_000))
    before = cloud.copy()
    reduced(cloud, 1024)
    not_stray(cloud)
    canonical_order(cloud)
    np.testing.assert_array_equal(cloud, before)


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
    """A twentieth of the points at up to thirty radii: none of them is left, and the object is seen as without."""
    stray = np.random.default_rng(1).uniform(-30, 30, size=(2_500, 3))
    cloud = shell(47_500)
    found, without = reduced(np.concatenate([cloud, stray]), 1024), reduced(cloud, 1024)
    assert cKDTree(cloud).query(found)[0].max() < 0.1
    assert cKDTree(found).query(without)[0].max() < 0.15


@pytest.mark.parametrize("far", [[[1e3, 5.0, 5.0]], [[1e9, 0, 0], [1e6, 0, 2e6], [40, 0, 1]], [[1e30, 1e29, 0]]])
def test_few_strays_however_far_change_nothing_in_a_large_cloud(far):
    cloud = shell(20_000)
    points = np.concatenate([cloud, far])
    np.testing.assert_array_equal(reduced(points, 1024), reduced(cloud, 1024))
    assert np.flatnonzero(~not_stray(points)).tolist() == list(range(len(cloud), len(points)))


@pytest.mark.parametrize("half_side", [1.5, 30.0])
def test_the_points_that_a_large_cloud_is_reduced_from_are_those_that_are_not_stray(half_side):
    strays = np.random.default_rng(4).uniform(-half_side, half_side, size=(2_000, 3))
    points = np.concatenate([shell(38_000), strays])
    own = not_stray(points)
    # A single voxel holds everything.
    np.testing.assert_allclose(reduced(points, 1), points[own].mean(axis=0, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("count", [500, 1_024, 5_000, 50_000, 500_000])
def test_points_of_a_cube_around_a_surface_are_stray(count):
    """Most of them: those next to the surface cannot be told. Of the surface, hardly any."""
    cloud = shell(count)
    strays = np.random.default_rng(2).uniform(-1, 1, size=(count // 20, 3)) * 1.5
    points = np.concatenate([cloud, strays])
    own = not_stray(points)
    assert own[:count].mean() > 0.99
    assert own[count:].mean() < 0.3
    found = reduced(points, 400)
    assert len(found) == 400
    radius = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1).max()
    assert np.linalg.norm(found - found.mean(axis=0), axis=1).max() < 1.15 * radius


def test_strays_do_not_move_a_rotated_reduction():
    cloud = np.concatenate([shell(30_000), np.random.default_rng(3).uniform(-2, 2, size=(1_500, 3))]).astype(np.float32)
    found = reduced(cloud, 1024)
    rotation = Rotation.random(random_state=0).as_matrix()
    again = reduced((cloud @ rotation.T).astype(np.float32), 1024) @ rotation
    assert np.median(cKDTree(found).query(again)[0]) < 1e-3


def test_few_points_come_as_they_are_and_others_in_place_of_strays():
    points = shell(100).astype(np.float32)
    points = points[not_stray(points)]
    np.testing.assert_array_equal(reduced(points, 100), points[canonical_order(points)])
    more = np.concatenate([points, [[9.0, 9, 9], [-7, 0, 0]]]).astype(np.float32)
    found = reduced(more, 200)
    assert len(found) == len(more)
    assert {tuple(point) for point in found.tolist()} == {tuple(point) for point in points.astype(float).tolist()}


def test_evenly():
    assert evenly(4, 8).tolist() == [0, 2, 4, 6]
    assert evenly(3, 3).tolist() == [0, 1, 2]
    assert evenly(0, 5).tolist() == []
