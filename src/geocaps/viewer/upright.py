"""How objects are turned so that they stand on the page, whose y axis points up, and what says so.

Files have their objects along y or along z. Which of the two is said by what would support the object
(``apps.orient``), and by several files of one kind together; z is taken only if that is likely enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.spatial.transform import Rotation

from geocaps.apps.encoding import Encoding
from geocaps.apps.orient import Standing

UP = np.array([0.0, 1.0, 0.0])
_ALONG_Z = np.array([0.0, 0.0, 1.0])
_SURE = 0.8
_NEAR = np.cos(np.radians(25))  # between an axis of the file and the axis of the surface that stands for it
_SIX = np.concatenate([np.eye(3), -np.eye(3)])  # as ``Standing.log_support`` has them


@dataclass(frozen=True)
class Stance:
    """A rotation from an object's own coordinates to the page's, in which it stands, and the reason for it."""

    rotation: Float64[np.ndarray, "3 3"]
    how: str


KNOWN = Stance(np.eye(3), "embedded objects stand along y")
AS_GIVEN = Stance(np.eye(3), "as it came, y up: what would support it does not tell")


def standing_along(up: Float64[np.ndarray, "3"], how: str) -> Stance:
    """The least turn that brings a direction up."""
    return Stance(Rotation.align_vectors(UP[None], up[None])[0].as_matrix(), how)


def stances(objects: Sequence[tuple[Encoding, bool]]) -> list[Stance]:
    """How objects of one kind stand; True: this one is known to stand along y."""
    unknown = [encoding for encoding, known in objects if not known]
    found = AS_GIVEN
    # The paper's object layer has no frames.
    if unknown and all(encoding.parse.frames is not None for encoding in unknown):
        odds = sum(_z_over_y(Standing.of(encoding)) for encoding in unknown)
        chance = float(1 / (1 + np.exp(-odds)))
        for up, axis, sure in ((_ALONG_Z, "z", chance), (UP, "y", 1 - chance)):
            if sure >= _SURE:
                found = standing_along(up, f"{axis} is up by what would support it ({sure:.2f})")
    return [KNOWN if known else found for _, known in objects]


def _z_over_y(standing: Standing) -> float:
    """How much more likely z is up than y, in nats; 0 if the axes of the surface lie otherwise."""
    directions = _SIX @ standing.described.rotations[0].T
    along = np.stack([directions @ _ALONG_Z, directions @ UP])
    if along.max(axis=1).min() < _NEAR:
        return 0.0
    z, y = standing.log_support[along.argmax(axis=1)]
    return float(np.clip(z - y, -20, 20))
