"""PartsToObject: Algorithm 2. Multi-View Agreement on part capsules gives one object capsule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import ParallelDecoders, embedding, projection, start_at_identity, start_decided
from geocaps.model.capsules import Capsules, vote_pose
from geocaps.model.config import ObjectConfig, PartsConfig
from geocaps.model.look import Look
from geocaps.model.viewpoints import Starts


@dataclass(frozen=True)
class ObservedObject:
    """The O of section 3.2: what the viewpoints look at.

    ``parts`` is ``[m, v, j]``: v = 1 when all viewpoints see one decomposition, v = K when each sees its own. Where
    m < b, only the first m objects were decomposed; the others are seen by their points alone (training).
    ``points`` are seen beside the parts where the configuration says so.
    """

    parts: Capsules
    points: Float[Tensor, "b v n 3"] | None


@dataclass(frozen=True)
class Perceived:
    """What the starts came to: all ``voted`` once, the most probable ones ``led`` to the end, and one feature."""

    voted: Pose  # [b, s]
    log_probability: Float[Tensor, "b s"]
    leading: Int[Tensor, "b l"]  # the starts that were led on, most probable first
    led: Pose  # [b, l]
    feature: Float[Tensor, "b d"]


class ObjectVote(nn.Module):
    """Q or F of section 3.4: ``project(maxpool_j embed(v_j | z))``.

    Past the paper, with ``look_grid``, what is seen of the points from the same viewpoint stands beside the parts.
    """

    def __init__(self, config: ObjectConfig, part_feature: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        pose_inputs = 7 if config.part_pose == "quaternion" else 12
        self.embed = embedding(part_feature + pose_inputs, config.width, config.blocks)
        pooled = config.width
        if config.look_grid:
            pooled += config.look_width
        self.project = projection(pooled, config.width, config.blocks, outputs)

    def forward(
        self, observed: ObservedObject, viewpoints: Pose, look: Float[Tensor, "b k w"] | None
    ) -> Float[Tensor, "b k outputs"]:
        decomposed = len(observed.parts.feature)
        parts = observed.parts.observed_from(viewpoints[:decomposed, :, None])
        pooled = self.embed(_part_input(parts, self.config.part_pose)).amax(dim=-2)
        if decomposed < len(viewpoints.wxyz):
            # Embeddings are not negative: no part adds 0 to the maximum, as one with R = 0 does in the first layer.
            pooled = nn.functional.pad(pooled, (0, 0, 0, 0, 0, len(viewpoints.wxyz) - decomposed))
        if look is not None:
            pooled = torch.cat([pooled, look], dim=-1)
        return self.project(pooled)


def scaled_to_one(feature: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """The feature scaled to a root mean square of 1."""
    return feature / feature.square().mean(dim=-1, keepdim=True).add(1e-12).sqrt()


def _part_input(parts: Capsules, part_pose: str) -> Float[Tensor, "b k j inputs"]:
    """The concatenation of relative pose and feature. A matrix has no jump where the quaternion's sign flips."""
    if part_pose == "quaternion":
        pose = parts.pose.vector()
    else:
        pose = torch.cat([parts.pose.translation, parts.pose.rotation_matrix().flatten(-2)], dim=-1)
    return torch.cat([pose, parts.feature.expand(*pose.shape[:-1], -1)], dim=-1)


class PartsToObject(nn.Module):
    """The second layer: voting networks Q and F, and the J part decoders G.

    Where starts are chosen by agreement, Q has an eighth output: the score of the viewpoint that it votes from. Q and F
    look at the grid of points through the same network: telling objects apart helps to tell viewpoints apart.
    """

    def __init__(self, config: ObjectConfig, parts: PartsConfig) -> None:
        super().__init__()
        self.config = config
        self.scores_starts = config.choice == "agreement"
        self.look = Look(config.look_grid, config.look_channels, config.look_width) if config.look_grid else None
        self.pose_network = ObjectVote(config, parts.feature, 8 if self.scores_starts else 7)
        self.feature_network = ObjectVote(config, parts.feature, config.feature)
        self.decoder = ParallelDecoders(
            parts.parts, config.feature, config.decoder_width, config.decoder_blocks, parts.feature + 7
        )
        self.contrast_log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        start_at_identity(self.pose_network.project)
        if self.scores_starts:
            start_decided(self.pose_network.project, output=7)

    def observe(self, parts: Capsules, points: Float[Tensor, "b v n 3"]) -> ObservedObject:
        """What viewpoints will see of part capsules ``[b, v, j]`` and the points they came from."""
        return ObservedObject(parts, points if self.config.look_grid else None)

    def _looked(self, observed: ObservedObject, viewpoints: Pose) -> Float[Tensor, "b k w"] | None:
        if self.look is None or observed.points is None:
            return None
        return self.look(viewpoints.observe(observed.points))

    def pose_vote(self, observed: ObservedObject, viewpoints: Pose) -> Float[Tensor, "b k 7"]:
        """``Δz = Q(V|z)``, raw."""
        return self._vote(self.pose_network(observed, viewpoints, self._looked(observed, viewpoints)))

    def scored_pose_vote(
        self, observed: ObservedObject, viewpoints: Pose
    ) -> tuple[Float[Tensor, "b k 7"], Float[Tensor, "b k"]]:
        """The vote and the score of each viewpoint."""
        out = self.pose_network(observed, viewpoints, self._looked(observed, viewpoints))
        return self._vote(out), out[..., 7]

    def _vote(self, out: Float[Tensor, "b k outputs"]) -> Float[Tensor, "b k 7"]:
        """The seven numbers of the vote. Where only rotations are voted on, viewpoints keep their place.

        Principal starts already stand at the centroid; a free translation in a repeated vote can run away, and a
        percept taken from far off spoils the training (measured).
        """
        if self.config.vote == "pose":
            return out[..., :7]
        return torch.cat([torch.zeros_like(out[..., :3]), out[..., 3:7]], dim=-1)

    def percept_vote(self, observed: ObservedObject, viewpoints: Pose) -> Float[Tensor, "b k d"]:
        """``f = F(V|z)``."""
        return self.feature_network(observed, viewpoints, self._looked(observed, viewpoints))

    def perceive(self, observed: ObservedObject, starts: Starts) -> Perceived:
        """Every start is scored and voted from; the leading ones are led on by Q and seen from by F (ours).

        The consensus is the percepts' mean weighted by the starts' probabilities: on a symmetric object they agree, on
        another the winner dominates. It is scaled to a root mean square of 1, so that L2 distances between features
        are those between directions. Each vote answers for its own step: no gradient goes from what a viewpoint sees
        to the vote that led it there, which would cost as much as all the rest.
        """
        raw, scores = self.scored_pose_vote(observed, starts.pose)
        voted = starts.pose @ Pose.from_network(raw)
        log_probability = starts.log_probabilities(scores)
        weight, leading = log_probability.exp().topk(min(self.config.leading, scores.shape[1]), dim=1)
        led = voted[torch.arange(len(leading), device=leading.device)[:, None], leading]
        for _ in range(self.config.voting_steps - 1):
            led = vote_pose(led.map(torch.detach), lambda z: self.pose_vote(observed, z), steps=1)
        percepts = self.percept_vote(observed, led.map(torch.detach))
        mean = (weight[..., None] * percepts).sum(dim=1)
        return Perceived(voted, log_probability, leading, led, scaled_to_one(mean))

    def decode(self, capsule: Capsules) -> Capsules:
        """``(u_q|h_q, u_f) = G(h_f)``, then ``u_q = h_q ∘ (u_q|h_q)``: equation 3 and Algorithm 2, lines 10–11.

        Object capsules ``[b]`` to part capsules ``[b, j]``.
        """
        out = self.decoder(capsule.feature)
        local = Capsules(Pose.from_network(out[..., :7]), out[..., 7:])
        return local.placed_at(capsule.pose[:, None])
