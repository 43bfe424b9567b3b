"""Common frames: for every training object a frame, the same one for similar objects, found without labels (ours).

Two views of one object can agree on a frame and still not know which: of a bed and its half turn, an untrained layer
prefers now one, now the other, and similar objects pull it in opposite directions. What a layer can tell long before
it can choose is how two *similar* objects are turned against each other (``AgreeingObject.descriptors``). So the
objects are tied to those that they resemble, each tie with its turn; one frame is passed along the strongest ties to
all; and each object then takes what most of its neighbours say. Layer 2 learns to choose that frame.

Of each object only its points are used, in frames that turn with them: how the set has them stored does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.data import PointDataset
from geocaps.errors import ConfigError
from geocaps.model.look import CUBE
from geocaps.model.ties import smoothed, synchronised, ties
from geocaps.training.batches import random_stream, unit_sphere
from geocaps.training.distributed import World

Describe = Callable[
    [Float[Tensor, "b n 3"]], tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 24 d"], Float[Tensor, "b 24"]]
]
"""Axes of whole objects' surfaces, what each of the 24 frames on them sees, and how likely the layer chooses each."""

_AT_A_TIME = 16
_STREAM = 31


@dataclass(frozen=True)
class CommonFrames:
    """For each object the 24 frames on the axes of its surface, as it is stored, and how likely each is the common one.

    An object that its own turn leaves alike has several.
    """

    axes: Float[Tensor, "m 3 3"]
    chance: Float[Tensor, "m 24"]
    similar: Int[Tensor, "m k"]  # the objects most similar to each

    def chance_of(
        self, frames: Float[Tensor, "b 24 3 3"], objects: Int[Tensor, "b"], turned: Float[Tensor, "b 3 3"]
    ) -> Float[Tensor, "b 24"]:
        """How likely each of these frames is the common one, on objects that were turned so."""
        stored = turned[:, None] @ self.axes[objects][:, None] @ CUBE
        nearest = torch.einsum("bfij,bkij->bfk", frames.to(stored), stored).argmax(dim=2)  # largest trace: least angle
        return self.chance[objects].gather(1, nearest).to(frames)


def common_frames(
    dataset: PointDataset, describe: Describe, points: int, world: World, *, trained: bool
) -> CommonFrames:
    """A common frame for all objects; the processes share the work of describing them.

    A trained layer's own choices are kept where similar objects agree with them; those of an untrained one say nothing.
    """
    # What the data name several times is described once.
    copies: dict[bytes, list[int]] = {}
    for index in range(len(dataset)):
        copies.setdefault(dataset.digest(index), []).append(index)
    mine = list(copies.values())[world.rank :: world.size]
    rows: list[Tensor] | None = None
    for start in range(0, len(mine), _AT_A_TIME):
        some = mine[start : start + _AT_A_TIME]
        clouds = [_whole(dataset, same[0], points) for same in some]
        found = describe(torch.stack(clouds).to(world.device))
        if rows is None:
            rows = [torch.zeros(len(dataset), *one.shape[1:]) for one in found]
        for row, one in zip(rows, found, strict=True):
            for same, described in zip(some, one.cpu(), strict=True):
                row[same] = described
    if rows is None:  # more processes than objects
        raise ConfigError(f"{world.size} processes cannot share {len(dataset)} objects: use fewer")
    axes, descriptors, chosen = (world.summed(row.to(world.device)).cpu() for row in rows)
    shared = None
    if world.is_writer:
        tied = ties(descriptors)
        shared = smoothed(tied, chosen.numpy()) if trained else synchronised(tied), tied.neighbour
    chance, similar = world.agreed(shared)
    return CommonFrames(axes, torch.from_numpy(chance).float(), torch.from_numpy(similar))


def _whole(dataset: PointDataset, index: int, points: int) -> Float[Tensor, "n 3"]:
    drawn = dataset.samplings(index, points, 1, random_stream(_STREAM, index))
    return unit_sphere(dataset, index, drawn)[0]
