"""What a viewpoint sees, against its definition written out point by point."""

import itertools

import torch

from geocaps.geometry.se3 import Pose
from geocaps.model.look import (
    CUBE,
    SIDE,
    Look,
    Shown,
    Viewpoints,
    occupancy,
    seen_from,
    turned_grids,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def literal_occupancy(points, weight):
    """For every node: the sum over the points inside of the product of (1 - distance in cells), where positive."""
    nodes = torch.linspace(-1, 1, SIDE, dtype=points.dtype)
    grid = torch.zeros(SIDE, SIDE, SIDE, dtype=points.dtype)
    for point, share in zip(points, weight, strict=True):
        for value in point:  # fades along the last 16th of the way to a side, and ends there
            share = share * min(1.0, max(0.0, float(SIDE * (1 - value.abs()))))
        near = [(1 - (value - nodes).abs() * (SIDE - 1) / 2).clamp(min=0) for value in point]
        for i, j, k in itertools.product(*(line.nonzero().flatten().tolist() for line in near)):
            grid[i, j, k] += share * near[0][i] * near[1][j] * near[2][k]
    return 64 * grid


def test_occupancy_equals_the_definition():
    points = 1.2 * (2 * torch.rand(2, 30, 3, generator=generator()).double() - 1)
    weight = torch.rand(2, 30, generator=generator(1)).double()
    expected = torch.stack([literal_occupancy(*one) for one in zip(points, weight, strict=True)])
    torch.testing.assert_close(occupancy(points, weight), expected)
    inside, outside = (points.abs() < 1 - 1 / SIDE).all(dim=-1), (points.abs() > 1).any(dim=-1)
    assert inside.any(dim=1).all()
    assert outside.any(dim=1).all()
    for places, seen in ((inside, weight), (outside, 0 * weight)):
        found = occupancy(points, weight * places).sum((1, 2, 3))
        torch.testing.assert_close(found, 64 * (seen * places).sum(dim=1))


def test_a_point_of_weight_0_is_not_there():
    points = torch.rand(1, 30, 3, generator=generator()) - 0.5
    weight = torch.full((1, 30), 1 / 20) * (torch.arange(30) < 20)
    torch.testing.assert_close(occupancy(points, weight), occupancy(points[:, :20], weight[:, :20]))


def test_the_cube_has_24_proper_rotations_and_the_first_is_the_identity():
    rotations = CUBE
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(24))
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3).expand(24, 3, 3))
    assert len({tuple(rotation.flatten().tolist()) for rotation in rotations}) == len(CUBE) == 24
    assert (rotations[0] == torch.eye(3)).all()


def test_turned_grids_are_what_the_turned_viewpoints_see():
    """One grid, transposed and flipped, against counting again from each of the 24 viewpoints."""
    points = 0.5 * torch.randn(2, 50, 3, generator=generator()).double().clamp(-1.8, 1.8)
    weight = torch.full((2, 50), 1 / 50).double()
    counted = [occupancy(points @ rotation.double(), weight) for rotation in CUBE]
    torch.testing.assert_close(turned_grids(occupancy(points, weight)), torch.stack(counted, dim=1))


def test_viewpoints_see_in_units_of_their_width():
    pose = Pose(torch.tensor([[[1.0, 2, 3]]]), Pose.random(1, 1, generator=generator()).wxyz)
    local = torch.tensor([[0.5, -0.5, 0.25]])
    placed = pose[0, 0].apply(2 * local)[None]
    torch.testing.assert_close(Viewpoints(pose, torch.tensor([[2.0]])).observe(placed)[0, 0], local)


def test_what_is_seen_is_nearly_the_root_of_what_is_there():
    points, weight = torch.rand(1, 40, 3, generator=generator()) - 0.5, torch.full((1, 40), 1 / 40)
    viewpoints = Viewpoints(Pose.random(1, 2, generator=generator(1)), torch.tensor([[1.0, 0.5]]))
    grids = seen_from(Shown(points, weight), viewpoints)
    for k in range(2):
        local = viewpoints.pose[0, k].observe(points[0]) / viewpoints.width[0, k]
        torch.testing.assert_close(grids[0, k], 4 * ((occupancy(local, weight[0]) + 1e-4).sqrt() - 1e-2))


def test_a_look_equals_its_patches_one_by_one():
    torch.manual_seed(0)
    look = Look(width=7, channels=3)
    grid = torch.rand(2, 3, SIDE, SIDE, SIDE, generator=generator())
    found = look(grid)
    assert found.shape == (2, 3, 7)
    described = []
    for x, y, z in itertools.product(range(0, SIDE, 4), repeat=3):
        described.append(look.patch(grid[1, 2, x : x + 4, y : y + 4, z : z + 4].flatten()))
    whole = look.whole(torch.cat(described))
    expected = (whole - whole.mean()) / (whole.var(unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(found[1, 2], expected.relu(), atol=1e-4, rtol=1e-4)
