"""What one view tells: reconstruction, stability and consistency of the canonical frame, parts against true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.evaluation.encoding import Encoded, encode_all
from geocaps.evaluation.metrics import chance_spread_degrees, means, partition_agreement, spread_degrees
from geocaps.evaluation.views import Views, evenly_chosen
from geocaps.geometry.se3 import stack
from geocaps.model.losses import chamfer
from geocaps.training.schedule import random_stream

STABILITY_VIEWS = 10
MOST_OBJECTS = 100
"""Stability and parts are measured on so many objects at most, spread evenly: ten encodings each add up."""

Figures = dict[str, Any]


def reconstruction(first: Encoded) -> Figures:
    """Squared Chamfer distance, in the unit sphere, between each first view and what either layer makes of it."""
    columns: dict[str, list[np.ndarray]] = {"chamfer_one_layer": [], "chamfer_two_layer": []}
    for batch in first.batches:
        clouds = torch.stack([torch.from_numpy(one.cloud.points).double() for one in batch])
        for name, layer in zip(columns, ("parts", "object"), strict=True):
            decoded = torch.stack([torch.from_numpy(one.reconstruct(layer).points).flatten(0, 1) for one in batch])
            columns[name].append((chamfer(clouds, decoded) / batch.normalization.scale.square()).numpy())
    objects = sum(len(batch) for batch in first.batches)
    return means({name: np.concatenate(column) for name, column in columns.items()}) | {"objects": objects}


def stability(model: Model, views: Views, aligned: Bool[np.ndarray, "n"]) -> Figures:
    """RMS angle (degrees) of an object's canonical rotation over ten rotated resamplings of it, per object."""
    places = np.flatnonzero(aligned)
    chosen = [int(places[at]) for at in evenly_chosen(MOST_OBJECTS, len(places))]
    spreads = []
    for index in chosen:
        seen = views.more(index, STABILITY_VIEWS)
        found = encode_all(model, [points for points, _ in seen]).pose
        spreads.append(spread_degrees(stack([pose for _, pose in seen]).inverse() @ found))
    return means({"degrees": np.array(spreads)}) | {
        "objects": len(chosen),
        "chance_degrees": chance_spread_degrees(STABILITY_VIEWS),
    }


def consistency(dataset: PointDataset, views: Views, first: Encoded, aligned: Bool[np.ndarray, "n"]) -> Figures:
    """RMS angle (degrees) of the canonical rotation across the aligned objects of a class, mean over classes."""
    found = first.pose
    own = stack([views.pose(index) for index in range(len(views))]).inverse() @ found
    spreads: dict[str, float] = {}
    sizes = []
    for code in np.unique(dataset.labels[aligned & (dataset.labels >= 0)]):
        members = np.flatnonzero(aligned & (dataset.labels == code))
        if len(members) > 1:
            spreads[dataset.class_names[code]] = spread_degrees(own[torch.from_numpy(members)])
            sizes.append(len(members))
    chance = float(np.mean([chance_spread_degrees(size) for size in sizes])) if sizes else None
    return means({"degrees": np.array(list(spreads.values()))}) | {
        "classes": spreads,
        "objects": sum(sizes),
        "chance_degrees": chance,
    }


def part_labels(model: Model, dataset: PointDataset, seed: int) -> Figures | None:
    """How part capsules respect true parts, and what the same labels in random order get; None without true parts."""
    chosen = [index for index in evenly_chosen(MOST_OBJECTS, len(dataset)) if dataset.part_labels(index) is not None]
    if not chosen:
        return None
    encoded = encode_all(model, [dataset.points(index) for index in chosen])
    found: list[dict[str, float]] = []
    floors: list[dict[str, float]] = []
    for index, one in zip(chosen, (one for batch in encoded.batches for one in batch), strict=True):
        truth = dataset.part_labels(index)
        assert truth is not None
        shuffled = one.labels[torch.randperm(len(one.labels), generator=random_stream(seed, index)).numpy()]
        found.append(partition_agreement(truth.numpy(), one.labels))
        floors.append(partition_agreement(truth.numpy(), shuffled))
    figures: Figures = dict(means({name: np.array([one[name] for one in found]) for name in found[0]}))
    figures["chance"] = {name: float(np.mean([one[name] for one in floors])) for name in found[0]}
    return figures | {"objects": len(found)}
