"""What a viewpoint sees of the points themselves: how they fill a grid around it (ours).

Part capsules are one decomposition of many; the points of an object are not. Counted into a grid, all of them cost less
to look at than a set embedding of a few hundred, and two samplings of one surface fill nearly the same cells.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

_EMPTY = 1e-4
_FULL = 64.0
"""A 64th of the points in one cell counts as 1."""


def occupancy(points: Float[Tensor, "*batch n 3"], side: int) -> Float[Tensor, "*batch cells"]:
    """The share of the points near each node of a ``side³`` grid over the cube [-1, 1]³, times 64.

    Every point is shared by the eight nodes around it in proportion to its nearness to them (trilinear), so the grid
    changes smoothly with the viewpoint and passes gradient to it. Points outside the cube count at its faces.
    """
    place = (points.clamp(-1, 1) + 1) * ((side - 1) / 2)
    low = place.detach().floor().clamp(max=side - 2)
    upper = place - low
    share = torch.stack([1 - upper, upper], dim=-1)
    x, y, z = share.unbind(-2)
    weight = x[..., :, None, None] * y[..., None, :, None] * z[..., None, None, :]
    strides = torch.tensor([side * side, side, 1], device=points.device)
    corners = torch.cartesian_prod(*[torch.arange(2, device=points.device)] * 3) @ strides
    node = (low.long() * strides).sum(-1, keepdim=True) + corners
    cells = points.new_zeros(*points.shape[:-2], side**3)
    return cells.scatter_add(-1, node.flatten(-2), weight.flatten(-4)) * (_FULL / points.shape[-2])


class Look(nn.Module):
    """Two strided convolutions over the grid and one linear layer: ``[b, k, n, 3] → [b, k, width]``."""

    def __init__(self, side: int, channels: int, width: int) -> None:
        super().__init__()
        self.side = side
        reduced = -(-side // 4)
        self.layers = nn.Sequential(
            nn.Conv3d(1, channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv3d(channels, 2 * channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(2 * channels * reduced**3, width),
            nn.ReLU(inplace=True),
        )

    def forward(self, points: Float[Tensor, "b k n 3"]) -> Float[Tensor, "b k width"]:
        # A surface fills few cells: the square root lets thin parts be seen beside dense ones.
        cells = torch.sqrt(occupancy(points, self.side) + _EMPTY)
        grid = cells.view(-1, 1, self.side, self.side, self.side)
        return self.layers(grid).view(*points.shape[:2], -1)
