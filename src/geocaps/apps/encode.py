"""``geocaps.load()`` and ``model.encode(points)``: capsules of any cloud, in the user's coordinates and units."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.apps.clouds import Cloud, Source, as_clouds
from geocaps.errors import InvalidInputError
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder, Parse
from geocaps.model.capsules import Capsules
from geocaps.model.config import ModelConfig, preset
from geocaps.model.folding import grid_triangles
from geocaps.model.nearest import min_square_distance
from geocaps.model.routing import log_likelihood
from geocaps.model.viewpoints import principal_starts
from geocaps.points.normalize import Normalization, normalization
from geocaps.points.sampling import canonical_order, evenly
from geocaps.se3 import Pose, stack
from geocaps.training.checkpoint import SHIPPED, load_checkpoint, load_named

_BATCH = 16
"""Clouds encoded at a time: enough to fill the matrix products, few enough to stay in cache."""
_LABEL_BLOCK = 1 << 14
_TIE = 0.25
"""Another viewpoint that is this probable beside the chosen one makes the pose a choice among several."""


@dataclass(frozen=True)
class Alternative:
    """Another pose that the object may be seen in: near ties are its symmetries."""

    pose: Pose
    probability: float


def is_ambiguous(confidence: float, alternatives: Sequence[Alternative]) -> bool:
    """Whether one of the alternatives comes near the chosen viewpoint."""
    return any(other.probability >= _TIE * confidence for other in alternatives)


@dataclass(frozen=True)
class Surface:
    """Decoded part surfaces in the user's coordinates: J grids of points and the triangles of one grid."""

    points: Float[Tensor, "*batch j m 3"]
    triangles: Int[Tensor, "t 3"]


@dataclass(frozen=True, repr=False)
class Encoding:
    """The capsules of one cloud, or of a batch (then every field has a leading dimension, and it can be indexed)."""

    pose: Pose
    """Canonical pose ``T_world_object`` in the user's coordinates (float64)."""
    feature: Float[Tensor, "*batch d"]
    """Pose-invariant feature."""
    parts: Capsules
    """J part capsules, poses in the user's coordinates."""
    confidence: Float[Tensor, "*batch"]
    """Probability of the chosen viewpoint."""
    clouds: tuple[Cloud, ...]
    normalization: Normalization
    parse: Parse
    model: Model

    @property
    def is_batch(self) -> bool:
        return self.feature.ndim == 2

    def __len__(self) -> int:
        return len(self.clouds)

    def __repr__(self) -> str:
        parts, size = self.parts.feature.shape[-2:]
        capsules = f"{parts} parts (features of {size}), feature of {self.feature.shape[-1]}"
        if self.is_batch:
            return f"Encoding({len(self)} clouds: {capsules}, mean confidence {float(self.confidence.mean()):.2f})"
        cloud = self.clouds[0]
        return (
            f"Encoding({cloud.name}, {len(cloud.points):,} points: {capsules}, confidence {float(self.confidence):.2f})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.notebook import encoding_html

        return encoding_html(self)

    def __iter__(self) -> Iterator[Encoding]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Encoding:
        """One object of a batch."""
        if not self.is_batch:
            raise TypeError("this encoding is of one cloud: it cannot be indexed")
        index = range(len(self))[index]
        return self.model.joined([self.clouds[index]], _row(self.parse, index), self._own(index), batched=False)

    def _own(self, index: int) -> Normalization:
        return Normalization(self.normalization.center[index, None], self.normalization.scale[index, None])

    @cached_property
    def labels(self) -> Int[Tensor, "*batch n"] | list[Int[Tensor, "n"]]:
        """The part of each input point, in the order given: that of the surface which explains it best.

        A list of tensors for a batch of clouds of different sizes.
        """
        found = self.model.labels(self)
        if not self.is_batch:
            return found[0]
        return torch.stack(found) if len({len(one) for one in found}) == 1 else found

    @property
    def alternatives(self) -> list[Alternative] | list[list[Alternative]]:
        """The other viewpoints that are nearly as probable, most probable first: an object's symmetries."""
        found = self.model.alternatives(self)
        return found if self.is_batch else found[0]

    @property
    def ambiguous(self) -> bool | list[bool]:
        """Whether another viewpoint is nearly as probable as the chosen one, as for anything symmetric."""
        stated = self.parse.probability.amax(dim=1).tolist()
        found = [is_ambiguous(p, others) for p, others in zip(stated, self.model.alternatives(self), strict=True)]
        return found if self.is_batch else found[0]

    def canonical(self) -> Tensor | list[Tensor]:
        """The input points in the canonical frame, in the user's units (rigidly moved, not scaled)."""
        pose = self.pose if self.is_batch else self.pose[None]
        found = [pose[i].observe(torch.from_numpy(cloud.points).double()) for i, cloud in enumerate(self.clouds)]
        return found if self.is_batch else found[0]

    def reconstruct(self, layer: str = "object") -> Surface:
        """Surfaces decoded from the object capsule, or from the part capsules (``layer="parts"``)."""
        return self.model.reconstruct(self, layer)


class Model:
    """A trained (or untrained) geometric capsule autoencoder, ready for users' clouds."""

    def __init__(self, network: GeometricCapsuleAutoencoder) -> None:
        self.network = network.eval()

    @property
    def config(self) -> ModelConfig:
        return self.network.config

    def encode(self, source: Source) -> Encoding:
        """Capsules of a cloud: an array or tensor ``[N, 3]`` or ``[B, N, 3]``, a list of clouds, a path, a trimesh.

        Deterministic, blind to the order of the points, and equivariant: a turned and moved cloud gives the turned and
        moved poses and the same features. Clouds of more points than the model takes are sampled down first.
        """
        clouds, batched = as_clouds(source, self.config.parts.parts)
        prepared = [self.prepare(cloud) for cloud in clouds]
        parses: list[Parse | None] = [None] * len(clouds)
        for group in _groups([points for points, _ in prepared], self.config.object.tie_ratio):
            batch = self.network.parse(torch.stack([prepared[index][0] for index in group]))
            for row, index in enumerate(group):
                parses[index] = _row(batch, row)
        own = Normalization(torch.stack([n.center for _, n in prepared]), torch.stack([n.scale for _, n in prepared]))
        return self.joined(clouds, _join([parse for parse in parses if parse is not None]), own, batched)

    def prepare(self, cloud: Cloud) -> tuple[Float[Tensor, "n 3"], Normalization]:
        """In canonical order, at most as many points as the model takes, in the model's frame."""
        points = cloud.points[canonical_order(cloud.points)]
        points = points[evenly(min(len(points), self.config.points), len(points))]
        own = normalization(points, cloud.name)
        local = (points.astype(np.float64) - own.center.numpy()) / own.scale.item()
        return torch.from_numpy(local.astype(np.float32)), own

    def joined(self, clouds: Sequence[Cloud], parse: Parse, own: Normalization, batched: bool) -> Encoding:
        """The result for users, from a parse ``[b]`` in the model's frame."""
        pick = slice(None) if batched else 0
        return Encoding(
            pose=own.pose_to_user(parse.object.pose)[pick],
            feature=parse.object.feature[pick],
            parts=Capsules(own.pose_to_user(parse.parts.pose), parse.parts.feature)[pick],
            confidence=parse.probability.amax(dim=1)[pick],
            clouds=tuple(clouds),
            normalization=own,
            parse=parse,
            model=self,
        )

    @torch.no_grad()
    def labels(self, encoding: Encoding) -> list[Int[Tensor, "n"]]:
        """For each cloud the part of each of its points, all of them, in blocks of bounded memory."""
        parts = encoding.parse.parts
        surfaces = self.network.parts.decode(parts)
        log_sigma = self.network.parts.decoder.log_sigma(parts.feature, self.config.parts.log_sigma)
        found = []
        for index, cloud in enumerate(encoding.clouds):
            center = encoding.normalization.center[index].numpy()
            scale = encoding.normalization.scale[index].item()
            blocks = []
            for start in range(0, len(cloud.points), _LABEL_BLOCK):
                local = (cloud.points[start : start + _LABEL_BLOCK].astype(np.float64) - center) / scale
                points = torch.from_numpy(local.astype(np.float32))[None]
                square = min_square_distance(points, surfaces[index, None])
                likelihood = log_likelihood(square, log_sigma[index, None, :, None].expand_as(square))
                blocks.append(likelihood[0].argmax(dim=0))
            found.append(torch.cat(blocks))
        return found

    def alternatives(self, encoding: Encoding) -> list[list[Alternative]]:
        """For each cloud the candidates, other than the chosen one, that are probable enough to be named."""
        parse, found = encoding.parse, []
        poses = encoding.normalization.pose_to_user(parse.candidates)
        for row, probability in enumerate(parse.probability):
            best, *order = probability.argsort(descending=True).tolist()
            enough = self.config.object.alternative_probability * probability[best]
            probable = [s for s in order if probability[s] >= enough]
            found.append([Alternative(poses[row, s], float(probability[s])) for s in probable])
        return found

    @torch.no_grad()
    def reconstruct(self, encoding: Encoding, layer: str) -> Surface:
        """Decoded surfaces of the object capsule (two layers) or the part capsules (one layer)."""
        if layer == "object":
            points = self.network.reconstruct(encoding.parse.object)
        elif layer == "parts":
            points = self.network.parts.decode(encoding.parse.parts)
        else:
            raise InvalidInputError(f"layer must be 'object' or 'parts', not {layer!r}")
        points = encoding.normalization.points_to_user(points)
        side = round(points.shape[-2] ** 0.5)
        return Surface(points if encoding.is_batch else points[0], grid_triangles(side))


def load(folder: str | os.PathLike[str] | None = None) -> Model:
    """A model from a checkpoint folder; without one, the weights that ship with the package."""
    return Model(load_named(SHIPPED) if folder is None else load_checkpoint(folder))


def untrained(name: str = "cpu", seed: int = 0) -> Model:
    """A model of a named preset with seeded random weights: for benchmarks and for comparing with a trained one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Model(GeometricCapsuleAutoencoder(preset(name)))


def _groups(clouds: Sequence[Tensor], tie_ratio: float) -> Iterator[list[int]]:
    """Indices of clouds that can be encoded together: the same size, and the same number of starting viewpoints.

    An object whose axes tie has 24 starts; in a batch of its own it does not slow the others down.
    """
    kinds: dict[tuple[int, int], list[int]] = {}
    for index, points in enumerate(clouds):
        starts = principal_starts(points[None], tie_ratio).pose.shape[1]
        kinds.setdefault((len(points), starts), []).append(index)
    for indices in kinds.values():
        for start in range(0, len(indices), _BATCH):
            yield indices[start : start + _BATCH]


def _row(parse: Parse, index: int) -> Parse:
    """One object of a parse, still with a leading dimension. The routing of a batch is not kept: labels are lazy."""
    at = slice(index, index + 1)
    return Parse(
        parts=parse.parts[at],
        routing=None,
        object=parse.object[at],
        candidates=parse.candidates[at],
        probability=parse.probability[at],
        valid=parse.valid[at],
    )


def _join(parses: Sequence[Parse]) -> Parse:
    """Parses of single objects as one batch; where objects have fewer starts than others, the rest is padding."""
    most = max(parse.candidates.shape[1] for parse in parses)
    return Parse(
        parts=_join_capsules([parse.parts for parse in parses]),
        routing=None,
        object=_join_capsules([parse.object for parse in parses]),
        candidates=stack([_padded(parse.candidates, most) for parse in parses], dim=0),
        probability=torch.cat(
            [torch.nn.functional.pad(p.probability, (0, most - p.probability.shape[1])) for p in parses]
        ),
        valid=torch.cat([torch.nn.functional.pad(p.valid, (0, most - p.valid.shape[1])) for p in parses]),
    )


def _join_capsules(capsules: Sequence[Capsules]) -> Capsules:
    return Capsules(stack([c.pose[0] for c in capsules], dim=0), torch.cat([c.feature for c in capsules]))


def _padded(pose: Pose, count: int) -> Pose:
    """Candidates ``[1, s]`` as ``[count]``, filled up with the first one (their probability is zero)."""
    return pose.map(lambda t: torch.cat([t[0], t[0, :1].expand(count - t.shape[1], -1)]))
