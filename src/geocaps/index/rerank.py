"""Hits of a search: how each is brought onto the query, by capsule poses, ICP and the Chamfer distance that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import overload

import numpy as np
from jaxtyping import Float, Float64

from geocaps.apps.align import MINIMUM_POINTS
from geocaps.apps.align.hypotheses import from_principal_axes, narrowed
from geocaps.apps.align.icp import by_table, by_tree, refine
from geocaps.apps.align.prepare import Prepared, prepare
from geocaps.apps.clouds import Placed
from geocaps.geometry.similarity import Similarity, concatenate
from geocaps.index.store import Row

_COARSE_REACH = 0.4
_REACHES = np.array([0.5, 0.4, 0.3, 0.25, 0.2, 0.2])
_POLISH = np.full(4, 0.2)
_COARSE, _FINE = 6, 2  # how many hypotheses are refined on few points, and on all
_ONE = np.radians(10), 0.2  # motions that differ by less than this angle and shift are one
_FLAT = 1e-6  # a cloud no wider than this share of its radius is one point: it has no orientation
_DRAWN, _DRAWN_INLINE, _NAME_WIDTH = 10, 5, 40


@dataclass(frozen=True)
class Hit(Placed):
    """An object of the index, and how it is brought onto the query: ``x_query = scale · R · x_hit + t``."""

    name: str
    path: str | None
    """Absolute path of its file; None for an object that came as an array."""
    class_name: str | None
    distance: float
    """Euclidean distance of the features."""
    chamfer: float | None
    """After re-ranking: mean distance to the nearest point of the other cloud, in units of the query."""
    pose: Similarity
    """``T_query_hit``, both in their own coordinates; its scale tells how many times larger the query is."""
    id: str
    """SHA-256 of its content."""
    points: Float64[np.ndarray, "n 3"] = field(repr=False)
    """Some of its points, in its own coordinates and units."""

    def __repr__(self) -> str:
        chamfer = "" if self.chamfer is None else f", chamfer={self.chamfer:.4g}"
        return f"Hit({self.name!r}, class_name={self.class_name!r}, distance={self.distance:.4g}{chamfer})"


@dataclass(frozen=True)
class SearchResult(Sequence[Hit]):
    """The hits of one query, best first."""

    query: str
    hits: tuple[Hit, ...]
    points: Float64[np.ndarray, "n 3"] = field(repr=False)
    """Some points of the query, in its own coordinates and units."""
    dropped: int = field(default=0, repr=False)
    """Points of the query that were NaN or infinite, and were left out."""

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __repr__(self) -> str:
        lines = [f"{len(self)} hits for {self.query}"]
        if self.hits:
            width = min(_NAME_WIDTH, max(len(hit.name) for hit in self.hits))
            lines += [f"{'#':>3}  {'name':<{width}}  {'class':<14}  {'distance':>9}  {'chamfer':>9}"]
        for place, hit in enumerate(self.hits, 1):
            name = hit.name if len(hit.name) <= width else "…" + hit.name[1 - width :]
            lines += [
                f"{place:>3}  {name:<{width}}  {hit.class_name or '–':<14}  {hit.distance:>9.4g}  {_figure(hit):>9}"
            ]
        return "\n".join(lines)

    def png(self, limit: int = _DRAWN) -> bytes:
        """The query and its best hits, each as it lies in its file and, below, brought onto the query."""
        # Matplotlib takes a second to import: only who draws waits for it.
        from geocaps.apps.drawing import BLUE, ORANGE, Grid, draw_points

        shown = self.hits[:limit]
        grid = Grid(2, len(shown) + 1)
        draw_points(grid.panel(0, 0, "query"), self.points, ORANGE)
        draw_points(grid.panel(1, 0, "distance / chamfer:"), self.points, ORANGE)
        for column, hit in enumerate(shown, 1):
            draw_points(grid.panel(0, column, hit.class_name or hit.name), hit.points)
            both = grid.panel(1, column, f"{hit.distance:.3g} / {_figure(hit)}")
            draw_points(both, hit.apply(hit.points))
            draw_points(both, self.points, ORANGE)
        grid.caption(
            "Above: each hit as it lies in its file. Below: brought onto the query, with the distance of the features "
            "and the Chamfer distance that is left, in the query's units.",
            {"query": ORANGE, "hit": BLUE},
        )
        return grid.png()

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import inline

        rows = "".join(
            f"<tr><td>{place}</td><td>{escape(hit.name)}</td><td>{escape(hit.class_name or '–')}</td>"
            f"<td>{hit.distance:.4g}</td><td>{_figure(hit)}</td></tr>"
            for place, hit in enumerate(self.hits, 1)
        )
        return (
            f"<p>{len(self)} hits for {escape(self.query)}</p>{inline(self.png(_DRAWN_INLINE))}"
            f"<table><tr><th>#</th><th>name</th><th>class</th><th>distance</th><th>chamfer</th></tr>{rows}</table>"
        )


def _figure(hit: Hit) -> str:
    return "–" if hit.chamfer is None else f"{hit.chamfer:.4g}"


def reranked(
    query: Row, turns: Float64[np.ndarray, "s 3 3"], found: Sequence[tuple[Row, float]], most: int
) -> list[Hit]:
    """The first ``most`` rows by what is left after aligning them, then the others by their features.

    ``turns`` are the rotations of all poses that the query may be seen in, not only of the most probable one.
    """
    work = _Work.of(query)
    first = [_hit(row, distance, *_by_points(row, work, turns)) for row, distance in found[:most]]
    first.sort(key=lambda hit: (hit.chamfer, hit.distance))
    # One object capsule laid on the other: no search, no distance.
    frame = _object_frame(query)
    return first + [_hit(row, distance, frame @ _object_frame(row).inverse(), None) for row, distance in found[most:]]


def _hit(row: Row, distance: float, pose: Similarity, chamfer: float | None) -> Hit:
    return Hit(row.name, row.path, row.class_name, distance, chamfer, pose, row.id, row.user_points)


@dataclass(frozen=True)
class _Work:
    """Points in working units, their centroid at the origin and their spread 1."""

    points: Float64[np.ndarray, "n 3"]
    frame: Similarity  # from working units to the user's
    cloud: Prepared | None  # None where there is nothing to align: too few points, or all in one place

    @classmethod
    def of(cls, row: Row) -> _Work:
        points = np.unique(row.points, axis=0)
        middle = points.mean(axis=0)
        spread = float(np.sqrt(((points - middle) ** 2).sum(axis=1).mean()))
        shaped = len(points) >= MINIMUM_POINTS and spread > _FLAT
        spread = spread if shaped else 1.0
        local = (points - middle) / spread
        frame = row.normalization @ Similarity(np.eye(3), middle, spread)
        return cls(local, frame, prepare(local) if shaped else None)


def _by_points(hit: Row, query: _Work, turns: Float64[np.ndarray, "s 3 3"]) -> tuple[Similarity, float]:
    """The best of many hypotheses, polished, and the Chamfer distance in units of the query."""
    work = _Work.of(hit)
    motions = Similarity.identity(1)
    if query.cloud is not None and work.cloud is not None:
        motions = _search(work.cloud, query.cloud, turns @ hit.pose.rotation.T)
    chamfers = [_chamfer(motions[index], work, query) for index in range(len(motions))]
    best = int(np.argmin(chamfers))
    return query.frame @ motions[best] @ work.frame.inverse(), chamfers[best] * float(query.frame.scale)


def _search(a: Prepared, b: Prepared, turns: Float64[np.ndarray, "s 3 3"]) -> Similarity:
    """A few ways to lay the hit A on the query B, in working units."""
    motions = concatenate([Similarity(turns), from_principal_axes(a.points[a.solid], b.points[b.solid])])
    few_a, few_b = by_table(a, a.probes), by_table(b, b.probes)
    motions = narrowed(few_a, few_b, motions, _COARSE_REACH, _COARSE, even=True, apart=_ONE)
    motions = refine(few_a, few_b, motions, _REACHES)
    motions = narrowed(few_a, few_b, motions, _COARSE_REACH, _FINE, even=True, apart=_ONE)
    return refine(by_tree(a), by_tree(b), motions, _POLISH)


def _object_frame(row: Row) -> Similarity:
    """From the object's canonical frame, in units of its radius, to the user's."""
    return Similarity(row.pose.rotation, row.pose.translation, row.normalization.scale)


def _chamfer(motion: Similarity, a: _Work, b: _Work) -> float:
    """Mean distance to the nearest point of the other cloud, averaged over both directions."""
    return (_mean_distance(motion.apply(a.points), b) + _mean_distance(motion.observe(b.points), a)) / 2


def _mean_distance(points: Float[np.ndarray, "n 3"], target: _Work) -> float:
    if target.cloud is not None:
        return float(target.cloud.tree.query(points)[0].mean())
    return float(np.linalg.norm(points[:, None] - target.points, axis=-1).min(axis=1).mean())
