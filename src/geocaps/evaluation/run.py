"""The whole evaluation of one model on one data set, as one value that tables, figures and JSON are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.errors import UsageError
from geocaps.evaluation.baselines import BASELINES, measure_baseline
from geocaps.evaluation.metrics import Summary, chance_spread_degrees, means, partition_agreement, spread_degrees
from geocaps.evaluation.pairs import CROP_KEEP, PROTOCOLS, Pairs, evenly_chosen
from geocaps.evaluation.protocols import Encoded, Measured, Scope, alignment_scope, chance, encode_all, measure
from geocaps.geometry.se3 import stack
from geocaps.model.checkpoint import SHIPPED
from geocaps.model.losses import chamfer
from geocaps.training.batches import random_stream

STABILITY_CLOUDS = 10
MOST_OBJECTS = 100
"""Stability and parts are measured on so many objects at most, spread evenly: ten encodings each add up."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What is measured, and how. ``weights`` is only a name for the tables."""

    weights: str = SHIPPED
    protocols: tuple[str, ...] = PROTOCOLS
    baselines: tuple[str, ...] = ()
    points: int = 1024
    trials: int = 1
    seed: int = 0

    @property
    def selection(self) -> str:
        """How the rotation is chosen: part of every label, so that best-of-n is never read as one answer."""
        return "one trial" if self.trials == 1 else f"best of {self.trials} by Chamfer"


@dataclass(frozen=True)
class Evaluation:
    """Everything measured."""

    settings: Settings
    model: Model
    dataset: PointDataset
    pairs: Pairs
    scope: Scope
    protocols: dict[str, Measured]
    baselines: dict[str, dict[str, Measured]]
    reconstruction: Summary
    stability: Summary
    consistency: Summary
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
            "baselines": {
                name: {protocol: one.summary(self.dataset, self.scope) for protocol, one in rows.items()}
                for name, rows in self.baselines.items()
            },
            "reconstruction": self.reconstruction,
            "canonicalisation": {"stability": self.stability, "consistency": self.consistency},
            "parts": self.parts,
            "notes": self.notes,
            "seconds": self.seconds,
        }

    @property
    def notes(self) -> list[str]:
        notes = list(self.scope.notes)
        if self.parts is None:
            notes.append("the set has no part labels: parts are not compared")
        if self.consistency["degrees"] is None:
            notes.append("no asymmetric class has two objects: there is no consistency")
        if self.settings.baselines and "parts" in self.settings.protocols:
            notes.append(
                "under the protocol parts only part poses turn, so the baselines, which see points, have no row"
            )
        if self.settings.trials > 1:
            notes.append(
                f"rotation errors of the model are the best of {self.settings.trials} candidates by Chamfer distance "
                "after alignment (fewer where the model has fewer starts); retrieval and baselines are not chosen"
            )
        return notes


def described(dataset: PointDataset) -> dict[str, Any]:
    return {"name": dataset.name, "objects": len(dataset), "fingerprint": dataset.fingerprint}


def evaluate(model: Model, dataset: PointDataset, settings: Settings, say: Say = lambda _: None) -> Evaluation:
    """Measures a model (and baselines, on the same pairs) on a data set. The same settings give the same figures."""
    _check(model, settings)
    started = time.perf_counter()
    scope = alignment_scope(dataset)
    pairs = Pairs(dataset, settings.points, settings.seed)
    say(f"encoding the first views of {len(dataset)} objects")
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    protocols = {}
    for protocol in settings.protocols:
        say(f"protocol {protocol}")
        protocols[protocol] = measure(model, pairs, first, protocol, settings.trials)
    say("reconstruction, stability, consistency, parts")
    rebuilt = reconstruction(first)
    stability = _stability(model, pairs, scope.aligned)
    consistency = _consistency(pairs, first, scope.aligned)
    parts = _part_labels(model, dataset, settings.seed)
    baselines: dict[str, dict[str, Measured]] = {}
    for name in settings.baselines:
        baselines[name] = {}
        for protocol in protocols:
            if protocol != "parts":
                say(f"baseline {name}, protocol {protocol}")
                baselines[name][protocol] = measure_baseline(BASELINES[name], pairs, protocol, scope.aligned)
    return Evaluation(
        settings,
        model,
        dataset,
        pairs,
        scope,
        protocols,
        baselines,
        reconstruction=rebuilt,
        stability=stability,
        consistency=consistency,
        parts=parts,
        seconds=time.perf_counter() - started,
    )


def _check(model: Model, settings: Settings) -> None:
    if settings.trials < 1:
        raise UsageError(f"--trials must be at least 1, not {settings.trials}")
    if settings.seed < 0:
        raise UsageError(f"--seed must not be negative, not {settings.seed}")
    parts = model.config.parts.parts
    if round(CROP_KEEP * settings.points) < parts:
        raise UsageError(
            f"--points {settings.points} leaves fewer points than the model's {parts} parts in a cropped view: "
            f"give at least {int(parts / CROP_KEEP) + 1}"
        )


# ── what one cloud at a time tells ────────────────────────────────────────────────────────────────────────────────────


def reconstruction(first: Encoded) -> Summary:
    """Squared Chamfer distance, in the unit sphere, between each first cloud and what either layer makes of it."""
    columns: dict[str, list[np.ndarray]] = {"chamfer_one_layer": [], "chamfer_two_layer": []}
    for batch in first.batches:
        clouds = torch.stack([torch.from_numpy(one.cloud.points).double() for one in batch])
        for name, layer in zip(columns, ("parts", "object"), strict=True):
            decoded = torch.stack([torch.from_numpy(one.reconstruct(layer).points).flatten(0, 1) for one in batch])
            columns[name].append(chamfer(clouds, decoded).numpy() / batch.normalization.scale**2)
    objects = sum(len(batch) for batch in first.batches)
    return means({name: np.concatenate(column) for name, column in columns.items()}) | {"objects": objects}


def _stability(model: Model, pairs: Pairs, aligned: Bool[np.ndarray, "n"]) -> Summary:
    """RMS angle (degrees) of an object's canonical rotation over ten rotated resamplings of it, per object."""
    places = np.flatnonzero(aligned)
    chosen = [int(places[at]) for at in evenly_chosen(MOST_OBJECTS, len(places))]
    spreads = []
    for index in chosen:
        clouds, poses = zip(*pairs.more(index, STABILITY_CLOUDS), strict=True)
        spreads.append(spread_degrees(stack(poses).inverse() @ encode_all(model, clouds).pose))
    floor = chance_spread_degrees(STABILITY_CLOUDS)
    return means({"degrees": np.array(spreads)}) | {"objects": len(chosen), "chance_degrees": floor}


def _consistency(pairs: Pairs, first: Encoded, aligned: Bool[np.ndarray, "n"]) -> Summary:
    """RMS angle (degrees) of the canonical rotation across the aligned objects of a class, mean over classes."""
    dataset = pairs.dataset
    own = stack([pairs.pose(index) for index in range(len(pairs))]).inverse() @ first.pose
    spreads: dict[str, float] = {}
    sizes = []
    for code in np.unique(dataset.labels[aligned & (dataset.labels >= 0)]):
        members = np.flatnonzero(aligned & (dataset.labels == code))
        if len(members) > 1:
            spreads[dataset.class_names[code]] = spread_degrees(own[torch.from_numpy(members)])
            sizes.append(len(members))
    floor = float(np.mean([chance_spread_degrees(size) for size in sizes])) if sizes else None
    found = means({"degrees": np.array(list(spreads.values()))})
    return found | {"classes": spreads, "objects": sum(sizes), "chance_degrees": floor}


def _part_labels(model: Model, dataset: PointDataset, seed: int) -> Summary | None:
    """How part capsules respect true parts, and what the same labels in random order get; None without true parts."""
    places = evenly_chosen(MOST_OBJECTS, len(dataset))
    truths = {index: own.numpy() for index in places if (own := dataset.part_labels(index)) is not None}
    if not truths:
        return None
    encoded = encode_all(model, [dataset.points(index) for index in truths])
    found, floors = [], []
    for (index, truth), one in zip(truths.items(), (one for batch in encoded.batches for one in batch), strict=True):
        shuffled = one.labels[torch.randperm(len(one.labels), generator=random_stream(seed, index)).numpy()]
        found.append(partition_agreement(truth, one.labels))
        floors.append(partition_agreement(truth, shuffled))
    figures = means({name: np.array([one[name] for one in found]) for name in found[0]})
    floor = {name: float(np.mean([one[name] for one in floors])) for name in found[0]}
    return figures | {"chance": floor, "objects": len(found)}
