"""The whole model: points to parts to object, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules, vote_pose
from geocaps.model.config import ModelConfig
from geocaps.model.losses import chamfer
from geocaps.model.objects import ObservedObject, PartsToObject
from geocaps.model.parts import PointsToParts
from geocaps.model.routing import Routing
from geocaps.model.viewpoints import Starts, principal_starts, random_starts


@dataclass(frozen=True)
class Parse:
    """What the model sees in a batch of clouds ``[b, n, 3]``."""

    parts: Capsules  # [b, j]
    routing: Routing | None  # how points were given to parts; None where it was not kept
    object: Capsules  # [b]
    candidates: Pose  # [b, s]: where each starting viewpoint was led
    probability: Float[Tensor, "b s"]
    valid: Bool[Tensor, "b s"]


class GeometricCapsuleAutoencoder(nn.Module):
    """PointsToParts and PartsToObject. Works in the normalised frame: centred clouds inside the unit sphere."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.parts = PointsToParts(config.parts)
        self.object = PartsToObject(config.object, config.parts)

    @torch.no_grad()
    def parse(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None) -> Parse:
        """Inference: part capsules, then the object capsule from every start and the choice among them.

        Deterministic. Only the paper's ``random`` starts draw from a generator (a fixed one if none is given).
        """
        result = self.parts(points)
        points = points.to(result.capsules.feature)
        starts = self.starts(points, generator)
        return self.parse_parts(points, result.capsules, result.routing, starts)

    def starts(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None) -> Starts:
        if self.config.object.start == "principal":
            return principal_starts(points, self.config.object.tie_ratio)
        return random_starts(points, 1, generator or torch.Generator().manual_seed(0))

    @torch.no_grad()
    def parse_parts(
        self, points: Float[Tensor, "b n 3"], parts: Capsules, routing: Routing | None, starts: Starts
    ) -> Parse:
        """The second layer alone, from given part capsules (the paper rotates those in its Table 1)."""
        observed = self.object.observe(parts[:, None], points[:, None])
        if not self.object.scores_starts:
            return self._choose_by_reconstruction(points, parts, routing, starts, observed)
        seen = self.object.perceive(observed, starts)
        rows = torch.arange(len(points), device=points.device)[:, None]
        candidates = Pose(
            seen.voted.translation.index_put((rows, seen.leading), seen.led.translation),
            seen.voted.wxyz.index_put((rows, seen.leading), seen.led.wxyz),
        )
        probability = seen.log_probability.exp()
        return Parse(parts, routing, Capsules(seen.led[:, 0], seen.feature), candidates, probability, starts.valid)

    def _choose_by_reconstruction(
        self,
        points: Float[Tensor, "b n 3"],
        parts: Capsules,
        routing: Routing | None,
        starts: Starts,
        observed: ObservedObject,
    ) -> Parse:
        """Every start is led to the end, and the one whose decoded object explains the points best wins."""
        steps = self.config.object.voting_steps
        candidates = vote_pose(starts.pose, lambda z: self.object.pose_vote(observed, z), steps)
        percepts = self.object.percept_vote(observed, candidates)
        log_p = starts.log_probabilities(-self._misfit(points, candidates, percepts) / _MISFIT_SCALE)
        best = log_p.argmax(dim=1)
        rows = torch.arange(len(points), device=points.device)
        chosen = Capsules(candidates[rows, best], percepts[rows, best])
        return Parse(parts, routing, chosen, candidates, log_p.exp(), starts.valid)

    def _misfit(
        self, points: Float[Tensor, "b n 3"], candidates: Pose, percepts: Float[Tensor, "b s d"]
    ) -> Float[Tensor, "b s"]:
        """Chamfer distance between the points and the object decoded from each candidate: choice by reconstruction."""
        b, s = candidates.shape
        flat = Capsules(candidates.map(lambda t: t.flatten(0, 1)), percepts.flatten(0, 1))
        decoded = self.reconstruct(flat).flatten(1, 2)
        return chamfer(points.repeat_interleave(s, dim=0), decoded).view(b, s)

    def reconstruct(self, capsule: Capsules) -> Float[Tensor, "b j m 3"]:
        """Object capsule → part capsules U → points Y: the two-layer reconstruction."""
        return self.parts.decode(self.object.decode(capsule))


_MISFIT_SCALE = 1e-3
"""Chamfer differences of this size (a quarter of a good reconstruction's) count as one nat of preference."""
