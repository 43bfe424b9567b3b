"""Stages of a training as objects, and the figures on held-out objects that they are watched by.

The full protocols are in ``geocaps.evaluation``; the figures here are their quick forms, the same clouds every time, to
watch a training and to choose its best checkpoint.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.data import PointDataset
from geocaps.geometry.frames import own_sphere, principal_axes, surface_axes
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder, Parse
from geocaps.model.capsules import Capsules, Parts
from geocaps.model.losses import chamfer, weighted
from geocaps.model.object import AgreeingObject, Views
from geocaps.model.object_paper import PaperObject
from geocaps.training.batches import Batch, augmented_samplings, random_stream
from geocaps.training.config import AgreementObjective, Augmentation, PaperObjective, TrainConfig
from geocaps.training.distributed import World
from geocaps.training.frames import CommonFrames, common_frames

Prepared = dict[str, Tensor]
"""What a step needs of some objects, by name; the first dimension of each tensor counts the objects."""


def joined(draws: Sequence[Prepared]) -> Prepared:
    """The objects of several draws together."""
    return {name: torch.cat([draw[name] for draw in draws]) for name in draws[0]}


class Stage(nn.Module, ABC):
    """What is trained, and on what; a module, so that DistributedDataParallel can wrap it."""

    name: ClassVar[str]
    samplings: ClassVar[int] = 1
    """Independent samplings of each object that a step sees."""

    def __init__(self, model: GeometricCapsuleAutoencoder, layer: nn.Module) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        layer.requires_grad_(True)

    def trained(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    @abstractmethod
    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        """What does not depend on the trained weights: made once for each draw, however many steps see it."""

    @abstractmethod
    def forward(self, seen: Prepared, share: float, generator: torch.Generator) -> dict[str, Tensor]:
        """Every term averaged over the objects, and their weighted sum as ``loss``, after that share of the steps."""

    def noise_degrees(self, share: float) -> float | None:
        """The largest perturbation of viewpoints, if it is worth recording."""
        return None

    def fault(self, step: int, record: dict[str, float]) -> str | None:
        """Why a training whose gradients after so many steps gave this record cannot succeed; None if it can."""
        return None

    def survey_is_due(self, share: float) -> bool:
        """Whether, after that share of the steps, all objects have to be looked at together before the next one."""
        return False

    def survey(self, dataset: PointDataset, world: World) -> None:
        """Looks at all objects together; draws made before it are stale."""

    def similar(self) -> Int[Tensor, "m k"] | None:
        """The objects most similar to each, where a survey found them."""
        return None

    def found(self) -> dict[str, Tensor]:
        """What the survey found, for a run that is resumed."""
        return {}

    def restore(self, found: dict[str, Tensor]) -> None:
        """Restores what an earlier survey found."""

    @abstractmethod
    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        """What held-out objects say of the layer that is trained."""

    @abstractmethod
    def surfaces(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j m 3"]:
        """What the clouds are decoded to, for pictures."""


class PartsStage(Stage):
    """The first layer, by its Chamfer loss."""

    name = "parts"

    def __init__(self, model: GeometricCapsuleAutoencoder) -> None:
        super().__init__(model, model.parts)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        return {"points": in_own_frame(batch.points[:, 0])}

    def forward(self, seen: Prepared, share: float, generator: torch.Generator) -> dict[str, Tensor]:
        return {"loss": self.model.parts.loss(seen["points"], generator).mean()}

    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        return validation.of_parts(self.model, device)

    def surfaces(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j m 3"]:
        return self.model.parts.decode(self.model.parts(points).capsules)


def in_own_frame(points: Float[Tensor, "*b n 3"]) -> Float[Tensor, "*b n 3"]:
    """Clouds as the model gets them: a crop has its own centre and radius."""
    center, radius = own_sphere(points)
    return (points - center[..., None, :]) / radius[..., None, None]


class _SecondStage(Stage):
    """What both object layers share: the first layer is frozen and decomposes the clouds."""

    name = "object"

    def __init__(self, model: GeometricCapsuleAutoencoder) -> None:
        super().__init__(model, model.object)

    def _decomposed(self, points: Float[Tensor, "b v n 3"], generator: torch.Generator) -> Parts:
        flat = points.flatten(0, 1)
        parts = self.model.parts(flat, self.model.parts.initial(flat, generator)).parts
        return parts.map(lambda tensor: tensor.unflatten(0, points.shape[:2]))

    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        return validation.of_object(self.model, device)

    def surfaces(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j m 3"]:
        return self.model.reconstruct(self.model.parse(points))


class ObjectStage(_SecondStage):
    """Our object layer: two views of each object must agree."""

    samplings = 2

    def __init__(
        self, model: GeometricCapsuleAutoencoder, objective: AgreementObjective, *, trained: bool = False
    ) -> None:
        super().__init__(model)
        self.objective, self.was_trained = objective, trained
        self.common: CommonFrames | None = None
        self._held_out: Views | None = None

    @property
    def layer(self) -> AgreeingObject:
        assert isinstance(self.model.object, AgreeingObject)
        return self.model.object

    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        views = self._views(batch.points, generator)
        if self.common is not None:
            frames = views.frames[:, None] @ self.layer.cube
            views = replace(views, chance=self.common.chance_of(frames, batch.objects, batch.turned))
        return vars(views)

    @torch.no_grad()
    def _views(self, points: Float[Tensor, "b views n 3"], generator: torch.Generator) -> Views:
        center, radius = own_sphere(points[:, :-1])
        parts = self._decomposed(in_own_frame(points[:, :-1]), generator)
        count = points.shape[2]
        target = points[:, -1, evenly(self.objective.target_points or count, count)]
        return self.layer.views(self.model.parts, parts, points[:, -1], target, -center / radius[..., None], 1 / radius)

    def forward(self, seen: Prepared, share: float, generator: torch.Generator) -> dict[str, Tensor]:
        terms = self.layer.loss(self.model.parts, Views(**seen), self.objective.noise_degrees, generator)
        return weighted(terms, self.objective.weights)

    def survey_is_due(self, share: float) -> bool:
        since = 0.0 if self.was_trained else self.objective.common_from
        return self.common is None and since <= share < 1

    def survey(self, dataset: PointDataset, world: World) -> None:
        self.common = common_frames(dataset, self.described, self.model.config.points, world, trained=self.was_trained)

    def similar(self) -> Int[Tensor, "m k"] | None:
        return None if self.common is None else self.common.similar

    def found(self) -> dict[str, Tensor]:
        return {} if self.common is None else vars(self.common)

    def restore(self, found: dict[str, Tensor]) -> None:
        self.common = CommonFrames(**found) if found else None

    @torch.no_grad()
    def described(
        self, points: Float[Tensor, "b n 3"]
    ) -> tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 24 d"], Float[Tensor, "b 24"]]:
        """The axes of whole objects' surfaces; what each of the 24 frames on them sees; how likely each is chosen."""
        own = in_own_frame(points)
        shown = self.layer.shown(self.model.parts, self.model.parts(own).parts)
        even = own.new_full(own.shape[:2], 1 / own.shape[1])
        axes, _ = surface_axes(own, even)
        _, middle = principal_axes(shown.points, shown.weight)  # the centre of the surface: no axes are needed for it
        seen = self.layer.lead(shown, self.layer.starts_on(axes, middle))
        chosen = self.layer.chosen(seen, axes).exp()
        return axes, self.layer.descriptors(seen.start_look), chosen / chosen.sum(dim=1, keepdim=True)

    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        """Fits the trust to the held-out objects first: the confidence of every kept checkpoint is calibrated."""
        if self._held_out is None:
            draws = [vars(self._views(some.to(device), torch.Generator())) for some in validation.spoilt.split(_CHUNK)]
            self._held_out = Views(**joined(draws))
        self.layer.fit_trust(self._held_out)
        return super().figures(validation, device)


SPREAD_STEP, LEAST_SPREAD = 600, 5.0
"""After so many steps the votes of one object from two viewpoints must differ by so many degrees. Q collapses to a
constant within 300 steps of too high a rate and mostly stays one, at 0 to 1 degree; others were at 44 to 54 by then."""
_SPREAD_OBJECTS = 16
"""Objects of a batch whose votes are looked at: a constant is told from a spread by few, and votes cost time."""


class PaperObjectStage(_SecondStage):
    """The paper's object layer: Algorithm 2, with viewpoint noise that may grow."""

    def __init__(self, model: GeometricCapsuleAutoencoder, objective: PaperObjective) -> None:
        super().__init__(model)
        self.objective = objective

    @property
    def layer(self) -> PaperObject:
        assert isinstance(self.model.object, PaperObject)
        return self.model.object

    @torch.no_grad()
    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        capsules = self._decomposed(batch.points[:, :1], generator).capsules[:, 0]
        return {"points": batch.points[:, 0], "pose": capsules.pose.vector(), "feature": capsules.feature}

    def noise_degrees(self, share: float) -> float:
        return self.objective.noise_degrees(share)

    def forward(self, seen: Prepared, share: float, generator: torch.Generator) -> dict[str, Tensor]:
        parts = Capsules(Pose(seen["pose"][..., :3], seen["pose"][..., 3:]), seen["feature"])
        one, noise = self.objective, self.noise_degrees(share)
        terms = self.layer.loss(
            self.model.parts,
            seen["points"],
            parts,
            one.weights,
            noise,
            generator,
            target_points=one.target_points,
            decoded_points=one.decoded_points,
        )
        some = slice(_SPREAD_OBJECTS)
        spread = self.layer.spread(seen["points"][some], parts[some], generator)
        return weighted(terms, one.weights) | {"spread": spread.mean()}

    def fault(self, step: int, record: dict[str, float]) -> str | None:
        if step != SPREAD_STEP or record["spread"] >= LEAST_SPREAD:
            return None
        return (
            f"the pose votes have collapsed: after {step} steps those from two random viewpoints of one object are "
            f"{record['spread']:.1f} degrees apart ({LEAST_SPREAD:g} at least are needed), so Q turns every viewpoint "
            "alike and will find no pose. Begin anew at a rate of 1e-4 and raise it when the votes have spread "
            "(object.hold and object.hold_rate)"
        )

    @torch.no_grad()
    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        return super().figures(validation, device) | validation.of_votes(self.model, device)


def stage_of(name: str, model: GeometricCapsuleAutoencoder, config: TrainConfig) -> Stage:
    """The stage of a training by its name."""
    if name == PartsStage.name:
        return PartsStage(model)
    if isinstance(config.objective, PaperObjective):
        return PaperObjectStage(model, config.objective)
    return ObjectStage(model, config.objective, trained=config.init_object)


# ── held-out objects ──────────────────────────────────────────────────────────────────────────────────────────────────

_CHUNK = 32
_RIGHT = math.radians(15)
PICTURED = 4
PROTOCOLS = ("parts", "resampled")
_STREAM = 20200
"""Validation draws from its own stream, whatever the training's seed: figures of two trainings can be compared."""


class Validation:
    """Two samplings of each held-out object and fixed rotations; two more, ``spoilt`` as in training, and the whole."""

    def __init__(self, dataset: PointDataset, objects: int, points: int, spoiling: Augmentation) -> None:
        count = min(objects, len(dataset))
        chosen = np.arange(count) * len(dataset) // count
        generator = random_stream(_STREAM)
        clouds = [augmented_samplings(dataset, int(i), points, 2, Augmentation(), generator)[0] for i in chosen]
        self.first, self.second, _ = torch.stack(clouds).unbind(1)
        draws = random_stream(_STREAM, 1)
        spoilt = [augmented_samplings(dataset, int(i), points, 2, spoiling, draws)[0] for i in chosen]
        self.spoilt = torch.stack(spoilt)
        self.axis_angle = Pose.perturbation(count, max_angle=math.pi, generator=generator)
        self.uniform = Pose.random(count, generator=generator)
        self._parts_found: dict[tuple[str, int], Parts] = {}

    def of_parts(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """``chamfer`` of the part capsules' surfaces."""
        return _means(self._rows(lambda at: self._parts(model, self.first[at].to(device))))

    def of_object(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """``chamfer`` of the object capsule's surfaces, ``rotation_…`` (mean angle/π), ``top1_…`` of two protocols."""
        found = self._rows(lambda at: self._object(model, device, at))
        features = {name: found.pop(name) for name in ("feature", "feature_parts", "feature_resampled")}
        ranks = {f"top1_{name}": top1(features[f"feature_{name}"], features["feature"]) for name in PROTOCOLS}
        return _means(found) | ranks

    def of_votes(self, model: GeometricCapsuleAutoencoder, device: torch.device) -> dict[str, float]:
        """Of the paper's layer under ``parts``, as shares of 1: ``within_15``, ``within_15_modulo_signs``; ``spread``.

        The mean angle alone hides axes that are found while their signs are not.
        """
        return _means(self._rows(lambda at: self._votes(model, device, at)))

    def _rows(self, chunk: Callable[[slice], dict[str, Tensor]]) -> dict[str, Tensor]:
        rows = [chunk(slice(at, at + _CHUNK)) for at in range(0, len(self.first), _CHUNK)]
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
        """The parts of a view, found once: where objects are looked at, the first layer is fixed."""
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


def _means(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value.mean()) for name, value in values.items()}


def _turned(model: GeometricCapsuleAutoencoder, points: Tensor, seen: Parse, turn: Pose) -> Parse:
    """The ``parts`` protocol: the same part capsules, their poses turned."""
    parts = Parts(Capsules(turn[:, None] @ seen.parts.pose, seen.parts.feature), seen.share)
    # Other draws than the first cloud's: a model with random starts (the paper's) must not get the same one twice.
    return model.parse_parts(parts, turn.apply(points), torch.Generator().manual_seed(1))


def rotation_error(first: Pose, second: Pose, turn: Pose) -> Float[Tensor, "b"]:
    """Angle between the found rotation ``T_second ∘ T_first⁻¹`` and the true one, over π."""
    return (second @ first.inverse()).angle_to(turn) / math.pi


def left_over(first: Pose, second: Pose, turn: Pose) -> Pose:
    """What is left of a found rotation, in the canonical frame: ``T_first⁻¹ ∘ turn⁻¹ ∘ T_second``, at best nothing."""
    return first.inverse() @ turn.inverse() @ second


def modulo_signs(left: Pose) -> Float[Tensor, "*batch"]:
    """Its angle over π when two of the three axes may be reversed: the least of the four proper sign changes.

    These are the quaternions 1, i, j and k, so what is left after the best one has the largest entry as its cosine.
    """
    return 2 * torch.acos(left.wxyz.abs().amax(dim=-1).clamp(max=1)) / math.pi


def top1(queries: Float[Tensor, "b d"], gallery: Float[Tensor, "b d"]) -> float:
    """Share of the queries whose nearest feature in the gallery is their own object's."""
    nearest = torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
    return float((nearest == torch.arange(len(queries))).float().mean())


def pictured(validation: Validation, stage: Stage, device: torch.device) -> Float[Tensor, "2 o n 3"]:
    """A few held-out clouds, and as many decoded points of each."""
    points = validation.first[:PICTURED].to(device)
    decoded = stage.surfaces(points).flatten(1, 2)
    pick = torch.arange(points.shape[1], device=device) * decoded.shape[1] // points.shape[1]
    return torch.stack([points, decoded[:, pick]])
