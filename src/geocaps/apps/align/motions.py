"""What the search of an alignment does with batches ``[h]`` of hypotheses ``x_b = scale · R · x_a + t``."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from geocaps.geometry.similarity import Similarity


def ahead(motions: Similarity, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
    """As ``motions.apply``, a row for each coordinate: numpy is several times faster on long rows than on triples."""
    matrix = (motions.scale[:, None, None] * motions.rotation).transpose(1, 0, 2).reshape(-1, 3)
    return (matrix @ columns).reshape(3, len(motions), -1) + motions.translation.T[..., None]


def back(motions: Similarity, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
    """As ``motions.observe``, a row for each coordinate."""
    inverse = (motions.rotation / motions.scale[:, None, None]).transpose(2, 0, 1)
    shift = np.einsum("chj,hj->ch", inverse, motions.translation)
    return (inverse.reshape(-1, 3) @ columns).reshape(3, len(motions), -1) - shift[..., None]


def updated(
    motions: Similarity,
    turn: Float[np.ndarray, "h 3"],
    shift: Float[np.ndarray, "h 3"],
    growth: Float[np.ndarray, "h"],
) -> Similarity:
    """A small motion done after each: a turn (axis times angle), a growth about the origin, a shift."""
    return Similarity(rotation_from_vector(turn), shift, growth) @ motions


def rotation_from_vector(vector: Float[np.ndarray, "h 3"]) -> Float[np.ndarray, "h 3 3"]:
    """Rodrigues' formula."""
    angle = np.linalg.norm(vector, axis=1)[:, None, None]
    turn = cross_matrix(vector)
    # np.sinc(x) is sin(πx)/(πx): both factors are exact at angle zero.
    sine = np.sinc(angle / np.pi)
    cosine = 0.5 * np.sinc(angle / (2 * np.pi)) ** 2
    return np.eye(3) + sine * turn + cosine * (turn @ turn)


def dot(a: Float[np.ndarray, "3 *batch"], b: Float[np.ndarray, "3 *batch"]) -> Float[np.ndarray, "*batch"]:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Float[np.ndarray, "3 *batch"], b: Float[np.ndarray, "3 *batch"]) -> Float[np.ndarray, "3 *batch"]:
    return np.stack([a[j] * b[k] - a[k] * b[j] for j, k in ((1, 2), (2, 0), (0, 1))])


def cross_matrix(vector: Float[np.ndarray, "h 3"]) -> Float[np.ndarray, "h 3 3"]:
    """The matrix of ``x ↦ vector × x``."""
    matrix = np.zeros((len(vector), 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        matrix[:, k, j], matrix[:, j, k] = vector[:, i], -vector[:, i]
    return matrix


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
