"""The paper's formulas, implemented literally: a dense R over all N × J points, and loops where the paper loops.

Only the parameters and the random draws are shared with the model; every operation is written out again from the paper.
The benchmark times it, and the tests compare the model with it. A pose is (t, r), a capsule (pose, feature).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import FoldingDecoder, ParallelDecoders, random_square
from geocaps.model.capsules import NOISE_TRANSLATION
from geocaps.model.parts import PointsToParts, RoutedVote

PoseTR = tuple[Tensor, Tensor]
Capsule = tuple[PoseTR, Tensor]


# ── poses ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rotation(q: Float[Tensor, "4"]) -> Float[Tensor, "3 3"]:
    w, x, y, z = q
    return torch.stack(
        [
            torch.stack([w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            torch.stack([2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)]),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z]),
        ]
    )


def compose(a: PoseTR, b: PoseTR) -> PoseTR:
    (t, p), (u, q) = a, b
    scalar = p[0] * q[0] - p[1:] @ q[1:]
    vector = p[0] * q[1:] + q[0] * p[1:] + torch.linalg.cross(p[1:], q[1:])
    return rotation(p) @ u + t, _positive_real(torch.cat([scalar[None], vector]))


def vote_to_pose(vote: Float[Tensor, "7"]) -> PoseTR:
    return vote[:3], _positive_real(vote[3:] / vote[3:].norm())


def _positive_real(q: Float[Tensor, "4"]) -> Float[Tensor, "4"]:
    return torch.where(q[0] < 0, -q, q)


# ── networks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def res(block: Any, x: Tensor) -> Tensor:
    """Res_D(x) = Relu(x + W2 Relu(W1 x))."""
    hidden = linear(x, block.first.weight, block.first.bias).relu_()
    return linear(hidden, block.second.weight, block.second.bias).add_(x).relu_()


def network(sequence: Iterable[Any], x: Tensor) -> Tensor:
    """in → width → Relu → Res × n (→ out)."""
    first, _, *layers = sequence
    x = linear(x, first.weight, first.bias).relu_()
    for layer in layers:
        x = res(layer, x) if hasattr(layer, "first") else linear(x, layer.weight, layer.bias)
    return x


def fold(decoder: FoldingDecoder, feature: Float[Tensor, "d"], square: Float[Tensor, "m 2"]) -> Float[Tensor, "m 3"]:
    """G([v_f, s]) on the concatenation, as in the appendix."""
    weight = torch.cat([decoder.from_feature.weight, decoder.from_square.weight], dim=1)
    both = torch.cat([feature.expand(len(square), -1), square], dim=1)
    hidden = linear(both, weight, decoder.from_feature.bias).relu_()
    for block in decoder.blocks:
        hidden = res(block, hidden)
    return linear(hidden, decoder.to_point.weight, decoder.to_point.bias)


def part_decoders(decoder: ParallelDecoders, feature: Float[Tensor, "*b n"]) -> Float[Tensor, "*b j outputs"]:
    """G_1 … G_J of equation 3, one after the other."""
    layers: list[Any] = list(decoder.layers)
    first, _, *blocks, last = layers
    out = []
    for j in range(decoder.decoders):
        x = torch.relu(feature @ first.weight[j] + first.bias[j, 0])
        for block in blocks:
            hidden = torch.relu(x @ block.first.weight[j] + block.first.bias[j, 0])
            x = torch.relu(x + hidden @ block.second.weight[j] + block.second.bias[j, 0])
        out.append(x @ last.weight[j] + last.bias[j, 0])
    return torch.stack(out, dim=-2)


# ── Algorithm 1, for one cloud ────────────────────────────────────────────────────────────────────────────────────────


def routed_vote(
    vote: RoutedVote, points: Float[Tensor, "n 3"], z: PoseTR, weights: Float[Tensor, "n"]
) -> Float[Tensor, "outputs"]:
    """project(maxpool_i R_ij embed(x_i|z)) for one part: every point is embedded, whatever its R."""
    embedded = network(vote.embed, (points - z[0]) @ rotation(z[1]))
    return network(vote.project, (weights[:, None] * embedded).amax(dim=0))


def decode_parts(
    layer: PointsToParts, parts: Sequence[Capsule], square: Float[Tensor, "*j m 2"]
) -> list[Float[Tensor, "m 3"]]:
    """PartsToPointsDecoder(V), from one sample of the square for all parts, or one for each part."""
    squares = square.expand(len(parts), -1, -1)
    return [fold(layer.decoder, f, s) @ rotation(r).T + t for ((t, r), f), s in zip(parts, squares, strict=True)]


def routing(
    points: Float[Tensor, "n 3"], surfaces: Sequence[Float[Tensor, "m 3"]], log_sigma: float
) -> Float[Tensor, "n j"]:
    """b_ij for each i, j, then softmax over j: dense."""
    sigma = math.exp(log_sigma)
    distances = [torch.cdist(points, y, compute_mode="donot_use_mm_for_euclid_dist") for y in surfaces]
    b = [-(distance.square() / sigma**2 + log_sigma).amin(dim=1) for distance in distances]
    return torch.softmax(torch.stack(b, dim=1), dim=1)


def encode_parts(
    layer: PointsToParts,
    points: Float[Tensor, "n 3"],
    R: Float[Tensor, "n j"],
    viewpoints: Sequence[Sequence[PoseTR]],
    epsilon: Float[Tensor, "j d"],
) -> list[Capsule]:
    """PointsToPartsEncoder: viewpoints [j][k] are given (already perturbed), epsilon is the noise of line 16."""
    out = []
    for j, views in enumerate(viewpoints):
        poses = [compose(z, vote_to_pose(routed_vote(layer.pose_vote, points, z, R[:, j]))) for z in views]
        f = torch.stack([routed_vote(layer.feature_vote, points, z, R[:, j]) for z in poses])
        mean = f.mean(dim=0)
        variance = ((f - mean) ** 2).mean(dim=0)
        out.append((poses[0], mean + variance * epsilon[j]))
    return out


def chamfer(x: Float[Tensor, "n 3"], y: Float[Tensor, "m 3"]) -> Float[Tensor, ""]:
    square = (x[:, None] - y[None]).square().sum(-1)
    return square.amin(dim=0).mean() + square.amin(dim=1).mean()


# ── training of the first layer ───────────────────────────────────────────────────────────────────────────────────────


def parts_loss(layer: PointsToParts, points: Float[Tensor, "b n 3"], generator: torch.Generator) -> Float[Tensor, "b"]:
    """The same as :meth:`PointsToParts.loss`, from the same draws in the same order."""
    config, batch = layer.config, (len(points), layer.config.parts)
    start = layer.initial(points, generator)
    capsules = [
        list(zip(zip(t, r, strict=True), f, strict=True))
        for t, r, f in zip(start.pose.translation, start.pose.wxyz, start.feature, strict=True)
    ]
    for left in reversed(range(config.iterations)):
        squares = random_square(*batch, config.decoded, generator=generator)
        noise = Pose.perturbation(
            *batch,
            config.views,
            max_angle=math.radians(config.noise_degrees),
            max_translation=NOISE_TRANSLATION,
            generator=generator,
        )
        epsilon = torch.randn(*batch, config.feature, generator=generator)
        for b, cloud in enumerate(points):
            with torch.no_grad():
                R = routing(cloud, decode_parts(layer, capsules[b], squares[b]), config.log_sigma)
            viewpoints = [
                [compose(pose, r_k) for r_k in zip(noise.translation[b, j], noise.wxyz[b, j], strict=True)]
                for j, (pose, _) in enumerate(capsules[b])
            ]
            with torch.set_grad_enabled(left == 0):  # appendix A.2: gradient through the last iteration only
                capsules[b] = encode_parts(layer, cloud, R, viewpoints, epsilon[b])
    squares = random_square(*batch, config.decoded, generator=generator)
    surfaces = [torch.cat(decode_parts(layer, *one)) for one in zip(capsules, squares, strict=True)]
    return torch.stack([chamfer(*both) for both in zip(points, surfaces, strict=True)])
