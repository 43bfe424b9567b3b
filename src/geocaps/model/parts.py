"""PointsToParts: Algorithm 1. Points become J part capsules by repeated decoding, routing and encoding.

With σ ≈ e⁻⁶ routing is nearly hard, so R is stored as a list of (part, point) pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from geocaps.errors import InvalidInputError
from geocaps.geometry.frames import farthest_points, local_frames
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import FoldingDecoder, embedding, grid_square, projection, random_square, start_at_identity
from geocaps.model.capsules import NOISE_TRANSLATION, Capsules, Parts, agree, perturbed_viewpoints
from geocaps.model.config import MAX_COORDINATE, PartsConfig
from geocaps.model.losses import chamfer

FRAME_RADIUS = 0.35
"""Radius of the neighbourhood from which the local frame of each start is computed."""
SIGMA_WEIGHT = 1e-3
"""Weight of the likelihood, which is in nats, beside the Chamfer loss, which is around 1e-3."""


_KEEP = 1e-6
_WINDOW = 18.0
"""Parts whose log-likelihood is within this of a point's best are evaluated exactly: ln(1e-6) = -13.8, and a margin for
the inexact first pass."""
_PAIR_BLOCK = 1 << 19
_ROWS = 4096


# ── R, and the pooling of what is routed ──────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class MaxPool(Protocol):
    """R in any form: as pairs (:class:`Routing`), or dense in an exported graph."""

    def max_pool(self, embed: nn.Module, points: Tensor, viewpoints: Pose) -> Tensor: ...


@dataclass(frozen=True)
class Routing:
    """R of Algorithm 1 as a sorted list of (part, point) pairs with their weights."""

    objects: int
    parts: int
    points: int
    part: Int[Tensor, "p"]  # object · J + j, ascending
    point: Int[Tensor, "p"]  # object · N + i
    weight: Float[Tensor, "p"]  # R_ij

    @classmethod
    def from_dense(cls, routing: Float[Tensor, "b n j"]) -> Routing:
        b, n, j = routing.shape
        flat = routing.mT.reshape(b * j, n)
        part, index = (flat > _KEEP).nonzero(as_tuple=True)
        point = part.div(j, rounding_mode="floor") * n + index
        return cls(b, j, n, part, point, flat[part, index])

    def dense(self) -> Float[Tensor, "b n j"]:
        dense = self.weight.new_zeros(self.objects * self.parts, self.points)
        dense[self.part, self.point % self.points] = self.weight
        return dense.view(self.objects, self.parts, self.points).mT

    def labels(self) -> Int[Tensor, "b n"]:
        """The most probable part of each point."""
        return self.dense().argmax(dim=-1)

    @cached_property
    def counts(self) -> Int[Tensor, "bj"]:
        """Points per part."""
        return torch.bincount(self.part, minlength=self.objects * self.parts)

    def max_pool(
        self, embed: nn.Module, points: Float[Tensor, "b n 3"], viewpoints: Pose
    ) -> Float[Tensor, "b j k width"]:
        """``maxpool_i R_ij · embed(x_i | z_jk)`` of equations 1 and 2; zero for a part without points."""
        b, j, k = viewpoints.shape
        cloud = points.flatten(0, 1)
        rotation, origin = viewpoints.rotation_matrix().flatten(0, 2), viewpoints.translation.flatten(0, 2)

        def embed_rows(row: Tensor) -> tuple[Tensor, Tensor]:
            """R·embed(x|z) for rows (pair, view), and the slot (object, part, view) into which each is pooled."""
            pair = row.div(k, rounding_mode="floor")
            slot = self.part[pair] * k + row % k
            local = torch.einsum("pc,pcd->pd", cloud[self.point[pair]] - origin[slot], rotation[slot])
            return embed(local) * self.weight[pair, None], slot

        differentiate = torch.is_grad_enabled()
        with torch.no_grad():
            pooled, winners = self._largest(embed_rows, k, find_rows=differentiate)
        if differentiate:
            slot, channel = (winners >= 0).nonzero(as_tuple=True)
            rows, picks = torch.unique(winners[slot, channel], return_inverse=True)
            values, _ = embed_rows(rows)
            pooled = torch.zeros_like(pooled).index_put((slot, channel), values[picks, channel])
        return pooled.view(b, j, k, -1)

    def _largest(
        self, embed_rows: Callable[[Tensor], tuple[Tensor, Tensor]], views: int, find_rows: bool
    ) -> tuple[Float[Tensor, "slots width"], Int[Tensor, "slots width"]]:
        """Maximum over each slot, and the row (pair · views + view) that attains it, -1 where nothing positive does."""
        device = self.part.device
        ends = self.counts.cumsum(0).tolist()
        edges = [0]  # blocks that never split a part, so that each block finds its maxima alone
        for end in ends:
            if end - edges[-1] >= _ROWS // views:
                edges.append(end)
        if edges[-1] != ends[-1] or len(edges) == 1:
            edges.append(ends[-1])
        pooled, winners = torch.empty(0), torch.empty(0, dtype=torch.int64)
        for first, last in pairwise(edges):
            row = torch.arange(first * views, last * views, device=device)
            values, slot = embed_rows(row)
            if len(pooled) == 0:
                pooled = values.new_zeros(self.objects * self.parts * views, values.shape[1])
                winners = torch.full(pooled.shape, -1, dtype=torch.int64, device=device)
            pooled.scatter_reduce_(0, slot[:, None].expand_as(values), values, "amax")
            if find_rows:
                at, channel = ((values == pooled[slot]) & (values > 0)).nonzero(as_tuple=True)
                # Of equal values the first row wins: deterministic.
                winners.view(-1).scatter_reduce_(
                    0, slot[at] * pooled.shape[1] + channel, row[at], "amin", include_self=False
                )
        return pooled, winners

    def reached(self) -> Bool[Tensor, "b j"]:
        """Which parts have a point."""
        return self.counts.view(self.objects, self.parts) > 0


# ── lines 3–5: points are routed to the surfaces that explain them ────────────────────────────────────────────────────


def log_likelihood(
    square_distance: Float[Tensor, "*shape"], log_sigma: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """``b_ij = -(min_y ||x - y||²/σ² + log σ)``."""
    return -(square_distance * torch.exp(-2 * log_sigma) + log_sigma)


@torch.no_grad()
def route(
    points: Float[Tensor, "b n 3"], surfaces: Float[Tensor, "b j m 3"], log_sigma: Float[Tensor, "b j"]
) -> Routing:
    """Lines 3–5 of Algorithm 1: log-likelihoods of each point under each decoded surface, softmax over parts."""
    b, n, _ = points.shape
    j = surfaces.shape[1]
    rough = log_likelihood(min_square_distance(points, surfaces), log_sigma[..., None].expand(b, j, n))
    possible = rough > rough.amax(dim=1, keepdim=True) - _WINDOW
    object_index, part_index, index = possible.nonzero(as_tuple=True)
    part, point = object_index * j + part_index, object_index * n + index
    # A point with one possible part has R = 1 at any distance, so only contested points need exact distances.
    contested = (possible.sum(dim=1) > 1)[object_index, index]
    logits = torch.zeros(len(part), dtype=points.dtype, device=points.device)
    square = exact_square_distance(points, surfaces, part[contested], point[contested])
    logits[contested] = log_likelihood(square, log_sigma.flatten()[part[contested]])
    # Softmax over the parts of each point.
    top = torch.full((b * n,), -torch.inf, dtype=logits.dtype, device=logits.device)
    exponential = torch.exp(logits - top.scatter_reduce(0, point, logits, "amax")[point])
    weight = exponential / torch.zeros_like(top).index_add(0, point, exponential)[point]
    keep = weight > _KEEP
    return Routing(b, j, n, part[keep], point[keep], weight[keep])


@torch.no_grad()
def min_square_distance(points: Float[Tensor, "b n 3"], surfaces: Float[Tensor, "b j m 3"]) -> Float[Tensor, "b j n"]:
    """``min_y ||x_i - y||²`` over the points of each part, by one matrix product per object.

    Fast, but with errors of about 1e-6 (cancellation in the product form): enough to find the parts to which a point
    may belong, for which :func:`exact_square_distance` then gives exact values.
    """
    b, j, m, _ = surfaces.shape
    center = points.mean(dim=1, keepdim=True)
    x, y = points - center, (surfaces.flatten(1, 2) - center)
    left = torch.cat([-2 * y, y.square().sum(-1, keepdim=True), torch.ones_like(y[..., :1])], dim=-1)
    right = torch.cat([x, torch.ones_like(x[..., :1]), x.square().sum(-1, keepdim=True)], dim=-1).mT
    out = x.new_empty(b, j, x.shape[1])
    for index in range(b):
        torch.amin((left[index] @ right[index]).view(j, m, -1), dim=1, out=out[index])
    return out.clamp_(min=0)


@torch.no_grad()
def exact_square_distance(
    points: Float[Tensor, "b n 3"],
    surfaces: Float[Tensor, "b j m 3"],
    part: Int[Tensor, "p"],
    point: Int[Tensor, "p"],
) -> Float[Tensor, "p"]:
    """``min_y ||x - y||²``, exact, for the listed (part, point) pairs, in small blocks."""
    flat_points, flat_surfaces = points.flatten(0, 1), surfaces.flatten(0, 1)
    rows = max(1, _PAIR_BLOCK // surfaces.shape[2])
    blocks = [
        (flat_surfaces[parts] - flat_points[pairs][:, None]).square().sum(-1).amin(-1)
        for parts, pairs in zip(part.split(rows), point.split(rows), strict=True)
    ]
    return torch.cat(blocks)


# ── Algorithm 1 ───────────────────────────────────────────────────────────────────────────────────────────────────────


class RoutedVote(nn.Module):
    """Q or F of section 3.3: ``project(maxpool_i R_ij embed(x_i | z))`` (equations 1 and 2)."""

    def __init__(self, width: int, blocks: int, outputs: int) -> None:
        super().__init__()
        self.embed = embedding(3, width, blocks)
        self.project = projection(width, width, blocks, outputs)

    def forward(
        self, points: Float[Tensor, "b n 3"], routing: MaxPool, viewpoints: Pose
    ) -> Float[Tensor, "b j k outputs"]:
        return self.project(routing.max_pool(self.embed, points, viewpoints))


@dataclass(frozen=True)
class PartsState:
    """Part capsules ``[b, j]`` and the routing that they were encoded with (None at the start)."""

    capsules: Capsules
    routing: MaxPool | None


@dataclass(frozen=True)
class PartsResult:
    """Part capsules ``[b, j]`` and the routing that they were last encoded with."""

    capsules: Capsules
    routing: Routing

    @property
    def parts(self) -> Parts:
        """The input of layer 2: the capsules, and the share of the points that is routed to each."""
        routed = self.routing
        total = torch.zeros(routed.objects * routed.parts, dtype=routed.weight.dtype, device=routed.weight.device)
        total = total.index_add(0, routed.part, routed.weight)
        return Parts(self.capsules, total.view(routed.objects, routed.parts) / routed.points)


class PointsToParts(nn.Module):
    """The first layer: ``iterate`` is Algorithm 1, ``decode`` its PartsToPointsDecoder, ``loss`` the Chamfer loss."""

    square: Tensor

    def __init__(self, config: PartsConfig) -> None:
        super().__init__()
        self.config = config
        self.pose_vote = RoutedVote(config.width, config.blocks, 7)
        self.feature_vote = RoutedVote(config.width, config.blocks, config.feature)
        self.decoder = FoldingDecoder(
            config.feature, config.decoder_width, config.decoder_blocks, config.log_sigma, config.learn_sigma
        )
        start_at_identity(self.pose_vote.project)
        self.register_buffer("square", grid_square(config.decoded), persistent=False)

    # ── where parts start ─────────────────────────────────────────────────────────────────────────────────────────

    def initial(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None) -> Capsules:
        """Initial capsules: farthest points, features 0, rotations from local frames or random (section 3.3).

        ``frames`` rotates exactly with the points and needs no generator; ``random`` is the paper (without a generator,
        the same draws in every call). Points should be in float64: in float32, rounding rotates the frame of a nearly
        round patch by a percent.
        """
        index = farthest_points(points, self.config.parts)
        centers = points.take_along_dim(index[..., None], dim=1)
        if self.config.start == "frames":
            pose = Pose.from_rotation(local_frames(points, centers, FRAME_RADIUS), centers)
        else:
            rotations = Pose.random(*index.shape, generator=generator or torch.Generator().manual_seed(0))
            pose = Pose(centers, rotations.wxyz.to(points))
        return Capsules(pose, points.new_zeros(*index.shape, self.config.feature)).map(lambda t: t.to(self.square))

    # ── Algorithm 1 ───────────────────────────────────────────────────────────────────────────────────────────────

    def forward(
        self,
        points: Float[Tensor, "b n 3"],
        start: Capsules | None = None,
        *,
        generator: torch.Generator | None = None,
        count: int | None = None,
    ) -> PartsResult:
        """PointsToParts(X, V, T), from ``start`` or from :meth:`initial`; ``count`` as in :meth:`decode`."""
        require_points(points, self.config.parts)
        parts = self.initial(points, generator) if start is None else start
        *_, last = self.iterate(points.to(parts.feature), parts, generator=generator, count=count)
        assert isinstance(last.routing, Routing)
        return PartsResult(last.capsules, last.routing)

    def iterate(
        self,
        points: Float[Tensor, "b n 3"],
        parts: Capsules,
        *,
        generator: torch.Generator | None = None,
        router: Callable[[Tensor, Tensor, Tensor], MaxPool] = route,
        count: int | None = None,
    ) -> Iterator[PartsState]:
        """Lines 1–7: the T + 1 states of V, from the given one; with a gradient through the last encoding only.

        With a generator (training) the viewpoints are perturbed, the square is sampled and the consensus is noisy;
        without one (inference) there is one unperturbed view and a fixed grid, so the result is deterministic.
        ``router`` is lines 3–5; a dense one is used if shapes must not depend on the data (ONNX).
        """
        yield PartsState(parts, None)
        for left in reversed(range(self.config.iterations)):
            with torch.no_grad():
                surfaces = self.decode(parts, generator, count)
                routing = router(points, surfaces, self.decoder.log_sigma(parts.feature))
            with torch.set_grad_enabled(torch.is_grad_enabled() and left == 0):
                parts = self.encode(points, routing, parts.detach(), generator)
            yield PartsState(parts, routing)

    def encode(
        self, points: Float[Tensor, "b n 3"], routing: MaxPool, parts: Capsules, generator: torch.Generator | None
    ) -> Capsules:
        """PointsToPartsEncoder(X, R, V) (lines 8–17): Multi-View Agreement for all parts at once."""
        if generator is None:
            viewpoints = parts.pose[..., None]
        else:
            angle = math.radians(self.config.noise_degrees)
            viewpoints = perturbed_viewpoints(parts.pose, self.config.views, angle, NOISE_TRANSLATION, generator)
        return agree(
            viewpoints,
            lambda z: self.pose_vote(points, routing, z),
            lambda z: self.feature_vote(points, routing, z),
            generator=generator,
        )

    def decode(
        self, parts: Capsules, generator: torch.Generator | None = None, count: int | None = None
    ) -> Float[Tensor, "b j m 3"]:
        """PartsToPointsDecoder(V), at ``count`` points of the square (default: M): random in training, else a grid."""
        if generator is not None:
            size = self.config.decoded if count is None else count
            square = random_square(*parts.pose.shape, size, generator=generator).to(parts.feature)
        else:
            square = self.square if count is None else grid_square(count).to(self.square)
        return self.decoder.decode(parts, square)

    def loss(self, points: Float[Tensor, "b n 3"], generator: torch.Generator) -> Float[Tensor, "b"]:
        """The training loss of one batch: squared Chamfer between the points and the union of decoded surfaces.

        A learned σ gets its gradient from the likelihood on which the routing is based, with fixed surfaces, because no
        gradient passes through the routing itself.
        """
        result = self(points, generator=generator)
        surfaces = self.decode(result.capsules, generator)
        loss = chamfer(points, surfaces.flatten(1, 2))
        if self.config.learn_sigma:
            loss = loss + SIGMA_WEIGHT * self._negative_log_likelihood(points, result, surfaces.detach())
        return loss

    def _negative_log_likelihood(
        self, points: Float[Tensor, "b n 3"], result: PartsResult, surfaces: Float[Tensor, "b j m 3"]
    ) -> Float[Tensor, "b"]:
        routing = result.routing
        log_sigma = self.decoder.log_sigma(result.capsules.feature.detach())
        square = exact_square_distance(points, surfaces, routing.part, routing.point)
        logits = log_likelihood(square, log_sigma.flatten()[routing.part])
        expected = torch.zeros(routing.objects * routing.points, dtype=points.dtype, device=points.device)
        expected = expected.index_add(0, routing.point, routing.weight * logits)
        return -expected.view(routing.objects, routing.points).mean(-1)


def require_points(points: object, minimum: int) -> None:
    """Raises unless ``points`` is a float batch ``[B, N, 3]`` that the model can work with."""
    if not isinstance(points, Tensor):
        raise InvalidInputError(f"points must be a tensor [B, N, 3], not {type(points).__name__}")
    if points.ndim != 3 or points.shape[-1] != 3:
        raise InvalidInputError(f"points must have shape [B, N, 3], not {list(points.shape)}")
    if not points.dtype.is_floating_point:
        raise InvalidInputError(f"points must be floating point, not {points.dtype}: convert with .float()")
    if len(points) == 0:
        raise InvalidInputError("points is an empty batch: give at least one cloud")
    if points.shape[1] < minimum:
        raise InvalidInputError(
            f"points has {points.shape[1]} points per cloud; at least {minimum} are needed, one for each part"
        )
    largest = points.detach().abs().amax()
    if not torch.isfinite(largest):
        bad = int((~torch.isfinite(points)).any(-1).sum())
        raise InvalidInputError(f"points has {bad} points that are NaN or infinite: remove them first")
    if largest > MAX_COORDINATE:
        raise InvalidInputError(
            f"points has a coordinate of {float(largest):.3g}, which exceeds the limit of {MAX_COORDINATE:.0e}"
        )
