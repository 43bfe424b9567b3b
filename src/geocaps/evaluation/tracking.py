"""Tracking errors: modulo the symmetries of the object, with lost sequences, frames to recover and jitter."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from scipy.spatial import cKDTree

from geocaps.data.sequences import Sequence
from geocaps.geometry.similarity import Similarity

RIGHT_ANGLE, RIGHT_SHIFT = 10.0, 0.05
"""A frame is right within this many degrees and this share of the object's size (its diameter)."""
MUCH_HIDDEN = 0.6
RECOVERED_WITHIN = 3
_LAST = 5
_STEP, _FINE_STEP = 15, 3  # degrees between the rotations that are tried, and between those of a body of revolution
_ALIKE, _QUANTILE = 1.5, 0.95


@dataclass(frozen=True)
class Run:
    """One sequence, tracked by one method."""

    angle: Float64[np.ndarray, "f"]
    """Degrees between the rotation found and the nearest true one."""
    shift: Float64[np.ndarray, "f"]
    """Distance between the centre found and the true one, as a share of the size."""
    hidden: Float64[np.ndarray, "f"]
    vanishes: bool
    jitter: Float64[np.ndarray, "f_minus_1"]
    """Change of the rotation error from frame to frame, in degrees; NaN unless both frames are right."""
    shift_jitter: Float64[np.ndarray, "f_minus_1"]

    @property
    def right(self) -> Bool[np.ndarray, "f"]:
        return (self.angle <= RIGHT_ANGLE) & (self.shift <= RIGHT_SHIFT)

    @property
    def lost(self) -> bool:
        """Whether most of the last frames are wrong."""
        return bool(self.right[-_LAST:].mean() < 0.5)

    @property
    def recovered_after(self) -> float | None:
        """Frames after a full occlusion until one is right: infinite if none is, None if there was no occlusion."""
        gone = np.flatnonzero(self.hidden >= 1)
        if not len(gone):
            return None
        found = np.flatnonzero(self.right[gone[-1] + 1 :])
        return float(found[0] + 1) if len(found) else float("inf")


def symmetries(points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "s 3 3"]:
    """Rotations about the centre that map an object onto itself, to within its sampling; the identity is the first.

    Multiples of 15° about the coordinate axes and the principal axes are tried. A rotation counts if the 95 % quantile
    of the distances from the rotated points to the cloud is at most 1.5 times that of the distances between neighbours
    in the cloud. If all multiples count, the object is treated as a body of revolution. Products of two count as well.
    """
    local = points - points.mean(axis=0)
    tree = cKDTree(local)
    usual = np.quantile(tree.query(local, k=2)[0][:, 1], _QUANTILE)
    found = [np.eye(3)[None]]
    for axis in np.concatenate([np.eye(3), np.linalg.eigh(local.T @ local)[1].T]):
        turns = _about(axis, np.arange(_STEP, 360, _STEP))
        distance = tree.query(local @ turns.swapaxes(1, 2))[0]
        same = np.quantile(distance, _QUANTILE, axis=1) <= _ALIKE * usual
        found.append(_about(axis, np.arange(_FINE_STEP, 360, _FINE_STEP)) if same.all() else turns[same])
    alone = np.concatenate(found)
    return (alone[:, None] @ alone[None]).reshape(-1, 3, 3) if len(alone) < 300 else alone


def _about(axis: Float64[np.ndarray, "3"], degrees: np.ndarray) -> Float64[np.ndarray, "k 3 3"]:
    return Similarity.from_rotvec(np.radians(degrees)[:, None] * axis).rotation


def measured(sequence: Sequence, found: Similarity, same: Float64[np.ndarray, "s 3 3"]) -> Run:
    """The errors of the poses ``T_frame_reference`` found for all frames."""
    center = sequence.reference.mean(axis=0)
    size = 2 * float(np.linalg.norm(sequence.reference - center, axis=1).max())
    true = sequence.poses.rotation[:, None] @ same
    cosine = (np.einsum("fsij,fij->fs", true, found.rotation) - 1) / 2
    nearest = true[np.arange(len(true)), cosine.argmax(axis=1)]
    gap = found.apply(center) - sequence.poses.apply(center)
    angle = np.degrees(Similarity(found.rotation).angle_to(Similarity(nearest)))
    shift = np.linalg.norm(gap, axis=-1) / size
    error = found.rotation @ nearest.swapaxes(1, 2)
    change = np.degrees(Similarity(error[1:]).angle_to(Similarity(error[:-1])))
    right = (angle <= RIGHT_ANGLE) & (shift <= RIGHT_SHIFT)
    both = right[1:] & right[:-1]
    moved = np.linalg.norm(np.diff(gap, axis=0), axis=1) / size
    return Run(
        angle,
        shift,
        sequence.hidden,
        sequence.vanishes,
        np.where(both, change, np.nan),
        np.where(both, moved, np.nan),
    )


def summary(runs: Many[Run]) -> dict[str, float]:
    """The figures of a method over all sequences; jitter is the median over pairs of frames that are both right."""
    right = np.concatenate([run.right for run in runs])
    hidden = np.concatenate([run.hidden for run in runs])
    much = right[(hidden >= MUCH_HIDDEN) & (hidden < 1)]
    recovered = [run.recovered_after for run in runs if run.recovered_after is not None]
    angle = np.concatenate([run.angle for run in runs])[hidden < MUCH_HIDDEN]
    return {
        "right": float(right[hidden < MUCH_HIDDEN].mean()),
        "right_much_hidden": float(much.mean()) if len(much) else float("nan"),
        "lost": float(np.mean([run.lost for run in runs])),
        "recovered": float(np.mean([one <= RECOVERED_WITHIN for one in recovered])) if recovered else float("nan"),
        "frames_to_recover": float(np.median(recovered)) if recovered else float("nan"),
        "jitter_degrees": _median(np.concatenate([run.jitter for run in runs])),
        "jitter_shift": _median(np.concatenate([run.shift_jitter for run in runs])),
        "median_angle": float(np.median(angle)),
    }


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
