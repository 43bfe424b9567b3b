"""How results look in a notebook: a line of text above a small inline picture."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from geocaps.geometry.sampling import evenly

if TYPE_CHECKING:
    from geocaps.apps.align.align import Alignment
    from geocaps.apps.encoding import Encoding, Encodings
    from geocaps.apps.parts import Decomposition

MOST_THUMBNAILS = 12
_DRAWN_POINTS = 1024
_COLOR_A, _COLOR_B = (0.85, 0.35, 0.15), (0.25, 0.45, 0.7)


def page(text: str, png: bytes) -> str:
    """HTML that a notebook shows."""
    picture = f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    return f"<div><code>{html.escape(text)}</code><br>{picture}</div>"


def encoding_html(encoding: Encoding) -> str:
    """The cloud in the colours of its parts, as given and in its canonical pose."""
    from geocaps.apps.drawing import Grid

    grid = Grid(1, 2)
    _draw(grid.panel(0, 0, "as given"), encoding, encoding.cloud.points)
    _draw(grid.panel(0, 1, "canonical"), encoding, encoding.canonical())
    return page(repr(encoding), grid.png())


def encodings_html(encodings: Encodings) -> str:
    """A row of thumbnails: up to twelve clouds, spread evenly, in the colours of their parts."""
    from geocaps.apps.drawing import Grid

    if not encodings:
        return f"<div><code>{html.escape(repr(encodings))}</code></div>"
    chosen = evenly(min(len(encodings), MOST_THUMBNAILS), len(encodings)).tolist()
    grid = Grid(1, len(chosen))
    for column, index in enumerate(chosen):
        _draw(grid.panel(0, column, f"{index}"), encodings[index], encodings[index].cloud.points)
    return page(repr(encodings), grid.png())


def _draw(panel: Any, encoding: Encoding, points: Float[np.ndarray, "n 3"]) -> None:
    from geocaps.apps.drawing import draw_points, part_colors

    some = evenly(min(len(points), _DRAWN_POINTS), len(points))
    draw_points(panel, points[some].astype(np.float64), part_colors(len(encoding.parts))[encoding.labels[some]])


def alignment_html(alignment: Alignment) -> str:
    """Both clouds as given, and A laid on B."""
    from geocaps.apps.drawing import Grid, draw_points

    a, b = alignment.shown
    moved = alignment.apply(a)
    grid = Grid(1, 3)
    draw_points(grid.panel(0, 0, "A"), a, np.tile(_COLOR_A, (len(a), 1)))
    draw_points(grid.panel(0, 1, "B"), b, np.tile(_COLOR_B, (len(b), 1)))
    colors = np.concatenate([np.tile(_COLOR_A, (len(a), 1)), np.tile(_COLOR_B, (len(b), 1))])
    draw_points(grid.panel(0, 2, "A on B"), np.concatenate([moved, b]), colors)
    return page(repr(alignment), grid.png())


def decomposition_html(decomposition: Decomposition) -> str:
    """The points in the colours of their parts beside the decoded surfaces."""
    return page(repr(decomposition), decomposition.png())
