"""Pictures of points and surfaces, and how results look in a notebook. No pyplot: no global state, no display."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from geocaps.geometry.sampling import evenly

if TYPE_CHECKING:
    from geocaps.apps.align import Alignment
    from geocaps.apps.encoding import Encoding, Encodings

_PANEL_INCHES, _DPI = 1.9, 100
_THUMBNAILS, _THUMBNAIL_POINTS = 12, 1024
_COLOR_A, _COLOR_B = (0.85, 0.35, 0.15), (0.25, 0.45, 0.7)
_LIGHT = np.array([0.4, -0.7, 0.6]) / np.linalg.norm([0.4, -0.7, 0.6])
_NEUTRAL = "#4477aa"
_GREYS = (14, 15)  # of tab20: left to stray points
_PALETTE = [colormaps["tab20"](index)[:3] for index in range(20) if index not in _GREYS] + [
    colormaps["tab20b"](4 * (index % 5) + index // 5)[:3] for index in range(20)
]
STRAY_COLOR = (0.6, 0.6, 0.6)


class Grid:
    """A figure of rows × columns panels, each of one object seen upright (the data's y axis points up)."""

    def __init__(self, rows: int, columns: int) -> None:
        self.figure = Figure(figsize=(columns * _PANEL_INCHES, rows * _PANEL_INCHES + 0.2), dpi=_DPI)
        self.figure.subplots_adjust(left=0, right=1, bottom=0, top=0.94, wspace=0, hspace=0.12)
        self._shape = (rows, columns)

    def panel(self, row: int, column: int, title: str = "", color: str = "black") -> Any:
        axes = self.figure.add_subplot(*self._shape, row * self._shape[1] + column + 1, projection="3d")
        axes.set_axis_off()
        axes.view_init(elev=20, azim=-60)
        axes.set_title(title, fontsize=8, color=color, pad=0)
        return axes

    def png(self) -> bytes:
        return to_png(self.figure)


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def part_colors(count: int) -> Float[np.ndarray, "count 3"]:
    """Colours that differ from their neighbours in number; none of them is grey."""
    return np.array([_PALETTE[index % len(_PALETTE)] for index in range(count)])


def label_colors(labels: Int[np.ndarray, "n"], count: int) -> Float[np.ndarray, "n 3"]:
    """Colour of each point by its part, one of ``count``; grey for stray points, whose label is -1."""
    return np.vstack([part_colors(count), STRAY_COLOR])[labels]


def draw_points(
    axes: Any,
    points: Float[np.ndarray, "n 3"],
    colors: Float[np.ndarray, "n 3"] | Float[np.ndarray, "n"] | None = None,
    size: float = 1.5,
    alpha: float = 1.0,
) -> None:
    shown = _upright(points)
    paint = {"color": _NEUTRAL} if colors is None else {"c": colors}
    axes.scatter(*shown.T, s=size, alpha=alpha, linewidths=0, **paint)
    _fit(axes, shown)


def draw_surfaces(
    axes: Any,
    surfaces: Float[np.ndarray, "j m 3"],
    triangles: Int[np.ndarray, "t 3"],
    colors: Float[np.ndarray, "j 3"],
) -> None:
    """Each part's grid as shaded triangles."""
    shown = _upright(surfaces)
    corners = shown[:, triangles].reshape(-1, 3, 3)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    # Both sides of a sheet are lit: a decoded surface has no outside.
    light = 0.45 + 0.55 * np.abs((normal / np.maximum(length, 1e-12)) @ _LIGHT)
    faces = np.repeat(colors, len(triangles), axis=0) * light[:, None]
    axes.add_collection3d(Poly3DCollection(corners, facecolors=faces, edgecolors=faces, linewidths=0.3))
    _fit(axes, shown.reshape(-1, 3))


def _upright(points: np.ndarray) -> np.ndarray:
    """y up, as in most model collections, to matplotlib's z up."""
    return np.stack([points[..., 0], -points[..., 2], points[..., 1]], axis=-1)


def _fit(axes: Any, shown: Float[np.ndarray, "n 3"]) -> None:
    low, high = shown.min(axis=0), shown.max(axis=0)
    centre, reach = (low + high) / 2, max(float((high - low).max()) / 2, 1e-9)
    for name, at in zip("xyz", centre, strict=True):
        getattr(axes, f"set_{name}lim")(at - reach, at + reach)
    axes.set_box_aspect((1, 1, 1), zoom=1.35)


# ── notebooks: a line of text above a small inline picture ────────────────────────────────────────────────────────────


def inline(png: bytes) -> str:
    """An image tag that holds its picture."""
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def page(shown: object, png: bytes) -> str:
    """HTML that a notebook shows: the text of a result and its picture."""
    return f"<div><code>{html.escape(repr(shown))}</code><br>{inline(png)}</div>"


def encoding_html(encoding: Encoding) -> str:
    """The cloud in the colours of its parts, as given and in its canonical pose."""
    grid = Grid(1, 2)
    _draw_parts(grid.panel(0, 0, "as given"), encoding, encoding.cloud.points)
    _draw_parts(grid.panel(0, 1, "canonical"), encoding, encoding.canonical())
    return page(encoding, grid.png())


def encodings_html(encodings: Encodings) -> str:
    """A row of thumbnails: up to twelve clouds, spread evenly, in the colours of their parts."""
    if not encodings:
        return f"<div><code>{html.escape(repr(encodings))}</code></div>"
    chosen = evenly(min(len(encodings), _THUMBNAILS), len(encodings)).tolist()
    grid = Grid(1, len(chosen))
    for column, index in enumerate(chosen):
        _draw_parts(grid.panel(0, column, f"{index}"), encodings[index], encodings[index].cloud.points)
    return page(encodings, grid.png())


def alignment_html(alignment: Alignment) -> str:
    """Both clouds as given, and A laid on B."""
    a, b = alignment.shown
    color_a, color_b = np.tile(_COLOR_A, (len(a), 1)), np.tile(_COLOR_B, (len(b), 1))
    grid = Grid(1, 3)
    draw_points(grid.panel(0, 0, "A"), a, color_a)
    draw_points(grid.panel(0, 1, "B"), b, color_b)
    together = np.concatenate([alignment.apply(a), b])
    draw_points(grid.panel(0, 2, "A on B"), together, np.concatenate([color_a, color_b]))
    return page(alignment, grid.png())


def _draw_parts(panel: Any, encoding: Encoding, points: Float[np.ndarray, "n 3"]) -> None:
    some = evenly(min(len(points), _THUMBNAIL_POINTS), len(points))
    draw_points(panel, points[some].astype(np.float64), label_colors(encoding.labels[some], len(encoding.parts)))
