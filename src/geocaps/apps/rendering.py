"""Rendering of points and surfaces: shaded discs in an orthographic three-quarter view, on a soft shadow.

Every point is a small disc in the plane of its nearest neighbours, lit from above, with hidden discs removed. Edges are
darkened at jumps of the depth, as in eye-dome lighting. Pictures are computed at twice their size and averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.spatial import cKDTree

_FINER = 2  # computed this many times larger, then averaged
_TURN, _TILT = np.deg2rad(38.0), np.deg2rad(20.0)  # of the viewer: to the side, and from above
_LIGHT = np.array([-0.40, 0.75, 0.53]) / np.linalg.norm([-0.40, 0.75, 0.53])  # right, up, towards the viewer
_AMBIENT, _DIFFUSE = 0.60, 0.48
_MARGIN = 0.04  # of the picture's side
_NEIGHBOURS = 12
_FLATTEST = 0.35  # cosine: width at which a disc that is seen edge-on is still drawn
_DISC = 0.72  # radius of a disc: of the distance to the third neighbour
_LARGEST, _SMALLEST = 0.019, 0.0035  # radii of a disc, of the picture's side
_LINE = 0.0045  # radius of a line, of the picture's side
_EDGE, _EDGE_WIDTH, _EDGE_DEEPEST = 3.0, 0.006, 0.06  # eye-dome lighting; lengths are of the picture's side
_SHADOW, _SHADOW_WIDTH, _SHADOW_BLUR = 0.24, 0.02, 0.018
_FRAGMENTS = 1_000_000  # pixels processed at a time, to limit memory


class Scene:
    """Things to draw together, in one coordinate system whose y axis points up."""

    def __init__(self) -> None:
        self._discs: list[_Discs] = []
        self._sheets: list[_Sheets] = []

    def add_points(self, points: Float[np.ndarray, "n 3"], colors: Float[np.ndarray, "n 3"], size: float = 1.0) -> None:
        """Points as discs in the surface around them; at ``size`` 1 they nearly cover it."""
        if not len(points):
            return
        points = np.asarray(points, dtype=np.float64)
        normals, spacing = surface(points)
        self._discs.append(_Discs(points, np.asarray(colors), normals, _DISC * spacing, size))

    def add_triangles(self, corners: Float[np.ndarray, "t 3 3"], colors: Float[np.ndarray, "t 3"]) -> None:
        """Flat triangles, lit from both sides, since a decoded surface has no outside."""
        self._sheets.append(_Sheets(np.asarray(corners, dtype=np.float64), np.asarray(colors)))

    def add_lines(self, ends: Float[np.ndarray, "k 2 3"], colors: Float[np.ndarray, "k 3"]) -> None:
        """Straight lines, unlit and without a shadow."""
        along = np.linspace(0, 1, 200)[None, :, None]
        points = ((1 - along) * ends[:, None, 0] + along * ends[:, None, 1]).reshape(-1, 3)
        self._discs.append(_Discs(points, np.repeat(colors, along.shape[1], axis=0), np.zeros_like(points), None, 1.0))

    def extent(self) -> float:
        """The larger of the width and the height of the picture, in the scene's units."""
        low, high = self._bounds()
        return max(float((high - low).max()), 1e-12)

    def image(self, pixels: int, extent: float | None = None) -> Float[np.ndarray, "p p 3"]:
        """A square picture on white; ``extent`` sets the scale, without which the objects fill the picture."""
        side = pixels * _FINER
        canvas = np.ones((side, side, 3))
        if self._discs or self._sheets:
            low, high = self._bounds()
            screen = _Screen((low + high) / 2, side * (1 - 2 * _MARGIN) / (extent or self.extent()), side)
            canvas *= 1 - _SHADOW * self._shadow(screen)[..., None]
            depth = np.full(side * side, -np.inf)
            painted: list[_Sheets | _Discs] = [*self._sheets, *self._discs]
            for one in painted:
                one.paint(screen, depth, canvas.reshape(-1, 3))
            canvas *= _edges(depth.reshape(side, side))[..., None]
        return canvas.reshape(pixels, _FINER, pixels, _FINER, 3).mean(axis=(1, 3)).clip(0, 1)

    def _solid(self) -> Float[np.ndarray, "n 3"]:
        """All points that cast a shadow, that is, all but lines."""
        solid = [one.points for one in self._discs if one.radius is not None]
        solid += [one.corners.reshape(-1, 3) for one in self._sheets]
        return np.concatenate(solid) if solid else np.concatenate([one.points for one in self._discs])

    def _bounds(self) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
        """Bounding box on the screen, with the shadow, in the scene's units."""
        everything = np.concatenate([self._solid(), *(one.points for one in self._discs)])
        seen = np.concatenate([everything, _on_floor(self._solid())]) @ _VIEW[:2].T
        return seen.min(axis=0), seen.max(axis=0)

    def _shadow(self, screen: _Screen) -> Float[np.ndarray, "s s"]:
        x, y = screen.pixel(_on_floor(self._solid()) @ _VIEW.T)
        covered = np.zeros((screen.side, screen.side))
        inside = screen.holds(x, y)
        covered[y[inside], x[inside]] = 1
        width = round(_SHADOW_WIDTH * screen.side)
        return gaussian_filter(maximum_filter(covered, (width // 2 + 1, width)), _SHADOW_BLUR * screen.side)


@dataclass(frozen=True)
class _Screen:
    """The part of the scene in the picture, in the viewer's coordinates (right, up, towards the viewer)."""

    centre: Float[np.ndarray, "2"]
    scale: float
    side: int

    def place(self, seen: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
        """Column, row and nearness, in pixels."""
        x = (seen[..., 0] - self.centre[0]) * self.scale + self.side / 2
        y = self.side / 2 - (seen[..., 1] - self.centre[1]) * self.scale
        return np.stack([x, y, seen[..., 2] * self.scale], axis=-1)

    def pixel(self, seen: Float[np.ndarray, "... 3"]) -> tuple[np.ndarray, np.ndarray]:
        placed = self.place(seen)
        return np.rint(placed[..., 0]).astype(int), np.rint(placed[..., 1]).astype(int)

    def holds(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x >= 0) & (x < self.side) & (y >= 0) & (y < self.side)


@dataclass(frozen=True)
class _Discs:
    points: Float[np.ndarray, "n 3"]
    colors: Float[np.ndarray, "n 3"]
    normals: Float[np.ndarray, "n 3"]  # zero: a disc that faces the viewer, unlit
    radius: float | None  # in the scene's units; None: of a line
    size: float

    def paint(self, screen: _Screen, depth: np.ndarray, canvas: np.ndarray) -> None:
        placed = screen.place(self.points @ _VIEW.T)
        normal, light = _lit(self.normals @ _VIEW.T)
        normal[:, 2] = np.maximum(normal[:, 2], _FLATTEST)
        color = self.colors * light[:, None]
        radius = _LINE * screen.side
        if self.radius is not None:
            radius = self.size * np.clip(self.radius * screen.scale, _SMALLEST * screen.side, _LARGEST * screen.side)
        across = np.arange(-int(np.ceil(radius)), int(np.ceil(radius)) + 1)
        dx, dy = (one.ravel() for one in np.meshgrid(across, across))
        for group in _groups(len(placed), len(dx)):
            middle = np.rint(placed[group, :2]).astype(int)
            column, row = middle[:, :1] + dx, middle[:, 1:] + dy
            # Rise of the disc's plane towards the viewer at each pixel (rows count downwards).
            rise = (-normal[group, :1] * dx + normal[group, 1:2] * dy) / normal[group, 2:]
            hit = screen.holds(column, row) & ((dx**2 + dy**2 + rise**2 <= radius**2) | ((dx == 0) & (dy == 0)))
            # Lines are in front of everything.
            nearness = placed[group, 2:] + rise + (2 * screen.side if self.radius is None else 0)
            _nearest(depth, canvas, (row * screen.side + column)[hit], nearness[hit], color[group][np.nonzero(hit)[0]])


@dataclass(frozen=True)
class _Sheets:
    corners: Float[np.ndarray, "t 3 3"]
    colors: Float[np.ndarray, "t 3"]

    def paint(self, screen: _Screen, depth: np.ndarray, canvas: np.ndarray) -> None:
        seen = self.corners @ _VIEW.T
        normal = np.cross(seen[:, 1] - seen[:, 0], seen[:, 2] - seen[:, 0])
        light = _lit(normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12))[1]
        placed = screen.place(seen)
        first = np.floor(placed[..., :2].min(axis=1)).astype(int)
        spans = np.ceil(placed[..., :2].max(axis=1)).astype(int) - first
        classes = np.ceil(np.log2(np.maximum(spans.max(axis=1), 1))).astype(int)
        for power in np.unique(classes).tolist():
            across = np.arange(2**power + 1)
            dx, dy = (one.ravel() for one in np.meshgrid(across, across))
            those = np.flatnonzero(classes == power)
            for group in _groups(len(those), len(dx)):
                chosen = those[group]
                column, row = first[chosen, :1] + dx, first[chosen, 1:] + dy
                weights = _barycentric(placed[chosen, :, :2], column, row)
                hit = screen.holds(column, row) & (weights >= -1e-6).all(axis=0)
                nearness = (weights * placed[chosen, :, 2].T[..., None]).sum(axis=0)
                color = (self.colors * light[:, None])[chosen][np.nonzero(hit)[0]]
                _nearest(depth, canvas, (row * screen.side + column)[hit], nearness[hit], color)


def _barycentric(
    corners: Float[np.ndarray, "t 3 2"], x: Int[np.ndarray, "t k"], y: Int[np.ndarray, "t k"]
) -> Float[np.ndarray, "3 t k"]:
    a, b, c = (corners[:, at, :, None] for at in range(3))
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    area = np.where(np.abs(area) < 1e-9, np.inf, area)
    of_b = ((x - a[:, 0]) * (c[:, 1] - a[:, 1]) - (y - a[:, 1]) * (c[:, 0] - a[:, 0])) / area
    of_c = ((b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])) / area
    return np.stack([1 - of_b - of_c, of_b, of_c])


def _groups(count: int, pixels: int) -> list[np.ndarray]:
    return np.array_split(np.arange(count), count * pixels // _FRAGMENTS + 1)


def _nearest(depth: np.ndarray, canvas: np.ndarray, at: np.ndarray, nearness: np.ndarray, color: np.ndarray) -> None:
    """The z-buffer: paints pixels that are nearer than all earlier ones."""
    np.maximum.at(depth, at, nearness)
    front = nearness >= depth[at]
    canvas[at[front]] = color[front]


def _lit(normal: Float[np.ndarray, "n 3"]) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
    """Normals, flipped towards the viewer, and the light on each."""
    normal = normal * np.where(normal[:, 2:] < 0, -1.0, 1.0)
    unknown = ~(normal != 0).any(axis=1)
    light = _AMBIENT + _DIFFUSE * np.maximum(normal @ _LIGHT, 0)
    normal[unknown] = (0, 0, 1)
    return normal, np.where(unknown, 1.0, light)


def surface(points: Float[np.ndarray, "n 3"]) -> tuple[Float[np.ndarray, "n 3"], float]:
    """Normal of each point (of either sign; zero if there is no surface), and the spacing of the points."""
    count = min(_NEIGHBOURS, len(points))
    if count < 4:
        return np.zeros_like(points), np.inf  # the largest discs there are
    distance, near = cKDTree(points).query(points, k=count)
    around = points[near] - points[near].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nka,nkb->nab", around, around))
    # Lines and isolated points have no surface, so their discs face the viewer.
    flat = values[:, 1] > 4 * values[:, 0]
    return np.where(flat[:, None], vectors[:, :, 0], 0.0), float(np.median(distance[:, 3]))


def _on_floor(points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    floor = points.copy()
    floor[:, 1] = points[:, 1].min()
    return floor


def _edges(depth: Float[np.ndarray, "s s"]) -> Float[np.ndarray, "s s"]:
    """Eye-dome lighting: pixels are darkened by their depth behind those around them."""
    side = len(depth)
    step = max(1, round(_EDGE_WIDTH * side))
    behind = np.zeros_like(depth)
    for turn in np.arange(8) * np.pi / 4:
        beside = np.roll(depth, (round(step * np.sin(turn)), round(step * np.cos(turn))), axis=(0, 1))
        both = np.isfinite(depth) & np.isfinite(beside)
        behind[both] += np.clip((beside[both] - depth[both]) / side, 0, _EDGE_DEEPEST)
    return np.exp(-_EDGE * behind)


def _view() -> Float[np.ndarray, "3 3"]:
    """Rows: right, up and towards the viewer, in the scene's coordinates."""
    turn = np.array([[np.cos(_TURN), 0, -np.sin(_TURN)], [0, 1, 0], [np.sin(_TURN), 0, np.cos(_TURN)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(_TILT), -np.sin(_TILT)], [0, np.sin(_TILT), np.cos(_TILT)]])
    return tilt @ turn


_VIEW = _view()
