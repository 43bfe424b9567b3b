"""Deviation of an aligned scan from a reference: the distance of each point from its surface, with colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, UInt8
from scipy.spatial import cKDTree

from geocaps.apps.clouds import Cloud
from geocaps.io import sample_surface

_SAMPLES = 20_000  # samples of the reference's surface, to find candidates for the nearest face
_CANDIDATES = 8
_TIED = 1e-9  # of the extent: faces that meet at an edge are equally near
_FULL = 0.95  # share of the points whose colours are not saturated
_SHOWN, _PANEL = 20_000, 560
_BEHIND, _ON, _BEFORE = (0.13, 0.4, 0.67), (0.97, 0.97, 0.97), (0.7, 0.09, 0.17)


@dataclass(frozen=True)
class Deviation:
    """Distances of points from a reference, all in its frame and units."""

    points: Float[np.ndarray, "n 3"]
    distance: Float64[np.ndarray, "n"]
    """Positive on the side to which the normals of the faces point, negative behind; without faces never negative."""
    signed: bool
    """Whether the reference has faces, without which there are no sides."""

    @property
    def limit(self) -> float:
        """The distance at which colours saturate; 95 % of the points are nearer."""
        return max(float(np.quantile(np.abs(self.distance), _FULL)), np.finfo(np.float64).tiny)

    def figures(self) -> dict[str, float]:
        size = np.abs(self.distance)
        return {
            "mean": float(self.distance.mean()),
            "rms": float(np.sqrt((size**2).mean())),
            "median_absolute": float(np.median(size)),
            "absolute_95": float(np.quantile(size, 0.95)),
            "least": float(self.distance.min()),
            "greatest": float(self.distance.max()),
        }

    def colors(self) -> UInt8[np.ndarray, "n 3"]:
        """Blue behind the surface, white on it, red in front of it."""
        share = np.clip(self.distance / self.limit, -1, 1)[:, None]
        full = np.where(share < 0, _BEHIND, _BEFORE)
        return np.rint(255 * (np.array(_ON) + np.abs(share) * (full - np.array(_ON)))).astype(np.uint8)

    def png(self) -> bytes:
        """The points in their colours, with the legend and the figures."""
        from geocaps.apps.drawing import Grid, draw_points
        from geocaps.geometry.sampling import at_most

        some = at_most(_SHOWN, len(self.points))
        grid = Grid(1, 1, panel=_PANEL)
        draw_points(grid.panel(0, 0), self.points[some], self.colors()[some] / 255)
        figures = self.figures()
        text = f"mean {figures['mean']:.3g}, RMS {figures['rms']:.3g}, 95 % within {figures['absolute_95']:.3g}, "
        text += f"from {figures['least']:.3g} to {figures['greatest']:.3g}"
        behind = {f"{-self.limit:.3g} behind": _BEHIND} if self.signed else {}
        before = f"{self.limit:.3g} in front" if self.signed else f"{self.limit:.3g} away (unsigned, without faces)"
        grid.caption(text, {**behind, "0": _ON, before: _BEFORE})
        return grid.png()


def deviation(points: Float[np.ndarray, "n 3"], reference: Cloud) -> Deviation:
    """Distances of points from the faces of a reference in the same frame or, if it has none, from its points."""
    exact = np.asarray(points, dtype=np.float64)
    if reference.faces is None or reference.vertices is None:
        return Deviation(exact, cKDTree(reference.points).query(exact)[0], signed=False)
    vertices = np.asarray(reference.vertices, dtype=np.float64)
    return Deviation(exact, _signed(exact, vertices, np.asarray(reference.faces)), signed=True)


def _signed(
    points: Float64[np.ndarray, "n 3"], vertices: Float64[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]
) -> Float64[np.ndarray, "n"]:
    """Exact distances to the nearest of the faces around each point, with the sign of their normals.

    If several faces are equally near, because they meet there, the one that faces the point most determines the sign.
    """
    import trimesh

    triangles = vertices[faces]
    samples, of = sample_surface(vertices, faces, _SAMPLES, seed=0)
    tree = cKDTree(np.concatenate([samples, triangles.mean(axis=1)]))
    of = np.concatenate([of, np.arange(len(faces))])
    near = of[tree.query(points, _CANDIDATES)[1]]
    given = np.repeat(points, _CANDIDATES, axis=0)
    gap = (given - trimesh.triangles.closest_point(triangles[near].reshape(-1, 3, 3), given)).reshape(
        -1, _CANDIDATES, 3
    )
    edge, other = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    normal = np.cross(edge, other)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    distance = np.linalg.norm(gap, axis=2)
    along = np.einsum("nki,nki->nk", gap, normal[near])
    least = distance.min(axis=1, keepdims=True)
    tied = distance <= least + _TIED * float(np.ptp(vertices, axis=0).max())
    decides = np.where(tied, np.abs(along), -1.0).argmax(axis=1)
    return np.where(np.take_along_axis(along, decides[:, None], 1)[:, 0] < 0, -least[:, 0], least[:, 0])
