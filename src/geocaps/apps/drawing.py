"""Figures of rendered objects with titles, captions and legends, and the display of results in notebooks.

Panels are drawn by ``rendering``, and text by matplotlib, without pyplot and thus without global state or a display.
"""

from __future__ import annotations

import base64
import colorsys
import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from geocaps.apps.rendering import Scene
from geocaps.geometry.sampling import at_most

if TYPE_CHECKING:
    from geocaps.apps.align import Alignment
    from geocaps.apps.encoding import Encoding, Encodings

Color = Sequence[float]

_PANEL, _DPI = 240, 100
_TITLE, _HEADING, _LINE = 26, 34, 22  # heights of text, in pixels
_TITLE_SIZE, _HEADING_SIZE, _CAPTION_SIZE = 10, 12, 10
_LEFT, _LETTER = 14.0, 8.2  # where captions begin, and pixels that a letter takes
_THUMBNAILS, _THUMBNAIL_POINTS = 12, 1024
_HUE, _NEXT_HUE = 0.58, 0.618034  # the golden section: hues of neighbours lie far apart
_TONES = ((0.52, 0.70), (0.68, 0.62), (0.41, 0.55))  # lightness and saturation, in turn
_PALE = 0.45  # how much of its colour a pale point keeps
BLUE, ORANGE = (0.27, 0.47, 0.70), (0.88, 0.45, 0.16)
STRAY_COLOR = (0.6, 0.6, 0.6)


class Grid:
    """A figure of rows × columns square panels, each of one scene seen upright (the data's y axis points up).

    A row may have a heading, the whole a caption and a legend. With ``same_scale`` all objects of a row are shown at
    one scale.
    """

    def __init__(self, rows: int, columns: int, *, panel: int = _PANEL, same_scale: bool = False) -> None:
        self._shape, self._panel, self._same_scale = (rows, columns), panel, same_scale
        self._scenes: dict[tuple[int, int], Scene] = {}
        self._titles: dict[tuple[int, int], tuple[str, Color | str]] = {}
        self._headings: dict[int, str] = {}
        self._caption: list[str] = []
        self._legend: Mapping[str, Color] = {}

    def panel(self, row: int, column: int, title: str = "", color: Color | str = "black") -> Scene:
        """An empty scene to draw in, under its title."""
        if title:
            self._titles[row, column] = (self._cut(title), color)
        return self._scenes.setdefault((row, column), Scene())

    def heading(self, row: int, text: str) -> None:
        """What a row shows, above it."""
        self._headings[row] = text

    def caption(self, text: str, legend: Mapping[str, Color] | None = None) -> None:
        """A sentence below, and what each colour stands for."""
        self._caption = textwrap.wrap(text, max(30, int(self._shape[1] * self._panel / _LETTER)))
        self._legend = legend or {}

    def png(self) -> bytes:
        rows, columns = self._shape
        tops, height = [], 6
        for row in range(rows):
            height += _HEADING if row in self._headings else 0
            height += _TITLE if any(at[0] == row for at in self._titles) else 0
            tops.append(height)
            height += self._panel
        foot = height
        height += _LINE * (len(self._caption) + bool(self._legend)) + (10 if self._caption or self._legend else 0)
        width = columns * self._panel
        canvas = np.ones((height, width, 3))
        for (row, column), scene in self._scenes.items():
            left = column * self._panel
            image = scene.image(self._panel, self._extent(row))
            canvas[tops[row] : tops[row] + self._panel, left : left + self._panel] = image
        figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        figure.figimage(canvas)

        def write(x: float, y: float, text: str, size: int, **style: Any) -> None:
            figure.text(x / width, 1 - y / height, text, fontsize=size, va="center", **style)

        for (row, column), (title, color) in self._titles.items():
            write((column + 0.5) * self._panel, tops[row] - _TITLE / 2, title, _TITLE_SIZE, color=color, ha="center")
        for row, text in self._headings.items():
            above = _TITLE if any(at[0] == row for at in self._titles) else 0
            write(_LEFT, tops[row] - above - _HEADING / 2, text, _HEADING_SIZE, color="#222222", weight="bold")
        for number, line in enumerate(self._caption):
            write(_LEFT, foot + _LINE * (number + 0.5), line, _CAPTION_SIZE, color="#444444")
        x, y = _LEFT, foot + _LINE * (len(self._caption) + 0.5)
        for name, color in self._legend.items():
            figure.add_artist(Rectangle((x / width, 1 - (y + 6) / height), 12 / width, 12 / height, color=tuple(color)))
            write(x + 18, y, name, _CAPTION_SIZE, color="#444444")
            x += 18 + _LETTER * len(name) + 22
        return to_png(figure)

    def _extent(self, row: int) -> float | None:
        return max(one.extent() for at, one in self._scenes.items() if at[0] == row) if self._same_scale else None

    def _cut(self, title: str) -> str:
        most = max(8, int(self._panel / _LETTER))
        # Names of one collection begin alike: their ends tell objects apart.
        return title if len(title) <= most else "…" + title[1 - most :]


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def part_colors(count: int) -> Float[np.ndarray, "count 3"]:
    """Colours of which neighbours in the list differ clearly; none of them is grey."""
    tones = [_TONES[index % len(_TONES)] for index in range(count)]
    return np.array(
        [colorsys.hls_to_rgb((_HUE + index * _NEXT_HUE) % 1, *tone) for index, tone in enumerate(tones)]
    ).reshape(count, 3)


def label_colors(labels: Int[np.ndarray, "n"], count: int) -> Float[np.ndarray, "n 3"]:
    """The colour of each point's part, one of ``count``; grey for stray points, whose label is -1."""
    return np.vstack([part_colors(count), STRAY_COLOR])[labels]


def draw_points(
    panel: Scene,
    points: Float[np.ndarray, "n 3"],
    colors: Float[np.ndarray, "n 3"] | Color = BLUE,
    *,
    pale: bool = False,
    size: float = 1.0,
) -> None:
    """Points in their colours, or all in one; ``pale`` ones are a background for others."""
    paint = np.broadcast_to(np.asarray(colors, dtype=np.float64), (len(points), 3))
    panel.add_points(points, _PALE * paint + 1 - _PALE if pale else paint, size)


def draw_surfaces(
    panel: Scene,
    surfaces: Float[np.ndarray, "j m 3"],
    triangles: Int[np.ndarray, "t 3"],
    colors: Float[np.ndarray, "j 3"],
) -> None:
    """Each part's grid as shaded triangles."""
    panel.add_triangles(surfaces[:, triangles].reshape(-1, 3, 3), np.repeat(colors, len(triangles), axis=0))


# ── notebooks: a line of text above a small inline picture ────────────────────────────────────────────────────────────


def inline(png: bytes) -> str:
    """An image tag with the picture embedded."""
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def page(shown: object, png: bytes) -> str:
    """The HTML for a notebook: a result as text, and its picture."""
    return f"<div><code>{html.escape(repr(shown))}</code><br>{inline(png)}</div>"


def encoding_html(encoding: Encoding) -> str:
    """The cloud coloured by part, as given and in its canonical pose."""
    grid = Grid(1, 2)
    _draw_parts(grid.panel(0, 0, "as given"), encoding, encoding.cloud.points)
    _draw_parts(grid.panel(0, 1, "canonical"), encoding, encoding.canonical())
    return page(encoding, grid.png())


def encodings_html(encodings: Encodings) -> str:
    """A row of thumbnails: up to twelve clouds, evenly spread, coloured by part."""
    if not encodings:
        return f"<div><code>{html.escape(repr(encodings))}</code></div>"
    chosen = at_most(_THUMBNAILS, len(encodings)).tolist()
    grid = Grid(1, len(chosen))
    for column, index in enumerate(chosen):
        _draw_parts(grid.panel(0, column, encodings[index].cloud.name), encodings[index], encodings[index].cloud.points)
    return page(encodings, grid.png())


def alignment_html(alignment: Alignment) -> str:
    return page(alignment, alignment_png(alignment))


def alignment_png(alignment: Alignment) -> bytes:
    """Both clouds as given, and A aligned with B."""
    a, b = alignment.shown
    grid = Grid(1, 3)
    draw_points(grid.panel(0, 0, "A"), a, ORANGE)
    draw_points(grid.panel(0, 1, "B"), b, BLUE)
    together = grid.panel(0, 2, "A on B")
    draw_points(together, alignment.apply(a), ORANGE)
    draw_points(together, b, BLUE)
    return grid.png()


def _draw_parts(panel: Scene, encoding: Encoding, points: Float[np.ndarray, "n 3"]) -> None:
    some = at_most(_THUMBNAIL_POINTS, len(points))
    draw_points(panel, points[some].astype(np.float64), label_colors(encoding.labels[some], len(encoding.parts)))
