"""Evaluation of one model on one data set, as one value from which tables, figures and JSON are made."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from scipy.spatial import cKDTree

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.errors import UsageError
from geocaps.evaluation.answers import Encoded, decoded, encode_all
from geocaps.evaluation.baselines import BASELINES, measure_baseline, with_mirror_image
from geocaps.evaluation.metrics import (
    Summary,
    adjusted_rand_index,
    best_of_random_rae,
    chance_spread_degrees,
    mean_angle_degrees,
    means,
    partition_agreement,
    spread_degrees,
)
from geocaps.evaluation.pairs import KEPT, PROTOCOLS, Pairs
from geocaps.evaluation.protocols import (
    BOTH,
    MODEL,
    SINGLE_FEATURE,
    Measured,
    Scope,
    Views,
    alignment_scope,
    chance,
    measure_rows,
    views_of,
)
from geocaps.geometry.sampling import at_most
from geocaps.geometry.se3 import stack
from geocaps.model.checkpoint import SHIPPED
from geocaps.model.losses import chamfer
from geocaps.training.batches import random_stream

STABILITY_CLOUDS = 10
MOST_OBJECTS = 100
"""Stability and parts are measured on at most this many objects, evenly spread, because each needs ten encodings."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Settings of an evaluation. ``weights`` is only a name for the tables."""

    weights: str = SHIPPED
    protocols: tuple[str, ...] = PROTOCOLS
    baselines: tuple[str, ...] = ()
    points: int = 1024
    trials: int = 1
    seed: int = 0
    ablate_parts: bool = False
    """Adds rows with another object's parts, and with half of the parts."""

    @property
    def selection(self) -> str:
        """How the rotation is chosen; part of all labels, so that a best of n is never mistaken for a single answer."""
        return "one trial" if self.trials == 1 else f"best of {self.trials} by Chamfer"


@dataclass(frozen=True)
class Evaluation:
    """All that was measured."""

    settings: Settings
    model: Model
    dataset: PointDataset
    pairs: Pairs
    scope: Scope
    protocols: dict[str, Measured]
    variants: dict[str, dict[str, Measured]]
    """Further rows of the model, by name and protocol: other kinds of retrieval, and the ablations."""
    baselines: dict[str, dict[str, Measured]]
    completion: dict[str, Summary]
    """By protocol, for those that keep only a part of the object."""
    reconstruction: Summary
    stability: Summary
    consistency: Summary
    labels: Summary
    parts: Summary | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        settings = self.settings
        return {
            "data": described(self.dataset),
            "weights": settings.weights,
            "points": settings.points,
            "seed": settings.seed,
            "trials": settings.trials,
            "selection": settings.selection,
            "aligned_classes": list(self.scope.classes),
            "protocols": {
                name: measured.summary(self.dataset, self.scope)
                | {"chance": chance(name, self.dataset, settings.trials)}
                for name, measured in self.protocols.items()
            },
            "variants": self._summaries(self.variants),
            "baselines": self._summaries(self.baselines),
            "completion": self.completion,
            "reconstruction": self.reconstruction,
            "canonicalisation": {"stability": self.stability, "consistency": self.consistency},
            "labels": self.labels,
            "parts": self.parts,
            "notes": self.notes,
            "seconds": self.seconds,
        }

    def _summaries(self, rows: dict[str, dict[str, Measured]]) -> dict[str, dict[str, Summary]]:
        return {
            name: {protocol: one.summary(self.dataset, self.scope) for protocol, one in found.items()}
            for name, found in rows.items()
        }

    @property
    def notes(self) -> list[str]:
        notes = list(self.scope.notes)
        if self.parts is None:
            notes.append("the set has no part labels, so parts are not compared")
        if self.consistency["degrees"] is None:
            notes.append("no asymmetric class has two objects, so there is no consistency")
        if self.settings.baselines and "parts" in self.settings.protocols:
            notes.append(
                "the protocol parts rotates only the poses of parts, so the baselines, which need points, have no row"
            )
        if SINGLE_FEATURE in self.variants:
            notes.append(
                f"{MODEL} retrieves by part percepts (late interaction), {SINGLE_FEATURE} by one vector, {BOTH} as "
                "search ranks its candidates"
            )
        if self.settings.trials > 1:
            notes.append(
                f"rotation errors of the model are the best of {self.settings.trials} candidates by Chamfer distance "
                "after alignment (fewer if the model has fewer starts); retrieval and baselines have a single trial"
            )
        return notes


def described(dataset: PointDataset) -> dict[str, Any]:
    return {"name": dataset.name, "objects": len(dataset), "fingerprint": dataset.fingerprint}


def evaluate(model: Model, dataset: PointDataset, settings: Settings, say: Say = lambda _: None) -> Evaluation:
    """Measures a model, and baselines on the same pairs, on a data set. The same settings give the same figures."""
    _check(model, settings)
    started = time.perf_counter()
    scope = alignment_scope(dataset)
    pairs = Pairs(dataset, settings.points, settings.seed)
    say(f"encoding the first clouds of {len(dataset)} objects")
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    protocols: dict[str, Measured] = {}
    variants: dict[str, dict[str, Measured]] = {}
    baselines: dict[str, dict[str, Measured]] = {name: {} for name in settings.baselines}
    completed: dict[str, Summary] = {}
    resampled: Views | None = None
    for protocol in settings.protocols:
        say(f"protocol {protocol}")
        views = views_of(model, pairs, first, protocol)
        rows = measure_rows(model, views, settings.trials, settings.ablate_parts)
        protocols[protocol] = rows.pop(MODEL)
        for name, measured in rows.items():
            variants.setdefault(name, {})[protocol] = measured
        if protocol in KEPT:
            completed[protocol] = completion(model, views)
        if protocol == "resampled":
            resampled = views
        if protocol != "parts":
            for name in settings.baselines:
                say(f"baseline {name}, protocol {protocol}")
                baselines[name][protocol] = measure_baseline(BASELINES[name], views.pairs, scope.aligned)
    say("reconstruction, stability, consistency, labels, parts")
    rebuilt = reconstruction(model, first)
    stability = _stability(model, pairs, scope.aligned)
    consistency = _consistency(pairs, first, scope.aligned)
    labels = _label_agreement(model, pairs, first, resampled)
    parts = _part_labels(model, dataset, settings.seed)
    return Evaluation(
        settings,
        model,
        dataset,
        pairs,
        scope,
        protocols,
        variants,
        baselines,
        completion=completed,
        reconstruction=rebuilt,
        stability=stability,
        consistency=consistency,
        labels=labels,
        parts=parts,
        seconds=time.perf_counter() - started,
    )


def _check(model: Model, settings: Settings) -> None:
    if settings.trials < 1:
        raise UsageError(f"--trials must be at least 1, not {settings.trials}")
    if settings.seed < 0:
        raise UsageError(f"--seed must not be negative, not {settings.seed}")
    parts = model.config.parts.parts
    kept = min(KEPT.get(protocol, 1.0) for protocol in settings.protocols)
    if round(kept * settings.points) < parts:
        raise UsageError(
            f"--points {settings.points} leaves fewer points than the model's {parts} parts in a cloud: "
            f"give at least {math.ceil(parts / kept)}"
        )


# ── figures of one cloud at a time ────────────────────────────────────────────────────────────────────────────────────


def reconstruction(model: Model, first: Encoded) -> Summary:
    """Squared Chamfer distance, in the unit sphere, between each first cloud and its reconstruction by either layer."""
    columns: dict[str, list[np.ndarray]] = {"chamfer_one_layer": [], "chamfer_two_layer": []}
    for batch in first.batches:
        clouds = torch.stack([torch.from_numpy(one.cloud.points).double() for one in batch])
        for name, layer in zip(columns, ("parts", "object"), strict=True):
            columns[name].append(chamfer(clouds, decoded(model, batch, layer)).numpy() / batch.normalization.scale**2)
    found = means({name: np.concatenate(column) for name, column in columns.items()})
    return found | {"objects": len(first.encodings)}


def completion(model: Model, views: Views) -> Summary:
    """Squared Chamfer distance, in the unit sphere, between the whole object and the completion of its second cloud.

    For comparison: the cloud as it is, and joined with its mirror image. The whole object is the first cloud, rotated:
    the second cloud was not cut from these points, so no method gains by repeating them.
    """
    assert views.second is not None
    columns: dict[str, list[float]] = {"chamfer_completed": [], "chamfer_as_given": [], "chamfer_mirrored": []}
    completed = chain.from_iterable(decoded(model, batch, "object") for batch in views.second.batches)
    for pair, points in zip(views.pairs, completed, strict=True):
        whole, given = pair.turn.apply(pair.first.double()), pair.second.double()
        mirrored = torch.from_numpy(with_mirror_image(given.numpy()))
        for column, cloud in zip(columns.values(), (points, given, mirrored), strict=True):
            column.append(float(chamfer(whole[None], cloud[None])))
    return means({name: np.array(column) for name, column in columns.items()}) | {"objects": len(views.pairs)}


def _stability(model: Model, pairs: Pairs, aligned: Bool[np.ndarray, "n"]) -> Summary:
    """RMS angle (degrees) of the canonical rotation to its mean, over ten rotated resamplings of each object."""
    places = np.flatnonzero(aligned)
    chosen = places[at_most(MOST_OBJECTS, len(places))].tolist()
    clouds, poses = zip(*chain.from_iterable(pairs.more(index, STABILITY_CLOUDS) for index in chosen), strict=True)
    own = stack(poses).inverse() @ encode_all(model, clouds).pose
    spreads = [spread_degrees(own[at : at + STABILITY_CLOUDS]) for at in range(0, len(clouds), STABILITY_CLOUDS)]
    floor = chance_spread_degrees(STABILITY_CLOUDS)
    return means({"degrees": np.array(spreads)}) | {"objects": len(chosen), "chance_degrees": floor}


def _consistency(pairs: Pairs, first: Encoded, aligned: Bool[np.ndarray, "n"]) -> Summary:
    """How similar the canonical rotations within a class are, in degrees: for each class, and as a mean over classes.

    ``degrees`` is the RMS angle to their mean, ``mean_angle`` the mean angle between two objects.
    """
    dataset = pairs.dataset
    own = stack([pairs.pose(index) for index in range(len(pairs))]).inverse() @ first.pose
    classes: dict[str, Summary] = {}
    for code in np.unique(dataset.labels[aligned & (dataset.labels >= 0)]):
        members = np.flatnonzero(aligned & (dataset.labels == code))
        if len(members) > 1:
            rotations = own[torch.from_numpy(members)]
            classes[dataset.class_names[code]] = {
                "degrees": spread_degrees(rotations),
                "mean_angle": mean_angle_degrees(rotations),
                "objects": len(members),
            }
    sizes = [one["objects"] for one in classes.values()]
    columns = {name: np.array([one[name] for one in classes.values()]) for name in ("degrees", "mean_angle")}
    return means(columns) | {
        "classes": classes,
        "objects": sum(sizes),
        "chance_degrees": float(np.mean([chance_spread_degrees(size) for size in sizes])) if sizes else None,
        "chance_mean_angle": 180 * best_of_random_rae(1),
    }


def _label_agreement(model: Model, pairs: Pairs, first: Encoded, resampled: Views | None) -> Summary:
    """Whether two samplings of an object are segmented alike: the adjusted Rand index between their labelings.

    Each point of the second cloud is compared with the nearest point of the first. For ``canonical_labels``,
    ``canonical_same`` is also the share of equal numbers. Stray points, which have no part, are left out. Second clouds
    are encoded here only if the protocol ``resampled`` was not measured.
    """
    chosen = at_most(MOST_OBJECTS, len(pairs)).tolist()
    if resampled is not None and resampled.second is not None:
        made, others = [resampled.pairs[index] for index in chosen], [resampled.second.encodings[i] for i in chosen]
    else:
        made = [pairs.pair(index, "resampled") for index in chosen]
        others = list(encode_all(model, [pair.second for pair in made]).encodings)
    columns: dict[str, list[float]] = {"labels": [], "canonical_labels": [], "canonical_same": []}
    for index, pair, other in zip(chosen, made, others, strict=True):
        nearest = cKDTree(pair.turn.apply(pair.first.double()).numpy()).query(pair.second.numpy())[1]
        for name in ("labels", "canonical_labels"):
            expected, found = getattr(first.encodings[index], name)[nearest], getattr(other, name)
            known = (expected >= 0) & (found >= 0)
            columns[name].append(adjusted_rand_index(expected[known], found[known]))
            if name == "canonical_labels":
                columns["canonical_same"].append(float((expected == found)[known].mean()))
    return means({name: np.array(column) for name, column in columns.items()}) | {"objects": len(chosen)}


def _part_labels(model: Model, dataset: PointDataset, seed: int) -> Summary | None:
    """Agreement of part capsules with true parts, and that of shuffled labels; None without true parts."""
    places = at_most(MOST_OBJECTS, len(dataset)).tolist()
    truths = {index: own for index in places if (own := dataset.part_labels(index)) is not None}
    if not truths:
        return None
    encoded = encode_all(model, [torch.from_numpy(dataset.points(index)) for index in truths])
    found, floors = [], []
    for (index, truth), one in zip(truths.items(), encoded.encodings, strict=True):
        shuffled = one.labels[torch.randperm(len(one.labels), generator=random_stream(seed, index)).numpy()]
        found.append(partition_agreement(truth, one.labels))
        floors.append(partition_agreement(truth, shuffled))
    figures = means({name: np.array([one[name] for one in found]) for name in found[0]})
    floor = {name: float(np.mean([one[name] for one in floors])) for name in found[0]}
    return figures | {"chance": floor, "objects": len(found)}
