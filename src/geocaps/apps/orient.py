"""Objects brought to the orientation of one example (``geocaps.canonical(sources, like=...)``).

Every object is compared with the example, and with those that it resembles most: each tie tells how two of them are
turned against each other, and the example's orientation is carried over all ties. An object that looks little like the
example is turned as its neighbours are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from geocaps.apps.encoding import Encoding
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity
from geocaps.model.look import turn_similarity
from geocaps.model.ties import Ties, synchronised, ties


@dataclass(frozen=True)
class Described:
    """What is needed of an object to turn it: its 24 frames, what it looks like from each, and its centre."""

    rotations: Float64[np.ndarray, "24 3 3"]
    descriptor: Tensor  # [24, d]
    center: Float64[np.ndarray, "3"]

    @classmethod
    def of(cls, encoding: Encoding) -> Described:
        frames = encoding.parse.frames
        if frames is None:
            raise InvalidInputError("orientation by an example needs a model with our object layer, not the paper's")
        rotations = frames.pose.rotation_matrix()[0].double().numpy()
        return cls(rotations, frames.descriptor[0], encoding.pose.translation)


@dataclass(frozen=True)
class Oriented:
    """``T_world_object`` of an object that is turned as asked, how far to trust it, and what it was turned by."""

    pose: Similarity
    confidence: float
    by: str = "example"


def oriented_like(example: Described, objects: Sequence[Described]) -> list[Oriented]:
    """The orientation of each object that is the example's: what its neighbours and the example say together.

    The confidence is the share of them that say so.
    """
    everyone = torch.stack([example.descriptor, *(one.descriptor for one in objects)])
    chance = synchronised(_with_example(ties(everyone), everyone))
    common = int(chance[0].argmax())
    found = []
    for one, row in zip(objects, chance[1:], strict=True):
        frame = int(row.argmax())
        # The object's common frame where the example has its own: in the example's coordinates.
        rotation = one.rotations[frame] @ example.rotations[common].T
        found.append(Oriented(Similarity(rotation, one.center), float(row[frame])))
    return found


def _with_example(tied: Ties, everyone: Tensor) -> Ties:
    """A tie from each object to the example beside the others: of itself it may be among none's nearest."""
    similarity, turn = turn_similarity(everyone[1:], everyone[:1].expand(len(everyone) - 1, -1, -1)).max(dim=1)
    nearest = tied.neighbour[0, 0]  # the example has no tie to itself: that to its nearest once more
    columns = (
        (tied.neighbour, np.concatenate([[nearest], np.zeros(len(turn), dtype=np.int64)])),
        (tied.turn, np.concatenate([[tied.turn[0, 0]], turn.numpy()])),
        (tied.similarity, np.concatenate([[tied.similarity[0, 0]], similarity.double().numpy()])),
    )
    return Ties(*(np.column_stack(column) for column in columns))
