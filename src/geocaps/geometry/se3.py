"""Rigid transformations: the "where" of a capsule (section 3.1 of the paper).

A pose is active and parent-from-local, ``x_parent = R·x_local + t``; its quaternion is wxyz, unit, with w ≥ 0. A
viewpoint is a pose too: "as observed from z" (the paper's ``|z``) is :meth:`Pose.relative_to` for poses and
:meth:`Pose.observe` for points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.geometry.similarity import quaternion_candidates, rotation_entries

_EPSILON = 1e-12


Some = TypeVar("Some", bound="Batch")


class Batch:
    """A frozen dataclass whose fields (tensors, other batches, or None) have the same leading dimensions."""

    def map(self: Some, function: Callable[[Tensor], Tensor]) -> Some:
        """Applies a function to all tensors; it may change only leading dimensions, dtype or device."""
        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(
            *(one.map(function) if isinstance(one, Batch) else None if one is None else function(one) for one in values)
        )

    def __getitem__(self: Some, index: Any) -> Some:
        """Indexes the leading dimensions; for poses and capsules, ``...`` stands for leading dimensions as well."""
        if isinstance(index, tuple) and Ellipsis in index:
            index = (*index, slice(None))
        return self.map(lambda tensor: tensor[index])

    def detach(self: Some) -> Some:
        return self.map(Tensor.detach)


def concatenate(batches: Sequence[Some], dim: int = 0) -> Some:
    """Joins along an existing leading dimension (not negative)."""

    def joined(values: list[Any]) -> Any:
        if values[0] is None:
            return None
        return concatenate(values, dim) if isinstance(values[0], Batch) else torch.cat(values, dim)

    names = [field.name for field in fields(batches[0])]  # type: ignore[arg-type]
    return type(batches[0])(*(joined([getattr(one, name) for one in batches]) for name in names))


@dataclass(frozen=True)
class Pose(Batch):
    """A batch of rigid transformations, with any leading dimensions.

    The constructor stores what it is given. Use :meth:`from_network` for raw network output, :meth:`from_matrix` for
    4 × 4 matrices, :meth:`random` and :meth:`perturbation` for draws.
    """

    translation: Float[Tensor, "*batch 3"]
    wxyz: Float[Tensor, "*batch 4"]

    # ── construction ──────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def identity(cls, *batch: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Pose:
        wxyz = torch.zeros(*batch, 4, dtype=dtype, device=device)
        wxyz[..., 0] = 1
        return cls(torch.zeros(*batch, 3, dtype=dtype, device=device), wxyz)

    @classmethod
    def from_network(cls, vote: Float[Tensor, "*batch 7"]) -> Pose:
        """The 7-D vote of Q as a pose (below eq. 2): the last four normalised, their sign flipped if w < 0."""
        return cls(vote[..., :3], normalize_quaternion(vote[..., 3:]))

    @classmethod
    def from_rotation(cls, rotation: Float[Tensor, "*batch 3 3"], translation: Float[Tensor, "*batch 3"]) -> Pose:
        """From rotation matrices, by Shepperd's method: the best conditioned of four equivalent quaternions."""
        candidates, sizes = quaternion_candidates(rotation)
        stacked = torch.stack([torch.stack(one, -1) for one in candidates], dim=-2)
        largest = torch.stack(sizes, -1).argmax(-1)
        chosen = torch.gather(stacked, -2, largest[..., None, None].expand(*largest.shape, 1, 4)).squeeze(-2)
        return cls(translation, normalize_quaternion(chosen))

    @classmethod
    def from_matrix(cls, matrix: Float[Tensor, "*batch 4 4"]) -> Pose:
        return cls.from_rotation(matrix[..., :3, :3], matrix[..., :3, 3])

    @classmethod
    def random(cls, *batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Pose:
        """Rotations uniform on SO(3), no translation."""
        wxyz = normalize_quaternion(torch.randn(*batch, 4, generator=generator, dtype=dtype))
        return cls(torch.zeros(*batch, 3, dtype=dtype), wxyz)

    @classmethod
    def perturbation(
        cls,
        *batch: int,
        max_angle: float,
        max_translation: float = 0.0,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> Pose:
        """The paper's perturbation: random axis, angle uniform in ±max_angle (radians), translation in a cube."""
        axis = torch.randn(*batch, 3, generator=generator, dtype=dtype)
        axis = axis / _safe_norm(axis)
        half = (torch.rand(*batch, 1, generator=generator, dtype=dtype) * 2 - 1) * (max_angle / 2)
        wxyz = normalize_quaternion(torch.cat([torch.cos(half), torch.sin(half) * axis], dim=-1))
        translation = (torch.rand(*batch, 3, generator=generator, dtype=dtype) * 2 - 1) * max_translation
        return cls(translation, wxyz)

    @classmethod
    def from_twist(cls, twist: Float[Tensor, "*batch 6"]) -> Pose:
        """The exponential map of se(3), for twists (ω, v): a turn by ‖ω‖ about ω, and ``v + B ω×v + C ω×(ω×v)``.

        ``B = (1 - cos θ)/θ²`` and ``C = (θ - sin θ)/θ³``, with θ = ‖ω‖.
        """
        turn, shift = twist[..., :3], twist[..., 3:]
        angle = (turn.square().sum(dim=-1, keepdim=True) + _EPSILON**2).sqrt()  # its gradient at 0 is 0
        half = torch.sinc(angle / (2 * math.pi))  # sin(θ/2) / (θ/2)
        wxyz = normalize_quaternion(torch.cat([torch.cos(angle / 2), half / 2 * turn], dim=-1))
        once = torch.linalg.cross(turn, shift)
        twice = torch.linalg.cross(turn, once)
        small = (1 - torch.sinc(angle / math.pi)) / angle.square().clamp(min=_EPSILON)
        return cls(shift + half.square() / 2 * once + small * twice, wxyz)

    # ── the group ─────────────────────────────────────────────────────────────────────────────────────────────────

    def compose(self, other: Pose) -> Pose:
        """``self ∘ other``: first ``other``, then ``self``."""
        translation = rotate(self.wxyz, other.translation) + self.translation
        return Pose(translation, quaternion_product(self.wxyz, other.wxyz))

    __matmul__ = compose

    def inverse(self) -> Pose:
        conjugate = _conjugate(self.wxyz)
        return Pose(-rotate(conjugate, self.translation), conjugate)

    def apply(self, points: Float[Tensor, "*points 3"]) -> Float[Tensor, "*out 3"]:
        """``self ⊙ x``: points from the local to the parent frame; ``[..., N, 3]`` for poses ``[...]``."""
        return points @ self.rotation_matrix().mT + self.translation[..., None, :]

    def observe(self, points: Float[Tensor, "*points 3"]) -> Float[Tensor, "*out 3"]:
        """``x | self = self⁻¹ ⊙ x``: points as observed from this viewpoint."""
        return (points - self.translation[..., None, :]) @ self.rotation_matrix()

    def relative_to(self, viewpoint: Pose) -> Pose:
        """``self | z = z⁻¹ ∘ self``: this pose as observed from a viewpoint."""
        inverse = _conjugate(viewpoint.wxyz)
        translation = rotate(inverse, self.translation - viewpoint.translation)
        return Pose(translation, quaternion_product(inverse, self.wxyz))

    def angle_to(self, other: Pose) -> Float[Tensor, "*batch"]:
        """Geodesic angle between the rotations, in [0, π].

        By atan2 rather than acos, so that value and gradient are finite and accurate at the identity and at π.
        """
        difference = quaternion_product(_conjugate(self.wxyz), other.wxyz)
        return 2 * torch.atan2(_safe_norm(difference[..., 1:]).squeeze(-1), difference[..., 0].abs())

    # ── views of the value ────────────────────────────────────────────────────────────────────────────────────────

    def rotation_matrix(self) -> Float[Tensor, "*batch 3 3"]:
        return torch.stack(rotation_entries(*self.wxyz.unbind(-1)), dim=-1).unflatten(-1, (3, 3))

    def matrix(self) -> Float[Tensor, "*batch 4 4"]:
        top = torch.cat([self.rotation_matrix(), self.translation[..., None]], dim=-1)
        bottom = torch.zeros_like(top[..., :1, :])
        bottom[..., 3] = 1
        return torch.cat([top, bottom], dim=-2)

    def vector(self) -> Float[Tensor, "*batch 7"]:
        """The 7-D vector of section 3.1: translation, then wxyz."""
        return torch.cat([self.translation, self.wxyz], dim=-1)

    @property
    def shape(self) -> torch.Size:
        return self.wxyz.shape[:-1]

    def to(self, target: torch.dtype | torch.device) -> Pose:
        return self.map(lambda tensor: tensor.to(target))


def stack(poses: Sequence[Pose], dim: int = 0) -> Pose:
    """Stacks along a new leading dimension (``dim`` counts leading dimensions, so it must not be negative)."""
    return Pose(torch.stack([p.translation for p in poses], dim), torch.stack([p.wxyz for p in poses], dim))


# ── quaternions, wxyz ─────────────────────────────────────────────────────────────────────────────────────────────────


def normalize_quaternion(raw: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """Normalises to unit length and w ≥ 0. A zero vector becomes the identity, with a gradient of zero, not infinity.

    The input is divided by its largest entry first, so that squares of tiny or huge entries do not under- or overflow.
    """
    largest = raw.detach().abs().amax(dim=-1, keepdim=True)
    is_zero = largest < torch.finfo(raw.dtype).tiny
    scaled = raw / torch.where(is_zero, torch.ones_like(largest), largest)
    identity = torch.zeros_like(raw)
    identity[..., 0] = 1
    scaled = torch.where(is_zero, identity, scaled)
    unit = scaled / scaled.square().sum(dim=-1, keepdim=True).sqrt()
    return torch.where(unit[..., :1] < 0, -unit, unit)


def quaternion_product(a: Float[Tensor, "*a 4"], b: Float[Tensor, "*b 4"]) -> Float[Tensor, "*ab 4"]:
    """Hamilton product, with w ≥ 0."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    product = torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        dim=-1,
    )
    return torch.where(product[..., :1] < 0, -product, product)


def rotate(wxyz: Float[Tensor, "*q 4"], vector: Float[Tensor, "*v 3"]) -> Float[Tensor, "*qv 3"]:
    """Rotates one vector by each quaternion (for N points per pose, :meth:`Pose.apply` is faster)."""
    w, axis = wxyz[..., :1], wxyz[..., 1:]
    axis, vector = torch.broadcast_tensors(axis, vector)
    twice = 2 * torch.linalg.cross(axis, vector)
    return vector + w * twice + torch.linalg.cross(axis, twice)


def _conjugate(wxyz: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    return torch.cat([wxyz[..., :1], -wxyz[..., 1:]], dim=-1)


def _safe_norm(vector: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch 1"]:
    """Length, with a gradient of zero at zero."""
    square = vector.square().sum(dim=-1, keepdim=True)
    is_zero = square < _EPSILON**2
    return torch.where(is_zero, torch.zeros_like(square), torch.where(is_zero, torch.ones_like(square), square).sqrt())
