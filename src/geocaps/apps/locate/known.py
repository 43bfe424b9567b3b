"""A known object in working units, and what it shows from each side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int
from scipy.spatial import cKDTree

from geocaps.apps.align.prepare import Prepared, plane_normals, prepare
from geocaps.apps.locate import segments
from geocaps.apps.locate.pairs import one_a_voxel
from geocaps.geometry.sampling import evenly
from geocaps.geometry.similarity import Similarity

_NEIGHBOURS = 10  # that a normal is told from


@dataclass(frozen=True)
class Known:
    """A known object in working units: points, one a voxel, and which of them are seen from each side."""

    cloud: Prepared
    whole: cKDTree
    """All points that were given."""
    directions: Float64[np.ndarray, "v 3"]
    seen: list[np.ndarray]
    """The numbers of the points seen in each view; and those of all points, where no viewer is known."""
    trees: list[cKDTree]

    @classmethod
    def of(cls, points: Float64[np.ndarray, "n 3"], voxel: float) -> Known:
        cloud = surface(points, voxel)
        directions, seen = segments.views(cloud.points, cloud.normals.T, voxel)
        seen = [*seen, np.arange(len(cloud.points))]
        return cls(cloud, cKDTree(points), directions, seen, [cKDTree(cloud.points[one]) for one in seen])

    def views_in(self, viewers: Float64[np.ndarray, "w 3"], motions: Similarity) -> Int[np.ndarray, "h _"]:
        """The number of the view that each viewer has in each pose; where none is known, that of all points."""
        if not len(viewers):
            return np.full((len(motions), 1), len(self.directions))
        towards = np.einsum("hwi,hij->hwj", viewers - motions.translation[:, None], motions.rotation)
        return (towards @ self.directions.T).argmax(axis=2)

    def probes(self, viewers: Float64[np.ndarray, "w 3"], motions: Similarity, count: int) -> Int[np.ndarray, "h k"]:
        """Numbers of so many points that the viewers see in each pose."""
        view = self.views_in(viewers, motions)
        some = np.stack([one[evenly(max(count // view.shape[1], 1), len(one))] for one in self.seen])
        return some[view].reshape(len(motions), -1)

    def partners(
        self, view: Int[np.ndarray, "h w"], local: Float64[np.ndarray, "h k 3"], reach: float
    ) -> Int[np.ndarray, "h k"]:
        """The nearest points among those seen: on a thin board the nearest of all may be on the other side.

        Whatever has none within ``reach`` has some partner that is out of reach, too.
        """
        found = np.zeros(local.shape[:2], dtype=np.int64)
        least = np.full(local.shape[:2], np.inf)
        for column in range(view.shape[1]):
            for one in np.unique(view[:, column]):
                of = np.flatnonzero(view[:, column] == one)
                distance, index = self.trees[one].query(local[of], distance_upper_bound=reach)
                better = distance <= least[of]
                own = self.seen[one].take(index, mode="clip")
                found[of] = np.where(better, own, found[of])
                least[of] = np.where(better, distance, least[of])
        return found


def surface(points: Float64[np.ndarray, "n 3"], voxel: float) -> Prepared:
    """A point a voxel, with normals from all points: the two sides of a board must not be mixed."""
    some = points[one_a_voxel(points, voxel)]
    near = points[cKDTree(points).query(some, min(_NEIGHBOURS, len(points)))[1]]
    return replace(prepare(some), normals=plane_normals(near.transpose(2, 0, 1)))
