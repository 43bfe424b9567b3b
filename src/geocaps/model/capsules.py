"""Capsules (section 3.1) and Multi-View Agreement (section 3.2), for both layers.

From a current pose, K perturbed viewpoints look at the object. The pose-voting network Q moves each viewpoint towards a
canonical one (repeatedly: setting E of Table 1 votes three times), and the feature-voting network F records a percept
from there. If percepts disagree, the consensus is noisy, and the reconstruction loss teaches them to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.geometry.se3 import Batch, Pose


@dataclass(frozen=True)
class Capsules(Batch):
    """A batch of capsules; for part capsules, the last leading dimension is that of the parts."""

    pose: Pose
    feature: Float[Tensor, "*batch d"]

    def observed_from(self, viewpoint: Pose) -> Capsules:
        """``c | z = (z⁻¹ ∘ c_q, c_f)``; the viewpoint broadcasts against the capsules."""
        return Capsules(self.pose.relative_to(viewpoint), self.feature)

    def placed_at(self, pose: Pose) -> Capsules:
        """The inverse of :meth:`observed_from`: capsules from the frame ``pose`` to its parent frame."""
        return Capsules(pose @ self.pose, self.feature)


@dataclass(frozen=True)
class Parts(Batch):
    """The input of layer 2: the part capsules ``[..., j]`` of a cloud, and the share of the cloud routed to each."""

    capsules: Capsules
    share: Float[Tensor, "*batch j"]


PoseVote = Callable[[Pose], Tensor]
"""``Δz = Q(O|z)``: viewpoints ``[..., K]`` to raw 7-D votes ``[..., K, 7]``."""
PerceptVote = Callable[[Pose], Tensor]
"""``f = F(O|z)``: viewpoints ``[..., K]`` to percepts ``[..., K, D]``."""


NOISE_TRANSLATION = 0.05
"""Largest translation of a perturbed viewpoint, a quarter of a typical part's radius; the paper gives no value."""


@dataclass(frozen=True)
class Frames(Batch):
    """The 24 frames on an object's axes ``[b, 24]``, and a descriptor (unit vector) of the object as seen from each.

    They give the similarity of two objects under each of 24 rotations (``geocaps.model.look.turn_similarity``).
    """

    pose: Pose
    descriptor: Float[Tensor, "b 24 d"]


@dataclass(frozen=True)
class Parse(Batch):
    """Everything the model makes of a batch of clouds ``[b, n, 3]``.

    The paper's object layer does not look at objects, so the last three are None there.
    """

    parts: Capsules  # [b, j]
    share: Float[Tensor, "b j"]  # of the cloud, routed to each part
    object: Capsules  # [b]
    scale: Float[Tensor, "b"]  # radius of the whole object, where the cloud's own is 1; the paper's layer: always 1
    candidates: Pose  # [b, s]: where the votes led the starting viewpoints
    probability: Float[Tensor, "b s"]
    percept: Float[Tensor, "b j d"] | None = None  # what the object looks like from each part
    frames: Frames | None = None  # what it looks like from the frames on its axes
    places: Pose | None = None  # [b, j]: where each part's percept was taken from

    def turned(self, turn: Pose) -> Parse:
        """The same objects, each rotated by ``turn [b]``: poses rotate, features stay."""
        return replace(
            self,
            parts=self.parts.placed_at(turn[:, None]),
            object=self.object.placed_at(turn),
            candidates=turn[:, None] @ self.candidates,
            frames=None if self.frames is None else replace(self.frames, pose=turn[:, None] @ self.frames.pose),
            places=None if self.places is None else turn[:, None] @ self.places,
        )


def perturbed_viewpoints(
    start: Pose, views: int, max_angle: float, max_translation: float, generator: torch.Generator
) -> Pose:
    """``z_k = v_q ∘ r, r ~ random perturbation`` (Algorithm 1, line 11; Algorithm 2, line 4): ``[...] → [..., K]``."""
    noise = Pose.perturbation(
        *start.shape, views, max_angle=max_angle, max_translation=max_translation, generator=generator
    ).to(start.wxyz.device)
    return start[..., None] @ noise


def vote_pose(viewpoints: Pose, pose_vote: PoseVote, steps: int) -> Pose:
    """``z_k ← z_k ∘ Q(O|z_k)``, ``steps`` times, each starting from the previous viewpoint (setting E)."""
    for _ in range(steps):
        viewpoints = viewpoints @ Pose.from_network(pose_vote(viewpoints))
    return viewpoints


def consensus(percepts: Float[Tensor, "*batch k d"], generator: torch.Generator | None) -> Float[Tensor, "*batch d"]:
    """The mean μ and variance σ of the percepts, sampled as ``μ + σ·ε`` (section 3.2).

    The paper calls ``σ = 1/K Σ (f_k - μ)²`` the variance and then samples ``N(μ, σ²)`` as ``μ + σ·ε``, using the
    variance as a standard deviation. We follow it literally. Without a generator (inference), the mean.
    """
    mean = percepts.mean(dim=-2)
    if generator is None:
        return mean
    variance = (percepts - mean[..., None, :]).square().mean(dim=-2)
    return mean + variance * torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)


def agree(
    viewpoints: Pose,
    pose_vote: PoseVote,
    percept_vote: PerceptVote,
    *,
    steps: int = 1,
    generator: torch.Generator | None = None,
) -> Capsules:
    """Multi-View Agreement from given viewpoints ``[..., K]``; the first of them, as moved by Q, becomes the pose."""
    canonical = vote_pose(viewpoints, pose_vote, steps)
    return Capsules(canonical[..., 0], consensus(percept_vote(canonical), generator))
