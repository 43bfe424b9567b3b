"""``geocaps.load()`` and ``model.encode(points)``: capsules of any cloud, in the user's coordinates and units."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from geocaps.apps.clouds import Cloud, Source, as_cloud, require_extent
from geocaps.apps.encoding import Alternative, Encoding, Encodings, Parsed, PartCapsules, reliability, to_user
from geocaps.errors import InvalidInputError
from geocaps.geometry.normalize import Normalization, normalization
from geocaps.geometry.sampling import reduced
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder, Parse
from geocaps.model.checkpoint import SHIPPED, load_checkpoint, load_named
from geocaps.model.config import ModelConfig, preset
from geocaps.model.viewpoints import principal_starts

_BATCH = 16
"""Clouds encoded at a time: enough to fill the matrix products, few enough to stay in cache."""


class Model:
    """A trained (or untrained) geometric capsule autoencoder, ready for users' clouds."""

    def __init__(self, network: GeometricCapsuleAutoencoder) -> None:
        self.network = network.eval()

    @property
    def config(self) -> ModelConfig:
        return self.network.config

    def encode(self, source: Source, *, drop_invalid: bool = False) -> Encoding:
        """Capsules of one cloud: an array or tensor ``[N, 3]``, a path, a trimesh.

        Deterministic, blind to the order of the points, and equivariant: a turned and moved cloud gives the turned and
        moved poses and the same features. Clouds of more points than the model takes are sampled down first.
        ``drop_invalid`` leaves out points that are NaN or infinite, which are refused otherwise.
        """
        if isinstance(source, (list, tuple)) or getattr(source, "ndim", 2) == 3:
            what = "a list" if isinstance(source, (list, tuple)) else f"an array of shape {list(source.shape)}"
            raise InvalidInputError(f"encode takes one cloud, not {what}: encode_many takes several")
        return self._encodings([as_cloud(source, self.config.parts.parts, "the cloud", drop_invalid=drop_invalid)])[0]

    def encode_many(self, sources: Source, *, drop_invalid: bool = False) -> Encodings:
        """Capsules of many clouds: a list of what ``encode`` takes, or an array ``[B, N, 3]``; otherwise as it."""
        is_one = isinstance(sources, (str, os.PathLike)) or hasattr(sources, "vertices")
        if is_one or getattr(sources, "ndim", 3) != 3 or not hasattr(sources, "__iter__"):
            raise InvalidInputError(
                "encode_many takes a list of clouds or an array [B, N, 3]: encode takes a single one"
            )
        minimum = self.config.parts.parts
        clouds = [
            as_cloud(source, minimum, f"cloud {index}", drop_invalid=drop_invalid)
            for index, source in enumerate(sources)
        ]
        if not clouds:
            raise InvalidInputError("encode_many was given no clouds: give at least one")
        return Encodings(self._encodings(clouds))

    def prepare(self, cloud: Cloud) -> tuple[Float64[Tensor, "n 3"], Normalization]:
        """At most as many points as the model takes, in an order of their own, in the model's frame."""
        points = reduced(cloud.points, self.config.points)
        own = normalization(points, cloud.name)
        return torch.from_numpy((points - own.center.numpy()) / own.scale.item()), own

    def ready(self, cloud: Cloud) -> tuple[Float64[Tensor, "n 3"], Normalization, float]:
        """As :meth:`prepare`, with how reliable so many points make a pose; what has no shape is refused."""
        require_extent(cloud.points, cloud.name)
        points, own = self.prepare(cloud)
        different, minimum = len(np.unique(points.numpy(), axis=0)), self.config.parts.parts
        if different < minimum:
            raise InvalidInputError(
                f"{cloud.name} has {different} different points; at least {minimum} are needed, one for each part"
            )
        return points, own, reliability(different, self.config.points)

    def _encodings(self, clouds: Sequence[Cloud]) -> list[Encoding]:
        ready = [self.ready(cloud) for cloud in clouds]
        found: dict[int, Encoding] = {}
        for group in _groups([points for points, *_ in ready], self.config.object.tie_ratio):
            batch = self.network.parse(torch.stack([ready[index][0] for index in group]))
            for row, index in enumerate(group):
                _, own, reliable = ready[index]
                found[index] = self._encoding(clouds[index], _row(batch, row), own, reliable)
        return [found[index] for index in range(len(clouds))]

    def _encoding(self, cloud: Cloud, parse: Parse, own: Normalization, reliable: float) -> Encoding:
        """The result for users, from a parse ``[1]`` in the model's frame."""
        probability = parse.probability[0].double().numpy()
        best, *order = np.argsort(-probability, kind="stable").tolist()
        enough = self.config.object.alternative_probability * probability[best]
        others = [start for start in order if probability[start] >= enough]
        candidates = to_user(parse.candidates[0], own)
        return Encoding(
            cloud=cloud,
            pose=to_user(parse.object.pose[0], own),
            feature=parse.object.feature[0].numpy(),
            parts=PartCapsules(to_user(parse.parts.pose[0], own), parse.parts.feature[0].numpy()),
            confidence=reliable * float(probability[best]),
            alternatives=tuple(Alternative(candidates[s], reliable * float(probability[s])) for s in others),
            inside=Parsed(self.network, parse, Normalization(own.center[None], own.scale[None])),
        )


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
