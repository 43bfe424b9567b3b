"""Common frames: a frame for every training object, consistent between similar objects, found without labels (ours).

Two views of one object can agree on a frame without determining which: between a bed and the bed rotated by half a
turn, an untrained layer is undecided, and similar objects pull it in opposite directions. Long before a layer can
choose, it can tell the rotation between two *similar* objects (``AgreeingObject.descriptors``). So objects are tied to
those that they resemble, with the rotation between them; a frame is propagated along the strongest ties to all; and
each object then takes the frame that most of its neighbours vote for. Layer 2 learns to choose that frame.

Only the points of objects are used, in frames that rotate with them: the stored orientation does not matter.
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
"""Axes of whole objects' surfaces, descriptors from the 24 frames on them, and the layer's probability for each."""

_AT_A_TIME = 16
_STREAM = 31


@dataclass(frozen=True)
class CommonFrames:
    """The 24 frames on the axes of each object's surface, as stored, and the chance of each to be the common one.

    A symmetric object has several common frames.
    """

    axes: Float[Tensor, "m 3 3"]
    chance: Float[Tensor, "m 24"]
    similar: Int[Tensor, "m k"]  # the objects most similar to each

    def chance_of(
        self, frames: Float[Tensor, "b 24 3 3"], objects: Int[Tensor, "b"], turned: Float[Tensor, "b 3 3"]
    ) -> Float[Tensor, "b 24"]:
        """The chance of each of these frames to be the common one, for objects that were rotated by ``turned``."""
        stored = turned[:, None] @ self.axes[objects][:, None] @ CUBE
        nearest = torch.einsum("bfij,bkij->bfk", frames.to(stored), stored).argmax(dim=2)  # largest trace: least angle
        return self.chance[objects].gather(1, nearest).to(frames)


def common_frames(
    dataset: PointDataset, describe: Describe, points: int, world: World, *, trained: bool
) -> CommonFrames:
    """A common frame for all objects; the processes share the work.

    The choices of a trained layer are kept where similar objects agree with them; those of an untrained one are not.
    """
    # Copies of an object are described once.
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
