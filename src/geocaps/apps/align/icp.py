"""ICP in both directions at once, for many hypotheses at once: mostly point to plane, robust by Tukey's weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.align.motions import ahead, back, cross, cross_matrix, dot, updated
from geocaps.apps.align.prepare import View
from geocaps.geometry.similarity import Similarity

Nearest = Callable[[np.ndarray], np.ndarray]
"""From points ``[3, h, m]`` to the indices ``[h, m]`` of their partners."""
_POINT_SHARE = 0.01
"""Weight of point-to-point beside point-to-plane: it holds what planes leave free. More of it slows every step."""


@dataclass(frozen=True)
class Side:
    """One cloud's part in a registration: the points that look for a partner, and how partners are found in it."""

    view: View
    chosen: Float[np.ndarray, "3 m"]
    nearest: Nearest


def by_table(view: View, chosen: Int[np.ndarray, "m"]) -> Side:
    return Side(view, view.columns[:, chosen], view.table)


def by_tree(view: View, chosen: Int[np.ndarray, "m"] | None = None, reach: float = np.inf) -> Side:
    """Exact partners within ``reach``; whatever lies farther has some partner that is out of reach too."""

    def nearest(points: Float[np.ndarray, "3 h m"]) -> Int[np.ndarray, "h m"]:
        # A search that may stop early is much quicker where nothing is near. A missing partner has the index n.
        found = view.tree.query(np.moveaxis(points, 0, -1), distance_upper_bound=reach)[1]
        return np.minimum(found, len(view.points) - 1)

    return Side(view, view.columns if chosen is None else view.columns[:, chosen], nearest)


@dataclass(frozen=True)
class Pairs:
    """Partners in the frame of B, for both directions: points that move with A, points that stay, normals."""

    moving: Float[np.ndarray, "3 h m"]
    fixed: Float[np.ndarray, "3 h m"]
    normal: Float[np.ndarray, "3 h m"]
    trust: Float[np.ndarray, "m"]


def refine(
    a: Side, b: Side, motions: Similarity, reaches: Float[np.ndarray, "steps"], scale: bool = False, every: int = 1
) -> Similarity:
    """One Gauss-Newton step for each reach (the distance from which a partner no longer counts).

    Partners are looked for ``every`` so many steps: with trees that takes most of the time.
    """
    for step, reach in enumerate(reaches):
        if step % every == 0:
            partner_b, partner_a = b.nearest(ahead(motions, a.chosen)), a.nearest(back(motions, b.chosen))
        motions = _step(_pairs(a, b, motions, partner_b, partner_a), motions, reach, scale)
    return motions


def _pairs(
    a: Side, b: Side, motions: Similarity, partner_b: Int[np.ndarray, "h k"], partner_a: Int[np.ndarray, "h l"]
) -> Pairs:
    moved = ahead(motions, a.chosen)
    count = moved.shape[2]
    moving, fixed, normal = (np.empty((3, len(motions), count + b.chosen.shape[1])) for _ in range(3))
    moving[..., :count] = moved
    moving[..., count:] = motions.scale[:, None] * _turned(motions, a.view.columns.take(partner_a, axis=1))
    moving[..., count:] += motions.translation.T[..., None]
    fixed[..., :count] = b.view.columns.take(partner_b, axis=1)
    fixed[..., count:] = b.chosen[:, None]
    normal[..., :count] = b.view.normals.take(partner_b, axis=1)
    normal[..., count:] = _turned(motions, a.view.normals.take(partner_a, axis=1))
    return Pairs(moving, fixed, normal, _trust(a, b))


def _turned(motions: Similarity, vectors: Float[np.ndarray, "3 h m"]) -> Float[np.ndarray, "3 h m"]:
    return (motions.rotation @ vectors.transpose(1, 0, 2)).transpose(1, 0, 2)


def _trust(a: Side, b: Side) -> Float[np.ndarray, "m"]:
    """Both directions weigh the same where the clouds are equally dense; planes of the denser one are the truer."""
    to_b, to_a = a.view.spacing**2, b.view.spacing**2
    of_a, of_b = a.chosen.shape[1], b.chosen.shape[1]
    weights = [np.full(of_a, to_b / of_a), np.full(of_b, to_a / of_b)]
    return np.concatenate(weights) * ((of_a + of_b) / (to_a + to_b))


def _step(found: Pairs, motions: Similarity, reach: float, scale: bool) -> Similarity:
    """Gauss-Newton on Σ w ((n·g)² + share·|g|²), g the gap after a small turn, shift (and growth) of what moves."""
    moving, normal = found.moving, found.normal
    gap = found.fixed - moving
    weight = np.clip(1 - dot(gap, gap) / reach**2, 0, None) ** 2 * found.trust
    growth = [dot(moving, normal)[None]] if scale else []
    plane = _moments(weight, [cross(moving, normal), normal, *growth, dot(gap, normal)[None]])
    left, right = _of_points(_moments(weight, [moving, gap, np.ones((1, *weight.shape))]))
    unknown = 7 if scale else 6
    left = plane[:, :-1, :-1] + _POINT_SHARE * left[:, :unknown, :unknown]
    right = plane[:, :-1, -1] + _POINT_SHARE * right[:, :unknown]
    # A floor far below any weight that counts: without partners there is no motion.
    left += 1e-9 * moving.shape[2] * np.eye(unknown)
    change = np.linalg.solve(left, right[..., None])[..., 0]
    grown = np.exp(np.clip(change[:, 6], -0.2, 0.2)) if scale else np.ones(len(motions))
    return updated(motions, change[:, :3], change[:, 3:6], grown)


def _moments(
    weight: Float[np.ndarray, "h m"], rows: list[Float[np.ndarray, "_ h m"]]
) -> Float[np.ndarray, "h rows rows"]:
    """Σ w x xᵀ over the points, of all rows together."""
    values = np.concatenate(rows)
    return (values * weight).transpose(1, 0, 2) @ values.transpose(1, 2, 0)


def _of_points(moments: Float[np.ndarray, "h 7 7"]) -> tuple[Float[np.ndarray, "h 7 7"], Float[np.ndarray, "h 7"]]:
    """Both sides of the point-to-point part, whose slopes have a closed form in the moments of (x, gap, 1)."""
    second, mixed, first = moments[:, :3, :3], moments[:, :3, 3:6], moments[:, :3, 6]
    spread = np.trace(second, axis1=1, axis2=2)
    left = np.zeros((len(moments), 7, 7))
    left[:, :3, :3] = spread[:, None, None] * np.eye(3) - second
    left[:, :3, 3:6] = cross_matrix(first)
    left[:, 3:6, :3] = -left[:, :3, 3:6]
    left[:, 3:6, 3:6] = moments[:, 6:, 6:] * np.eye(3)
    left[:, 3:6, 6] = left[:, 6, 3:6] = first
    left[:, 6, 6] = spread
    right = np.empty((len(moments), 7))
    right[:, :3] = np.stack([mixed[:, i, j] - mixed[:, j, i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=1)
    right[:, 3:6] = moments[:, 3:6, 6]
    right[:, 6] = np.trace(mixed, axis1=1, axis2=2)
    return left, right
