"""Protocols: a model's rotation error and retrieval between the two clouds of each pair."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encodings
from geocaps.data import PointDataset
from geocaps.data.synthetic import ASYMMETRIC
from geocaps.errors import DatasetError
from geocaps.evaluation.metrics import (
    Summary,
    alignment_chance,
    alignment_summary,
    calibration,
    feature_distances,
    retrieval_chance,
    retrieval_summary,
)
from geocaps.evaluation.pairs import ROTATION, Pair, Pairs
from geocaps.geometry.se3 import Pose, concatenate, normalize_quaternion, stack
from geocaps.geometry.similarity import Similarity
from geocaps.model.autoencoder import Parse
from geocaps.model.capsules import Capsules
from geocaps.model.losses import chamfer
from geocaps.model.object_paper import PaperObject
from geocaps.training.batches import random_stream
from geocaps.training.stage import rotation_error

PAPER_CLASSES = ("bed", "chair", "monitor", "sofa", "toilet")
"""The likely-asymmetric classes of the paper (section 4.1)."""
_BATCH = 64

Answers = tuple[Pose, Float[Tensor, "n d"], Float[Tensor, "n"]]
"""Pose, feature and confidence of each second cloud."""


# ── what is averaged over, and what is kept of a measurement ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scope:
    """Which objects the alignment is averaged over, and what a reader has to know about the data."""

    aligned: Bool[np.ndarray, "n"]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def alignment_scope(dataset: PointDataset) -> Scope:
    """The likely-asymmetric classes that the set has; all objects when it has none of them."""
    if len(dataset) == 0:
        raise DatasetError(f"{dataset.name}: nothing to evaluate, no object is left: choose other classes or a split")
    known = tuple(sorted(ASYMMETRIC)) if dataset.name == "shapes" else PAPER_CLASSES
    present = tuple(dataset.class_names[code] for code in np.unique(dataset.labels[dataset.labels >= 0]))
    classes = tuple(name for name in known if name in present)
    notes = _notes(dataset, present)
    if not classes:
        notes.append(
            f"none of the set's classes is known to be asymmetric: alignment is averaged over all {len(dataset)} "
            "objects, and a symmetric one counts as wrong when it is aligned to an equal view of itself"
        )
        return Scope(np.ones(len(dataset), dtype=bool), (), tuple(notes))
    missing = [name for name in known if name not in present]
    if missing:
        notes.append(f"asymmetric classes of which there is no object here: {', '.join(missing)}")
    codes = [dataset.class_names.index(name) for name in classes]
    return Scope(np.isin(dataset.labels, codes), classes, tuple(notes))


def _notes(dataset: PointDataset, present: tuple[str, ...]) -> list[str]:
    notes, count = [], len(dataset)
    labelled = int((dataset.labels >= 0).sum())
    if labelled == 0:
        notes.append("the set has no labels: there is no 1-NN class")
    elif labelled < count:
        notes.append(f"1-NN class is over the {labelled} labelled objects of {count}")
    if len(present) == 1:
        notes.append(f"all labelled objects are {present[0]!r}: there is no 1-NN class")
    if count == 1:
        notes.append("the set has one object: its retrieval is right by necessity, and a mean has no interval")
    elif count <= 10:
        notes.append(f"the set has {count} objects: top-10 is right by necessity")
    return notes


@dataclass(frozen=True)
class Measured:
    """One method under one protocol: a value per object, from which every table and figure is made."""

    errors: Float[np.ndarray, "n"] | None
    """Rotation errors, angle/π; None for a method that only retrieves."""
    distances: Float[np.ndarray, "n n"] | None
    """From each second cloud (row) to each first one; None for a method that only aligns."""
    pair_milliseconds: float | None
    query_milliseconds: float | None
    confidence: Float[np.ndarray, "n 2"] | None = None
    """Of the answers for the first and the second cloud; None for a method that states none."""

    def summary(self, dataset: PointDataset, scope: Scope) -> Summary:
        """The figures of a table's row."""
        found: Summary = {}
        if self.errors is not None:
            errors = self.errors[scope.aligned]
            found |= alignment_summary(errors)
            found |= {"aligned_objects": len(errors), "pair_milliseconds": self.pair_milliseconds}
            if self.confidence is not None:
                found |= calibration(self.confidence[scope.aligned].ravel(), np.repeat(errors, 2))
        if self.distances is not None:
            found |= retrieval_summary(self.distances, dataset.labels)
            found["query_milliseconds"] = self.query_milliseconds
        return found | {"objects": len(dataset)}


def chance(protocol: str, dataset: PointDataset, trials: int) -> Summary:
    """The floors to print beside a protocol's figures."""
    return alignment_chance(ROTATION[protocol], trials) | retrieval_chance(dataset.labels)


# ── a model's answers for many clouds ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Encoded:
    """Encodings of n clouds, in batches in their order."""

    batches: tuple[Encodings, ...]
    seconds: float
    """Time of one cloud."""

    @property
    def pose(self) -> Pose:
        return concatenate([_user_pose(batch.parse.object.pose, batch.normalization) for batch in self.batches])

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
    """The ``parts`` protocol: the second layer on the same part capsules, their poses rotated by ``turn [b]``.

    A model with random starts draws new ones for the second cloud: the same ones would tell it the rotation.
    """
    turn = turn.to(torch.float32)
    points = turn.apply(model_points(model, seen))
    parts = Capsules(turn[:, None] @ seen.parse.parts.pose, seen.parse.parts.feature)
    return model.network.parse_parts(points, parts, generator, trials)


def candidates(model: Model, seen: Encodings, trials: int, generator: torch.Generator) -> Parse:
    """The poses a second cloud may be seen in, for a choice among them.

    Principal starts: those of the encoding. Random starts (the paper): ``trials`` new ones.
    """
    if isinstance(model.network.object, PaperObject):
        return model.network.parse_parts(model_points(model, seen), seen.parse.parts, generator, trials)
    return seen.parse


def model_points(model: Model, seen: Encodings) -> Float[Tensor, "b n 3"]:
    """The clouds as the network saw them."""
    return torch.stack([model.prepare(one.cloud)[0].float() for one in seen])


# ── a model under a protocol ──────────────────────────────────────────────────────────────────────────────────────────


def measure(model: Model, pairs: Pairs, first: Encoded, protocol: str, trials: int = 1) -> Measured:
    """A model under one protocol, given its encodings of the first clouds.

    With ``trials > 1`` the rotation is the best of so many candidates for the second cloud by Chamfer distance after
    alignment (the paper's best of ten); the first cloud keeps its one pose. Features are never chosen: retrieval is the
    same as in one trial.
    """
    made = [pairs.pair(index, protocol) for index in range(len(pairs))]
    started = time.perf_counter()
    answers = _of_turned_parts if protocol == "parts" else _of_clouds
    pose, feature, confidence = answers(
        model, first, made, trials, lambda: random_stream(pairs.seed, zlib.crc32(protocol.encode()))
    )
    second_seconds = (time.perf_counter() - started) / len(made)
    started = time.perf_counter()
    distances = feature_distances(feature, first.feature)
    search_seconds = (time.perf_counter() - started) / len(made)
    return Measured(
        rotation_error(first.pose, pose, stack([pair.turn for pair in made])).numpy(),
        distances,
        pair_milliseconds=1000 * (first.seconds + second_seconds),
        query_milliseconds=1000 * (second_seconds + search_seconds),
        confidence=torch.stack([first.confidence, confidence], dim=1).double().numpy() if trials == 1 else None,
    )


def _of_turned_parts(
    model: Model, first: Encoded, pairs: Sequence[Pair], trials: int, stream: Callable[[], torch.Generator]
) -> Answers:
    """The answers for the first clouds' part capsules, rotated (only the rotation of the poses is meant)."""
    poses, features, confidences, rest = [], [], [], iter(pairs)
    one, several = stream(), stream()
    for seen in first.batches:
        turn = stack([pair.turn for pair in islice(rest, len(seen))]).to(torch.float32)
        parse = turned_parts(model, seen, turn, 1, one)
        among = parse if trials == 1 else turned_parts(model, seen, turn, trials, several)
        points = model_points(model, seen)
        clouds = zip(points, turn.apply(points), strict=True)
        chosen = best_by_chamfer(seen.parse.object.pose, among.candidates, among.probability, clouds, trials)
        poses.append(chosen.to(torch.float64))
        features.append(parse.object.feature)
        confidences.append(parse.probability.amax(dim=1))
    return concatenate(poses), torch.cat(features), torch.cat(confidences)


def _of_clouds(
    model: Model, first: Encoded, pairs: Sequence[Pair], trials: int, stream: Callable[[], torch.Generator]
) -> Answers:
    """The answers for the second clouds, encoded."""
    second = encode_all(model, [pair.second for pair in pairs])
    poses, rest, generator = [], iter(pairs), stream()
    for seen, other in zip(first.batches, second.batches, strict=True):
        parse = candidates(model, other, trials, generator)
        pose_of_first = _user_pose(seen.parse.object.pose, seen.normalization)
        poses_of_second = _user_pose(parse.candidates, other.normalization)
        clouds = ((pair.first.double(), pair.second.double()) for pair in islice(rest, len(seen)))
        poses.append(best_by_chamfer(pose_of_first, poses_of_second, parse.probability, clouds, trials))
    return concatenate(poses), second.feature, second.confidence


def _user_pose(pose: Pose, own: Similarity) -> Pose:
    """Poses ``[b, ...]`` of the model's frame in the users' (``own`` is ``[b]``): positions scale, rotations stay."""
    ones = [1] * (pose.translation.ndim - 2)
    scale = torch.from_numpy(own.scale.copy()).reshape(-1, *ones, 1)
    center = torch.from_numpy(own.translation.copy()).reshape(-1, *ones, 3)
    # Normalised again: a quaternion that is unit in float32 is not in float64.
    return Pose(pose.translation.double() * scale + center, normalize_quaternion(pose.wxyz.double()))


def best_by_chamfer(
    first: Pose,
    candidates: Pose,
    probability: Float[Tensor, "b s"],
    clouds: Iterable[tuple[Tensor, Tensor]],
    trials: int,
) -> Pose:
    """Of the ``trials`` most probable candidates ``[b, s]`` the one that brings the clouds together best."""
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
