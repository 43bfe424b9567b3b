"""How well a hypothesis explains both clouds: truncated distances, in both directions, over all points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from geocaps.apps.alignment.icp import Side
from geocaps.apps.alignment.motions import Motions, dot
from geocaps.apps.alignment.views import View

_PLANE_SHARE = 0.9
"""Of the distance to the partner's plane in a square distance; the rest is along it, where sampling alone moves it."""
_LESSER_SHARE = 0.25
_NOISE = 4.0


@dataclass(frozen=True)
class Residuals:
    """Square distances from each point to its partner, in units of B."""

    point: Float[np.ndarray, "h m"]
    plane: Float[np.ndarray, "h m"]

    def truncated(self, reach: float) -> Float[np.ndarray, "h m"]:
        """min(d², reach²) / reach²: noise counts little, a point without partner counts 1 and no more.

        Truncated, not trimmed: the few points that tell a flip from the truth keep their say.
        """
        return np.where(self.point < reach**2, self.blend() / reach**2, 1.0)

    def blend(self) -> Float[np.ndarray, "h m"]:
        return _PLANE_SHARE * self.plane + (1 - _PLANE_SHARE) * self.point


def residuals(a: Side, b: Side, motions: Motions) -> tuple[Residuals, Residuals]:
    """From A to B and from B to A."""
    ahead = motions.apply(a.view.points[a.chosen])
    back = motions.apply_inverse(b.view.points[b.chosen])
    return _residuals(b, ahead, np.ones(len(motions))), _residuals(a, back, motions.scale)


def own_residuals(view: View) -> Residuals:
    """From each point to the nearest other one of its own cloud: what a perfect alignment of two samplings gives."""
    gap = (view.points - view.points[view.neighbour])[None]
    return _from_gap(gap, view.normals[view.neighbour][None])


def cost(forward: Float[np.ndarray, "h m"], backward: Float[np.ndarray, "h k"], scale: bool) -> Float[np.ndarray, "h"]:
    """One number from the truncated residuals of both directions, mostly that of the direction better explained.

    Where B is a part of A, all of B is explained and only some of A. With a free scale both count the same, or A would
    shrink to a spot that B explains.
    """
    first, second = forward.mean(axis=1), backward.mean(axis=1)
    return np.minimum(first, second) + (1.0 if scale else _LESSER_SHARE) * np.maximum(first, second)


def costs(a: Side, b: Side, motions: Motions, reach: float, scale: bool) -> Float[np.ndarray, "h"]:
    forward, backward = residuals(a, b, motions)
    return cost(forward.truncated(reach), backward.truncated(reach), scale)


def explained(found: Residuals, own: Residuals) -> float:
    """Share of points no farther from their partners than the other cloud's own points are from their neighbours."""
    return float((found.blend() <= _NOISE**2 * np.median(own.blend())).mean())


def trimmed_rms(forward: Residuals, backward: Residuals) -> float:
    """Root mean square distance of the better explained direction, without the farthest tenth of its points."""
    means = []
    for square in (forward.point[0], backward.point[0]):
        means.append(np.sort(square)[: max(1, int(np.ceil(0.9 * len(square))))].mean())
    return float(np.sqrt(min(means)))


def _residuals(target: Side, points: Float[np.ndarray, "h m 3"], scale: Float[np.ndarray, "h"]) -> Residuals:
    partner = target.nearest(points)
    gap = (points - target.view.points[partner]) * scale[:, None, None]
    return _from_gap(gap, target.view.normals[partner])


def _from_gap(gap: Float[np.ndarray, "h m 3"], normal: Float[np.ndarray, "h m 3"]) -> Residuals:
    return Residuals(dot(gap, gap), dot(gap, normal) ** 2)
