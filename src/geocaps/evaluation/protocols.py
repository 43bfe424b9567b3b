"""Protocols: a model's rotation error and retrieval between the two clouds of each pair."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch.nn.functional import normalize

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.data.synthetic import ASYMMETRIC
from geocaps.errors import DatasetError
from geocaps.evaluation.answers import (
    Answers,
    Encoded,
    best_by_chamfer,
    candidates,
    encode_all,
    model_points,
    second_layer,
    turned_parts,
    user_pose,
)
from geocaps.evaluation.metrics import (
    Summary,
    alignment_chance,
    alignment_summary,
    calibration,
    feature_distances,
    frame_errors,
    frame_summary,
    pair_calibration,
    percept_distances,
    retrieval_chance,
    retrieval_summary,
)
from geocaps.evaluation.pairs import ROTATION, Pair, Pairs
from geocaps.geometry.se3 import Pose, concatenate, stack
from geocaps.model.capsules import Capsules, Parts
from geocaps.model.losses import FEATURE_SHARE
from geocaps.model.object_paper import PaperObject
from geocaps.training.batches import random_stream
from geocaps.training.validation import left_over, rotation_error

PAPER_CLASSES = ("bed", "chair", "monitor", "sofa", "toilet")
"""The likely-asymmetric classes of the paper (section 4.1)."""
MODEL, SINGLE_FEATURE, BOTH = "geocaps", "capsules, single feature", "capsules, parts and feature"
OTHER_PARTS, HALF_OF_THE_PARTS = "parts of another object", "half of the parts removed"
"""Rows of one model: retrieval by part percepts (if it has them), by the object's feature, and by both; and the
ablations, in which its second layer gets other parts than those of the object."""


# ── the objects averaged over, and the values measured ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scope:
    """The objects over which alignment is averaged, and notes on the data for the reader."""

    aligned: Bool[np.ndarray, "n"]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def alignment_scope(dataset: PointDataset) -> Scope:
    """The likely-asymmetric classes in the set, or all objects if it has none of these classes."""
    if len(dataset) == 0:
        raise DatasetError(f"{dataset.name}: no objects to evaluate: choose other classes or another split")
    known = tuple(sorted(ASYMMETRIC)) if dataset.name == "shapes" else PAPER_CLASSES
    present = tuple(dataset.class_names[code] for code in np.unique(dataset.labels[dataset.labels >= 0]))
    classes = tuple(name for name in known if name in present)
    notes = _notes(dataset, present)
    if not classes:
        notes.append(
            f"no class is known to be asymmetric: alignment is averaged over all {len(dataset)} objects, and a "
            "symmetric object counts as wrong even in a pose in which it looks the same"
        )
        return Scope(np.ones(len(dataset), dtype=bool), (), tuple(notes))
    missing = [name for name in known if name not in present]
    if missing:
        notes.append(f"asymmetric classes without objects here: {', '.join(missing)}")
    codes = [dataset.class_names.index(name) for name in classes]
    return Scope(np.isin(dataset.labels, codes), classes, tuple(notes))


def _notes(dataset: PointDataset, present: tuple[str, ...]) -> list[str]:
    notes, count = [], len(dataset)
    labelled = int((dataset.labels >= 0).sum())
    if labelled == 0:
        notes.append("the set has no labels, so there is no 1-NN class")
    elif labelled < count:
        notes.append(f"1-NN class is over the {labelled} of {count} objects that have a label")
    if len(present) == 1:
        notes.append(f"all labelled objects are {present[0]!r}, so there is no 1-NN class")
    if count == 1:
        notes.append("the set has one object: retrieval is trivially right, and means have no interval")
    elif count <= 10:
        notes.append(f"the set has {count} objects: top-10 is trivially right")
    return notes


@dataclass(frozen=True)
class Measured:
    """One method under one protocol: a value for each object, from which all tables and figures are made."""

    errors: Float[np.ndarray, "n"] | None
    """Rotation errors, angle/π; None for a method that only retrieves."""
    distances: Float[np.ndarray, "n n"] | None
    """From each second cloud (row) to each first one (column); None for a method that only aligns."""
    pair_milliseconds: float | None
    query_milliseconds: float | None
    confidence: Float[np.ndarray, "n 2"] | None = None
    """Of the answers for the first and the second cloud; None for a method without a confidence."""
    frames: Float[np.ndarray, "n 2"] | None = None
    """Error of the whole object's centre, and its radius over the true one; None for a method that finds neither."""
    left: Pose | None = None
    """The residual of each rotation ``[n]``, in the canonical frame of the first cloud; None for a baseline."""

    def summary(self, dataset: PointDataset, scope: Scope) -> Summary:
        """The figures in one row of a table."""
        found: Summary = {}
        if self.errors is not None:
            errors = self.errors[scope.aligned]
            found |= alignment_summary(errors)
            found |= {"aligned_objects": len(errors), "pair_milliseconds": self.pair_milliseconds}
            if self.confidence is not None:
                stated = self.confidence[scope.aligned]
                found |= calibration(stated.ravel(), np.repeat(errors, 2)) | pair_calibration(stated, errors)
        if self.frames is not None:
            found |= frame_summary(self.frames)
        if self.distances is not None:
            found |= retrieval_summary(self.distances, dataset.labels)
            found["query_milliseconds"] = self.query_milliseconds
        return found | {"objects": len(dataset)}


def chance(protocol: str, dataset: PointDataset, trials: int) -> Summary:
    """The chance floors of a protocol's figures."""
    return alignment_chance(ROTATION[protocol], trials) | retrieval_chance(dataset.labels)


# ── a model under a protocol ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Views:
    """The pairs of all objects under a protocol, with a model's encodings of both clouds.

    Each cloud is encoded once, for everything that is measured on it. Under ``parts`` there is no second cloud.
    """

    protocol: str
    seed: int
    pairs: tuple[Pair, ...]
    first: Encoded
    second: Encoded | None


def views_of(model: Model, pairs: Pairs, first: Encoded, protocol: str) -> Views:
    """The views of a protocol, given the encodings of the first clouds, which all protocols share."""
    made = tuple(pairs.pair(index, protocol) for index in range(len(pairs)))
    second = None if protocol == "parts" else encode_all(model, [pair.second for pair in made])
    return Views(protocol, pairs.seed, made, first, second)


Distances = Callable[[Answers, Answers], Float[np.ndarray, "n n"]]


def _distances(queries: Answers, gallery: Answers) -> Float[np.ndarray, "n n"]:
    """Late interaction of part percepts if both have them, else distance between the objects' features."""
    if queries.percept is None or gallery.percept is None:
        return feature_distances(queries.feature, gallery.feature)
    return percept_distances(queries.percept, gallery.percept)


def _joint_distances(queries: Answers, gallery: Answers) -> Float[np.ndarray, "n n"]:
    """Late interaction, plus the cosine distance of the features with the weight that search gives it."""
    likeness = normalize(queries.feature, dim=-1) @ normalize(gallery.feature, dim=-1).mT
    return _distances(queries, gallery) + FEATURE_SHARE * (1 - likeness.double().numpy())


def measure(model: Model, pairs: Pairs, first: Encoded, protocol: str, trials: int = 1) -> Measured:
    """A model under one protocol, given its encodings of the first clouds: the main row of :func:`measure_rows`."""
    return measure_rows(model, views_of(model, pairs, first, protocol), trials)[MODEL]


def measure_rows(model: Model, views: Views, trials: int = 1, ablate_parts: bool = False) -> dict[str, Measured]:
    """All rows of a model under one protocol; ``ablate_parts`` adds those with other parts.

    With ``trials > 1`` the rotation is that of the candidate for the second cloud with the smallest Chamfer distance
    after alignment (the paper's best of ten); the first cloud keeps its single pose. Features are never selected, so
    retrieval is the same as in one trial.
    """
    made, first, second = views.pairs, views.first, views.second
    turns = stack([pair.turn for pair in made])

    def stream() -> torch.Generator:
        return random_stream(views.seed, zlib.crc32(views.protocol.encode()))

    started = time.perf_counter()
    if second is None:
        answers = _of_turned_parts(model, first, made, trials, stream)
    else:
        answers = _of_clouds(model, first, second, made, trials, stream())
    seconds = (time.perf_counter() - started) / len(made) + (0.0 if second is None else second.seconds)

    def row(found: Answers, errors: bool = True, frames: bool = False, distances: Distances = _distances) -> Measured:
        started = time.perf_counter()
        apart = distances(found, first.answers)
        query = seconds + (time.perf_counter() - started) / len(made)
        one = errors and trials == 1
        return Measured(
            rotation_error(first.pose, found.pose, turns).numpy() if errors else None,
            apart,
            pair_milliseconds=1000 * (first.seconds + seconds) if errors else None,
            query_milliseconds=1000 * query,
            confidence=torch.stack([first.answers.confidence, found.confidence], dim=1).double().numpy()
            if one
            else None,
            frames=_frames(found, second, made) if frames and one and second is not None else None,
            left=left_over(first.pose, found.pose, turns) if errors else None,
        )

    rows = {MODEL: row(answers, frames=True)}
    if answers.percept is not None:
        rows[SINGLE_FEATURE] = row(replace(answers, percept=None), errors=False)
        rows[BOTH] = row(answers, errors=False, distances=_joint_distances)
    if ablate_parts and second is not None:
        rows |= {name: row(found) for name, found in _of_other_parts(model, second, stream()).items()}
    return rows


def _frames(found: Answers, second: Encoded, pairs: Sequence[Pair]) -> Float[np.ndarray, "n 2"]:
    return frame_errors(
        found.pose.translation.numpy(),
        second.radius,
        torch.stack([pair.center for pair in pairs]).numpy(),
        np.array([pair.radius for pair in pairs]),
    )


def _of_turned_parts(
    model: Model, first: Encoded, pairs: Sequence[Pair], trials: int, stream: Callable[[], torch.Generator]
) -> Answers:
    """The answers for the first clouds' part capsules, rotated; only the rotations of these poses are meaningful."""
    found, rest = [], iter(pairs)
    one, several = stream(), stream()
    for seen in first.batches:
        turn = stack([pair.turn for pair in islice(rest, len(seen))]).to(torch.float32)
        parse = turned_parts(model, seen, turn, 1, one)
        chosen = parse.object.pose
        if trials > 1:
            among = turned_parts(model, seen, turn, trials, several)
            points = model_points(model, seen)
            clouds = zip(points, turn.apply(points), strict=True)
            chosen = best_by_chamfer(seen.parse.object.pose, among.candidates, among.probability, clouds, trials)
        found.append(Answers.of(parse, chosen.to(torch.float64)))
    return concatenate(found)


def _of_clouds(
    model: Model, first: Encoded, second: Encoded, pairs: Sequence[Pair], trials: int, generator: torch.Generator
) -> Answers:
    """The answers for the second clouds."""
    poses, rest = [], iter(pairs)
    for seen, other in zip(first.batches, second.batches, strict=True):
        parse = candidates(model, other, trials, generator)
        pose_of_first = user_pose(seen.parse.object.pose, seen.normalization)
        poses_of_second = user_pose(parse.candidates, other.normalization)
        clouds = ((pair.first.double(), pair.second.double()) for pair in islice(rest, len(seen)))
        poses.append(best_by_chamfer(pose_of_first, poses_of_second, parse.probability, clouds, trials))
    return replace(second.answers, pose=concatenate(poses))


def _of_other_parts(model: Model, second: Encoded, generator: torch.Generator) -> dict[str, Answers]:
    """The answers for the second clouds when the second layer is given other parts than theirs.

    The parts of another object are those of the next one in a random cycle; whatever depends on the parts is then at
    chance. With half of its own parts, the removed ones have no share of the points and no percept.
    """
    own = [batch.parse for batch in second.batches]
    parts = Parts(
        Capsules(concatenate([one.parts.pose for one in own]), torch.cat([one.parts.feature for one in own])),
        torch.cat([one.share for one in own]),
    )
    objects, count = parts.share.shape
    circle = torch.randperm(objects, generator=generator)
    other = torch.empty_like(circle)
    other[circle] = circle.roll(-1)
    kept = torch.rand(objects, count, generator=generator).argsort(dim=1)[:, : (count + 1) // 2]

    def answers(parts: Parts) -> Answers:
        found, start = [], 0
        for seen in second.batches:
            at = slice(start, start := start + len(seen))
            parse = second_layer(model, seen, parts[at], generator)
            found.append(Answers.of(parse, user_pose(parse.object.pose, seen.normalization)))
        return concatenate(found)

    if isinstance(model.network.object, PaperObject):  # it does not weight parts, so they are left out
        half = answers(parts[torch.arange(objects)[:, None], kept])
    else:
        half = answers(Parts(parts.capsules, parts.share * torch.zeros_like(parts.share).scatter(1, kept, 1.0)))
    return {OTHER_PARTS: answers(parts[other]), HALF_OF_THE_PARTS: half}
