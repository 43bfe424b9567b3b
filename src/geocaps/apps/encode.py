"""``geocaps.load()`` and ``model.encode(points)``: capsules of any cloud, in the user's coordinates and units."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from geocaps.apps.clouds import Cloud, Source, as_cloud, normalization, require_extent, to_user
from geocaps.apps.decoding import Parsed
from geocaps.apps.encoding import Alternative, Encoding, Encodings, PartCapsules
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import OwnFrame, reduced
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.model import autoencoder
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Parse
from geocaps.model.checkpoint import load_checkpoint
from geocaps.model.config import ModelConfig, preset

_ALTERNATIVE = 0.1
"""Other starts are reported as alternatives if they are this probable, relative to the chosen one."""
_RELIABLE = {-6: 0.2, -5: 0.4, -4: 0.55, -3: 0.75, -2: 0.85, -1: 1.0}
"""Reliability of the probability of a pose with 2^x of the model's points: the share of right poses over the stated
probability, measured by ``benchmarks/few_points.py`` with the weights of 0.1.0: later ones are less sure themselves."""
_BATCH = 16
"""Clouds encoded at a time: enough for efficient matrix products, few enough to stay in cache."""


class Prepared(NamedTuple):
    """A cloud, ready for the network."""

    points: Float64[Tensor, "n 3"]  # in the model's frame
    normalization: Similarity  # from there to the user's
    reliability: float  # factor on the confidence, for few points


class Model:
    """A trained (or untrained) geometric capsule autoencoder, ready for users' clouds."""

    def __init__(self, network: GeometricCapsuleAutoencoder) -> None:
        self.network = network.eval()
        self.config: ModelConfig = network.config

    def encode(self, source: Source, *, drop_invalid: bool = False) -> Encoding:
        """Capsules of one cloud: an array or tensor ``[N, 3]``, a path, a trimesh.

        Deterministic, independent of the order of the points, and equivariant: a rotated and moved cloud gives the
        rotated and moved poses and the same features. Clouds with more points than the model takes are reduced first.
        ``drop_invalid`` leaves out points that are NaN or infinite, which are refused otherwise.
        """
        if isinstance(source, (list, tuple)) or getattr(source, "ndim", 2) == 3:
            what = "a list" if isinstance(source, (list, tuple)) else f"an array of shape {list(source.shape)}"
            raise InvalidInputError(f"encode takes one cloud, not {what}: encode_many takes several")
        return self._encodings([as_cloud(source, self.config.parts.parts, "the cloud", drop_invalid=drop_invalid)])[0]

    def encode_many(self, sources: Source, *, drop_invalid: bool = False) -> Encodings:
        """Capsules of many clouds, given as a list of what ``encode`` takes or an array ``[B, N, 3]``."""
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
            raise InvalidInputError("encode_many needs at least one cloud")
        return Encodings(self._encodings(clouds))

    def prepare(self, cloud: Cloud) -> Prepared:
        """The cloud, reduced to the number of points that the network takes; raises if it has no shape."""
        require_extent(cloud.points, cloud.name)
        points = reduced(cloud.points, self.config.points)
        own = normalization(points, cloud.name)
        local = (points - own.translation) / own.scale
        different, minimum = len(np.unique(local, axis=0)), self.config.parts.parts
        if different < minimum:
            raise InvalidInputError(
                f"{cloud.name} has {different} different points, not counting stray ones; at least {minimum} are "
                "needed, one for each part"
            )
        return Prepared(torch.from_numpy(local), own, reliability(different, self.config.points))

    def _encodings(self, clouds: Sequence[Cloud]) -> list[Encoding]:
        ready = [self.prepare(cloud) for cloud in clouds]
        sizes: dict[int, list[int]] = {}
        for index, one in enumerate(ready):
            sizes.setdefault(len(one.points), []).append(index)
        found: dict[int, Encoding] = {}
        for indices in sizes.values():
            for start in range(0, len(indices), _BATCH):
                group = indices[start : start + _BATCH]
                own, turn = in_own_frame(torch.stack([ready[index].points for index in group]))
                parse = self.network.parse(own).turned(turn)
                for row, index in enumerate(group):
                    found[index] = self._encoding(clouds[index], parse, row, ready[index])
        return [found[index] for index in range(len(clouds))]

    def _encoding(self, cloud: Cloud, batch: Parse, row: int, ready: Prepared) -> Encoding:
        """The result in the user's coordinates, from one object of a parse in the model's frame."""
        parse, own, reliable = batch[row : row + 1], ready.normalization, ready.reliability
        probability = parse.probability[0].double().numpy()
        best, *order = np.argsort(-probability, kind="stable").tolist()
        enough = _ALTERNATIVE * probability[best]
        others = [start for start in order if probability[start] >= enough]
        return Encoding(
            cloud=cloud,
            pose=to_user(parse.object.pose[0], own),
            radius=float(parse.scale[0]) * float(own.scale),
            feature=parse.object.feature[0].numpy(),
            parts=PartCapsules(
                pose=to_user(parse.parts.pose[0], own),
                feature=parse.parts.feature[0].numpy(),
                share=parse.share[0].numpy(),
                percept=(parse.parts.feature[0, :, :0] if parse.percept is None else parse.percept[0]).numpy(),
            ),
            confidence=reliable * float(probability[best]),
            alternatives=tuple(
                Alternative(to_user(parse.candidates[0, s], own), reliable * float(probability[s])) for s in others
            ),
            inside=Parsed(self.network, parse, own),
        )


def in_own_frame(points: Float64[Tensor, "b n 3"]) -> tuple[Float64[Tensor, "b n 3"], Pose]:
    """Each cloud in its own frame, and the rotations ``[b]`` back.

    Routing amplifies float32 rounding of points between two parts. In its own frame a cloud has the same float32
    coordinates in every orientation, so the network computes the same numbers.
    """
    axes = torch.from_numpy(np.stack([OwnFrame(cloud).axes for cloud in points.numpy()]))
    return points @ axes.mT, Pose.from_rotation(axes.mT.float(), torch.zeros(len(axes), 3))


def reliability(points: int, full: int) -> float:
    """The factor on the confidence if a model for ``full`` points sees only ``points`` different ones."""
    return float(np.interp(math.log2(points / full), list(_RELIABLE), list(_RELIABLE.values())))


def encoding_of(source: Source | Encoding, model: Model | None, *, drop_invalid: bool = False) -> Encoding:
    """The encoding of a source that may be one already; without a model, by the shipped weights."""
    if isinstance(source, Encoding):
        return source
    return (model or load()).encode(source, drop_invalid=drop_invalid)


def load(folder: str | os.PathLike[str] | None = None) -> Model:
    """A model from a checkpoint folder or, without one, with the weights that ship with the package."""
    return Model(load_checkpoint(folder))


def untrained(name: str = "cpu", seed: int = 0) -> Model:
    """A model of a preset with seeded random weights, for benchmarks and for comparison with trained ones."""
    return Model(autoencoder.untrained(preset(name), seed))
