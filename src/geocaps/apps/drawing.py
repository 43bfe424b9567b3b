"""Points and surfaces in one panel of a matplotlib figure. No pyplot: no global state, no display."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

PANEL_INCHES = 1.9
_DPI = 100
_LIGHT = np.array([0.4, -0.7, 0.6]) / np.linalg.norm([0.4, -0.7, 0.6])
_NEUTRAL = "#4477aa"


class Grid:
    """A figure of rows × columns panels, each of one object seen upright (the data's y axis points up)."""

    def __init__(self, rows: int, columns: int) -> None:
        self.figure = Figure(figsize=(columns * PANEL_INCHES, rows * PANEL_INCHES + 0.2), dpi=_DPI)
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
    """Colours that differ from their neighbours in number."""
    return np.array([colormaps["tab20"](index % 20)[:3] for index in range(count)])


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
