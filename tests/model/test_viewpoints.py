"""Where the viewpoints of both object layers start."""

import torch

from geocaps.model.object import SIGNS
from geocaps.model.object_paper import random_starts
from tests.model.conftest import clouds, rotations


def test_signs_are_proper_and_different():
    assert (SIGNS.prod(dim=1) == 1).all()
    assert len({tuple(row) for row in SIGNS.tolist()}) == 4


def test_four_starts_turn_with_the_cloud(tiny):
    points, motion = clouds(5, 200), rotations(5)
    before, after = tiny.object.starts(points), tiny.object.starts(motion.apply(points))
    assert before.shape == (5, 4)
    moved = motion[:, None] @ before
    # As a set: each start of the turned cloud is one of the turned starts.
    angle = after[:, :, None].angle_to(moved[:, None, :])
    assert angle.min(dim=2).values.max() < 2e-3
    assert (angle.argmin(dim=2).sort(dim=1).values == torch.arange(4)).all()


def test_starts_see_the_largest_spread_first(tiny):
    seen = tiny.object.starts(clouds(1, 500))[0].observe(clouds(1, 500))
    spread = seen.var(dim=1)
    assert (spread[:, 0] > spread[:, 1]).all()
    assert (spread[:, 1] > spread[:, 2]).all()


def test_degenerate_clouds_have_proper_starts(tiny):
    for cloud in (torch.zeros(1, 20, 3), torch.linspace(-1, 1, 20)[None, :, None] * torch.tensor([0.0, 1.0, 0.0])):
        rotation = tiny.object.starts(cloud).rotation_matrix()
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
