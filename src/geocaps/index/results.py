"""What an index answers: typed values that print well on a terminal and in a notebook."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import overload

import numpy as np
from jaxtyping import Float64

from geocaps.apps.clouds import Placed
from geocaps.geometry.similarity import Similarity

_DRAWN = 10
_DRAWN_INLINE = 5
_NAME_WIDTH = 40


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

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

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
        """The query and its best hits, each as it lies in its file and, below, brought onto the query (grey)."""
        # Matplotlib takes a second to import: only who draws waits for it.
        from geocaps.apps.drawing import Grid, draw_points

        shown = self.hits[:limit]
        grid = Grid(2, len(shown) + 1)
        draw_points(grid.panel(0, 0, "query"), self.points)
        draw_points(grid.panel(1, 0, ""), self.points, _grey(len(self.points)))
        for column, hit in enumerate(shown, 1):
            draw_points(grid.panel(0, column, hit.class_name or hit.name[-24:]), hit.points)
            onto = grid.panel(1, column, f"{hit.distance:.3g} / {_figure(hit)}")
            both = np.concatenate([hit.apply(hit.points), self.points])
            colors = np.concatenate([np.tile(_BLUE, (len(hit.points), 1)), _grey(len(self.points))])
            draw_points(onto, both, colors)
        return grid.png()

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{place}</td><td>{escape(hit.name)}</td><td>{escape(hit.class_name or '–')}</td>"
            f"<td>{hit.distance:.4g}</td><td>{_figure(hit)}</td></tr>"
            for place, hit in enumerate(self.hits, 1)
        )
        image = base64.b64encode(self.png(_DRAWN_INLINE)).decode()
        return (
            f"<p>{len(self)} hits for {escape(self.query)}</p><img src='data:image/png;base64,{image}'>"
            f"<table><tr><th>#</th><th>name</th><th>class</th><th>distance</th><th>chamfer</th></tr>{rows}</table>"
        )


_BLUE = np.array([0.27, 0.47, 0.67])


def _grey(count: int) -> np.ndarray:
    return np.full((count, 3), 0.75)


def _figure(hit: Hit) -> str:
    return "–" if hit.chamfer is None else f"{hit.chamfer:.4g}"


@dataclass(frozen=True)
class Skipped:
    """An object that could not be added, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class AddReport:
    """What ``Index.add`` did."""

    added: int
    known: int
    """Objects whose content was in the index before."""
    replaced: int
    """Objects taken out because their files have other content now."""
    skipped: tuple[Skipped, ...]
    dropped: int = 0
    """Points of the added objects that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        text = f"{self.added} added, {self.known} already there"
        if self.replaced:
            text += f", {self.replaced} outdated ones removed"
        lines = [text + (f", {len(self.skipped)} skipped:" if self.skipped else "")]
        return "\n".join([*lines, *(f"  {one.name}: {one.reason}" for one in self.skipped)])


@dataclass(frozen=True)
class IndexInfo:
    """What an index holds."""

    path: str
    objects: int
    classes: dict[str, int]
    unlabelled: int
    dimension: int
    """Numbers in a feature."""
    approximate: bool
    """Whether a vector index answers; otherwise every feature is compared, and the answer is exact."""
    weights: str
    """SHA-256 of the weights that its features were made with."""

    def __repr__(self) -> str:
        lines = [
            f"{self.path}: {self.objects} objects, {len(self.classes)} classes",
            f"features of {self.dimension} numbers, {'approximate' if self.approximate else 'exact'} search",
            f"made with weights {self.weights}",
            *(f"  {count:>7}  {name}" for name, count in self.classes.items()),
        ]
        return "\n".join(lines + ([f"  {self.unlabelled:>7}  (no class)"] if self.unlabelled else []))
