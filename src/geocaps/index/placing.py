"""How a hit is brought onto the query: capsule poses as hypotheses, a polish by ICP, and the Chamfer distance left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from geocaps.apps.align import hypotheses
from geocaps.apps.align.icp import by_table, by_tree, refine
from geocaps.apps.align.motions import distinct
from geocaps.apps.align.prepare import View, make_view
from geocaps.apps.align.score import costs
from geocaps.apps.align.search import MINIMUM_POINTS
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity, concatenate
from geocaps.index.rows import Row

_COARSE_REACH = 0.4
_REACHES = np.array([0.5, 0.4, 0.3, 0.25, 0.2, 0.2])
_POLISH = np.full(4, 0.2)
_COARSE, _FINE = 6, 2
"""How many hypotheses are refined on few points, and on all."""
_ONE = np.radians(10), 0.2
"""Motions that differ by less than this angle and shift are one."""
_FLAT = 1e-6
"""A cloud no wider than this share of its radius is one point: it cannot be turned."""


@dataclass(frozen=True)
class Placement:
    """``x_query = scale · R · x_hit + t``, and how far the shapes then are from each other."""

    pose: Similarity
    chamfer: float | None


class Placer:
    """The query, made ready once for all hits."""

    def __init__(self, query: Row, viewpoints: Pose) -> None:
        """``viewpoints`` are all poses ``[s]`` that the query may be seen in, not only the most probable one."""
        self._query = query
        self._turns = viewpoints.rotation_matrix().double().numpy()
        self._work = _Work.of(query)

    def by_capsules(self, hit: Row) -> Placement:
        """One object capsule laid on the other: no search, no distance."""
        return Placement(_object_frame(self._query) @ _object_frame(hit).inverse(), None)

    def by_points(self, hit: Row) -> Placement:
        """The best of many hypotheses, polished; with the Chamfer distance in units of the query."""
        work = _Work.of(hit)
        if self._work.view is None or work.view is None:
            motions = Similarity.identity(1)
        else:
            motions = self._search(work.view, self._work.view, hit)
        chamfers = [_chamfer(motions[index], work, self._work) for index in range(len(motions))]
        best = int(np.argmin(chamfers))
        pose = self._work.frame @ motions[best] @ work.frame.inverse()
        return Placement(pose, chamfers[best] * float(self._work.frame.scale))

    def _search(self, a: View, b: View, hit: Row) -> Similarity:
        """A few ways to lay the hit A on the query B, in working units."""
        turns = self._turns @ hit.pose.rotation_matrix().numpy().T
        by_axes = hypotheses.from_principal_axes(a.points[a.solid], b.points[b.solid])
        motions = concatenate([Similarity(turns), by_axes])
        few_a, few_b = by_table(a, a.probes), by_table(b, b.probes)
        score = costs(few_a, few_b, motions, _COARSE_REACH, scale=True)
        motions = motions[distinct(motions, np.argsort(score, kind="stable"), _COARSE, *_ONE)]
        motions = refine(few_a, few_b, motions, _REACHES)
        score = costs(few_a, few_b, motions, _COARSE_REACH, scale=True)
        motions = motions[distinct(motions, np.argsort(score, kind="stable"), _FINE, *_ONE)]
        return refine(by_tree(a), by_tree(b), motions, _POLISH)


@dataclass(frozen=True)
class _Work:
    """Points in working units, their centroid at the origin and their spread 1."""

    points: Float64[np.ndarray, "n 3"]
    frame: Similarity  # from working units to the user's
    view: View | None  # None where there is nothing to align: too few points, or all in one place

    @classmethod
    def of(cls, row: Row) -> _Work:
        points = np.unique(row.points, axis=0)
        middle = points.mean(axis=0)
        spread = float(np.sqrt(((points - middle) ** 2).sum(axis=1).mean()))
        shaped = len(points) >= MINIMUM_POINTS and spread > _FLAT
        local = (points - middle) / (spread if shaped else 1.0)
        radius = row.normalization.scale.item()
        return cls(
            points=local,
            frame=Similarity(
                np.eye(3), radius * middle + row.normalization.center.numpy(), radius * (spread if shaped else 1.0)
            ),
            view=make_view(local) if shaped else None,
        )


def _object_frame(row: Row) -> Similarity:
    """From the object's canonical frame, in units of its radius, to the user's."""
    return Similarity.from_wxyz(row.pose.wxyz.numpy(), row.pose.translation.numpy(), row.normalization.scale.item())


def _chamfer(motion: Similarity, a: _Work, b: _Work) -> float:
    """Mean distance to the nearest point of the other cloud, averaged over both directions."""
    return (_mean_distance(motion.apply(a.points), b) + _mean_distance(motion.observe(b.points), a)) / 2


def _mean_distance(points: Float[np.ndarray, "n 3"], target: _Work) -> float:
    if target.view is not None:
        return float(target.view.tree.query(points)[0].mean())
    return float(np.linalg.norm(points[:, None] - target.points, axis=-1).min(axis=1).mean())
