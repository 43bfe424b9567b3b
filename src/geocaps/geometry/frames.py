"""Equivariant frames: local ones for parts (at farthest points), axes of the surface for whole objects.

Computed in float64 without gradient: they are starting points, and their precision is what makes the whole encoding
equivariant.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

_TINY = 1e-12
_HANDFUL = 12


def exact(points: Float[Tensor, "*any"]) -> Float64[Tensor, "*any"]:
    """The values in float64, on the CPU if the device has no float64 (Apple's MPS)."""
    return points.cpu().double() if points.device.type == "mps" else points.double()


def own_sphere(points: Float[Tensor, "*b n 3"]) -> tuple[Float[Tensor, "*b 3"], Float[Tensor, "*b"]]:
    """Centroid, and largest distance from it; in the model's frame these are 0 and 1."""
    center = points.mean(dim=-2)
    return center, (points - center[..., None, :]).norm(dim=-1).amax(dim=-1)


@torch.no_grad()
def farthest_points(points: Float[Tensor, "b n 3"], count: int) -> Int[Tensor, "b count"]:
    """Farthest-point sampling, started at the point farthest from the centroid, so that it rotates with the cloud."""
    batch = torch.arange(len(points), device=points.device)
    nearest_squared = (points - points.mean(dim=1, keepdim=True)).square().sum(-1)
    chosen = [nearest_squared.argmax(dim=1)]
    nearest_squared = torch.full_like(nearest_squared, torch.inf)
    while len(chosen) < count:
        last = points[batch, chosen[-1]][:, None]
        nearest_squared = torch.minimum(nearest_squared, (points - last).square().sum(-1))
        chosen.append(nearest_squared.argmax(dim=1))
    return torch.stack(chosen, dim=1)


@torch.no_grad()
def local_frames(
    points: Float[Tensor, "b n 3"], centers: Float[Tensor, "b j 3"], radius: float
) -> Float[Tensor, "b j 3 3"]:
    """Rotation of a local reference frame at each center; columns: tangent, bitangent, normal.

    Normal: the direction of least spread of the neighbours within ``radius`` (weighted by 1 - d/radius), pointing away
    from the cloud's centroid. Tangent: the direction of most spread, with the sign of the neighbours' third moment. If
    the cloud is so sparse that few points lie within ``radius``, it grows until it holds a handful.
    """
    cloud, origin = exact(points), exact(centers)
    offset = cloud[:, None] - origin[:, :, None]
    distance = offset.norm(dim=-1)
    enough = distance.kthvalue(min(_HANDFUL, points.shape[1]), dim=-1, keepdim=True).values
    weight = (1 - distance / (1.5 * enough).clamp(min=radius)).clamp(min=0)
    weight = weight / weight.sum(dim=-1, keepdim=True).clamp(min=_TINY)
    offset = offset - weight[:, :, None] @ offset
    covariance = (weight[..., None] * offset).mT @ offset
    axes = torch.linalg.eigh(covariance).eigenvectors
    normal, tangent = axes[..., 0], axes[..., 2]
    outward = (normal * (origin - cloud.mean(dim=1, keepdim=True))).sum(-1, keepdim=True)
    normal = torch.where(outward < 0, -normal, normal)
    along = (offset @ tangent[..., None]).squeeze(-1)
    skewness = (weight * along**3).sum(-1, keepdim=True)
    tangent = torch.where(skewness < 0, -tangent, tangent)
    return torch.stack([tangent, torch.linalg.cross(normal, tangent), normal], dim=-1).to(points)


@torch.no_grad()
def principal_axes(
    points: Float[Tensor, "b n 3"], weight: Float[Tensor, "b n"]
) -> tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 3"]]:
    """Principal axes as a proper rotation (columns, largest spread first; signs arbitrary) and the centre.

    Weights add up to 1.
    """
    cloud, share = exact(points), exact(weight)[..., None]
    center = (cloud * share).sum(dim=1)
    offset = cloud - center[:, None]
    axes = torch.linalg.eigh((offset * share).mT @ offset).eigenvectors
    first, second = axes[..., 2], axes[..., 1]
    rotation = torch.stack([first, second, torch.linalg.cross(first, second)], dim=-1)
    return rotation.to(points), center.to(points)


_NEIGHBOURS = 16
_POLAR_STEPS = 5
_ASCENT_STEPS = 24
_C = math.sqrt(0.5)
_EIGHTH_TURNS = [
    [[1.0, 0, 0], [0, 1, 0], [0, 0, 1]],
    [[1.0, 0, 0], [0, _C, -_C], [0, _C, _C]],
    [[_C, 0, _C], [0, 1.0, 0], [-_C, 0, _C]],
    [[_C, -_C, 0], [_C, _C, 0], [0, 0, 1.0]],
]
"""No turn, and 45° about each axis."""
_STAY = 1e-3
"""Keeps axes where they are if the normals do not determine a rotation (all parallel, or all around one axis)."""


@torch.no_grad()
def surface_normals(points: Float[Tensor, "b n 3"], centers: Float[Tensor, "b m 3"]) -> Float64[Tensor, "b m 3 3"]:
    """``n nᵀ`` of the normal at each center, with trace 1; blurred where the neighbours do not lie in a plane.

    A power of the inverse of the neighbours' covariance, large in directions of little spread. Weights fall to 0 at the
    last neighbour, so that it does not matter which of two equally distant points that is.
    """
    index = torch.cdist(centers, points).topk(min(_NEIGHBOURS, points.shape[1]), largest=False, sorted=False).indices
    near = exact(points).gather(1, index.flatten(1)[..., None].expand(-1, -1, 3)).unflatten(1, index.shape[1:])
    distance = (near - exact(centers)[:, :, None]).square().sum(-1)
    weight = 1 - distance / distance.amax(dim=-1, keepdim=True).clamp(min=_TINY)
    weight = (weight / weight.sum(dim=-1, keepdim=True).clamp(min=_TINY))[..., None]
    offset = near - (weight * near).sum(dim=2, keepdim=True)

    def of_trace_1(matrix: Float64[Tensor, "b m 3 3"]) -> Float64[Tensor, "b m 3 3"]:
        return matrix / matrix.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=_TINY)[..., None, None]

    spread = of_trace_1((weight * offset).mT @ offset)
    sharp = _cofactors(spread + 1e-4 * torch.eye(3, dtype=near.dtype, device=near.device))
    for _ in range(2):
        sharp = of_trace_1(sharp @ sharp)
    return sharp


@torch.no_grad()
def surface_axes(
    points: Float[Tensor, "b n 3"], weight: Float[Tensor, "b n"], normals: int = 256
) -> tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 3"]]:
    """Axes along which the surface's normals lie, as a proper rotation (columns; order and signs arbitrary), and the
    centre. Weights add up to 1. About ``normals`` normals are used, because finding neighbours dominates the cost.

    The rotation maximises ``Σ_i w_i Σ_a (n_i·r_a)⁴``. Most objects have faces at right angles, and a crop still has
    some of them, so it keeps these axes when its principal axes have changed completely (``docs/results.md``). The
    maximum is found by fixed-point steps, each a polar decomposition, from the principal axes and from these rotated
    by 45° about each of the three, a set that does not depend on the signs of the axes.
    """
    some = slice(None, None, max(1, points.shape[1] // normals))
    outer = surface_normals(points, points[:, some]).flatten(-2)
    moments = (outer * exact(weight)[:, some, None]).mT @ outer  # Σ w n⊗n⊗n⊗n, from which the sum follows
    principal, center = principal_axes(points, weight)
    axes = exact(principal)[:, None] @ torch.tensor(_EIGHTH_TURNS, dtype=moments.dtype, device=moments.device)

    def slopes() -> Float64[Tensor, "b 4 3 3"]:
        squares = (axes.mT[..., :, None] * axes.mT[..., None, :]).flatten(-2)  # [b, 4, axis, 9]
        along = (squares @ moments[:, None]).unflatten(-1, (3, 3))
        return (along @ axes.mT[..., None]).squeeze(-1).mT

    for _ in range(_ASCENT_STEPS):
        axes = _nearest_rotation(slopes() + _STAY * axes)
    height = (slopes() * axes).sum((2, 3))
    best = height.argmax(dim=1)[:, None, None, None].expand(-1, 1, 3, 3)
    return axes.gather(1, best).squeeze(1).to(points), center


def _cofactors(matrix: Float64[Tensor, "*batch 3 3"]) -> Float64[Tensor, "*batch 3 3"]:
    """``det(M)·M⁻ᵀ``, entry by entry: ONNX has no inverse."""
    x, y, z = matrix.unbind(-1)
    columns = [torch.linalg.cross(y, z), torch.linalg.cross(z, x), torch.linalg.cross(x, y)]
    return torch.stack(columns, dim=-1)


def _nearest_rotation(matrix: Float64[Tensor, "*batch 3 3"]) -> Float64[Tensor, "*batch 3 3"]:
    """The orthogonal factor of the polar decomposition, by Newton's iteration ``X ← (X + X⁻ᵀ)/2``, scaled."""
    for _ in range(_POLAR_STEPS):
        cofactors = _cofactors(matrix)
        determinant = (matrix[..., 0] * cofactors[..., 0]).sum(-1)[..., None, None]
        determinant = torch.where(determinant < 0, -1.0, 1.0) * determinant.abs().clamp(min=1e-30)
        scale = determinant.abs() ** (-1 / 3)
        matrix = (scale * matrix + cofactors / (scale * determinant)) / 2
    return matrix
