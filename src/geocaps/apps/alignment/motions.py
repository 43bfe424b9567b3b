"""Batches of rigid motions (and similarities) as plain arrays: what the search of an alignment works on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Motions:
    """``x_b = scale · R · x_a + t`` for h hypotheses; the scale is 1 unless it was asked for."""

    rotation: Float[np.ndarray, "h 3 3"]
    translation: Float[np.ndarray, "h 3"]
    scale: Float[np.ndarray, "h"]

    @classmethod
    def rigid(cls, rotation: Float[np.ndarray, "h 3 3"], translation: Float[np.ndarray, "h 3"]) -> Motions:
        return cls(rotation, translation, np.ones(len(rotation)))

    def __len__(self) -> int:
        return len(self.rotation)

    def __getitem__(self, index: np.ndarray | slice) -> Motions:
        return Motions(self.rotation[index], self.translation[index], self.scale[index])

    def apply(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "h n 3"]:
        """Points of A in the frame of B."""
        return np.moveaxis(self.ahead(points.T), 0, -1)

    def apply_inverse(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "h n 3"]:
        """Points of B in the frame of A."""
        return np.moveaxis(self.back(points.T), 0, -1)

    def ahead(self, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
        """As :meth:`apply`, a row for each coordinate: numpy is several times faster on long rows than on triples."""
        matrix = (self.scale[:, None, None] * self.rotation).transpose(1, 0, 2).reshape(-1, 3)
        return (matrix @ columns).reshape(3, len(self), -1) + self.translation.T[..., None]

    def back(self, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
        """As :meth:`apply_inverse`, a row for each coordinate."""
        inverse = (self.rotation / self.scale[:, None, None]).transpose(2, 0, 1)
        shift = np.einsum("chj,hj->ch", inverse, self.translation)
        return (inverse.reshape(-1, 3) @ columns).reshape(3, len(self), -1) - shift[..., None]

    def updated(
        self, turn: Float[np.ndarray, "h 3"], shift: Float[np.ndarray, "h 3"], growth: Float[np.ndarray, "h"]
    ) -> Motions:
        """A small motion done after each: a turn (axis times angle), a growth about the origin, a shift."""
        change = rotation_from_vector(turn)
        rotation = change @ self.rotation
        translation = growth[:, None] * np.einsum("hij,hj->hi", change, self.translation) + shift
        return Motions(rotation, translation, self.scale * growth)


def join(batches: list[Motions]) -> Motions:
    return Motions(
        np.concatenate([m.rotation for m in batches]),
        np.concatenate([m.translation for m in batches]),
        np.concatenate([m.scale for m in batches]),
    )


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


def distinct(motions: Motions, order: np.ndarray, limit: int, angle: float, shift: float) -> np.ndarray:
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
