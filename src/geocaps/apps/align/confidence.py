"""Confidence of an alignment: the chance that its pose is right, by what two clouds look like when it is.

A pose can be wrong in two ways: another of those that were found is the right one, or none is. The costs tell how
probable each is among all; the *signs* of the best one, how often a pose with such signs was right. The constants are
those that ``python benchmarks/align.py --fit modelnet40_train.npz`` prints.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

WIDTH = 0.071
"""A pose whose cost is higher by this share is e times less probable."""
SIGNS = ("cost", "explained", "explained less", "residual")
WEIGHTS = (0.29, -2.20, 3.51, 3.24, -1.82)
"""Of a constant and of the signs, in a logistic function."""
_SMALL, _FINE = 1e-3, 0.1  # below these a smaller cost or residual tells nothing more


def weights(cost: Float[np.ndarray, "h"], floor: float, width: float = WIDTH) -> Float[np.ndarray, "h"]:
    """How probable each pose is beside the best, best first: from 1 down.

    Below the floor a lower cost tells how the points were drawn, not how the surfaces lie.
    """
    level = max(float(cost[0]), floor)
    return np.exp(-np.clip(cost - level, 0, None) / (width * level))


def trust(signs: Float[np.ndarray, "signs"]) -> float:
    """The share of poses with such signs that are right, if another is no better."""
    return float(1 / (1 + np.exp(-(WEIGHTS[0] + np.dot(WEIGHTS[1:], signs)))))


def signs_of(cost: float, floor: float, overlap: tuple[float, float], residual: float) -> Float[np.ndarray, "signs"]:
    """What tells whether a pose is right, whatever the clouds, their units and their numbers of points.

    Its cost beside that of two samplings of one surface, the shares of both clouds that it explains, and the
    residual, in spacings of the points.
    """
    relative = np.log((cost + _SMALL) / (floor + _SMALL))
    return np.array([relative, max(overlap), min(overlap), np.log(residual + _FINE)])
