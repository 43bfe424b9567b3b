"""The grid that a viewpoint sees, against its definition written out point by point."""

import itertools

import pytest
import torch

from geocaps.model.look import Look, occupancy


def literal_occupancy(points, side):
    """For every node: the sum over points of the product of (1 - distance in cells) along the axes, where positive."""
    nodes = torch.linspace(-1, 1, side, dtype=points.dtype)
    grid = torch.zeros(side, side, side, dtype=points.dtype)
    for x, y, z in points.clamp(-1, 1):
        for i, j, k in itertools.product(range(side), repeat=3):
            near = [1 - (value - nodes[at]).abs() * (side - 1) / 2 for value, at in ((x, i), (y, j), (z, k))]
            grid[i, j, k] += torch.stack(near).clamp(min=0).prod()
    return grid.flatten() * 64 / len(points)


@pytest.mark.parametrize("side", [4, 5])
def test_equals_the_definition(side):
    points = 1.2 * torch.rand(2, 12, 3, generator=torch.Generator().manual_seed(side)).double() * 2 - 1.2
    found = occupancy(points, side)
    torch.testing.assert_close(found, torch.stack([literal_occupancy(cloud, side) for cloud in points]))
    torch.testing.assert_close(found.sum(-1), torch.full((2,), 64.0).double())


def test_corners_and_the_outside_count_at_the_faces():
    points = torch.tensor([[[1.0, 1, 1], [-1, -1, -1], [5, 5, 5], [-9, -9, -9]]])
    grid = occupancy(points, 4)[0]
    assert grid[0] == grid[-1] == 32


def test_does_not_depend_on_the_number_of_points():
    points = torch.rand(1, 30, 3, generator=torch.Generator().manual_seed(0)) - 0.5
    torch.testing.assert_close(occupancy(points, 6), occupancy(points.repeat(1, 3, 1), 6))


def test_gradient():
    points = (torch.rand(1, 5, 3, generator=torch.Generator().manual_seed(0)) - 0.5).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: occupancy(x, 4), points)


@pytest.mark.parametrize("side", [4, 5, 9, 16])
def test_look_takes_any_side(side):
    look = Look(side, channels=3, width=7)
    assert look(torch.rand(2, 3, 20, 3)).shape == (2, 3, 7)
