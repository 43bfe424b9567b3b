"""Stages of a training: what is trained, on what, and the validation figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.data import PointDataset
from geocaps.geometry.frames import own_sphere, principal_axes, surface_axes
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules, Parts
from geocaps.model.losses import weighted
from geocaps.model.object import AgreeingObject, Views
from geocaps.model.object_paper import PaperObject
from geocaps.training.batches import Batch
from geocaps.training.config import AgreementObjective, PaperObjective, TrainConfig
from geocaps.training.distributed import World
from geocaps.training.frames import CommonFrames, common_frames
from geocaps.training.validation import CHUNK, Validation

PICTURED = 4
"""Number of held-out objects in a picture."""

Prepared = dict[str, Tensor]
"""The input of a step for some objects, by name; the first dimension of each tensor is that of the objects."""


def joined(draws: Sequence[Prepared]) -> Prepared:
    """Several draws, joined."""
    return {name: torch.cat([draw[name] for draw in draws]) for name in draws[0]}


class Stage(nn.Module, ABC):
    """A stage of training; a module, so that DistributedDataParallel can wrap it."""

    name: ClassVar[str]
    samplings: ClassVar[int] = 1
    """Number of independent samplings of each object in a step."""

    def __init__(self, model: GeometricCapsuleAutoencoder, layer: nn.Module) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        layer.requires_grad_(True)

    def trained(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    @abstractmethod
    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        """Everything that does not depend on the trained weights, computed once for all steps that use a draw."""

    @abstractmethod
    def forward(self, seen: Prepared, share: float, generator: torch.Generator) -> dict[str, Tensor]:
        """All terms, averaged over the objects, and their weighted sum ``loss``, after ``share`` of the steps."""

    def noise_degrees(self, share: float) -> float | None:
        """The largest perturbation of viewpoints, if it is to be recorded."""
        return None

    def fault(self, step: int, record: dict[str, float]) -> str | None:
        """The reason why a training with this record after ``step`` steps cannot succeed; None if it can."""
        return None

    def survey_is_due(self, share: float) -> bool:
        """Whether all objects have to be surveyed before the next step, after ``share`` of the steps."""
        return False

    def survey(self, dataset: PointDataset, world: World) -> None:
        """Surveys all objects together, after which earlier draws are out of date."""

    def similar(self) -> Int[Tensor, "m k"] | None:
        """The objects most similar to each, if a survey found them."""
        return None

    def found(self) -> dict[str, Tensor]:
        """The results of the survey, to be saved for resuming."""
        return {}

    def restore(self, found: dict[str, Tensor]) -> None:
        """Restores the results of an earlier survey."""

    @abstractmethod
    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        """The figures of the trained layer on held-out objects."""

    @abstractmethod
    def surfaces(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j m 3"]:
        """The surfaces decoded for the clouds, for pictures."""


class PartsStage(Stage):
    """Training of the first layer, by its Chamfer loss."""

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
    """Clouds in the model's frame, each with its own centre and radius, even if it is a crop."""
    center, radius = own_sphere(points)
    return (points - center[..., None, :]) / radius[..., None, None]


class _SecondStage(Stage):
    """Training of an object layer; the frozen first layer decomposes the clouds."""

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
    """Training of our object layer: two views of each object must agree."""

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
        since = self.objective.common_from
        if self.was_trained and since < 1:  # a trained layer can compare objects from the start
            since = 0.0
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
        """Axes of whole objects' surfaces; descriptors from the 24 frames on them; the probability of each frame."""
        own = in_own_frame(points)
        shown = self.layer.shown(self.model.parts, self.model.parts(own).parts)
        even = own.new_full(own.shape[:2], 1 / own.shape[1])
        axes, _ = surface_axes(own, even)
        _, middle = principal_axes(shown.points, shown.weight)  # only the centre of the surface is needed
        seen = self.layer.lead(shown, self.layer.starts_on(axes, middle))
        chosen = self.layer.chosen(seen, axes).exp()
        return axes, self.layer.descriptors(seen.start_look), chosen / chosen.sum(dim=1, keepdim=True)

    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        """Calibrates the trust on the held-out objects first, so that every saved checkpoint is calibrated."""
        if self._held_out is None:
            draws = [vars(self._views(some.to(device), torch.Generator())) for some in validation.halved.split(CHUNK)]
            self._held_out = Views(**joined(draws))
        self.layer.fit_trust(self._held_out)
        return super().figures(validation, device)


SPREAD_STEP = 600
"""After this many steps the votes for an object from two viewpoints must differ by ``objective.least_spread``. At too
high a rate, Q collapses to a constant within 300 steps and mostly stays one; other runs are at 44 to 54 degrees."""
_SPREAD_OBJECTS = 16
"""Objects of a batch for which the spread is measured: a few suffice to detect a constant, and votes take time."""


class PaperObjectStage(_SecondStage):
    """Training of the paper's object layer: Algorithm 2, with viewpoint noise that may grow."""

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
        if step != SPREAD_STEP or record["spread"] >= self.objective.least_spread:
            return None
        return (
            f"the pose votes have collapsed: after {step} steps those from two random viewpoints of one object are "
            f"{record['spread']:.1f} degrees apart (at least {self.objective.least_spread:g} are needed), so Q rotates "
            "all viewpoints alike and will find no pose. Start again at a rate of 1e-4, and raise it when the votes "
            "have spread (object.hold and object.hold_rate)"
        )

    @torch.no_grad()
    def figures(self, validation: Validation, device: torch.device) -> dict[str, float]:
        return super().figures(validation, device) | validation.of_votes(self.model, device)


def stage_of(name: str, model: GeometricCapsuleAutoencoder, config: TrainConfig) -> Stage:
    """The stage of this name."""
    if name == PartsStage.name:
        return PartsStage(model)
    if isinstance(config.objective, PaperObjective):
        return PaperObjectStage(model, config.objective)
    return ObjectStage(model, config.objective, trained=config.init_object)


def pictured(validation: Validation, stage: Stage, device: torch.device) -> Float[Tensor, "2 o n 3"]:
    """A few held-out clouds, and the same number of decoded points for each."""
    points = validation.first[:PICTURED].to(device)
    decoded = stage.surfaces(points).flatten(1, 2)
    pick = torch.arange(points.shape[1], device=device) * decoded.shape[1] // points.shape[1]
    return torch.stack([points, decoded[:, pick]])
