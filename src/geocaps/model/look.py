"""Looks: an object as seen from a viewpoint, ``V | z`` (ours).

An object is represented by the surfaces that its part capsules decode to. In the frame of a viewpoint, which has a
width as well as a pose, their points are counted in the cells of a small grid, and a network turns the grid into one
vector. This is cheaper for many points than a set embedding is for a few, and two decompositions of one object fill
nearly the same cells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import permutations, product

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.geometry.se3 import Batch, Pose

SIDE = 16
"""Cells along a side of the grid."""
_PATCH = 4
_CONTRAST = 4.0
"""Scale of the input: few cells are filled, and unscaled they would be negligible beside the biases."""
_EMPTY = 1e-4
_FULL = 64.0
"""A cell with a 64th of the object has the value 1."""
_AT_A_TIME = 1 << 14
"""Points counted at a time, so that they stay in cache, which is three times as fast."""


@dataclass(frozen=True)
class Shown:
    """Objects as layer 2 sees them: points on the surfaces of their parts, and each point's share of the object."""

    points: Float[Tensor, "b n 3"]
    weight: Float[Tensor, "b n"]  # adds up to 1


@dataclass(frozen=True)
class Viewpoints(Batch):
    """Viewpoints on objects: poses ``[b, k]``, and half the width of the cube that is seen from each."""

    pose: Pose
    width: Float[Tensor, "*batch"]

    def observe(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b k n 3"]:
        """``z⁻¹ ⊙ x`` in units of the half width: the visible cube is [-1, 1]³. One product for all viewpoints."""
        rotation = self.pose.rotation_matrix() / self.width[..., None, None]
        origin = (self.pose.translation[..., None, :] @ rotation).squeeze(-2)
        turned = points @ rotation.transpose(1, 2).flatten(2)
        return turned.unflatten(2, rotation.shape[1:3]).transpose(1, 2) - origin[:, :, None]


def occupancy(points: Float[Tensor, "*batch n 3"], weight: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch g g g"]:
    """The share of an object near each node of a grid over the cube [-1, 1]³, times 64.

    Every point is distributed over the eight nodes around it (trilinear), so that the grid changes smoothly with the
    viewpoint. Points outside the cube are not seen, and points near its sides fade out.
    """
    *batch, count, _ = points.shape
    rows = max(1, _AT_A_TIME // count)
    clouds, weights = points.reshape(-1, count, 3), weight.reshape(-1, count)
    strides = torch.tensor([SIDE * SIDE, SIDE, 1], device=points.device)
    grids = []
    for some, share in zip(clouds.split(rows), weights.split(rows), strict=True):
        inside = ((1 - some.abs()) * SIDE).clamp(0, 1).prod(dim=-1)
        place = (some.clamp(-1, 1) + 1) * ((SIDE - 1) / 2)
        low = place.floor().clamp(max=SIDE - 2)
        node = (low.long() * strides).sum(dim=-1)
        near_x, near_y, near_z = (torch.stack([1 - upper, upper]) for upper in (place - low).unbind(dim=-1))
        near_x = near_x * (_FULL * share * inside)
        cells = some.new_zeros(len(some), SIDE**3)
        for x, y, z in product((0, 1), repeat=3):  # one corner at a time: all together would not fit into the cache
            cells.scatter_add_(1, node + (x * SIDE + y) * SIDE + z, near_x[x] * near_y[y] * near_z[z])
        grids.append(cells)
    return torch.cat(grids).view(*batch, SIDE, SIDE, SIDE)


def _cube() -> Float[Tensor, "24 3 3"]:
    """The 24 rotations of a cube onto itself: signed permutations of the axes; columns are the new axes."""
    found = []
    for order, signs in product(permutations(range(3)), product((1.0, -1.0), repeat=3)):
        rotation = torch.zeros(3, 3)
        rotation[list(order), range(3)] = torch.tensor(signs)
        if torch.linalg.det(rotation) > 0:
            found.append(rotation)
    return torch.stack(found)


CUBE = _cube()
"""The first of them is the identity."""


@functools.cache
def cube_products() -> Int[Tensor, "24 24"]:
    """The number of ``C_g C_k`` among the 24 rotations."""
    both = CUBE[:, None] @ CUBE[None, :]
    return (both[:, :, None] - CUBE).abs().sum((-1, -2)).argmin(-1)


def turn_similarity(a: Float[Tensor, "*batch 24 d"], b: Float[Tensor, "*batch 24 d"]) -> Float[Tensor, "*batch 24"]:
    """Similarity of two objects for each rotation g that maps frame k of A to frame ``C_g C_k`` of B: mean over frames.

    Computed from descriptors of what is seen from the frames.
    """
    frame_by_frame = a @ b.mT
    table = cube_products().to(a.device).mT  # [k, g]: the frame of B that k would be
    return frame_by_frame.gather(-1, table.expand(*frame_by_frame.shape)).mean(dim=-2)


def _turned_cells() -> Int[Tensor, "24 cells"]:
    cells = torch.arange(SIDE**3).view(SIDE, SIDE, SIDE)
    turned = []
    for rotation in CUBE:
        reversed_axes = (rotation.sum(dim=0) < 0).nonzero().flatten().tolist()
        turned.append(cells.permute(*rotation.abs().argmax(dim=0).tolist()).flip(reversed_axes).flatten())
    return torch.stack(turned)


_TURNED = _turned_cells()


def turned_grids(grid: Float[Tensor, "b g g g"]) -> Float[Tensor, "b 24 g g g"]:
    """The grids of the 24 rotated viewpoints, without counting again: one grid, transposed and flipped."""
    return grid.flatten(1)[:, _TURNED.to(grid.device)].unflatten(-1, (SIDE, SIDE, SIDE))


@torch.no_grad()
def seen_from(shown: Shown, viewpoints: Viewpoints) -> Float[Tensor, "b k g g g"]:
    """``V | z`` as a grid, for every viewpoint ``[b, k]``.

    The square root makes thin parts visible beside dense ones. It is softened at 0, where its slope would amplify
    rounding.
    """
    weight = shown.weight[:, None].expand(*viewpoints.width.shape, -1)
    cells = occupancy(viewpoints.observe(shown.points), weight)
    return _CONTRAST * ((cells + _EMPTY).sqrt() - math.sqrt(_EMPTY))


class Look(nn.Module):
    """A network on the grid: one vector for each viewpoint.

    The grid is cut into 4³ patches, each described by the same small network; a linear layer combines the descriptions.
    Overlapping convolutions learned no more in the first 100 steps (not compared further), at twice the cost per step.
    The grids of different objects differ only in details, which the normalisation amplifies from the start.
    """

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.patch = nn.Sequential(
            nn.Linear(_PATCH**3, 2 * channels), nn.ReLU(inplace=True), nn.Linear(2 * channels, channels), nn.ReLU()
        )
        self.whole = nn.Linear(channels * (SIDE // _PATCH) ** 3, width)
        self.norm = nn.LayerNorm(width)
        for layer in (self.patch[0], self.patch[2], self.whole):
            assert isinstance(layer, nn.Linear)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, grid: Float[Tensor, "*batch g g g"]) -> Float[Tensor, "*batch width"]:
        cells = grid.flatten(0, -4)
        split = cells.unflatten(3, (-1, _PATCH)).unflatten(2, (-1, _PATCH)).unflatten(1, (-1, _PATCH))
        patches = split.permute(0, 1, 3, 5, 2, 4, 6).reshape(len(cells), -1, _PATCH**3)
        seen = self.norm(self.whole(self.patch(patches).flatten(1)))
        return seen.relu().unflatten(0, grid.shape[:-3])
