import numpy as np
import pytest
import torch

from geocaps.errors import InvalidInputError
from geocaps.geometry.normalize import normalization
from geocaps.geometry.se3 import Pose


def test_to_the_unit_sphere_and_back():
    points = np.random.default_rng(0).normal(size=(100, 3)) * 40 + [4e5, 5e6, 30]
    own = normalization(points, "a scan")
    local = (points - own.center.numpy()) / own.scale.item()
    assert np.abs(local.mean(axis=0)).max() < 1e-9
    assert np.isclose(np.linalg.norm(local, axis=1).max(), 1)
    back = own.points_to_user(torch.from_numpy(local))
    assert np.abs(back.numpy() - points).max() < 1e-6


def test_poses_scale_their_positions_only():
    points = np.random.default_rng(0).normal(size=(100, 3)) * 7 + 3
    own = normalization(points, "a cloud")
    pose = Pose.random(5, generator=torch.Generator().manual_seed(0))
    pose = Pose(torch.randn(5, 3), pose.wxyz)
    user = own.pose_to_user(pose)
    torch.testing.assert_close(user.translation, pose.translation.double() * own.scale + own.center)
    torch.testing.assert_close(user.rotation_matrix(), pose.rotation_matrix().double(), atol=1e-6, rtol=0)


def test_one_single_point_keeps_its_scale():
    own = normalization(np.full((20, 3), 123456.789), "a dot")
    assert own.scale.item() == 1


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InvalidInputError, match="a giant has coordinates that are"), np.errstate(over="ignore"):
        normalization(np.array([[1e200, 0, 0], [-1e200, 0, 0]]), "a giant")
    with pytest.raises(InvalidInputError, match="a dwarf is too small"):
        normalization(np.array([[1e-200, 0, 0], [-1e-200, 0, 0]]), "a dwarf")
    with pytest.raises(InvalidInputError, match="a gap has coordinates that are NaN"):
        normalization(np.array([[np.nan, 0, 0], [1, 0, 0]]), "a gap")
