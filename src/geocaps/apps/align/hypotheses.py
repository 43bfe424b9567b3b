"""Hypotheses of where A lies in B: every matched pair of local frames is a whole pose ``P_b ∘ P_a⁻¹``."""

from __future__ import annotations

import numpy as np

from geocaps.apps.align.prepare import Frames
from geocaps.geometry.similarity import Similarity

# Proper changes of sign of (tangent, bitangent, normal): the frames' own signs are arbitrary.
_SIGNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=np.float64)


def from_frames(a: Frames, b: Frames, limit: int) -> Similarity:
    """The ``limit`` pairs of frames, with signs, whose neighbourhoods look most alike."""
    unlike = _square(a.size, b.size)[..., None] + _signed_square(a.offset, b.offset) + _signed_square(a.skew, b.skew)
    order = np.argsort(unlike, axis=None, kind="stable")[:limit]
    of_a, of_b, sign = np.unravel_index(order, unlike.shape)
    rotation = (b.rotation[of_b] * _SIGNS[sign][:, None]) @ a.rotation[of_a].transpose(0, 2, 1)
    return Similarity(rotation, b.origin[of_b] - np.einsum("hij,hj->hi", rotation, a.origin[of_a]))


def from_principal_axes(a: np.ndarray, b: np.ndarray) -> Similarity:
    """The four proper ways to lay the principal axes of A on those of B."""
    axes_a, axes_b = _principal_axes(a), _principal_axes(b)
    rotation = (axes_b * _SIGNS[:, None]) @ axes_a.T
    return Similarity(rotation, b.mean(axis=0) - rotation @ a.mean(axis=0))


def _principal_axes(points: np.ndarray) -> np.ndarray:
    offset = points - points.mean(axis=0)
    axes = np.linalg.eigh(offset.T @ offset)[1]
    return np.stack([axes[:, 2], axes[:, 1], np.cross(axes[:, 2], axes[:, 1])], axis=-1)


def _square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a[:, None] - b) ** 2).sum(axis=-1)


def _signed_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``[k_a, k_b, 4]``: how far a is from b with each change of sign."""
    return ((a[:, None, None] - b[:, None] * _SIGNS) ** 2).sum(axis=-1)


def distinct(motions: Similarity, order: np.ndarray, limit: int, angle: float, shift: float) -> np.ndarray:
    """Indices, in the given order, of at most ``limit`` motions that differ from all before by an angle or a shift."""
    least_trace = 1 + 2 * np.cos(angle)
    kept: list[int] = []
    rotation = motions.rotation.reshape(-1, 9)
    for index in order:
        if kept:
            trace = rotation[kept] @ rotation[index]
            away = np.linalg.norm(motions.translation[kept] - motions.translation[index], axis=1)
            if ((trace > least_trace) & (away < shift)).any():
                continue
        kept.append(int(index))
        if len(kept) == limit:
            break
    return np.array(kept, dtype=np.int64)
