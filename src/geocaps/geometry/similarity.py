"""Poses with a scale, in numpy: all poses in results are of this kind.

Active and parent-from-local, ``x_parent = scale · R · x_local + t``; float64, with any leading dimensions. A rigid
motion is a similarity of scale 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from geocaps.errors import InvalidInputError

_CROOKED = 1e-5
"""Tolerance for the deviation of a matrix from a scaled rotation: it admits float32 rounding, but no shear."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Similarity:
    """A batch of similarity transformations.

    The constructor broadcasts its arguments and does not check that ``rotation`` is one; :meth:`from_matrix` and
    :meth:`from_wxyz` do.
    """

    rotation: Float64[np.ndarray, "*batch 3 3"]
    translation: Float64[np.ndarray, "*batch 3"]
    scale: Float64[np.ndarray, "*batch"]

    def __init__(
        self, rotation: ArrayLike, translation: ArrayLike = (0, 0, 0), scale: int | float | ArrayLike = 1
    ) -> None:
        rotation, translation, scale = (np.asarray(one, dtype=np.float64) for one in (rotation, translation, scale))
        if rotation.shape[-2:] != (3, 3) or translation.shape[-1:] != (3,):
            raise InvalidInputError(
                f"a similarity needs rotations [..., 3, 3] and translations [..., 3], not of shapes "
                f"{list(rotation.shape)} and {list(translation.shape)}"
            )
        batch = rotation.shape[:-2]
        if translation.shape[:-1] != batch or scale.shape != batch:
            try:
                batch = np.broadcast_shapes(batch, translation.shape[:-1], scale.shape)
            except ValueError:
                raise InvalidInputError(
                    f"rotations {list(rotation.shape)}, translations {list(translation.shape)} and scales "
                    f"{list(scale.shape)} do not have the same leading dimensions"
                ) from None
            rotation = np.broadcast_to(rotation, (*batch, 3, 3))
            translation, scale = np.broadcast_to(translation, (*batch, 3)), np.broadcast_to(scale, batch)
        object.__setattr__(self, "rotation", rotation)
        object.__setattr__(self, "translation", translation)
        object.__setattr__(self, "scale", scale)

    # ── construction ──────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def identity(cls, *batch: int) -> Similarity:
        return cls(np.broadcast_to(np.eye(3), (*batch, 3, 3)))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Similarity:
        """From ``[*batch, 4, 4]`` with ``scale · R`` in the upper left block."""
        exact = np.asarray(matrix, dtype=np.float64)
        if exact.shape[-2:] != (4, 4):
            raise InvalidInputError(f"a similarity is a matrix [..., 4, 4], not of shape {list(exact.shape)}")
        block = exact[..., :3, :3]
        if not np.isfinite(exact).all():
            raise InvalidInputError("the matrix is not a similarity: it is not finite")
        scale = np.cbrt(np.linalg.det(block))
        if not (scale > 0).all():
            raise InvalidInputError("the matrix is not a similarity: it is a reflection or singular")
        rotation = block / scale[..., None, None]
        crooked = np.abs(rotation @ rotation.swapaxes(-1, -2) - np.eye(3)).max(initial=0)
        if crooked > _CROOKED or (np.abs(exact[..., 3, :] - [0, 0, 0, 1]) > _CROOKED).any():
            raise InvalidInputError(
                "the matrix is not a similarity: it shears, scales its axes differently, or its last row is not 0 0 0 1"
            )
        return cls(rotation, exact[..., :3, 3], scale)

    @classmethod
    def from_wxyz(
        cls, wxyz: ArrayLike, translation: ArrayLike = (0, 0, 0), scale: int | float | ArrayLike = 1
    ) -> Similarity:
        """From quaternions ``[*batch, 4]`` of any non-zero length."""
        raw = np.asarray(wxyz, dtype=np.float64)
        if raw.shape[-1:] != (4,):
            raise InvalidInputError(f"quaternions are arrays [..., 4] (w, x, y, z), not of shape {list(raw.shape)}")
        # Divided by the largest entry first: squares of tiny or huge entries would under- or overflow.
        largest = np.abs(raw).max(axis=-1, keepdims=True, initial=0)
        if not np.isfinite(raw).all() or (largest == 0).any():
            raise InvalidInputError("a quaternion must be finite and not zero")
        raw = raw / largest
        w, x, y, z = np.moveaxis(raw / np.linalg.norm(raw, axis=-1, keepdims=True), -1, 0)
        return cls(np.stack(rotation_entries(w, x, y, z), axis=-1).reshape(*w.shape, 3, 3), translation, scale)

    @classmethod
    def from_rotvec(cls, vector: ArrayLike, translation: ArrayLike = (0, 0, 0)) -> Similarity:
        """From rotation vectors ``[*batch, 3]``: each is the axis times the angle in radians."""
        exact = np.asarray(vector, dtype=np.float64)
        angle = np.linalg.norm(exact, axis=-1, keepdims=True)
        half = np.sinc(angle / (2 * np.pi)) / 2 * exact
        wxyz = np.concatenate([np.cos(angle / 2), half], axis=-1)
        return cls.from_wxyz(wxyz, np.asarray(translation, dtype=np.float64))

    # ── the group ─────────────────────────────────────────────────────────────────────────────────────────────────

    def compose(self, other: Similarity) -> Similarity:
        """``self ∘ other``: first ``other``, then ``self``."""
        turned = (self.rotation @ other.translation[..., None])[..., 0]
        return Similarity(
            self.rotation @ other.rotation,
            self.scale[..., None] * turned + self.translation,
            self.scale * other.scale,
        )

    __matmul__ = compose

    def inverse(self) -> Similarity:
        back = self.rotation.swapaxes(-1, -2)
        shift = (back @ self.translation[..., None])[..., 0]
        return Similarity(back, -shift / self.scale[..., None], 1 / self.scale)

    def apply(self, points: ArrayLike) -> Float64[np.ndarray, "*points 3"]:
        """Local points in the parent's frame: one ``[3]``, or ``[..., N, 3]`` for similarities ``[...]``."""
        local = _points(points)
        if local.ndim == 1:
            return self.apply(local[None])[..., 0, :]
        matrix = self.scale[..., None, None] * self.rotation
        return local @ matrix.swapaxes(-1, -2) + self.translation[..., None, :]

    def observe(self, points: ArrayLike) -> Float64[np.ndarray, "*points 3"]:
        """Points from the parent to the local frame: the inverse of :meth:`apply`."""
        given = _points(points)
        if given.ndim == 1:
            return self.observe(given[None])[..., 0, :]
        return (given - self.translation[..., None, :]) @ (self.rotation / self.scale[..., None, None])

    def relative_to(self, viewpoint: Similarity) -> Similarity:
        """``z⁻¹ ∘ self``: this similarity as observed from another."""
        return viewpoint.inverse() @ self

    def angle_to(self, other: Similarity) -> Float64[np.ndarray, "*batch"]:
        """Angle between the rotations, in [0, π]; by atan2, so that it is accurate at both ends."""
        m = self.rotation.swapaxes(-1, -2) @ other.rotation
        sine = np.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]], -1)
        return np.asarray(np.arctan2(np.linalg.norm(sine, axis=-1), np.trace(m, axis1=-2, axis2=-1) - 1))

    # ── views of the value ────────────────────────────────────────────────────────────────────────────────────────

    def matrix(self) -> Float64[np.ndarray, "*batch 4 4"]:
        """The 4 × 4 matrix, with ``scale · R`` in the upper left block."""
        matrix = np.zeros((*self.shape, 4, 4))
        matrix[..., :3, :3] = self.scale[..., None, None] * self.rotation
        matrix[..., :3, 3] = self.translation
        matrix[..., 3, 3] = 1
        return matrix

    @property
    def wxyz(self) -> Float64[np.ndarray, "*batch 4"]:
        """The rotation as a unit quaternion with w ≥ 0."""
        candidates, sizes = quaternion_candidates(self.rotation)
        stacked = np.stack([np.stack(one, -1) for one in candidates], axis=-2)
        largest = np.stack(sizes, -1).argmax(-1)
        chosen = np.take_along_axis(stacked, largest[..., None, None], axis=-2)[..., 0, :]
        chosen = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
        return np.where(chosen[..., :1] < 0, -chosen, chosen)

    @property
    def rotvec(self) -> Float64[np.ndarray, "*batch 3"]:
        """The rotation as a vector, the axis times the angle: the inverse of :meth:`from_rotvec`."""
        wxyz = self.wxyz
        sine = np.linalg.norm(wxyz[..., 1:], axis=-1, keepdims=True)
        return 2 * np.arctan2(sine, wxyz[..., :1]) / np.maximum(sine, 1e-12) * wxyz[..., 1:]

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading dimensions; ``()`` for a single similarity."""
        return self.scale.shape

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single similarity has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Similarity:
        """Indexes the leading dimensions; ``...`` stands for leading dimensions as well."""
        if not self.shape:
            raise TypeError("a single similarity cannot be indexed")
        tail = (slice(None),) if isinstance(index, tuple) and any(one is Ellipsis for one in index) else ()
        at = (*index, *tail) if tail else index
        rows = (*index, *tail, *tail) if tail else index
        return Similarity(self.rotation[rows], self.translation[at], self.scale[index])

    def __repr__(self) -> str:
        if self.shape:
            return f"Similarity(batch {list(self.shape)})"
        translation = ", ".join(f"{value:.6g}" for value in self.translation)
        wxyz = ", ".join(f"{value:.6f}" for value in self.wxyz)
        scale = "" if self.scale == 1 else f", scale {self.scale:.6g}"
        return f"Similarity(translation ({translation}), wxyz ({wxyz}){scale})"


def stack(similarities: Sequence[Similarity]) -> Similarity:
    """Joins along a new first dimension."""
    return Similarity(
        np.stack([one.rotation for one in similarities]),
        np.stack([one.translation for one in similarities]),
        np.stack([one.scale for one in similarities]),
    )


def concatenate(batches: Sequence[Similarity]) -> Similarity:
    """Joins along the first dimension."""
    return Similarity(
        np.concatenate([one.rotation for one in batches]),
        np.concatenate([one.translation for one in batches]),
        np.concatenate([one.scale for one in batches]),
    )


# ── quaternions and rotation matrices, for numpy's arrays and torch's tensors ─────────────────────────────────────────


def rotation_entries(w: Any, x: Any, y: Any, z: Any) -> list[Any]:
    """The nine entries, by rows, of the rotation matrices of unit quaternions."""
    return [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip


def quaternion_candidates(m: Any) -> tuple[list[list[Any]], list[Any]]:
    """Shepperd's method for rotations ``[*batch, 3, 3]``: four equivalent quaternions, each of its own length.

    Beside them how large the component is that each would be divided by: the largest one loses no digits.
    """
    d0, d1, d2 = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    trace = d0 + d1 + d2
    a, b, c = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    d, e, f = m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]
    candidates = [
        [1 + trace, a, b, c],
        [a, 1 + 2 * d0 - trace, d, e],
        [b, d, 1 + 2 * d1 - trace, f],
        [c, e, f, 1 + 2 * d2 - trace],
    ]
    return candidates, [trace, d0, d1, d2]


def _points(points: ArrayLike) -> np.ndarray:
    try:
        found = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"points must be an array [..., N, 3] of numbers: {error}") from error
    if found.shape[-1:] != (3,):
        raise InvalidInputError(f"points must be an array [..., N, 3], not of shape {list(found.shape)}")
    return found
