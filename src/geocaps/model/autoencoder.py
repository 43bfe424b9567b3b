"""The whole model: points to parts to object, and back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules, Parse, Parts
from geocaps.model.config import ModelConfig, ObjectConfig
from geocaps.model.object import AgreeingObject
from geocaps.model.object_paper import PaperObject
from geocaps.model.parts import PartsResult, PointsToParts


class GeometricCapsuleAutoencoder(nn.Module):
    """PointsToParts and an object layer, in the normalised frame: centred clouds inside the unit sphere."""

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
    def parse(self, points: Float[Tensor, "b n 3"]) -> Parse:
        """Inference: part capsules, then the object capsule. Deterministic, since random starts are always the same."""
        parts = self.parts(points).parts
        return self.parse_parts(parts, points.to(parts.share))

    @torch.no_grad()
    def parse_parts(
        self,
        parts: Parts,
        points: Float[Tensor, "b n 3"] | None = None,
        generator: torch.Generator | None = None,
        trials: int = 1,
    ) -> Parse:
        """The second layer alone, from given parts, which the paper rotates for its Table 1.

        Only the paper's layer needs the points, to choose the one of ``trials`` random starts that reconstructs them
        best; ours sees nothing but parts.
        """
        if isinstance(self.object, PaperObject):
            assert points is not None
            starts = self.object.starts(points, generator, trials)
            return self.object.perceive(self.parts, points, parts, starts)
        return self.object.perceive(self.parts, parts)

    def reconstruct(self, seen: Parse) -> Float[Tensor, "b j m 3"]:
        """Object capsules → part capsules U → points Y: the two-layer reconstruction, of the whole object."""
        surfaces = self.parts.decode(self._decoded(seen))
        return surfaces * seen.scale[:, None, None, None] + seen.object.pose.translation[:, None, None]

    @torch.no_grad()
    def decomposition(self, points: Float[Tensor, "b n 3"], seen: Parse) -> PartsResult:
        """``T = PointsToParts(X, U, 3)`` (Algorithm 2, line 12): the canonical decomposition of the points.

        Part j belongs to the j-th decoder of the object capsule, so it is comparable between objects. In the frame of
        the whole object: moved to its centre and scaled by its size, but not rotated.
        """
        whole = (points - seen.object.pose.translation[:, None]) / seen.scale[:, None, None]
        return self.parts(whole, self._decoded(seen))

    def _decoded(self, seen: Parse) -> Capsules:
        """U ``[b, j]`` of the objects at the origin with radius 1."""
        pose = seen.object.pose
        return self.object.decode(Capsules(Pose(torch.zeros_like(pose.translation), pose.wxyz), seen.object.feature))


def untrained(config: ModelConfig, seed: int) -> GeometricCapsuleAutoencoder:
    """A model with random weights from a seed. PyTorch's global generator, which initialises them, is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GeometricCapsuleAutoencoder(config)
