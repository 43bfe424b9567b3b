"""``geocaps.parts(cloud)``: an object cut into parts, as arrays, as coloured files and as a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64, Int, UInt8

from geocaps.apps.clouds import Source
from geocaps.apps.encode import Encoding, Model, load
from geocaps.errors import InvalidInputError
from geocaps.model.capsules import Capsules
from geocaps.points.io.save import check_target
from geocaps.points.io.scene import Mesh, save_cloud, save_meshes, write_whole
from geocaps.points.sampling import evenly

_DRAWN = 4096
"""Points that a picture shows at most."""


@dataclass(frozen=True, repr=False)
class Decomposition:
    """One object as J parts, in the user's coordinates and units."""

    name: str
    points: Float[np.ndarray, "n 3"]
    """The input points, in the order given."""
    labels: Int[np.ndarray, "n"]
    """The part of each point."""
    capsules: Capsules
    """Pose and feature of each part."""
    surfaces: Float64[np.ndarray, "j m 3"]
    """Points of each part's decoded surface: a square grid."""
    triangles: Int[np.ndarray, "t 3"]
    """Of one grid; the same for all parts."""
    colors: UInt8[np.ndarray, "j 3"]

    def __len__(self) -> int:
        return len(self.surfaces)

    def __repr__(self) -> str:
        return f"Decomposition({self.name}: {len(self.points):,} points in {len(self)} parts, {self.counts.tolist()})"

    def _repr_html_(self) -> str:
        from geocaps.apps.notebook import decomposition_html

        return decomposition_html(self)

    @property
    def counts(self) -> Int[np.ndarray, "j"]:
        """Points of each part; a part that explains none has 0."""
        return np.bincount(self.labels, minlength=len(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """The points in the colours of their parts: PLY, GLB, XYZ, NPZ or PCD (all but GLB hold the labels too)."""
        save_cloud(path, self.points, labels=self.labels, colors=self.colors[self.labels])

    def save_surfaces(self, path: str | os.PathLike[str]) -> None:
        """The decoded surfaces as coloured meshes: GLB and OBJ keep them apart, PLY holds them in one."""
        save_meshes(
            path,
            [Mesh(f"part_{j:02d}", self.surfaces[j], self.triangles, self.colors[j]) for j in range(len(self))],
        )

    def png(self) -> bytes:
        """A picture: the points in the colours of their parts beside the decoded surfaces."""
        from geocaps.apps.drawing import Grid, draw_points, draw_surfaces

        shown = evenly(min(len(self.points), _DRAWN), len(self.points))
        paint = self.colors / 255
        grid = Grid(1, 2)
        draw_points(grid.panel(0, 0, "points"), self.points[shown], paint[self.labels[shown]])
        draw_surfaces(grid.panel(0, 1, f"{len(self)} surfaces"), self.surfaces, self.triangles, paint)
        return grid.png()

    def save_png(self, path: str | os.PathLike[str]) -> None:
        check_target(Path(path), (".png",))
        write_whole(Path(path), self.png())


def parts(source: Source | Encoding, model: Model | None = None) -> Decomposition:
    """One cloud (an array, a tensor, a path, a trimesh) or the encoding of one, cut into parts.

    Without a ``model`` the weights that ship with the package are used.
    """
    from geocaps.apps.drawing import part_colors

    encoding = source if isinstance(source, Encoding) else (model or load()).encode(source)
    if encoding.is_batch:
        raise InvalidInputError(f"parts are of one cloud, and {len(encoding)} were given: take one of them")
    cloud, surface = encoding.clouds[0], encoding.reconstruct("parts")
    return Decomposition(
        name=cloud.name,
        points=cloud.points,
        labels=np.asarray(encoding.labels),
        capsules=encoding.parts,
        surfaces=surface.points.numpy(),
        triangles=surface.triangles.numpy(),
        colors=np.rint(255 * part_colors(surface.points.shape[0])).astype(np.uint8),
    )
