"""How results look in a notebook: a line of text above a small inline picture."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING

import numpy as np

from geocaps.points.sampling import evenly

if TYPE_CHECKING:
    from geocaps.apps.align import Alignment
    from geocaps.apps.encode import Encoding
    from geocaps.apps.parts import Decomposition

MOST_THUMBNAILS = 12
_DRAWN_POINTS = 1024
_COLOR_A, _COLOR_B = (0.85, 0.35, 0.15), (0.25, 0.45, 0.7)


def page(text: str, png: bytes) -> str:
    """HTML that a notebook shows."""
    picture = f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    return f"<div><code>{html.escape(text)}</code><br>{picture}</div>"


def encoding_html(encoding: Encoding) -> str:
    """The cloud in the colours of its parts, as given and in its canonical pose; of a batch a row of thumbnails."""
    from geocaps.apps.drawing import Grid, draw_points, part_colors

    chosen = evenly(min(len(encoding), MOST_THUMBNAILS), len(encoding)) if encoding.is_batch else [0]
    shown = [encoding[int(index)] for index in chosen] if encoding.is_batch else [encoding]
    grid = Grid(1, len(shown) if encoding.is_batch else 2)
    for column, (index, one) in enumerate(zip(chosen, shown, strict=True)):
        points = one.clouds[0].points
        some = evenly(min(len(points), _DRAWN_POINTS), len(points))
        colors = part_colors(one.parts.feature.shape[0])[np.asarray(one.labels)[some]]
        title = f"{index}" if encoding.is_batch else "as given"
        draw_points(grid.panel(0, column, title), points[some].astype(np.float64), colors)
        if not encoding.is_batch:
            draw_points(grid.panel(0, 1, "canonical"), np.asarray(one.canonical())[some], colors)
    return page(repr(encoding), grid.png())


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
