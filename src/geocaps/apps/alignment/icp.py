"""ICP in both directions at once, for many hypotheses at once: mostly point to plane, robust by Tukey's weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.alignment.motions import Motions, cross, cross_matrix, dot
from geocaps.apps.alignment.views import View

Nearest = Callable[[np.ndarray], np.ndarray]
_POINT_SHARE = 0.01
"""Weight of point-to-point beside point-to-plane: it holds what planes leave free. More of it slows every step."""


@dataclass(frozen=True)
class Side:
    """One cloud's part in a registration: the points that look for a partner, and how partners are found in it."""

    view: View
    chosen: Int[np.ndarray, "m"]
    nearest: Nearest


def by_table(view: View, chosen: Int[np.ndarray, "m"]) -> Side:
    return Side(view, chosen, view.table)


def by_tree(view: View, chosen: Int[np.ndarray, "m"] | None = None, reach: float = np.inf) -> Side:
    """Exact partners within ``reach``; whatever lies farther has some partner that is out of reach too."""

    def nearest(points: np.ndarray) -> np.ndarray:
        # A search that may stop early is much quicker where nothing is near. A missing partner has the index n.
        return np.minimum(view.tree.query(points, distance_upper_bound=reach)[1], len(view.points) - 1)

    return Side(view, np.arange(len(view.points)) if chosen is None else chosen, nearest)


@dataclass(frozen=True)
class Pairs:
    """Partners in the frame of B, for both directions: points that move with A, points that stay, normals."""

    moving: Float[np.ndarray, "h m 3"]
    fixed: Float[np.ndarray, "h m 3"]
    normal: Float[np.ndarray, "h m 3"]
    trust: Float[np.ndarray, "m 1"]


def refine(a: Side, b: Side, motions: Motions, reaches: Float[np.ndarray, "steps"], scale: bool = False) -> Motions:
    """One Gauss-Newton step for each reach (the distance from which a partner no longer counts)."""
    for reach in reaches:
        motions = _step(_pairs(a, b, motions), motions, reach, scale)
    return motions


def _pairs(a: Side, b: Side, motions: Motions) -> Pairs:
    ahead = motions.apply(a.view.points[a.chosen])
    partner_b = b.nearest(ahead)
    still = b.view.points[b.chosen]
    partner_a = a.nearest(motions.apply_inverse(still))
    turn = motions.rotation.transpose(0, 2, 1)
    back = motions.scale[:, None, None] * (a.view.points[partner_a] @ turn) + motions.translation[:, None]
    return Pairs(
        moving=np.concatenate([ahead, back], axis=1),
        fixed=np.concatenate([b.view.points[partner_b], np.broadcast_to(still, back.shape)], axis=1),
        normal=np.concatenate([b.view.normals[partner_b], a.view.normals[partner_a] @ turn], axis=1),
        trust=_trust(a, b),
    )


def _trust(a: Side, b: Side) -> Float[np.ndarray, "m 1"]:
    """Both directions weigh the same where the clouds are equally dense; planes of the denser one are the truer."""
    to_b, to_a = a.view.spacing**2, b.view.spacing**2
    weights = [np.full(len(a.chosen), to_b / len(a.chosen)), np.full(len(b.chosen), to_a / len(b.chosen))]
    return (np.concatenate(weights) * ((len(a.chosen) + len(b.chosen)) / (to_a + to_b)))[:, None]


def _step(found: Pairs, motions: Motions, reach: float, scale: bool) -> Motions:
    """Gauss-Newton on Σ w ((n·g)² + share·|g|²), g the gap after a small turn, shift (and growth) of what moves."""
    moving, normal = found.moving, found.normal
    gap = found.fixed - moving
    weight = np.clip(1 - dot(gap, gap)[..., None] / reach**2, 0, None) ** 2 * found.trust
    slope = [cross(moving, normal), normal]
    if scale:
        slope.append(dot(moving, normal)[..., None])
    plane = np.concatenate(slope, axis=-1)
    weighted = (weight * plane).transpose(0, 2, 1)
    weighted_moving = weight * moving
    left = weighted @ plane + _POINT_SHARE * _point_left(moving, weighted_moving, weight, scale)
    right = weighted @ dot(gap, normal)[..., None]
    right += _POINT_SHARE * _point_right(gap, weighted_moving, weight, scale)
    # A floor far below any weight that counts: without partners there is no motion.
    left += 1e-9 * moving.shape[1] * np.eye(left.shape[-1])
    change = np.linalg.solve(left, right)[..., 0]
    growth = np.exp(np.clip(change[:, 6], -0.2, 0.2)) if scale else np.ones(len(motions))
    return motions.updated(change[:, :3], change[:, 3:6], growth)


def _point_right(
    gap: Float[np.ndarray, "h m 3"],
    weighted_moving: Float[np.ndarray, "h m 3"],
    weight: Float[np.ndarray, "h m 1"],
    scale: bool,
) -> Float[np.ndarray, "h u 1"]:
    """Right side of the point-to-point part: Σ w (x × g), Σ w g and Σ w x·g, from one matrix of moments."""
    moment = weighted_moving.transpose(0, 2, 1) @ gap
    turn = np.stack([moment[:, i, j] - moment[:, j, i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=1)
    shift = (gap.transpose(0, 2, 1) @ weight)[..., 0]
    growth = [np.trace(moment, axis1=1, axis2=2)[:, None]] if scale else []
    return np.concatenate([turn, shift, *growth], axis=1)[..., None]


def _point_left(
    moving: Float[np.ndarray, "h m 3"],
    weighted_moving: Float[np.ndarray, "h m 3"],
    weight: Float[np.ndarray, "h m 1"],
    scale: bool,
) -> Float[np.ndarray, "h u u"]:
    """Left side of the point-to-point part: its 3 × u slopes have a closed form in the weighted moments."""
    total = weight.sum(axis=(1, 2))[:, None, None]
    first = weighted_moving.sum(axis=1)
    second = weighted_moving.transpose(0, 2, 1) @ moving
    spread = np.trace(second, axis1=1, axis2=2)
    matrix = np.zeros((len(moving), 7, 7))
    matrix[:, :3, :3] = spread[:, None, None] * np.eye(3) - second
    matrix[:, :3, 3:6] = cross_matrix(first)
    matrix[:, 3:6, :3] = -cross_matrix(first)
    matrix[:, 3:6, 3:6] = total * np.eye(3)
    matrix[:, 3:6, 6] = matrix[:, 6, 3:6] = first
    matrix[:, 6, 6] = spread
    return matrix if scale else matrix[:, :6, :6]
