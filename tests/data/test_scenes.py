"""Composed scenes: the same for the same number, and what they say of themselves is true."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from geocaps.data.scenes import FLOOR, NOISE, scene, search_scene


@pytest.fixture(scope="module")
def made():
    return scene(5, points=6000)


def test_a_number_stands_for_one_scene(made):
    again = scene(5, points=6000)
    assert np.array_equal(made.points, again.points)
    assert np.array_equal(made.instance, again.instance)
    assert not np.array_equal(made.points, scene(8, points=6000).points)


def test_points_lie_on_the_object_that_they_belong_to(made):
    assert len(made.points) == len(made.instance) == 6000
    assert 2 <= len(made.members) <= 8
    for place, member in enumerate(made.members):
        own = made.points[made.instance == place]
        surface = member.pose.apply(member.shape.sample(8000, torch.Generator().manual_seed(0)).points.double().numpy())
        assert np.quantile(cKDTree(surface).query(own)[0], 0.99) < 0.1
        assert 0 <= member.visible <= 1
        assert 0 <= member.unhidden <= 1
        assert np.allclose(
            member.model(10), member.pose.scale * member.shape.sample(10, _seed()).points.double().numpy()
        )
    floor = made.points[made.instance == FLOOR]
    thickness = np.linalg.svd(floor - floor.mean(axis=0), compute_uv=False)[2] / np.sqrt(len(floor))
    assert thickness == pytest.approx(NOISE, rel=0.2)


def _seed():
    return torch.Generator().manual_seed(104729)


def test_sensors_stand_where_the_scan_says():
    for number in range(3):
        one = scene(number, points=2000)
        assert len(one.viewers) == 1 + number % 3
        assert np.allclose(one.viewers[0], 0, atol=1e-9)
    assert scene(0, points=2000).points[:, 2].min() > 0


def test_a_known_object_among_others():
    for number in range(4):
        wanted, size, one = search_scene(number, points=2000)
        instances = [member for member in one.members if member.shape is wanted]
        assert len(instances) == number
        assert all(float(member.pose.scale) == size for member in instances)
        assert all(member.shape.class_name != wanted.class_name for member in one.members if member.shape is not wanted)
