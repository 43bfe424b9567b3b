"""Validation figures on held-out objects, by which a training is monitored.

The full protocols are in ``geocaps.evaluation``; these are quick versions, always on the same clouds, to monitor a
training and to choose its best checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.data import PointDataset
from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules, Parse, Parts
from geocaps.model.losses import chamfer
from geocaps.model.object_paper import PaperObject
from geocaps.training.batches import Spoiling, augmented_samplings, random_stream, unit_sphere
from geocaps.training.config import Augmentation

CHUNK = 32
_RIGHT = math.radians(15)
PROTOCOLS = ("parts", "resampled")
_STREAM = 20200
"""Validation has its own random stream, whatever the training's seed, so that two trainings can be compared."""
_HALVES = Spoiling(keep=0.5), Spoiling(one_sided=True)
"""The trust is calibrated on half of each object, by turns one of these. Calibrated on milder crops, it was too high
for half of an object."""


class Validation:
    """Two samplings of each held-out object, fixed rotations, and pairs of the whole object and half of it."""

    def __init__(self, dataset: PointDataset, objects: int, points: int) -> None:
        count = min(objects, len(dataset))
        chosen = np.arange(count) * len(dataset) // count
        generator = random_stream(_STREAM)
        clouds = [augmented_samplings(dataset, int(i), points, 2, Augmentation(), generator)[0] for i in chosen]
        self.first, self.second, _ = torch.stack(clouds).unbind(1)
        draws = random_stream(_STREAM, 1)
        pairs = [_halved(dataset, int(i), points, _HALVES[place % 2], draws) for place, i in enumerate(chosen)]
        self.halved = torch.stack(pairs)
        self.axis_angle = Pose.perturbation(count, max_angle=math.pi, generator=generator)
        self.uniform = Pose.random(count, generator=generator)
        self._parts_found: dict[tuple[str, int], Parts] = {}

    def of_parts(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """``chamfer`` of the surfaces of the part capsules."""
        return _means(self._rows(lambda at: self._parts(model, self.first[at].to(device))))

    def of_object(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """``chamfer`` of the object capsule's surfaces, ``rotation_…`` (mean angle/π), ``top1_…`` of two protocols."""
        found = self._rows(lambda at: self._object(model, device, at))
        features = {name: found.pop(name) for name in ("feature", "feature_parts", "feature_resampled")}
        ranks = {f"top1_{name}": top1(features[f"feature_{name}"], features["feature"]) for name in PROTOCOLS}
        return _means(found) | ranks

    def of_votes(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """For the paper's layer under ``parts``: the shares ``within_15`` and ``within_15_modulo_signs``; ``spread``.

        The mean angle alone does not show whether axes are found with wrong signs.
        """
        return _means(self._rows(lambda at: self._votes(model, device, at)))

    def _rows(self, chunk: Callable[[slice], dict[str, Tensor]]) -> dict[str, Tensor]:
        rows = [chunk(slice(at, at + CHUNK)) for at in range(0, len(self.first), CHUNK)]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    def _parts(self, model: GeometricCapsuleAutoencoder, first: Float[Tensor, "b n 3"]) -> dict[str, Tensor]:
        surface = model.parts.decode(model.parts(first).capsules)
        return {"chamfer": chamfer(first, surface.flatten(1, 2)).cpu()}

    def _votes(self, model: GeometricCapsuleAutoencoder, device: torch.device, at: slice) -> dict[str, Tensor]:
        assert isinstance(model.object, PaperObject)
        first, turn = self.first[at].to(device), self.axis_angle[at].to(device)
        parts = self._decomposed(model, "first", at, first)
        seen = model.parse_parts(parts, first)
        left = left_over(seen.object.pose, _turned(model, first, seen, turn).object.pose, turn)
        values = {
            "within_15": left.angle_to(Pose.identity(*left.shape, device=device)) <= _RIGHT,
            "within_15_modulo_signs": math.pi * modulo_signs(left) <= _RIGHT,
            "spread": model.object.spread(first, parts.capsules, torch.Generator().manual_seed(2)),
        }
        return {name: value.float().cpu() for name, value in values.items()}

    def _decomposed(self, model: GeometricCapsuleAutoencoder, view: str, at: slice, points: Tensor) -> Parts:
        """The parts of a view, computed once, since the first layer is fixed while the second is trained."""
        if (view, at.start) not in self._parts_found:
            self._parts_found[view, at.start] = model.parts(points).parts
        return self._parts_found[view, at.start]

    def _object(self, model: GeometricCapsuleAutoencoder, device: torch.device, at: slice) -> dict[str, Tensor]:
        first = self.first[at].to(device)
        seen = model.parse_parts(self._decomposed(model, "first", at, first), first)
        turn = self.axis_angle[at].to(device)
        turned = _turned(model, first, seen, turn)
        other = self.uniform[at].to(device)
        second = other.apply(self.second[at].to(device))
        resampled = model.parse_parts(self._decomposed(model, "resampled", at, second), second)
        values = {
            "chamfer": chamfer(first, model.reconstruct(seen).flatten(1, 2)),
            "rotation_parts": rotation_error(seen.object.pose, turned.object.pose, turn),
            "rotation_resampled": rotation_error(seen.object.pose, resampled.object.pose, other),
            "feature": seen.object.feature,
            "feature_parts": turned.object.feature,
            "feature_resampled": resampled.object.feature,
        }
        return {name: value.cpu() for name, value in values.items()}


def _halved(
    dataset: PointDataset, index: int, count: int, half: Spoiling, generator: torch.Generator
) -> Float[Tensor, "3 n 3"]:
    """A sampling of the whole object, half of another one, and the first again as the truth, as a training has them."""
    clouds = unit_sphere(dataset, index, dataset.samplings(index, 2 * count, 2, generator))
    whole = clouds[0, :count]
    return torch.stack([whole, half.apply(clouds[1], count, generator), whole])


def _means(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value.mean()) for name, value in values.items()}


def _turned(model: GeometricCapsuleAutoencoder, points: Tensor, seen: Parse, turn: Pose) -> Parse:
    """The ``parts`` protocol: the same part capsules, with rotated poses."""
    parts = Parts(Capsules(turn[:, None] @ seen.parts.pose, seen.parts.feature), seen.share)
    # Other draws than for the first cloud: a model with random starts (the paper's) must not get the same ones.
    return model.parse_parts(parts, turn.apply(points), torch.Generator().manual_seed(1))


def rotation_error(first: Pose, second: Pose, turn: Pose) -> Float[Tensor, "b"]:
    """Angle/π between the rotation found, ``T_second ∘ T_first⁻¹``, and the true one."""
    return (second @ first.inverse()).angle_to(turn) / math.pi


def left_over(first: Pose, second: Pose, turn: Pose) -> Pose:
    """Residual rotation in the canonical frame, ``T_first⁻¹ ∘ turn⁻¹ ∘ T_second``: ideally the identity."""
    return first.inverse() @ turn.inverse() @ second


def modulo_signs(left: Pose) -> Float[Tensor, "*batch"]:
    """The angle/π after the best of the four proper sign changes, which reverse two of the three axes or none.

    These are the quaternions 1, i, j and k, so the largest entry is the cosine of half the remaining angle.
    """
    return 2 * torch.acos(left.wxyz.abs().amax(dim=-1).clamp(max=1)) / math.pi


def top1(queries: Float[Tensor, "b d"], gallery: Float[Tensor, "b d"]) -> float:
    """Share of the queries whose nearest feature in the gallery is their own object's."""
    nearest = torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
    return float((nearest == torch.arange(len(queries))).float().mean())
