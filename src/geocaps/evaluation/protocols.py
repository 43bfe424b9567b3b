"""The five protocols: a model's rotation error and retrieval between two views of each object."""

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
from geocaps.data import PointDataset
from geocaps.data.synthetic import ASYMMETRIC
from geocaps.errors import DatasetError
from geocaps.evaluation.encoding import Encoded, candidates, encode_all, model_points, turned_parts
from geocaps.evaluation.metrics import (
    Summary,
    alignment_chance,
    alignment_summary,
    calibration,
    feature_distances,
    retrieval_chance,
    retrieval_summary,
)
from geocaps.evaluation.views import ROTATION, Pair, Views
from geocaps.geometry.se3 import Pose, concatenate, stack
from geocaps.model.losses import chamfer
from geocaps.training.schedule import random_stream
from geocaps.training.validation import rotation_error

PAPER_CLASSES = ("bed", "chair", "monitor", "sofa", "toilet")
"""The likely-asymmetric classes of the paper (section 4.1)."""


@dataclass(frozen=True)
class Scope:
    """Which objects the alignment is averaged over, and what a reader has to know about the data."""

    aligned: Bool[np.ndarray, "n"]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """One method under one protocol: a value per object, from which every table and figure is made."""

    errors: Float[np.ndarray, "n"] | None
    """Rotation errors, angle/π; None for a method that only retrieves."""
    distances: Float[np.ndarray, "n n"] | None
    """From each second view (row) to each first view; None for a method that only aligns."""
    pair_milliseconds: float | None
    query_milliseconds: float | None
    confidence: Float[np.ndarray, "n 2"] | None = None
    """Of the answers for the first and the second view; None for a method that states none."""

    def summary(self, dataset: PointDataset, scope: Scope) -> Summary:
        """The figures of a table's row."""
        found: Summary = {}
        if self.errors is not None:
            found |= alignment_summary(self.errors[scope.aligned])
            found |= {"aligned_objects": int(scope.aligned.sum()), "pair_milliseconds": self.pair_milliseconds}
            if self.confidence is not None:
                answers = self.confidence[scope.aligned]
                found |= calibration(answers.ravel(), np.repeat(self.errors[scope.aligned], 2))
        if self.distances is not None:
            found |= retrieval_summary(self.distances, dataset.labels)
            found["query_milliseconds"] = self.query_milliseconds
        return found | {"objects": len(dataset)}


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


def chance(protocol: str, dataset: PointDataset, trials: int) -> Summary:
    """The floors to print beside a protocol's figures."""
    return alignment_chance(ROTATION[protocol], trials) | retrieval_chance(dataset.labels)


def measure(model: Model, views: Views, first: Encoded, protocol: str, trials: int = 1) -> Measured:
    """A model under one protocol, given its encodings of the first views.

    With ``trials > 1`` the rotation is the best of so many candidates for the second view by Chamfer distance after
    alignment (the paper's best of ten); the first view keeps its one pose. Features are never chosen: retrieval is the
    same as in one trial.
    """
    pairs = [views.pair(index, protocol) for index in range(len(views))]
    started = time.perf_counter()
    seconds = _turned_views if protocol == "parts" else _encoded_views
    pose, feature, confidence = seconds(
        model, first, pairs, trials, lambda: random_stream(views.seed, zlib.crc32(protocol.encode()))
    )
    second_seconds = (time.perf_counter() - started) / len(pairs)
    started = time.perf_counter()
    distances = feature_distances(feature, first.feature)
    search_seconds = (time.perf_counter() - started) / len(pairs)
    return Measured(
        rotation_error(first.pose, pose, stack([pair.turn for pair in pairs])).numpy(),
        distances,
        pair_milliseconds=1000 * (first.seconds + second_seconds),
        query_milliseconds=1000 * (second_seconds + search_seconds),
        confidence=torch.stack([first.confidence, confidence], dim=1).double().numpy() if trials == 1 else None,
    )


def _turned_views(
    model: Model, first: Encoded, pairs: Sequence[Pair], trials: int, stream: Callable[[], torch.Generator]
) -> tuple[Pose, Float[Tensor, "n d"], Float[Tensor, "n"]]:
    """Pose, feature and confidence of the turned part capsules (only the rotation of the poses is meant)."""
    poses, features, confidences, rest = [], [], [], iter(pairs)
    one, several = stream(), stream()
    for seen in first.batches:
        turn = stack([pair.turn for pair in islice(rest, len(seen))]).to(torch.float32)
        parse = turned_parts(model, seen, turn, 1, one)
        among = parse if trials == 1 else turned_parts(model, seen, turn, trials, several)
        points = model_points(model, seen)
        clouds = zip(points, turn.apply(points), strict=True)
        poses.append(
            best_by_chamfer(
                seen.parse.object.pose, among.candidates, among.probability, among.valid, clouds, trials
            ).to(torch.float64)
        )
        features.append(parse.object.feature)
        confidences.append(parse.probability.amax(dim=1))
    return concatenate(poses), torch.cat(features), torch.cat(confidences)


def _encoded_views(
    model: Model, first: Encoded, pairs: Sequence[Pair], trials: int, stream: Callable[[], torch.Generator]
) -> tuple[Pose, Float[Tensor, "n d"], Float[Tensor, "n"]]:
    """Pose, feature and confidence of the second clouds."""
    second = encode_all(model, [pair.second for pair in pairs])
    poses, rest, generator = [], iter(pairs), stream()
    for seen, other in zip(first.batches, second.batches, strict=True):
        parse = candidates(model, other, trials, generator)
        pose_of_first = seen.normalization.pose_to_user(seen.parse.object.pose)
        poses_of_second = other.normalization.pose_to_user(parse.candidates)
        clouds = ((pair.first.double(), pair.second.double()) for pair in islice(rest, len(seen)))
        poses.append(best_by_chamfer(pose_of_first, poses_of_second, parse.probability, parse.valid, clouds, trials))
    return concatenate(poses), second.feature, second.confidence


def best_by_chamfer(
    first: Pose,
    candidates: Pose,
    probability: Float[Tensor, "b s"],
    valid: Bool[Tensor, "b s"],
    clouds: Iterable[tuple[Tensor, Tensor]],
    trials: int,
) -> Pose:
    """Of the ``trials`` most probable candidates ``[b, s]`` the one that brings the clouds together best.

    A candidate that is not ``valid`` only pads the batch; a valid one counts even where its probability underflows.
    """
    chosen = []
    for row, (points, other) in enumerate(clouds):
        count = min(trials, int(valid[row].sum()))
        likely = probability[row].masked_fill(~valid[row], -1).argsort(descending=True, stable=True)[:count]
        poses = candidates[row, likely]
        if count > 1:
            moved = (poses @ first[row].inverse()).apply(points)
            poses = poses[int(chamfer(moved, other.expand(count, -1, -1)).argmin()), None]
        chosen.append(poses)
    return concatenate(chosen)
