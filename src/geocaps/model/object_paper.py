"""PartsToObject as in the paper (section 3.4): Algorithm 2, equation 3 and the settings of Table 1, line by line.

Setting A has one view, B two, C four; in D the noise of the viewpoints grows to 180° during training; E votes three
times. The starting rotation is random, so there may be several trials for an object, of which the one whose decoded
object explains the points best is chosen (section 4.2).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import ParallelDecoders, embedding, projection
from geocaps.model.capsules import NOISE_TRANSLATION, Capsules, Parse, Parts, agree, perturbed_viewpoints, vote_pose
from geocaps.model.config import PaperObjectConfig, PaperWeights, PartsConfig
from geocaps.model.losses import Terms, chamfer, part_regression
from geocaps.model.parts import PointsToParts

MISFIT_SCALE = 1e-3
"""Chamfer difference (a quarter of that of a good reconstruction) that counts as one nat of preference."""


class PartsVote(nn.Module):
    """Q or F: ``project(maxpool_j embed(v_j | z))``, which embeds the relative pose concatenated with the feature."""

    def __init__(self, config: PaperObjectConfig, part_feature: int, outputs: int) -> None:
        super().__init__()
        self.embed = embedding(part_feature + 7, config.width, config.blocks)
        self.project = projection(config.width, config.width, config.blocks, outputs)

    def forward(self, parts: Capsules, viewpoints: Pose) -> Float[Tensor, "b k outputs"]:
        """Part capsules ``[b, j]`` from viewpoints ``[b, k]``."""
        seen = parts[:, None].observed_from(viewpoints[:, :, None])
        pose = seen.pose.vector()
        feature = seen.feature.expand(*pose.shape[:-1], -1)
        return self.project(self.embed(torch.cat([pose, feature], dim=-1)).amax(dim=-2))


class PaperObject(nn.Module):
    """The second layer of the paper: voting networks Q and F, and the J part decoders G."""

    def __init__(self, config: PaperObjectConfig, parts: PartsConfig) -> None:
        super().__init__()
        self.config = config
        self.pose_network = PartsVote(config, parts.feature, 7)
        self.feature_network = PartsVote(config, parts.feature, config.feature)
        self.decoder = ParallelDecoders(
            parts.parts, config.feature, config.decoder_width, config.decoder_blocks, parts.feature + 7
        )

    # ── Algorithm 2 ───────────────────────────────────────────────────────────────────────────────────────────────

    def starts(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None, count: int = 1) -> Pose:
        """Line 2: ``h_q ← random pose``; without a generator, always the same one."""
        return random_starts(points, count, generator or torch.Generator().manual_seed(0))

    def loss(
        self,
        layer: PointsToParts,
        points: Float[Tensor, "b n 3"],
        parts: Capsules,
        weights: PaperWeights,
        noise_degrees: float,
        generator: torch.Generator,
        target_points: int | None = None,
        decoded_points: int | None = None,
    ) -> Terms:
        """Lines 2–14 from V ``[b, j]`` (line 1): the terms of equation 4, each ``[b]``, unweighted.

        ``target_points`` evenly chosen points are used for targets and comparison (None: all, as in the paper), and
        each part is decoded to ``decoded_points`` (None: M of the first layer). A term with weight 0 is not computed.
        """
        viewpoints = perturbed_viewpoints(  # line 4
            self.starts(points, generator)[:, 0],
            self.config.views,
            math.radians(noise_degrees),
            NOISE_TRANSLATION,
            generator,
        )
        capsule = agree(  # lines 5–9
            viewpoints,
            lambda z: self.pose_network(parts, z),
            lambda z: self.feature_network(parts, z),
            steps=self.config.voting_steps,
            generator=generator,
        )
        return self.reconstruction(layer, points, capsule, weights, generator, target_points, decoded_points)

    def reconstruction(
        self,
        layer: PointsToParts,
        points: Float[Tensor, "b n 3"],
        capsule: Capsules,
        weights: PaperWeights,
        generator: torch.Generator,
        target_points: int | None = None,
        decoded_points: int | None = None,
    ) -> Terms:
        """Lines 10–14 from the object capsule: decode U, refine it to the targets T, decode U to points Y."""
        decoded = self.decode(capsule)  # lines 10, 11
        seen = points if target_points is None else points[:, evenly(target_points, points.shape[1])]
        terms: Terms = {}
        if weights.part:
            with torch.no_grad():
                refined = layer(seen, decoded.detach(), count=decoded_points)  # line 12: T ← PointsToParts(X, U, 3)
            terms["part"] = part_regression(decoded, refined.capsules, refined.routing.reached())
        if weights.chamfer:
            surfaces = layer.decode(decoded, generator, decoded_points)  # line 13: Y
            terms["chamfer"] = chamfer(seen, surfaces.flatten(1, 2))
        return terms

    def decode(self, capsule: Capsules) -> Capsules:
        """Equation 3 and lines 10–11: ``(u_q|h_q, u_f) = G(h_f)``, then ``u_q = h_q ∘ (u_q|h_q)``."""
        out = self.decoder(capsule.feature)
        return Capsules(Pose.from_network(out[..., :7]), out[..., 7:]).placed_at(capsule.pose[:, None])

    @torch.no_grad()
    def spread(self, points: Float[Tensor, "b n 3"], parts: Capsules, generator: torch.Generator) -> Float[Tensor, "b"]:
        """Angle in degrees between the votes from two random viewpoints of each object.

        It is 0 if Q has collapsed to a constant, which rotates all viewpoints alike and leads to no canonical one.
        """
        votes = Pose.from_network(self.pose_network(parts, random_starts(points, 2, generator)))
        return torch.rad2deg(votes[:, 0].angle_to(votes[:, 1]))

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────────────────

    def perceive(self, layer: PointsToParts, points: Float[Tensor, "b n 3"], parts: Parts, starts: Pose) -> Parse:
        """Leads every start ``[b, s]`` to the end and keeps the one whose decoded object explains the points best."""
        seen = parts.capsules
        candidates = vote_pose(starts, lambda z: self.pose_network(seen, z), self.config.voting_steps)
        percepts = self.feature_network(seen, candidates)
        b, s = candidates.shape
        one = torch.ones_like(percepts[:, 0, 0])
        if s == 1:  # there is nothing to choose
            capsule = Capsules(candidates[:, 0], percepts[:, 0])
            return Parse(seen, parts.share, capsule, one, candidates, torch.ones_like(percepts[..., 0]))
        flat = Capsules(candidates.map(lambda t: t.flatten(0, 1)), percepts.flatten(0, 1))
        decoded = layer.decode(self.decode(flat)).flatten(1, 2)
        misfit = chamfer(points.repeat_interleave(s, dim=0), decoded).view(b, s)
        probability = torch.softmax(-misfit / MISFIT_SCALE, dim=1)
        rows, best = torch.arange(b, device=points.device), misfit.argmin(dim=1)
        capsule = Capsules(candidates[rows, best], percepts[rows, best])
        return Parse(seen, parts.share, capsule, one, candidates, probability)


def random_starts(points: Float[Tensor, "b n 3"], count: int, generator: torch.Generator) -> Pose:
    """Uniform rotations at the centroid: ``[b, count]``."""
    rotations = Pose.random(len(points), count, generator=generator).wxyz.to(points)
    return Pose(points.mean(dim=1, keepdim=True).expand(-1, count, -1), rotations)
