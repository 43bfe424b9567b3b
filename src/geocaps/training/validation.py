"""Figures on held-out objects, the same clouds every time: reconstruction, and for the object stage pose and identity.

The full protocols are in ``geocaps.evaluation``; these are their quick forms over all held-out objects, to watch a
training and to choose its best checkpoint.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.data import PointDataset
from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder, Parse
from geocaps.model.capsules import Capsules
from geocaps.model.losses import chamfer
from geocaps.training.config import Augmentation
from geocaps.training.data import augmented_samplings
from geocaps.training.schedule import random_stream

_CHUNK = 32
_PICTURED = 4
_STREAM = 20200
"""Validation draws from its own stream, whatever the training's seed: figures of two trainings can be compared."""


class Validation:
    """Two samplings of each held-out object and fixed rotations."""

    def __init__(self, dataset: PointDataset, objects: int, points: int) -> None:
        count = min(objects, len(dataset))
        chosen = np.arange(count) * len(dataset) // count
        generator = random_stream(_STREAM)
        clouds = [augmented_samplings(dataset, int(i), points, 2, Augmentation(), generator) for i in chosen]
        self.first, self.second = torch.stack(clouds).unbind(1)
        self.axis_angle = Pose.perturbation(count, max_angle=math.pi, generator=generator)
        self.uniform = Pose.random(count, generator=generator)

    @torch.no_grad()
    def figures(self, model: GeometricCapsuleAutoencoder, stage: str, device: torch.device) -> dict[str, float]:
        """``chamfer``, and for the object stage ``rotation_…`` (mean angle/π) and ``top1_…`` of two protocols."""
        model.eval()
        rows = [self._chunk(model, stage, device, slice(at, at + _CHUNK)) for at in range(0, len(self.first), _CHUNK)]
        joined = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
        figures = {name: float(values.mean()) for name, values in joined.items() if not name.startswith("feature")}
        if stage == "object":
            for protocol in ("parts", "resampled"):
                figures[f"top1_{protocol}"] = top1(joined[f"feature_{protocol}"], joined["feature"])
        model.train()
        return figures

    def _chunk(
        self, model: GeometricCapsuleAutoencoder, stage: str, device: torch.device, at: slice
    ) -> dict[str, Tensor]:
        first = self.first[at].to(device)
        if stage == "parts":
            surface = model.parts.decode(model.parts(first).capsules)
            return {"chamfer": chamfer(first, surface.flatten(1, 2)).cpu()}
        seen = model.parse(first)
        turn = self.axis_angle[at].to(device)
        turned = _turned(model, first, seen, turn)
        other = self.uniform[at].to(device)
        resampled = model.parse(other.apply(self.second[at].to(device)))
        surface = model.reconstruct(seen.object)
        values = {
            "chamfer": chamfer(first, surface.flatten(1, 2)),
            "rotation_parts": rotation_error(seen.object.pose, turned.object.pose, turn),
            "rotation_resampled": rotation_error(seen.object.pose, resampled.object.pose, other),
            "feature": seen.object.feature,
            "feature_parts": turned.object.feature,
            "feature_resampled": resampled.object.feature,
        }
        return {name: value.cpu() for name, value in values.items()}

    @torch.no_grad()
    def pictures(
        self, model: GeometricCapsuleAutoencoder, stage: str, device: torch.device
    ) -> Float[Tensor, "2 o n 3"]:
        """A few held-out clouds, and as many decoded points of each."""
        points = self.first[:_PICTURED].to(device)
        if stage == "parts":
            surface = model.parts.decode(model.parts(points).capsules)
        else:
            surface = model.reconstruct(model.parse(points).object)
        decoded = surface.flatten(1, 2)
        pick = torch.arange(points.shape[1], device=device) * decoded.shape[1] // points.shape[1]
        return torch.stack([points, decoded[:, pick]])


def _turned(model: GeometricCapsuleAutoencoder, points: Tensor, seen: Parse, turn: Pose) -> Parse:
    """The ``parts`` protocol: the same part capsules, their poses turned."""
    points = turn.apply(points)
    parts = Capsules(turn[:, None] @ seen.parts.pose, seen.parts.feature)
    # Other draws than the first view's: a model with random starts (the paper's) must not get the same one twice.
    starts = model.starts(points, torch.Generator().manual_seed(1))
    return model.parse_parts(points, parts, seen.routing, starts)


def rotation_error(first: Pose, second: Pose, turn: Pose) -> Float[Tensor, "b"]:
    """Angle between the found rotation ``T_second ∘ T_first⁻¹`` and the true one, over π."""
    return (second @ first.inverse()).angle_to(turn) / math.pi


def top1(queries: Float[Tensor, "b d"], gallery: Float[Tensor, "b d"]) -> float:
    """Share of the queries whose nearest feature in the gallery is their own object's."""
    nearest = torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
    return float((nearest == torch.arange(len(queries))).float().mean())
