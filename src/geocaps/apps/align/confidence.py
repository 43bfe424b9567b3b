"""Confidence of an alignment: the chance that its pose is right, by what two clouds look like when it is.

A pose can be wrong in two ways: another of those that were found is the right one, or none is. The costs tell how
probable each is among all; the *signs* of the best one, how often a pose with such signs was right. The constants are
those that ``python benchmarks/align.py --fit modelnet40_train.npz`` prints.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from geocaps.apps.align.hypotheses import EVIDENCE_REACH, Residuals, explained, outside, own_residuals, trimmed_rms
from geocaps.apps.align.icp import Side, ahead, back
from geocaps.geometry.similarity import Similarity

WIDTH = 0.07
"""A pose whose cost is higher by this share is e times less probable."""
SIGNS = ("cost", "contradicted", "contradicted more", "explained", "explained less", "strain")
WEIGHTS = (3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a constant and of the signs, in a logistic function."""
_SMALL = 1e-3


def weights(cost: Float[np.ndarray, "h"], floor: float, width: float = WIDTH) -> Float[np.ndarray, "h"]:
    """How probable each pose is beside the best, best first: from 1 down.

    Below the floor a lower cost tells how the points were drawn, not how the surfaces lie.
    """
    level = max(float(cost[0]), floor)
    return np.exp(-np.clip(cost - level, 0, None) / (width * level))


def trust(signs: Float[np.ndarray, "signs"]) -> float:
    """The share of poses with such signs that are right, if another is no better."""
    return float(1 / (1 + np.exp(-(WEIGHTS[0] + np.dot(WEIGHTS[1:], signs)))))


def overlap_of(a: Side, b: Side, forward: Residuals, backward: Residuals) -> tuple[float, float]:
    return explained(forward, own_residuals(b.cloud)), explained(backward, own_residuals(a.cloud))


def signs_of(
    a: Side,
    b: Side,
    motion: Similarity,
    found: tuple[Residuals, Residuals],
    overlap: tuple[float, float],
    reach: float,
    cost: float,
    floor: float,
) -> Float[np.ndarray, "signs"]:
    """What tells whether a pose is right, whatever the clouds, their units and their numbers of points.

    The cost beside that of two samplings of one surface; the shares of the points that have no partner where the other
    cloud was seen, and of those that have one; and the residual beside the spacing of the points.
    """
    lost = [one.point[0] > (EVIDENCE_REACH * reach) ** 2 for one in found]
    moved = ahead(motion, a.chosen)[:, 0], back(motion, b.chosen)[:, 0]
    inside = [~outside(one, side.cloud.hull) for one, side in zip(moved, (b, a), strict=True)]
    contradicted = sorted(float((one & within).mean()) for one, within in zip(lost, inside, strict=True))
    spacing = max(a.cloud.spacing, b.cloud.spacing)
    strain = trimmed_rms(found[0].point[0], found[1].point[0]) / spacing
    return np.array(
        [
            np.log((cost + _SMALL) / (floor + _SMALL)),
            *contradicted,
            *sorted(overlap, reverse=True),
            np.log(strain + 0.1),
        ]
    )
