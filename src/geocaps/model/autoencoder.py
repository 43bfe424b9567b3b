"""The whole model: points to parts to object, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules
from geocaps.model.config import ModelConfig, ObjectConfig
from geocaps.model.object import AgreeingObject
from geocaps.model.object_paper import PaperObject
from geocaps.model.parts import PointsToParts


@dataclass(frozen=True)
class Parse:
    """What the model sees in a batch of clouds ``[b, n, 3]``."""

    parts: Capsules  # [b, j]
    object: Capsules  # [b]
    candidates: Pose  # [b, s]: where each starting viewpoint was led
    probability: Float[Tensor, "b s"]


class GeometricCapsuleAutoencoder(nn.Module):
    """PointsToParts and an object layer. Works in the normalised frame: centred clouds inside the unit sphere."""

    object: AgreeingObject | PaperObject

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.parts = PointsToParts(config.parts)
        if isinstance(config.object, ObjectConfig):
            self.object = AgreeingObject(config.object, config.parts)
        else:
            self.object = PaperObject(config.object, config.parts)

    @torch.no_grad()
    def parse(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None) -> Parse:
        """Inference: part capsules, then the object capsule from every start and the choice among them.

        Deterministic. Only the paper's random starts draw from a generator (a fixed one if none is given).
        """
        parts = self.parts(points).capsules
        return self.parse_parts(points.to(parts.feature), parts, generator)

    @torch.no_grad()
    def parse_parts(
        self,
        points: Float[Tensor, "b n 3"],
        parts: Capsules,
        generator: torch.Generator | None = None,
        trials: int = 1,
    ) -> Parse:
        """The second layer alone, from given part capsules (the paper rotates those in its Table 1).

        ``trials`` is the number of random starts; ours, on the principal axes, are always the same.
        """
        seen = self.object.perceive(self.parts, points, parts, self.object.starts(points, generator, trials))
        return Parse(parts, seen.capsule, seen.candidates, seen.probability)

    def reconstruct(self, capsule: Capsules) -> Float[Tensor, "b j m 3"]:
        """Object capsule → part capsules U → points Y: the two-layer reconstruction."""
        return self.parts.decode(self.object.decode(capsule))
