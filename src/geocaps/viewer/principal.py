"""The directions in which the features of the embedded objects differ most: what sliders can move along."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps import datasets
from geocaps.apps.encode import Model

DIRECTIONS = 4
_PER_CLASS = 2


@dataclass(frozen=True)
class Principal:
    """Unit directions and the standard deviation along each."""

    directions: Float[Tensor, "k d"]
    deviations: Float[Tensor, "k"]

    def moved(self, feature: Float[Tensor, "d"], amounts: Float[Tensor, "k"]) -> Float[Tensor, "d"]:
        """The feature, moved by so many standard deviations along each direction."""
        return feature + (amounts * self.deviations) @ self.directions


def embedded_principal(model: Model, count: int = DIRECTIONS) -> Principal:
    """From two objects of each embedded class."""
    shapes = datasets.load("shapes")
    per_class = len(shapes) // len(shapes.class_names)
    places = [k * per_class + i for k in range(len(shapes.class_names)) for i in range(_PER_CLASS)]
    # Half of the model's points do for a direction, and halve the wait.
    size = max(model.config.points // 2, model.config.parts.parts)
    clouds = torch.stack([shapes.points(index)[:size] for index in places])
    return principal(model.encode_many(clouds).parse.object.feature, count)


def principal(features: Float[Tensor, "m d"], count: int) -> Principal:
    centred = (features - features.mean(dim=0)).double()
    _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
    deviations = singular[:count] / max(len(features) - 1, 1) ** 0.5
    return Principal(directions[:count].to(features), deviations.to(features))
