"""Answers of a model: for many clouds, for their parts rotated or exchanged, and among several candidate poses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.apps.clouds import to_user
from geocaps.apps.decoding import Parsed
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encodings, PartCapsules
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Batch, Pose, concatenate, normalize_quaternion
from geocaps.geometry.similarity import Similarity
from geocaps.model.capsules import Parse, Parts
from geocaps.model.losses import chamfer
from geocaps.model.object_paper import PaperObject

_BATCH = 64


@dataclass(frozen=True)
class Answers(Batch):
    """The model's answers for n clouds, in their own coordinates."""

    pose: Pose
    feature: Float[Tensor, "n d"]
    percept: Float[Tensor, "n j e"] | None
    confidence: Float[Tensor, "n"]

    @classmethod
    def of(cls, parse: Parse, pose: Pose) -> Answers:
        """A network's own values, with poses in the clouds' coordinates."""
        return cls(pose, parse.object.feature, parse.percept, parse.probability.amax(dim=1))


@dataclass(frozen=True)
class Encoded:
    """Encodings of n clouds, in their order."""

    encodings: Encodings
    seconds: float
    """Time per cloud."""

    def chosen(self, indices: Iterable[int]) -> Encoded:
        """The encodings of some of the clouds."""
        return Encoded(Encodings(self.encodings[index] for index in indices), self.seconds)

    @cached_property
    def batches(self) -> tuple[Encodings, ...]:
        """The encodings, in batches of the size that a layer processes at once."""
        return tuple(self.encodings[at : at + _BATCH] for at in range(0, len(self.encodings), _BATCH))

    @cached_property
    def answers(self) -> Answers:
        """The answers, with the confidence that users see, which is reduced for few points."""
        return concatenate(
            [
                replace(
                    Answers.of(batch.parse, user_pose(batch.parse.object.pose, batch.normalization)),
                    confidence=torch.from_numpy(batch.confidence),
                )
                for batch in self.batches
            ]
        )

    @property
    def pose(self) -> Pose:
        return self.answers.pose

    @property
    def radius(self) -> Float[np.ndarray, "n"]:
        """Radius of each whole object: the model's estimate, or the radius of the cloud."""
        scales = [batch.parse.scale.numpy() for batch in self.batches]
        return np.concatenate([batch.normalization.scale * s for batch, s in zip(self.batches, scales, strict=True)])


def encode_all(model: Model, clouds: Sequence[Tensor]) -> Encoded:
    """``model.encode_many``, timed. One call for all: only clouds of the same size are encoded together."""
    started = time.perf_counter()
    encodings = model.encode_many(list(clouds))
    return Encoded(encodings, (time.perf_counter() - started) / len(clouds))


@torch.no_grad()
def decoded(model: Model, seen: Encodings, layer: str) -> Float[Tensor, "b m 3"]:
    """Points of the surfaces that one of the layers decodes for each cloud, in the coordinates of the clouds.

    The same as ``reconstruct(layer)`` of each, or ``complete()`` for the object layer, but cheaper, being batched.
    """
    network = model.network
    surfaces = network.parts.decode(seen.parse.parts) if layer == "parts" else network.reconstruct(seen.parse)
    return torch.from_numpy(seen.normalization.apply(surfaces.flatten(1, 2).numpy()))


def second_layer(
    model: Model,
    seen: Encodings,
    parts: Parts,
    generator: torch.Generator,
    trials: int = 1,
    turn: Pose | None = None,
) -> Parse:
    """The second layer alone, on given parts ``[b, j]``.

    The paper's layer also needs points: those of the clouds, rotated by ``turn`` as the parts are.
    """
    points = None
    if isinstance(model.network.object, PaperObject):
        points = model_points(model, seen)
        points = points if turn is None else turn.apply(points)
    return model.network.parse_parts(parts, points, generator, trials)


def turned_parts(model: Model, seen: Encodings, turn: Pose, trials: int, generator: torch.Generator) -> Parse:
    """The ``parts`` protocol: the second layer on the same part capsules, their poses rotated by ``turn [b]``.

    A model with random starts draws new ones for the second cloud, because the same ones would reveal the rotation.
    """
    turn = turn.to(torch.float32)
    parts = Parts(seen.parse.parts.placed_at(turn[:, None]), seen.parse.share)
    return second_layer(model, seen, parts, generator, trials, turn)


@torch.no_grad()
def decomposed_anew(model: Model, encoded: Encoded, generator: torch.Generator) -> Encoded:
    """The same clouds with other parts, found again from new random starts, if the first layer starts at random.

    Encoding repeats those starts, in the cloud's own frame: the parts of a rotated cloud would be the same parts,
    rotated. In the paper they are others. The object capsules stay; :func:`seen_by` replaces them.
    """
    layer = model.network.parts
    if layer.config.start != "random":
        return encoded
    found = []
    for seen in encoded.batches:
        points = model_points(model, seen)
        parts = layer(points, layer.initial(points, generator)).parts
        parse = replace(seen.parse, parts=parts.capsules, share=parts.share)
        for row, one in enumerate(seen):
            own = one.normalization
            capsules = PartCapsules(
                pose=to_user(parse.parts.pose[row], own),
                feature=parse.parts.feature[row].numpy(),
                share=parse.share[row].numpy(),
                percept=one.parts.percept,
            )
            found.append(replace(one, parts=capsules, inside=Parsed(model.network, parse[row : row + 1], own)))
    return Encoded(Encodings(found), encoded.seconds)


def seen_by(model: Model, encoded: Encoded, generator: torch.Generator) -> Encoded:
    """The same clouds by another of the paper's object layers on the same first layer, from new random starts.

    Encoding them again would repeat the first layer, and use the same starts for all views of an object, which would
    reveal the rotation.
    """
    found = []
    for seen in encoded.batches:
        parse = second_layer(model, seen, Parts(seen.parse.parts, seen.parse.share), generator)
        for row, one in enumerate(seen):
            own = one.normalization
            found.append(
                replace(
                    one,
                    pose=to_user(parse.object.pose[row], own),
                    feature=parse.object.feature[row].numpy(),
                    alternatives=(),
                    inside=Parsed(model.network, parse[row : row + 1], own),
                )
            )
    return Encoded(Encodings(found), encoded.seconds)


def candidates(model: Model, seen: Encodings, trials: int, generator: torch.Generator) -> Parse:
    """Candidate poses of the second clouds: those of the encoding or, from random starts, ``trials`` new ones."""
    if isinstance(model.network.object, PaperObject):
        return second_layer(model, seen, Parts(seen.parse.parts, seen.parse.share), generator, trials)
    return seen.parse


def model_points(model: Model, seen: Encodings) -> Float[Tensor, "b n 3"]:
    """The clouds as the network saw them; if they differ in size (scans), reduced to the size of the smallest."""
    prepared = [model.prepare(one.cloud)[0].float() for one in seen]
    count = min(len(points) for points in prepared)
    return torch.stack([points[evenly(count, len(points))] for points in prepared])


def user_pose(pose: Pose, own: Similarity) -> Pose:
    """Poses ``[b, ...]`` of the model's frame in the users' coordinates, given their ``normalization [b]`` ``own``."""
    ones = [1] * (pose.translation.ndim - 2)
    scale = torch.from_numpy(own.scale.copy()).reshape(-1, *ones, 1)
    center = torch.from_numpy(own.translation.copy()).reshape(-1, *ones, 3)
    # Normalised again: a unit quaternion in float32 is not exactly one in float64.
    return Pose(pose.translation.double() * scale + center, normalize_quaternion(pose.wxyz.double()))


def best_by_chamfer(
    first: Pose,
    candidates: Pose,
    probability: Float[Tensor, "b s"],
    clouds: Iterable[tuple[Tensor, Tensor]],
    trials: int,
) -> Pose:
    """The one of the ``trials`` most probable candidates ``[b, s]`` that aligns the clouds best."""
    chosen = []
    for row, (points, other) in enumerate(clouds):
        count = min(trials, probability.shape[1])
        likely = probability[row].argsort(descending=True, stable=True)[:count]
        poses = candidates[row, likely]
        if count > 1:
            moved = (poses @ first[row].inverse()).apply(points)
            poses = poses[int(chamfer(moved, other.expand(count, -1, -1)).argmin()), None]
        chosen.append(poses)
    return concatenate(chosen)
