"""A quaternion capsule layer in the manner of QE-Net (Zhao et al. 2020): a canonical rotation from local frames.

Smaller than the original: one object capsule for all classes instead of one for each, and so no class labels. Trained
with the true rotations of aligned objects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from geocaps.evaluation.learned.fitting import System
from geocaps.geometry.frames import farthest_points, local_frames
from geocaps.geometry.se3 import Pose, normalize_quaternion, quaternion_product
from geocaps.model.blocks import ResBlock, embedding, projection
from geocaps.model.losses import gather_points
from geocaps.training.config import Augmentation

FRAME_RADIUS = 0.35
_NEAREST_VOTE = 1e-3
"""Distance below which votes are not weighted more: Weiszfeld's weights would be infinite at the mean."""


def quaternion_mean(votes: Float[Tensor, "*b i 4"], weight: Float[Tensor, "*b i"]) -> Float[Tensor, "*b 4"]:
    """The unit q that maximises ``Σ_i w_i ⟨q, v_i⟩²``: the first eigenvector of ``Σ_i w_i v_i v_iᵀ``.

    Signs of votes do not matter. The gradient is that of one step of the power iteration at q, which is finite where
    all votes are equal and the other eigenvalues coincide.
    """
    moment = (weight[..., None] * votes).mT @ votes
    first = torch.linalg.eigh(moment.detach().double()).eigenvectors[..., -1].to(votes)
    return normalize_quaternion((moment @ first[..., None]).squeeze(-1))


def route(
    votes: Float[Tensor, "*b i 4"], activation: Float[Tensor, "*b i"], iterations: int = 3
) -> tuple[Float[Tensor, "*b 4"], Float[Tensor, "*b i"]]:
    """Dynamic routing as Weiszfeld's iteration for the robust mean: that mean, and coefficients, which sum to 1.

    ``c_i ∝ a_i / d(v_i, q)``, where d is the chordal distance ``√(2 - 2 |⟨v_i, q⟩|)``. No gradient passes through d.
    """
    coefficient = activation / activation.sum(-1, keepdim=True)
    for _ in range(iterations):
        with torch.no_grad():
            mean = quaternion_mean(votes, coefficient)
            cosine = (votes @ mean[..., None]).squeeze(-1).abs()
            distance = (2 - 2 * cosine).clamp(min=_NEAREST_VOTE**2).sqrt()
        coefficient = activation / distance
        coefficient = coefficient / coefficient.sum(-1, keepdim=True)
    return quaternion_mean(votes, coefficient), coefficient


class Routed(NamedTuple):
    """The object's rotation, the votes for it, and their routing coefficients."""

    wxyz: Float[Tensor, "b 4"]
    votes: Float[Tensor, "b i 4"]
    coefficient: Float[Tensor, "b i"]


class QuaternionCapsules(System):
    """Capsules at local reference frames vote for one rotation: ``v_i = q_i ∘ t_i``, averaged robustly.

    The transformation ``t_i`` and the activation ``a_i`` come from what the i-th frame sees: the points of its
    neighbourhood, and the positions, frames and neighbourhoods of all other capsules, relative to it. So the votes
    rotate with the cloud exactly.
    """

    augmentation = Augmentation(crop_share=0.5)

    def __init__(self, capsules: int = 32, neighbours: int = 24, width: int = 64) -> None:
        super().__init__()
        self.capsules, self.neighbours = capsules, neighbours
        self.patch = embedding(3, width, 1)
        self.from_relation = nn.Linear(12, width)
        self.from_patch = nn.Linear(width, width, bias=False)
        self.relation = ResBlock(width)
        self.project = projection(2 * width, 2 * width, 1, 5)

    def forward(self, points: Float[Tensor, "b n 3"]) -> Routed:
        exact = points.double()
        centers = gather_points(exact, farthest_points(exact, self.capsules))
        frames = local_frames(exact, centers, FRAME_RADIUS)
        near = torch.cdist(centers, exact).topk(self.neighbours, largest=False).indices
        patches = gather_points(exact, near.flatten(1)).unflatten(1, near.shape[1:]) - centers[:, :, None]
        weight = self.from_relation.weight
        patch = self.patch((patches @ frames).to(weight)).amax(dim=2)
        offset = (centers[:, None] - centers[:, :, None]) @ frames  # [b, i, j, 3]: of j, as seen from i
        turn = frames.mT[:, :, None] @ frames[:, None]
        relation = torch.cat([offset, turn.flatten(-2)], dim=-1).to(weight)
        seen = self.relation((self.from_relation(relation) + self.from_patch(patch)[:, None]).relu()).amax(dim=2)
        answer = self.project(torch.cat([seen, patch], dim=-1))
        own = Pose.from_rotation(frames, centers).wxyz.to(weight)
        votes = quaternion_product(own, normalize_quaternion(answer[..., :4]))
        wxyz, coefficient = route(votes, answer[..., 4].softmax(dim=-1))
        return Routed(wxyz, votes, coefficient)

    def loss(
        self, clouds: Float[Tensor, "b 2 n 3"], turned: Float[Tensor, "b 3 3"], generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The angle of the answer to the true rotation, plus the mean of the votes', in units of π."""
        routed = self(clouds.flatten(0, 1))
        truth = Pose.from_rotation(turned, torch.zeros(len(turned), 3)).wxyz.repeat_interleave(2, dim=0)
        votes = (_angle(routed.votes, truth[:, None]) * routed.coefficient).sum(dim=1)
        return (_angle(routed.wxyz, truth) + votes).mean()

    @torch.no_grad()
    def align(
        self, first: Float64[np.ndarray, "n 3"], second: Float64[np.ndarray, "m 3"]
    ) -> Float64[np.ndarray, "3 3"]:
        """The rotation from one cloud to the other, of which the network sees one at a time."""
        one, other = (_rotation(self(torch.from_numpy(cloud)[None]).wxyz) for cloud in (first, second))
        return (other @ one.inverse()).rotation_matrix()[0].double().numpy()


def _rotation(wxyz: Float[Tensor, "*b 4"]) -> Pose:
    return Pose(torch.zeros_like(wxyz[..., 1:]), wxyz)


def _angle(a: Float[Tensor, "*a 4"], b: Float[Tensor, "*b 4"]) -> Float[Tensor, "*ab"]:
    """Angle/π between rotations."""
    return _rotation(a).angle_to(_rotation(b)) / torch.pi
