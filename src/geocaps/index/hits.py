"""Hits of a search, and how a result prints: names, figures, and pictures of each hit laid on the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import overload

import numpy as np
from jaxtyping import Float64

from geocaps.apps.clouds import Placed
from geocaps.geometry.similarity import Similarity

FOUND = 0.5  # confidence from which a hit is named as what was looked for
_DRAWN, _DRAWN_INLINE, _NAME_WIDTH = 10, 5, 40


@dataclass(frozen=True)
class Hit(Placed):
    """An object of the index, and how it is brought onto the query: ``x_query = scale · R · x_hit + t``."""

    name: str
    path: str | None
    """Absolute path of its file; None for an object that came as an array."""
    class_name: str | None
    similarity: float
    """Of what the query and the object look like from their parts, up to 1: the cosine of each part's percept with the
    best one of the object, averaged."""
    confidence: float | None
    """How sure it is that this object explains the query, from 0 to 1; None for a hit that was not verified."""
    overlap: tuple[float, float] | None
    """Share of the query that lies on the object, and of the object that the query shows."""
    error: float | None
    """Distance that is left from the query to the object's surface, in units of the query: root mean square, without
    the farthest tenth of its points."""
    pose: Similarity
    """``T_query_hit``, both in their own coordinates; its scale is 1 unless they are in different units."""
    id: str
    """SHA-256 of its content."""
    points: Float64[np.ndarray, "n 3"] = field(repr=False)
    """Some of its points, in its own coordinates and units."""

    @property
    def T_object_scan(self) -> Similarity:  # noqa: N802
        """Where the query lies in the object's own coordinates: the inverse of ``pose``."""
        return self.pose.inverse()

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence={self.confidence:.2f}"
        return f"Hit({self.name!r}, class_name={self.class_name!r}, similarity={self.similarity:.3f}{sure})"


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

    @property
    def found(self) -> bool:
        """Whether the first hit explains the query; if not, none of these is the object that was looked for."""
        return bool(self.hits) and self.hits[0].confidence is not None and self.hits[0].confidence >= FOUND

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        if not self.hits:
            return f"0 hits for {self.query}"
        if self.hits[0].confidence is None:
            return f"{len(self)} hits for {self.query}, not verified"
        if self.found:
            return f"{len(self)} hits for {self.query}"
        return f"none of these: nothing in the index explains {self.query}; {len(self)} objects are like it"

    def __repr__(self) -> str:
        lines = [self.verdict]
        if self.hits:
            width = min(_NAME_WIDTH, max(len(hit.name) for hit in self.hits))
            lines += [
                f"{'#':>3}  {'name':<{width}}  {'class':<14}  {_columns('confidence', 'overlap', 'error', 'alike')}"
            ]
        for place, hit in enumerate(self.hits, 1):
            name = hit.name if len(hit.name) <= width else "…" + hit.name[1 - width :]
            lines += [f"{place:>3}  {name:<{width}}  {hit.class_name or '–':<14}  {_columns(*_figures(hit))}"]
        return "\n".join(lines)

    def png(self, limit: int = _DRAWN) -> bytes:
        """The query and its best hits, each as it lies in its file and, below, brought onto the query."""
        # Matplotlib takes a second to import: only who draws waits for it.
        from geocaps.apps.drawing import BLUE, ORANGE, Grid, draw_points

        shown = self.hits[:limit]
        grid = Grid(2, len(shown) + 1)
        draw_points(grid.panel(0, 0, "query"), self.points, ORANGE)
        draw_points(grid.panel(1, 0, "confidence:"), self.points, ORANGE)
        for column, hit in enumerate(shown, 1):
            draw_points(grid.panel(0, column, hit.class_name or hit.name), hit.points)
            both = grid.panel(1, column, _figures(hit)[0])
            draw_points(both, hit.apply(hit.points))
            draw_points(both, self.points, ORANGE)
        grid.caption(
            "Above: each hit as it lies in its file. Below: brought onto the query, with the confidence that it is the "
            "object that the query shows.",
            {"query": ORANGE, "hit": BLUE},
        )
        return grid.png()

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import inline

        rows = "".join(
            f"<tr><td>{place}</td><td>{escape(hit.name)}</td><td>{escape(hit.class_name or '–')}</td>"
            + "".join(f"<td>{figure}</td>" for figure in _figures(hit))
            + "</tr>"
            for place, hit in enumerate(self.hits, 1)
        )
        return (
            f"<p>{escape(self.verdict)}</p>{inline(self.png(_DRAWN_INLINE))}"
            f"<table><tr><th>#</th><th>name</th><th>class</th><th>confidence</th><th>overlap</th><th>error</th><th>alike</th></tr>{rows}</table>"
        )


def _columns(confidence: str, overlap: str, error: str, alike: str) -> str:
    return f"{confidence:>10}  {overlap:>7}  {error:>9}  {alike:>5}"


def _figures(hit: Hit) -> tuple[str, str, str, str]:
    """Confidence, overlap, error and similarity."""
    alike = f"{hit.similarity:.2f}"
    if hit.confidence is None or hit.overlap is None or hit.error is None:
        return "–", "–", "–", alike
    return f"{hit.confidence:.2f}", f"{hit.overlap[0]:.0%}", f"{hit.error:.4g}", alike
