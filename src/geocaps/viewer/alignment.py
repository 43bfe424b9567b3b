"""Two clouds laid on each other: before, after, and the other ways that explain them nearly as well."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from geocaps.apps.align.align import Alignment, Alternative, align
from geocaps.viewer.clouds import ShownCloud

_KEPT = 0.9


@dataclass(frozen=True)
class AlignedPair:
    """Clouds A and B with the alignment ``T_b_a``; ways[0] is the chosen one, the others are its alternatives."""

    a: ShownCloud
    b: ShownCloud
    found: Alignment

    @cached_property
    def ways(self) -> list[Alternative]:
        return [Alternative(self.found.pose, self.found.confidence), *self.found.alternatives]

    def laid(self, way: int | None) -> Float[np.ndarray, "n 3"]:
        """The points of A in the frame of B: as they came (None), or by one of the ways."""
        points = self.a.points.astype(np.float64)
        if way is None:
            return points
        return self.ways[way].pose.apply(points)

    def residual(self, way: int | None) -> float:
        """As ``Alignment.error``, for any way: trimmed RMS distance of the better explained cloud, in units of B."""
        if way not in self._residuals:
            self._residuals[way] = trimmed_distance(self.laid(way), self.b.points.astype(np.float64))
        return self._residuals[way]

    @cached_property
    def _residuals(self) -> dict[int | None, float]:
        """Those that were asked for."""
        return {}

    def frame(self) -> tuple[Float[np.ndarray, "3"], float]:
        """Centre and radius of B: what the page draws both clouds in."""
        exact = self.b.points.astype(np.float64)
        center = exact.mean(axis=0)
        return center, float(np.linalg.norm(exact - center, axis=1).max())

    def drawn(self, way: int | None) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "m 3"]]:
        """A and B in radii of B, centred on B. Clouds that came far apart or in other units are brought into sight."""
        center, radius = self.frame()
        a, b = (self.laid(way) - center) / radius, (self.b.points - center) / radius
        if way is None:
            own = a.mean(axis=0)
            spread = float(np.linalg.norm(a - own, axis=1).max())
            if spread > 2 or spread < 0.5 or np.linalg.norm(own) > 1:
                a = (a - own) / max(spread, 1e-12)
        return a, b


def align_pair(a: ShownCloud, b: ShownCloud, *, scale: bool) -> AlignedPair:
    return AlignedPair(a, b, align(a.points, b.points, scale=scale))


def trimmed_distance(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "m 3"]) -> float:
    means = []
    for points, others in ((a, b), (b, a)):
        square = np.sort(cKDTree(others).query(points)[0] ** 2)
        means.append(square[: max(1, int(np.ceil(_KEPT * len(square))))].mean())
    return float(np.sqrt(min(means)))
