"""Input validation: clouds that have no orientation or cannot be measured, and the frame of the others."""

import numpy as np
import pytest
import torch
import trimesh

from geocaps.apps.clouds import as_cloud, normalization, require_extent, to_user
from geocaps.errors import DroppedPointsWarning, InvalidInputError
from geocaps.geometry.se3 import Pose

LINE = np.linspace(0, 1, 60)[:, None] * np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("points", "says"), [(np.ones((100, 3)), "in one place"), (LINE, "on one line")])
def test_clouds_without_orientation_are_named_and_refused(points, says, unit):
    with pytest.raises(InvalidInputError, match=f"rod.ply.*{says}"):
        require_extent(unit * (points + 3), "rod.ply")
    with pytest.raises(InvalidInputError, match=says):
        require_extent((unit * points).astype(np.float32), "rod.ply")


def test_the_origin_is_a_place_too():
    with pytest.raises(InvalidInputError, match="in one place"):
        require_extent(np.zeros((10, 3)), "it")


def test_thin_and_flat_clouds_pass():
    random = np.random.default_rng(0)
    require_extent(LINE + 1e-3 * random.normal(size=LINE.shape), "a rod")
    require_extent(random.normal(size=(30, 3)) * [1, 1, 0], "a sheet")
    require_extent(1e-9 * random.normal(size=(30, 3)), "a speck")
    require_extent(random.normal(size=(30, 3)) + 1e8, "far away")


def test_points_that_are_not_finite_are_refused_or_left_out_whatever_holds_them():
    sound = np.random.default_rng(0).normal(size=(100, 3))
    spoilt = np.vstack([[[np.nan, 0, 0]], sound, [[0, np.inf, 0]]])
    for source in (spoilt, torch.from_numpy(spoilt), spoilt.tolist(), trimesh.PointCloud(spoilt)):
        with pytest.raises(InvalidInputError, match=r"the cloud: 2 of 102 points .*drop_invalid=True"):
            as_cloud(source, 16, "the cloud")
        with pytest.warns(DroppedPointsWarning, match="the cloud: 2 of 102 points"):
            cloud = as_cloud(source, 16, "the cloud", drop_invalid=True)
        np.testing.assert_array_equal(cloud.points, sound)
        assert cloud.dropped == 2
        assert as_cloud(cloud, 16, "again").dropped == 2
    with pytest.warns(DroppedPointsWarning), pytest.raises(InvalidInputError, match="100 points; at least 101"):
        as_cloud(spoilt, 101, "the cloud", drop_invalid=True)
    with pytest.raises(InvalidInputError, match="no valid points"):
        as_cloud(spoilt[:1], 0, "the cloud", drop_invalid=True)


def test_a_mesh_object_is_left_without_its_bad_vertices():
    corners = np.array([[np.nan, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]])
    mesh = trimesh.Trimesh(corners, [[0, 1, 2], [1, 2, 3]], process=False, validate=False)
    with pytest.raises(InvalidInputError, match="1 of 4 points"):
        as_cloud(mesh, 16, "the cloud")
    with pytest.warns(DroppedPointsWarning):
        cloud = as_cloud(mesh, 16, "the cloud", drop_invalid=True)
    np.testing.assert_array_equal(cloud.vertices, corners[1:])
    np.testing.assert_array_equal(cloud.faces, [[0, 1, 2]])
    assert cloud.dropped == 1


# ── the model's frame ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_to_the_unit_sphere_and_back():
    points = np.random.default_rng(0).normal(size=(100, 3)) * 40 + [4e5, 5e6, 30]
    own = normalization(points, "a scan")
    local = (points - own.translation) / own.scale
    assert np.abs(local.mean(axis=0)).max() < 1e-9
    assert np.isclose(np.linalg.norm(local, axis=1).max(), 1)
    assert np.abs(own.apply(local) - points).max() < 1e-6


def test_poses_scale_their_positions_only():
    own = normalization(np.random.default_rng(0).normal(size=(100, 3)) * 7 + 3, "a cloud")
    pose = Pose.random(5, generator=torch.Generator().manual_seed(0))
    pose = Pose(torch.randn(5, 3), pose.wxyz)
    user = to_user(pose, own)
    np.testing.assert_allclose(user.translation, own.apply(pose.translation.numpy()))
    np.testing.assert_allclose(user.rotation, pose.rotation_matrix().double().numpy(), atol=1e-6)


def test_one_single_point_keeps_its_scale():
    assert normalization(np.full((20, 3), 123456.789), "a dot").scale == 1


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InvalidInputError, match="a giant has coordinates that are"), np.errstate(over="ignore"):
        normalization(np.array([[1e200, 0, 0], [-1e200, 0, 0]]), "a giant")
    with pytest.raises(InvalidInputError, match="a dwarf is too small"):
        normalization(np.array([[1e-200, 0, 0], [-1e-200, 0, 0]]), "a dwarf")
    with pytest.raises(InvalidInputError, match="a gap has coordinates that are NaN"):
        normalization(np.array([[np.nan, 0, 0], [1, 0, 0]]), "a gap")
