"""Distances and losses, unreduced over the batch: the caller averages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules
from geocaps.model.routing import nearest_indices

Terms = dict[str, Tensor]
"""The terms of a loss by name, each ``[b]``."""


def weighted(terms: Terms, weights: Any) -> dict[str, Tensor]:
    """Every term averaged over the batch, and ``loss``, their sum weighted by the fields of ``weights``."""
    scale = asdict(weights)
    means = {name: term.mean() for name, term in terms.items()}
    return {"loss": torch.stack([scale[name] * term for name, term in means.items()]).sum()} | means


def gather_points(points: Float[Tensor, "b m 3"], index: Int[Tensor, "b n"]) -> Float[Tensor, "b n 3"]:
    return points.gather(1, index[..., None].expand(*index.shape, 3))


def chamfer(x: Float[Tensor, "b n 3"], y: Float[Tensor, "b m 3"]) -> Float[Tensor, "b"]:
    """Squared Chamfer distance of section 3.3: mean squared distance to the nearest, in both directions, added."""
    to_x = (y - gather_points(x, nearest_indices(y, x))).square().sum(-1).mean(-1)
    to_y = (x - gather_points(y, nearest_indices(x, y))).square().sum(-1).mean(-1)
    return to_x + to_y


def capsule_distance(u: Capsules, v: Capsules) -> Float[Tensor, "*batch"]:
    """``d_caps`` of section 3.4: translation, 1 - ⟨r, r'⟩² (blind to a quaternion's sign), feature."""
    translation = (u.pose.translation - v.pose.translation).square().sum(-1)
    rotation = 1 - (u.pose.wxyz * v.pose.wxyz).sum(-1).square()
    return translation + rotation + (u.feature - v.feature).square().sum(-1)


def part_regression(decoded: Capsules, target: Capsules, reached: Bool[Tensor, "b j"]) -> Float[Tensor, "b"]:
    """``L_part = Σ_j d_caps(u^j, t^j)``, over the parts that points were routed to.

    A part that no point reaches is voted on from nothing: its target is always the same small step away from it, and a
    decoder that follows leaves the object for good (measured: parts 150 radii away, where λ·Chamfer stops them).
    """
    return (capsule_distance(decoded, target) * reached).sum(-1)


def choice_agreement(
    log_p_a: Float[Tensor, "b s"], log_p_b: Float[Tensor, "b s"], kernel: Float[Tensor, "b s s"]
) -> Float[Tensor, "b"]:
    """``-log Σ_kl p^A_k p^B_l κ_kl``: how unlikely two samplings are to choose the same viewpoint (ours).

    ``κ`` says which start of A is which start of B: :func:`matching_starts`.
    """
    joint = log_p_a[:, :, None] + log_p_b[:, None, :]
    return -torch.logsumexp((joint + kernel.clamp(min=1e-12).log()).flatten(1), dim=1)


def matching_starts(starts_a: Pose, starts_b: Pose, width: float) -> Float[Tensor, "b s s"]:
    """κ: a narrow kernel on the angle between start k of A and start l of B, ``[b, s]`` each, 1 at no angle."""
    angle = starts_a[:, :, None].angle_to(starts_b[:, None, :])
    return torch.exp(-0.5 * (angle / width).square())


def pose_agreement(votes_a: Pose, votes_b: Pose, weight: Float[Tensor, "b s s"]) -> Float[Tensor, "b"]:
    """Chordal distance between the voted poses of matching starts: they must land on the same pose (ours).

    Not squared: where axes are unstable no vote can be right, and squares of such angles would drown the small ones
    that a vote can still make smaller.
    """
    rotation_a, rotation_b = votes_a.rotation_matrix()[:, :, None], votes_b.rotation_matrix()[:, None]
    rotation = _distance((rotation_a - rotation_b).flatten(-2))
    shift = _distance(votes_a.translation[:, :, None] - votes_b.translation[:, None])
    return ((rotation + shift) * weight).sum((1, 2)) / weight.sum((1, 2)).clamp(min=1e-6)


def _distance(difference: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    """The length of a difference, with a gradient (of 0) where it is 0."""
    return (difference.square().sum(-1) + 1e-8).sqrt()


def contrast(a: Float[Tensor, "b d"], b: Float[Tensor, "b d"], scale: Float[Tensor, ""]) -> Float[Tensor, "b"]:
    """InfoNCE in both directions: two samplings of one object together, those of other objects apart (ours).

    Similarity is the cosine, which orders features of one length as L2 does, times a learned scale.
    """
    similarity = scale * torch.nn.functional.normalize(a, dim=-1) @ torch.nn.functional.normalize(b, dim=-1).mT
    match = torch.arange(len(a), device=a.device)
    a_to_b = torch.nn.functional.cross_entropy(similarity, match, reduction="none")
    b_to_a = torch.nn.functional.cross_entropy(similarity.mT, match, reduction="none")
    return (a_to_b + b_to_a) / 2
