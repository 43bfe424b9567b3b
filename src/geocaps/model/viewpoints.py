"""Where the second layer's viewpoints start, and how one of them is chosen.

The paper starts at a random pose and finds one of several attractors, which lie on the object's principal axes. Here
those axes are the starts: the four proper sign choices, or all 24 axis permutations when variances nearly tie, a
deterministic set that turns exactly with the points.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geocaps.geometry.frames import principal_axes
from geocaps.geometry.se3 import Pose


@dataclass(frozen=True)
class Starts:
    """Starting viewpoints ``[b, s]``; where ``valid`` is false the entry only pads the batch."""

    pose: Pose
    valid: Bool[Tensor, "b s"]

    def log_probabilities(self, scores: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
        """log softmax of the scores over the valid starts."""
        return torch.log_softmax(scores.masked_fill(~self.valid, -torch.inf), dim=1)


@cache
def axis_rotations() -> Float[Tensor, "24 3 3"]:
    """The 24 proper signed axis permutations; the first four keep the axes and only change signs."""
    found = []
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            matrix = torch.zeros(3, 3)
            for column, (row, sign) in enumerate(zip(order, signs, strict=True)):
                matrix[row, column] = sign
            if torch.linalg.det(matrix) > 0:
                found.append(matrix)
    return torch.stack(found)


@torch.no_grad()
def principal_starts(points: Float[Tensor, "b n 3"], tie_ratio: float) -> Starts:
    """Starts on the principal axes, at the centroid. An object without nearly tied variances has four valid ones.

    A batch in which no object has a tie is not padded to 24.
    """
    axes, variances = principal_axes(points)
    tied = (variances[:, :2] < tie_ratio * variances[:, 1:]).any(dim=1)
    choices = axis_rotations().to(points)
    choices = choices if bool(tied.any()) else choices[:4]
    rotations = axes[:, None] @ choices
    centroid = points.mean(dim=1, keepdim=True).expand(-1, len(choices), -1)
    valid = tied[:, None] | (torch.arange(len(choices), device=points.device) < 4)
    return Starts(Pose.from_rotation(rotations, centroid), valid)


def random_starts(points: Float[Tensor, "b n 3"], count: int, generator: torch.Generator) -> Starts:
    """Random poses as in the paper (Algorithm 2, line 2): uniform rotations at the centroid."""
    rotations = Pose.random(len(points), count, generator=generator).wxyz.to(points)
    centroid = points.mean(dim=1, keepdim=True).expand(-1, count, -1)
    valid = torch.ones(len(points), count, dtype=torch.bool, device=points.device)
    return Starts(Pose(centroid, rotations), valid)
