"""The model's frame: centred clouds inside the unit sphere, and the way back to the user's coordinates and units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from geocaps.errors import InvalidInputError
from geocaps.geometry.se3 import Pose, normalize_quaternion


@dataclass(frozen=True)
class Normalization:
    """``x_user = scale · x_model + center``, for a batch of clouds. In float64: map coordinates keep their digits."""

    center: Float64[Tensor, "*batch 3"]
    scale: Float64[Tensor, "*batch"]

    def points_to_user(self, points: Float[Tensor, "*points 3"]) -> Float64[Tensor, "*points 3"]:
        """Points ``[..., N, 3]`` (any number of inner dimensions) of the model's frame in the user's."""
        inner = points.ndim - self.center.ndim
        center = self.center.reshape(*self.center.shape[:-1], *([1] * inner), 3)
        return points.double() * self.scale.reshape(*self.scale.shape, *([1] * (inner + 1))) + center

    def pose_to_user(self, pose: Pose) -> Pose:
        """Poses ``[..., (J)]`` of the model's frame in the user's: positions scale, rotations stay. In float64."""
        # Normalised again: a quaternion that is unit in float32 is not in float64.
        return Pose(self.points_to_user(pose.translation), normalize_quaternion(pose.wxyz.double()))


def normalization(points: Float[np.ndarray, "n 3"], name: str) -> Normalization:
    """Centroid to the origin, farthest point to radius 1. A cloud that is one single point keeps scale 1."""
    exact = points.astype(np.float64)
    center = exact.mean(axis=0)
    radius = float(np.sqrt(((exact - center) ** 2).sum(axis=1).max()))
    if not np.isfinite(radius):
        raise InvalidInputError(f"{name} has coordinates that are NaN, infinite or too large to be measured")
    if radius == 0 and np.ptp(exact, axis=0).any():
        raise InvalidInputError(f"{name} is too small to be measured: scale its coordinates up first")
    # Points that differ by rounding alone are one point.
    alone = radius <= 1e-12 * float(np.abs(center).max())
    return Normalization(
        torch.from_numpy(center), torch.tensor(1.0 if alone or radius == 0 else radius, dtype=torch.float64)
    )
