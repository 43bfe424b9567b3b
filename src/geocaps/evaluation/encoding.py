"""A model's answers for many clouds, in batches, and the second layer on its own (``parts`` and best-of-trials)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encodings
from geocaps.geometry.se3 import Pose, concatenate
from geocaps.model.autoencoder import Parse
from geocaps.model.capsules import Capsules
from geocaps.model.viewpoints import Starts, random_starts

_BATCH = 64


@dataclass(frozen=True)
class Encoded:
    """Encodings of n clouds, in batches in their order."""

    batches: tuple[Encodings, ...]
    seconds: float
    """Time of one cloud."""

    @property
    def pose(self) -> Pose:
        return concatenate([batch.normalization.pose_to_user(batch.parse.object.pose) for batch in self.batches])

    @property
    def confidence(self) -> Float[Tensor, "n"]:
        return torch.cat([torch.from_numpy(batch.confidence) for batch in self.batches])

    @property
    def feature(self) -> Float[Tensor, "n d"]:
        return torch.cat([batch.parse.object.feature for batch in self.batches])


def encode_all(model: Model, clouds: Sequence[Tensor]) -> Encoded:
    """``model.encode_many`` over any number of clouds, with bounded memory."""
    started = time.perf_counter()
    batches = tuple(model.encode_many(list(clouds[at : at + _BATCH])) for at in range(0, len(clouds), _BATCH))
    return Encoded(batches, (time.perf_counter() - started) / len(clouds))


def turned_parts(model: Model, seen: Encodings, turn: Pose, trials: int, generator: torch.Generator) -> Parse:
    """The ``parts`` protocol: the second layer on the same part capsules, their poses turned by ``turn [b]``.

    A model with random starts draws new ones for the second view: the same ones would tell it the rotation.
    """
    turn = turn.to(torch.float32)
    points = turn.apply(model_points(model, seen))
    parts = Capsules(turn[:, None] @ seen.parse.parts.pose, seen.parse.parts.feature)
    return model.network.parse_parts(points, parts, None, _starts(model, points, trials, generator))


def candidates(model: Model, seen: Encodings, trials: int, generator: torch.Generator) -> Parse:
    """The poses a second view may be seen in, for a choice among them.

    Principal starts: those of the encoding. Random starts (the paper): ``trials`` new ones.
    """
    if model.config.object.start == "principal":
        return seen.parse
    points = model_points(model, seen)
    return model.network.parse_parts(points, seen.parse.parts, None, _starts(model, points, trials, generator))


def _starts(model: Model, points: Float[Tensor, "b n 3"], trials: int, generator: torch.Generator) -> Starts:
    if model.config.object.start == "principal":
        return model.network.starts(points)
    return random_starts(points, trials, generator)


def model_points(model: Model, seen: Encodings) -> Float[Tensor, "b n 3"]:
    """The clouds as the network saw them."""
    return torch.stack([model.prepare(one.cloud)[0].float() for one in seen])
