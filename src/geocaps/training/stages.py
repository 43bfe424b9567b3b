"""The two stages as data: what is trained, and the loss of a piece of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.model import objectives
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules
from geocaps.training.config import ObjectiveConfig


class StageLoss(nn.Module):
    """The loss of one stage as a module, so that DistributedDataParallel can wrap it."""

    def __init__(self, model: GeometricCapsuleAutoencoder, stage: str, objective: ObjectiveConfig) -> None:
        super().__init__()
        self.model, self.stage, self.objective = model, stage, objective
        model.parts.requires_grad_(stage == "parts")
        model.object.requires_grad_(stage == "object")
        # Without its term the scale would never get a gradient, which DistributedDataParallel waits for.
        model.object.contrast_log_scale.requires_grad_(stage == "object" and objective.weights.contrast > 0)

    @property
    def views(self) -> int:
        """Samplings of each object."""
        return 2 if self.stage == "object" and self.objective.kind == "agreement" else 1

    def trained(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    @torch.no_grad()
    def part_capsules(self, points: Float[Tensor, "b v n 3"], generator: torch.Generator) -> Capsules | None:
        """The frozen first layer's capsules ``[m, v, j]`` of the first m objects: of every sampling or of the first."""
        if self.stage == "parts":
            return None
        decomposed = points[: math.ceil(self.objective.decomposed * len(points))]
        decomposed = decomposed[:, :1] if self.objective.decompositions == "shared" else decomposed
        flat = decomposed.flatten(0, 1)
        parts = self.model.parts(flat, self.model.parts.initial(flat, generator)).capsules
        parts = parts.map(lambda tensor: tensor.unflatten(0, decomposed.shape[:2]))
        return parts.map(lambda tensor: tensor.expand(-1, points.shape[1], *tensor.shape[2:]))

    def forward(
        self,
        points: Float[Tensor, "b v n 3"],
        parts: Capsules | None,
        noise_degrees: float,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Every term averaged over the piece, and their weighted sum as ``loss``."""
        if parts is None:
            return {"loss": self.model.parts.loss(points[:, 0], generator).mean()}
        weights, target = self.objective.weights, self.objective.target_points
        if self.objective.kind == "paper":
            terms = objectives.paper_objective(
                self.model, points[:, 0], parts[:, 0], weights, noise_degrees, generator, target
            )
        else:
            terms = objectives.agreement_objective(self.model, points, parts, weights, noise_degrees, generator, target)
        return {"loss": objectives.total(terms, weights)} | {name: term.mean() for name, term in terms.items()}
