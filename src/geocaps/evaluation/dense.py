"""The yardstick: a training step of the first layer with the paper's formulas taken literally.

Dense R over all N × J points, a loop over parts and viewpoints as in Algorithm 1, whole distance matrices. It uses the
product's parameters and nothing else of it; the tests hold an even slower version that the product must equal.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose, stack
from geocaps.model.blocks import ParallelDecoders
from geocaps.model.capsules import Capsules
from geocaps.model.parts import PointsToParts, RoutedVote


def _vote(
    vote: RoutedVote, points: Float[Tensor, "b n 3"], weight: Float[Tensor, "b n"], viewpoint: Pose
) -> Float[Tensor, "b outputs"]:
    """``project(maxpool_i R_ij embed(x_i|z))``, every point embedded."""
    embedded = vote.embed(viewpoint.observe(points))
    return vote.project((weight[..., None] * embedded).amax(dim=1))


def _encode(
    layer: PointsToParts,
    points: Float[Tensor, "b n 3"],
    routing: Float[Tensor, "b n j"],
    parts: Capsules,
    generator: torch.Generator,
) -> Capsules:
    """PointsToPartsEncoder, lines 9–16."""
    config = layer.config
    poses, features = [], []
    for j in range(config.parts):
        transformed, percepts = [], []
        for _ in range(config.views):
            noise = Pose.perturbation(
                len(points),
                max_angle=math.radians(config.noise_degrees),
                max_translation=config.noise_translation,
                generator=generator,
            )
            z = parts.pose[:, j] @ noise
            z = z @ Pose.from_network(_vote(layer.pose_vote, points, routing[..., j], z))
            percepts.append(_vote(layer.feature_vote, points, routing[..., j], z))
            transformed.append(z)
        f = torch.stack(percepts, dim=1)
        mean = f.mean(dim=1)
        variance = (f - mean[:, None]).square().mean(dim=1)
        poses.append(transformed[0])
        features.append(mean + variance * torch.randn(mean.shape, generator=generator))
    return Capsules(stack(poses, dim=1), torch.stack(features, dim=1))


def _routing(
    layer: PointsToParts, points: Float[Tensor, "b n 3"], parts: Capsules, generator: torch.Generator
) -> Float[Tensor, "b n j"]:
    """Lines 2–5, with the distances of all points to all decoded points at once."""
    surfaces = layer.decode(parts, generator)
    b, j, m, _ = surfaces.shape
    square = torch.cdist(points, surfaces.flatten(1, 2)).square().view(b, -1, j, m)
    sigma = math.exp(layer.config.log_sigma)
    return torch.softmax(-(square / sigma**2 + math.log(sigma)).amin(dim=-1), dim=-1)


def dense_loss(layer: PointsToParts, points: Float[Tensor, "b n 3"], generator: torch.Generator) -> Float[Tensor, "b"]:
    """What :meth:`PointsToParts.loss` computes, literally."""
    parts = layer.initial(points, generator)
    with torch.no_grad():
        for _ in range(layer.config.iterations - 1):
            parts = _encode(layer, points, _routing(layer, points, parts, generator), parts, generator)
        routing = _routing(layer, points, parts, generator)
    parts = _encode(layer, points, routing, parts, generator)
    decoded = layer.decode(parts, generator).flatten(1, 2)
    square = (points[:, :, None] - decoded[:, None]).square().sum(-1)
    return square.amin(dim=1).mean(dim=-1) + square.amin(dim=2).mean(dim=-1)


class LoopedDecoders(nn.Module):
    """The J part decoders of :class:`ParallelDecoders`, one after the other."""

    def __init__(self, parallel: ParallelDecoders) -> None:
        super().__init__()
        self.parallel = parallel

    def forward(self, x: Float[Tensor, "b n"]) -> Float[Tensor, "b j outputs"]:
        out = []
        layers: list[Any] = list(self.parallel.layers)
        first, _, *blocks, last = layers
        for j in range(self.parallel.decoders):
            hidden = torch.relu(x @ first.weight[j] + first.bias[j])
            for block in blocks:
                inner = torch.relu(hidden @ block.first.weight[j] + block.first.bias[j])
                hidden = torch.relu(hidden + inner @ block.second.weight[j] + block.second.bias[j])
            out.append(hidden @ last.weight[j] + last.bias[j])
        return torch.stack(out, dim=1)
