"""Frames that rotate with the points: local ones for parts (at farthest points), principal axes for objects.

Computed in float64 without gradient: they are starting points, and their exactness is what makes the whole encoding
equivariant.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

_TINY = 1e-12
_HANDFUL = 12


def exact(points: Float[Tensor, "*batch 3"]) -> Float64[Tensor, "*batch 3"]:
    """In float64, on the CPU where the device has no float64 (Apple's MPS)."""
    return points.cpu().double() if points.device.type == "mps" else points.double()


@torch.no_grad()
def farthest_points(points: Float[Tensor, "b n 3"], count: int) -> Int[Tensor, "b count"]:
    """Farthest-point sampling, started at the point farthest from the centroid: the choice rotates with the cloud."""
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
    from the cloud's centroid. Tangent: the direction of most spread, its sign from the neighbours' third moment. Where
    a cloud is so sparse that few points lie within ``radius``, it grows to hold a handful: a frame needs them.
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
def principal_axes(points: Float[Tensor, "b n 3"]) -> tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 3"]]:
    """Principal axes as a proper rotation (columns, largest spread first; signs arbitrary) and their variances."""
    cloud = exact(points)
    offset = cloud - cloud.mean(dim=1, keepdim=True)
    covariance = offset.mT @ offset / points.shape[1]
    variances, axes = torch.linalg.eigh(covariance)
    first, second = axes[..., 2], axes[..., 1]
    rotation = torch.stack([first, second, torch.linalg.cross(first, second)], dim=-1)
    return rotation.to(points), variances.flip(-1).clamp(min=0).to(points)
