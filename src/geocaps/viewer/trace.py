"""The two algorithms step by step, by the model's own public methods: what ``encode`` does, with every state kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules
from geocaps.model.viewpoints import random_starts


@dataclass(frozen=True)
class RoutingStep:
    """Part capsules ``[j]`` after some iterations of Algorithm 1, and the part whose surface explains each point."""

    parts: Capsules
    labels: Int[Tensor, "n"]
    surfaces: Float[Tensor, "j m 3"]


@dataclass(frozen=True)
class VotingStep:
    """Viewpoints ``[s]`` after some votes of Algorithm 2."""

    viewpoints: Pose
    probability: Float[Tensor, "s"] | None
    """Of each start to be the canonical one; None where the model does not score starts."""

    def degrees_to(self, pose: Pose) -> Float[Tensor, "s"]:
        return torch.rad2deg(self.viewpoints.angle_to(pose))


@torch.no_grad()
def routing_steps(network: GeometricCapsuleAutoencoder, points: Float[Tensor, "n 3"]) -> list[RoutingStep]:
    """Iterations 0 … T: where parts start, then decode → route → encode. The last is what ``encode`` returns."""
    layer, steps = network.parts, []
    parts = layer.initial(points[None])
    batch = points[None].to(parts.feature)
    for iteration in range(layer.config.iterations + 1):
        routing = layer.route(batch, parts)
        steps.append(RoutingStep(parts[0], routing.labels()[0], layer.decode(parts)[0]))
        if iteration < layer.config.iterations:
            agreement = layer.encode(batch, routing, parts, None)
            parts = Capsules(agreement.pose, agreement.feature)
    return steps


@torch.no_grad()
def voting_steps(
    network: GeometricCapsuleAutoencoder, points: Float[Tensor, "n 3"], parts: Capsules, random: int, seed: int
) -> list[VotingStep]:
    """Votes 0 … T from several starts: those of the model, or (``random`` of them) the paper's random ones.

    Every start is led to the end here; ``encode`` drops the improbable ones after the first vote.
    """
    layer, batch = network.object, points[None].to(parts.feature)
    if random:
        starts = random_starts(batch, random, torch.Generator().manual_seed(seed))
    else:
        starts = network.starts(batch)
    observed = layer.observe(parts[None, None], batch[:, None])
    viewpoints, probability = starts.pose, None
    if layer.scores_starts:
        _, scores = layer.scored_pose_vote(observed, viewpoints)
        probability = starts.log_probabilities(scores).exp()[0][starts.valid[0]]
    steps = []
    for vote in range(layer.config.voting_steps + 1):
        steps.append(VotingStep(viewpoints[0][starts.valid[0]], probability))
        if vote < layer.config.voting_steps:
            viewpoints = viewpoints @ Pose.from_network(layer.pose_vote(observed, viewpoints))
    return steps
