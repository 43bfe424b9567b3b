"""Distances and losses, unreduced over the batch: the caller averages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules

Terms = dict[str, Tensor]
"""The terms of a loss by name, each ``[b]``."""
FEATURE_SHARE = 0.25
"""Weight of the cosine of two objects' features beside the late interaction of their parts, in retrieval by both."""
_BLOCK = 1 << 20


def weighted(terms: Terms, weights: Any) -> dict[str, Tensor]:
    """Every term averaged over the batch, and ``loss``, their sum weighted by the fields of ``weights``."""
    scale = asdict(weights)
    means = {name: term.mean() for name, term in terms.items()}
    return {"loss": torch.stack([scale[name] * term for name, term in means.items()]).sum()} | means


def gather_points(points: Float[Tensor, "b m 3"], index: Int[Tensor, "b n"]) -> Float[Tensor, "b n 3"]:
    return points.gather(1, index[..., None].expand(*index.shape, 3))


@torch.no_grad()
def nearest_indices(queries: Float[Tensor, "b n 3"], targets: Float[Tensor, "b m 3"]) -> Int[Tensor, "b n"]:
    """For each query the index of the nearest target of the same object.

    Without gradient: the caller gathers and differentiates the gathered distances.
    """
    if queries.device.type != "cpu":
        return torch.stack([_nearest_exhaustive(q, t) for q, t in zip(queries, targets, strict=True)])
    pairs = list(zip(queries.detach().numpy(), targets.detach().numpy(), strict=True))
    return torch.from_numpy(np.stack(_map_threads(_nearest_tree, pairs)))


def _nearest_tree(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    queries, targets = pair
    # Building a balanced tree costs more than it saves at a thousand queries.
    from scipy.spatial import cKDTree  # slow to import, and encoding a cloud does not need it

    tree = cKDTree(targets, balanced_tree=False, compact_nodes=False)
    return tree.query(queries)[1]


def _nearest_exhaustive(queries: Tensor, targets: Tensor) -> Tensor:
    rows = max(1, _BLOCK // len(targets))
    return torch.cat([torch.cdist(block, targets).argmin(dim=1) for block in queries.split(rows)])


def _map_threads(function: Callable, items: list) -> list:
    if len(items) == 1:
        return [function(items[0])]
    return list(_threads(torch.get_num_threads()).map(function, items))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="geocaps-nearest")


def chamfer(x: Float[Tensor, "b n 3"], y: Float[Tensor, "b m 3"]) -> Float[Tensor, "b"]:
    """Squared Chamfer distance of section 3.3: the mean squared distances to the nearest points, both ways, added."""
    to_x = (y - gather_points(x, nearest_indices(y, x))).square().sum(-1).mean(-1)
    to_y = (x - gather_points(y, nearest_indices(x, y))).square().sum(-1).mean(-1)
    return to_x + to_y


def capsule_distance(u: Capsules, v: Capsules) -> Float[Tensor, "*batch"]:
    """``d_caps`` of section 3.4: translation, 1 - ⟨r, r'⟩² (independent of the signs of quaternions), feature."""
    translation = (u.pose.translation - v.pose.translation).square().sum(-1)
    rotation = 1 - (u.pose.wxyz * v.pose.wxyz).sum(-1).square()
    return translation + rotation + (u.feature - v.feature).square().sum(-1)


def part_regression(decoded: Capsules, target: Capsules, reached: Bool[Tensor, "b j"]) -> Float[Tensor, "b"]:
    """``L_part = Σ_j d_caps(u^j, t^j)``, over the parts that points were routed to.

    A part without points gets votes that are based on nothing: its target is always the same small step away, and a
    decoder that follows leaves the object for good (measured: 150 radii away, where λ·Chamfer stops it).
    """
    return (capsule_distance(decoded, target) * reached).sum(-1)


def chosen_frames(log_p: Float[Tensor, "v s"], near: Float[Tensor, "v s f"]) -> Float[Tensor, "v f"]:
    """``log P_f`` of a view for each frame of its object: ``P_f = Σ_s p_s κ_sf``, with κ as in ``near_frames``."""
    return torch.logsumexp(log_p[:, :, None] + near.log(), dim=1)


def choice_agreement(log_chosen: Float[Tensor, "v f"]) -> Float[Tensor, "b"]:
    """``-log Σ_f P^A_f P^B_f``: minus the log probability that the two views choose the same frame (ours).

    The views of the objects alternate.
    """
    return -torch.logsumexp(log_chosen[0::2] + log_chosen[1::2], dim=1)


def common_choice(log_chosen: Float[Tensor, "v f"], chance: Float[Tensor, "b f"]) -> Float[Tensor, "b"]:
    """``-Σ_f c_f log P_f``, the mean of both views, which should choose the common frame of similar objects (ours).

    0 if that frame is unknown (all chances are 0).
    """
    return -(chance[:, None] * log_chosen.unflatten(0, (-1, 2))).sum(dim=2).mean(dim=1)


def frame_contrast(
    a: Float[Tensor, "b f d"], b: Float[Tensor, "b f d"], same: Int[Tensor, "b f"], scale: Float[Tensor, ""]
) -> Float[Tensor, "b"]:
    """InfoNCE over frames: frame f of view A looks like frame ``same`` of view B, and like no other (ours).

    That is, no other frame of the same object, and no frame of the other objects.
    """
    likeness = scale * torch.einsum("bfd,cgd->bfcg", a, b)
    own = likeness.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    match = own.gather(2, same[..., None]).squeeze(2)
    return (own.logsumexp(dim=2) + likeness.flatten(2).logsumexp(dim=2) - 2 * match).mean(dim=1)


@torch.no_grad()
def near_frames(viewpoints: Pose, frames: Pose, width: float) -> Float[Tensor, "v s f"]:
    """κ: a kernel on the angle between viewpoints ``[v, s]`` and the whole object's frames ``[v, f]``, 1 at angle 0.

    It has a floor, so that a viewpoint that is near no frame has no influence.
    """
    return torch.exp(-0.5 * (viewpoints[:, :, None].angle_to(frames[:, None]) / width).square()).clamp(min=1e-4)


def nearest_frame(viewpoints: Pose, frames: Pose) -> Float[Tensor, "v"]:
    """Chordal distance from each viewpoint to the nearest of the whole object's frames, averaged (ours).

    Not squared: for round objects no vote can be right, and their large squares would dominate the small angles that
    can be reduced.
    """
    chord = length((viewpoints.rotation_matrix()[:, :, None] - frames.rotation_matrix()[:, None]).flatten(-2))
    return chord.amin(dim=2).mean(dim=1)


def trusted_agreement(logit: Float[Tensor, "v"], agreed: Bool[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Cross entropy of ``t_A·t_B``, the probability that two views agree if each is right with probability t (ours)."""
    both = torch.nn.functional.logsigmoid(logit).unflatten(0, (-1, 2)).sum(dim=1)
    return -torch.where(agreed, both, torch.log(-torch.expm1(both.clamp(max=-1e-6))))


@torch.enable_grad()
def fitted_trust(logit: Float[Tensor, "v"], agreed: Bool[Tensor, "b"]) -> Float[Tensor, "2"]:
    """Factor and offset of the logit that minimise :func:`trusted_agreement`, with a weak prior at (1, 0)."""
    known, stay = logit.detach().double(), torch.tensor([1.0, 0.0], dtype=torch.float64, device=logit.device)
    fit = stay.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([fit], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = trusted_agreement(fit[0] * known + fit[1], agreed).sum() + (fit - stay).square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    return fit.detach().to(logit)


def length(difference: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    """The length of a difference, with a gradient (of 0) where it is 0."""
    return (difference.square().sum(-1) + 1e-8).sqrt()


def late_interaction(query: Float[Tensor, "b j d"], gallery: Float[Tensor, "c k d"]) -> Float[Tensor, "b c"]:
    """The best similarity of each percept of the query to one of the other object's, averaged over the query (ours).

    Percepts are unit vectors, or 0 for parts without points, which are not averaged over.
    """
    best = (query @ gallery.flatten(0, 1).mT).unflatten(-1, gallery.shape[:2]).amax(dim=-1)
    seen = (query.square().sum(-1) > 0)[..., None]
    return (best * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)


def contrast(similarity: Float[Tensor, "b b"], scale: Float[Tensor, ""]) -> Float[Tensor, "b"]:
    """InfoNCE in both directions: two views of one object are more similar than views of different objects (ours)."""
    logits = scale * similarity
    match = torch.arange(len(logits), device=logits.device)
    a_to_b = torch.nn.functional.cross_entropy(logits, match, reduction="none")
    b_to_a = torch.nn.functional.cross_entropy(logits.mT, match, reduction="none")
    return (a_to_b + b_to_a) / 2
