"""How objects are turned so that they stand on the page, whose y axis points up, and what says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.spatial.transform import Rotation

from geocaps.apps.encoding import Encoding
from geocaps.apps.upright import Standing, stood_up

UP = np.array([0.0, 1.0, 0.0])
_SURE = 0.5  # confidence from which a direction is taken as up
_ALONG = np.cos(np.radians(25))  # a direction this near to an axis of the file means that axis


@dataclass(frozen=True)
class Stance:
    """A rotation from an object's own coordinates to the page's, in which it stands, and the reason for it."""

    rotation: Float64[np.ndarray, "3 3"]
    how: str


KNOWN = Stance(np.eye(3), "embedded objects stand along y")
AS_GIVEN = Stance(np.eye(3), "as it came: nothing tells which way is up")


def standing_along(up: Float64[np.ndarray, "3"], how: str) -> Stance:
    """The least turn that brings a direction up."""
    return Stance(Rotation.align_vectors(UP[None], up[None])[0].as_matrix(), how)


def stances(objects: Sequence[tuple[Encoding, bool]]) -> list[Stance]:
    """How each object stands, several of them by their kind (``apps.upright``); True: it is known to stand along y."""
    if all(known for _, known in objects):
        return [KNOWN] * len(objects)
    if any(encoding.parse.frames is None for encoding, _ in objects):  # the paper's object layer has none
        return [KNOWN if known else AS_GIVEN for _, known in objects]
    found = stood_up([Standing.of(encoding) for encoding, _ in objects], "y")
    shown = []
    for (_, known), one in zip(objects, found, strict=True):
        if known:
            shown.append(KNOWN)
        elif one.confidence < _SURE:
            shown.append(AS_GIVEN)
        else:
            why = "its kind" if one.by == "kind" else "what would support it"
            up, axis = _nearest_axis(one.pose.rotation @ UP)
            shown.append(standing_along(up, f"{axis} is up by {why} (confidence {one.confidence:.2f})"))
    return shown


def _nearest_axis(up: Float64[np.ndarray, "3"]) -> tuple[Float64[np.ndarray, "3"], str]:
    """The axis of the file that a direction means, where it means one: few files are aslant."""
    axis = int(np.abs(up).argmax())
    if abs(up[axis]) < _ALONG:
        return up, "a direction aslant in its file"
    sign = np.sign(up[axis])
    return sign * np.eye(3)[axis], f"{'+' if sign > 0 else '−'}{'xyz'[axis]}"
