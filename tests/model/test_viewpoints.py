"""Where the viewpoints of both object layers start."""

import torch

from geocaps.model.look import Shown
from geocaps.model.object_paper import random_starts
from tests.model.conftest import clouds, rotations


def shown(points):
    return Shown(points, torch.full(points.shape[:2], 1 / points.shape[1]))


def test_24_starts_turn_with_the_object(tiny):
    points, motion = clouds(5, 200), rotations(5)
    before, after = tiny.object.starts(shown(points)), tiny.object.starts(shown(motion.apply(points)))
    assert before.pose.shape == (5, 24)
    moved = motion[:, None] @ before.pose
    # As a set: each start of the turned cloud is one of the turned starts.
    angle = after.pose[:, :, None].angle_to(moved[:, None, :])
    assert angle.min(dim=2).values.max() < 2e-3
    assert (angle.argmin(dim=2).sort(dim=1).values == torch.arange(24)).all()


def test_the_first_start_sees_the_largest_spread_first(tiny):
    points = clouds(3, 500)
    spread = tiny.object.starts(shown(points)).observe(points)[:, 0].var(dim=1)
    assert (spread[:, 0] > spread[:, 1]).all()
    assert (spread[:, 1] > spread[:, 2]).all()


def test_starts_follow_the_weights_not_the_points(tiny):
    """Points of weight 0 (of parts that nothing is routed to) move neither axes nor centre."""
    points = clouds(2, 300)
    more = torch.cat([points, torch.full((2, 50, 3), 9.0)], dim=1)
    weight = torch.cat([torch.full((2, 300), 1 / 300), torch.zeros(2, 50)], dim=1)
    found, expected = tiny.object.starts(Shown(more, weight)), tiny.object.starts(shown(points))
    torch.testing.assert_close(found.pose.translation, expected.pose.translation)
    assert found.pose.angle_to(expected.pose).max() < 1e-3


def test_degenerate_clouds_have_proper_starts(tiny):
    for cloud in (torch.zeros(1, 20, 3), torch.linspace(-1, 1, 20)[None, :, None] * torch.tensor([0.0, 1.0, 0.0])):
        rotation = tiny.object.starts(shown(cloud)).pose.rotation_matrix()
        torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(rotation.shape[:2]))


def test_random_starts_are_the_generators(tiny_paper):
    points = clouds(2, 50)
    first = random_starts(points, 3, torch.Generator().manual_seed(0))
    again = random_starts(points, 3, torch.Generator().manual_seed(0))
    other = random_starts(points, 3, torch.Generator().manual_seed(1))
    assert (first.wxyz == again.wxyz).all()
    assert (first.wxyz != other.wxyz).any()
    one = random_starts(points, 1, torch.Generator().manual_seed(0))
    assert (tiny_paper.object.starts(points).wxyz == one.wxyz).all(), "without a generator always the same"
    torch.testing.assert_close(first.translation, points.mean(dim=1, keepdim=True).expand(-1, 3, -1))
