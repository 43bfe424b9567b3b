"""A pose with a scale: how one cloud is brought onto another, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import ArrayLike

from geocaps.se3 import Pose


@dataclass(frozen=True)
class ScaledPose:
    """``x_parent = scale · R · x_local + t``."""

    pose: Pose
    scale: float

    @property
    def matrix(self) -> Float64[np.ndarray, "4 4"]:
        """As a matrix; its upper left block is ``scale · R``."""
        matrix = self.pose.matrix().numpy().copy()
        matrix[:3, :3] *= self.scale
        return matrix

    def apply(self, points: ArrayLike) -> Float64[np.ndarray, "n 3"]:
        """Local points ``[n, 3]`` in the parent's frame."""
        exact = torch.from_numpy(np.asarray(points, dtype=np.float64))
        return self.pose.apply(self.scale * exact).numpy()
