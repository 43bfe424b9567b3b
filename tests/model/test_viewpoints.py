import torch

from geocaps.geometry.se3 import Pose
from geocaps.model.viewpoints import axis_rotations, principal_starts, random_starts
from tests.model.conftest import clouds, rotations


def test_axis_rotations_are_the_cubes_group():
    group = axis_rotations()
    assert group.shape == (24, 3, 3)
    assert torch.linalg.det(group).allclose(torch.ones(24))
    assert len({tuple(m.flatten().tolist()) for m in group}) == 24
    products = {tuple((a @ b).flatten().tolist()) for a in group for b in group}
    assert len(products) == 24
    for matrix in group[:4]:
        torch.testing.assert_close(matrix.abs(), torch.eye(3))


def test_four_starts_turn_with_the_cloud():
    points, motion = clouds(5, 200), rotations(5)
    before, after = principal_starts(points, 1.15), principal_starts(motion.apply(points), 1.15)
    assert before.pose.shape == (5, 4)
    assert before.valid.all()
    moved = motion[:, None] @ before.pose
    # As a set: each start of the turned cloud is one of the turned starts.
    angle = after.pose[:, :, None].angle_to(moved[:, None, :])
    assert angle.min(dim=2).values.max() < 2e-3
    assert (angle.argmin(dim=2).sort(dim=1).values == torch.arange(4)).all()


def test_starts_see_the_largest_spread_first():
    starts = principal_starts(clouds(1, 500), 1.15)
    seen = starts.pose[0].observe(clouds(1, 500))
    spread = seen.var(dim=1)
    assert (spread[:, 0] > spread[:, 1]).all()
    assert (spread[:, 1] > spread[:, 2]).all()


def test_tied_variances_give_24_starts():
    cube = torch.cartesian_prod(*[torch.linspace(-1, 1, 5)] * 3)[None]
    square_plate = cube * torch.tensor([1.0, 1.0, 0.1])
    box = cube * torch.tensor([1.0, 0.7, 0.4])
    assert principal_starts(cube, 1.15).valid.sum() == 24
    assert principal_starts(square_plate, 1.15).valid.sum() == 24
    assert principal_starts(box, 1.15).valid.sum() == 4


def test_padding_has_no_probability():
    cube = torch.cartesian_prod(*[torch.linspace(-1, 1, 5)] * 3)[None]
    starts = principal_starts(torch.cat([cube, cube * torch.tensor([1.0, 0.7, 0.4])]), 1.15)
    p = starts.log_probabilities(torch.randn(2, 24)).exp()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(2))
    assert (p[1, 4:] == 0).all()


def test_degenerate_clouds_have_proper_starts():
    for cloud in (torch.zeros(1, 20, 3), torch.linspace(-1, 1, 20)[None, :, None] * torch.tensor([0.0, 1.0, 0.0])):
        rotation = principal_starts(cloud, 1.15).pose.rotation_matrix()
        torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(rotation.shape[:2]))


def test_random_starts_are_the_generators():
    points = clouds(2, 50)
    first = random_starts(points, 3, torch.Generator().manual_seed(0)).pose
    again = random_starts(points, 3, torch.Generator().manual_seed(0)).pose
    assert torch.equal(first.wxyz, again.wxyz)
    assert first.angle_to(Pose.identity()).min() > 0
