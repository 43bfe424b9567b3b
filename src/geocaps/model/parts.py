"""PointsToParts: Algorithm 1. Points become J part capsules by decoding, routing and encoding in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.errors import InvalidInputError
from geocaps.geometry.frames import farthest_points, local_frames
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import FoldingDecoder, embedding, grid_square, projection, random_square, start_at_identity
from geocaps.model.capsules import NOISE_TRANSLATION, Capsules, Parts, agree, perturbed_viewpoints
from geocaps.model.config import MAX_COORDINATE, PartsConfig
from geocaps.model.losses import chamfer, gather_points
from geocaps.model.routing import MaxPool, Routing, exact_square_distance, log_likelihood, route

FRAME_RADIUS = 0.35
"""Around each start, how far the neighbours lie that its local frame is made from."""
SIGMA_WEIGHT = 1e-3
"""The likelihood is in nats and the Chamfer loss around 1e-3: this keeps the first from drowning the second."""


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
    """Part capsules ``[b, j]`` and the routing that they were encoded with (None where they start)."""

    capsules: Capsules
    routing: MaxPool | None


@dataclass(frozen=True)
class PartsResult:
    """Part capsules ``[b, j]`` and the routing that they were last encoded with."""

    capsules: Capsules
    routing: Routing

    @property
    def parts(self) -> Parts:
        """What goes on to layer 2."""
        return Parts(self.capsules, self.routing.share())


class PointsToParts(nn.Module):
    """The first layer: ``iterate`` is Algorithm 1, ``decode`` its PartsToPointsDecoder, ``loss`` the Chamfer loss."""

    square: Tensor

    def __init__(self, config: PartsConfig) -> None:
        super().__init__()
        self.config = config
        self.pose_vote = RoutedVote(config.width, config.blocks, 7)
        self.feature_vote = RoutedVote(config.width, config.blocks, config.feature)
        self.decoder = FoldingDecoder(config.feature, config.decoder_width, config.decoder_blocks, config.learn_sigma)
        start_at_identity(self.pose_vote.project)
        self.register_buffer("square", grid_square(config.decoded), persistent=False)

    # ── where parts start ─────────────────────────────────────────────────────────────────────────────────────────

    def initial(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None) -> Capsules:
        """Initial capsules: farthest points, features 0, rotations from local frames or random (section 3.3).

        ``frames`` turns exactly with the points and needs no generator; ``random`` is the paper (the same draws in
        every call without a generator). Points may come in float64, and are best given so: in float32, rounding turns
        the frame of a nearly round patch by a percent.
        """
        index = farthest_points(points, self.config.parts)
        centers = gather_points(points, index)
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
    ) -> PartsResult:
        """PointsToParts(X, V, T), from ``start`` or from :meth:`initial`."""
        require_points(points, self.config.parts)
        parts = self.initial(points, generator) if start is None else start
        *_, last = self.iterate(points.to(parts.feature), parts, generator=generator)
        assert isinstance(last.routing, Routing)
        return PartsResult(last.capsules, last.routing)

    def iterate(
        self,
        points: Float[Tensor, "b n 3"],
        parts: Capsules,
        *,
        generator: torch.Generator | None = None,
        router: Callable[[Tensor, Tensor, Tensor], MaxPool] = route,
    ) -> Iterator[PartsState]:
        """Lines 1–7: the T + 1 states of V, from the given one; gradient through the last encoding only.

        With a generator the viewpoints are perturbed, the square is sampled and the consensus is noisy (training);
        without one, one unperturbed view and a fixed grid (inference): deterministic. ``router`` is lines 3–5; a dense
        one serves where shapes must not depend on the data (ONNX).
        """
        yield PartsState(parts, None)
        for left in reversed(range(self.config.iterations)):
            with torch.no_grad():
                surfaces = self.decode(parts, generator)
                routing = router(points, surfaces, self.decoder.log_sigma(parts.feature, self.config.log_sigma))
            with torch.set_grad_enabled(torch.is_grad_enabled() and left == 0):
                parts = self.encode(points, routing, parts.detach(), generator)
            yield PartsState(parts, routing)

    def encode(
        self, points: Float[Tensor, "b n 3"], routing: MaxPool, parts: Capsules, generator: torch.Generator | None
    ) -> Capsules:
        """PointsToPartsEncoder(X, R, V) (lines 8–17): Multi-View Agreement for every part at once."""
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

    def decode(self, parts: Capsules, generator: torch.Generator | None = None) -> Float[Tensor, "b j m 3"]:
        """PartsToPointsDecoder(V): a random sample of the square in training, the fixed grid at inference."""
        if generator is None:
            square = self.square
        else:
            square = random_square(*parts.pose.shape, self.config.decoded, generator=generator).to(parts.feature)
        return self.decoder.decode(parts, square)

    def loss(self, points: Float[Tensor, "b n 3"], generator: torch.Generator) -> Float[Tensor, "b"]:
        """The training loss of one batch: squared Chamfer between the points and the union of decoded surfaces.

        A learned σ gets its gradient from the likelihood that the routing is made of (the decoded surfaces held fixed),
        because no gradient passes through the routing itself.
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
        log_sigma = self.decoder.log_sigma(result.capsules.feature.detach(), self.config.log_sigma)
        square = exact_square_distance(points, surfaces, routing.part, routing.point)
        logits = log_likelihood(square, log_sigma.flatten()[routing.part])
        expected = torch.zeros(routing.objects * routing.points, dtype=points.dtype, device=points.device)
        expected = expected.index_add(0, routing.point, routing.weight * logits)
        return -expected.view(routing.objects, routing.points).mean(-1)


def require_points(points: object, minimum: int, name: str = "points") -> None:
    """Raises unless ``points`` is a float batch ``[B, N, 3]`` that the model can work with."""
    import torch
    from torch import Tensor

    if not isinstance(points, Tensor):
        raise InvalidInputError(f"{name} must be a tensor [B, N, 3], not {type(points).__name__}")
    if points.ndim != 3 or points.shape[-1] != 3:
        raise InvalidInputError(f"{name} must have shape [B, N, 3], not {list(points.shape)}")
    if not points.dtype.is_floating_point:
        raise InvalidInputError(f"{name} must be floating point, not {points.dtype}: convert with .float()")
    if len(points) == 0:
        raise InvalidInputError(f"{name} is an empty batch: give at least one cloud")
    if points.shape[1] < minimum:
        raise InvalidInputError(
            f"{name} has {points.shape[1]} points per cloud; at least {minimum} are needed, one for each part"
        )
    largest = points.detach().abs().amax()
    if not torch.isfinite(largest):
        bad = int((~torch.isfinite(points)).any(-1).sum())
        raise InvalidInputError(f"{name} has {bad} points that are NaN or infinite: remove them first")
    if largest > MAX_COORDINATE:
        raise InvalidInputError(
            f"{name} has a coordinate of {float(largest):.3g}; more than {MAX_COORDINATE:.0e} cannot be worked with"
        )
