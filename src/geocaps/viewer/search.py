"""The nearest objects of an index, each brought onto the query: a row of clouds that are all seen in one pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from geocaps.viewer.clouds import ShownCloud

if TYPE_CHECKING:
    from geocaps.index import Hit, Index

APART = 1.9
"""Between neighbours of the row, in radii of the query."""
_ROW = 4.8
"""Width of the row, where one object alone has radius 1."""


@dataclass(frozen=True)
class Found:
    """A query and its hits, nearest first."""

    query: ShownCloud
    hits: tuple[Hit, ...]

    def _frame(self) -> tuple[Float[np.ndarray, "3"], float]:
        exact = self.query.points.astype(np.float64)
        center = exact.mean(axis=0)
        return center, max(float(np.linalg.norm(exact - center, axis=1).max()), 1e-12)

    def row(self) -> list[Float[np.ndarray, "_ 3"]]:
        """The query and each hit in the query's pose, each about its own origin, and small enough for the page."""
        center, radius = self._frame()
        clouds = (self.query.points.astype(np.float64), *self.laid())
        return [(points - center) / radius * self.size for points in clouds]

    @property
    def size(self) -> float:
        """Radius of the query in the row."""
        return min(1.0, _ROW / (APART * (len(self.hits) + 1)))

    def laid(self) -> list[Float[np.ndarray, "_ 3"]]:
        """Each hit laid on the query, in the query's coordinates."""
        return [hit.apply(hit.points) for hit in self.hits]

    def places(self) -> list[Float[np.ndarray, "3"]]:
        """Where each cloud of the row stands: beside each other, about the middle."""
        count = len(self.hits) + 1
        apart = APART * self.size
        return [np.array([(index - (count - 1) / 2) * apart, 0.0, 0.0]) for index in range(count)]

    def joined(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The whole row in the query's units, and the number of the cloud that each point is of (0: the query)."""
        _, radius = self._frame()
        clouds = [self.query.points.astype(np.float64), *self.laid()]
        placed = [cloud + radius / self.size * at for cloud, at in zip(clouds, self.places(), strict=True)]
        return np.concatenate(placed), np.repeat(np.arange(len(placed)), [len(cloud) for cloud in placed])

    def record(self) -> dict[str, Any]:
        return {
            "query": self.query.name,
            "hits": [
                {
                    "name": hit.name,
                    "class_name": hit.class_name,
                    "distance": hit.distance,
                    "chamfer": hit.chamfer,
                    "translation": hit.pose.translation.tolist(),
                    "wxyz": hit.pose.wxyz.tolist(),
                    "scale": hit.scale,
                }
                for hit in self.hits
            ],
        }


def search_index(index: Index, query: ShownCloud, k: int) -> Found:
    return Found(query, tuple(index.search(query.points, k=k)))
