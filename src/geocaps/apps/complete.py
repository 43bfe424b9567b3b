"""``geocaps.complete(scan)``: the whole object behind a partial cloud, decoded from its capsule."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64

from geocaps.apps.clouds import Source
from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import Encoding
from geocaps.geometry.sampling import evenly
from geocaps.io.save import check_target, save_cloud, write_whole

_DRAWN = 4096  # points of each panel of a picture at most


@dataclass(frozen=True, repr=False)
class Completion:
    """A whole object, in the coordinates and units of the cloud that shows some of it. All arrays are numpy's."""

    name: str
    given: Float[np.ndarray, "n 3"]
    """Points as they came (of a mesh: drawn from its surface)."""
    points: Float64[np.ndarray, "m 3"]
    """Points of the whole object, as its capsule decodes it."""
    center: Float64[np.ndarray, "3"]
    """Centre of the whole object."""
    radius: float
    """Radius of the whole object."""
    confidence: float
    """How far to trust the pose, from 0 to 1."""
    ambiguous: bool
    """Whether another pose is nearly as probable."""
    dropped: int = 0
    """Points (of a mesh: vertices) that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        return (
            f"Completion({self.name}: {len(self.given):,} points to {len(self.points):,}, radius {self.radius:.4g}, "
            f"confidence {self.confidence:.2f})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import page

        return page(self, self.png())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the points of the whole object as PLY, GLB, XYZ, NPY, NPZ or PCD."""
        save_cloud(path, self.points)

    def png(self) -> bytes:
        """Draws the cloud as given beside the whole object."""
        from geocaps.apps.drawing import BLUE, ORANGE, Grid, draw_points

        given, whole = (one[evenly(min(len(one), _DRAWN), len(one))] for one in (self.given, self.points))
        grid = Grid(1, 3, panel=400, same_scale=True)
        draw_points(grid.panel(0, 0, f"{Path(self.name).name}, as given"), given, ORANGE)
        draw_points(grid.panel(0, 1, "the whole object, as its capsule decodes it"), whole)
        both = grid.panel(0, 2, "both")
        draw_points(both, whole, pale=True)
        draw_points(both, given, ORANGE)
        grid.caption(
            f"Radius of the whole object: {self.radius:.3g}, in the file's units. Confidence {self.confidence:.2f}.",
            {"given": ORANGE, "decoded": BLUE},
        )
        return grid.png()

    def save_png(self, path: str | os.PathLike[str]) -> None:
        """Writes that picture."""
        check_target(Path(path), (".png",))
        write_whole(Path(path), self.png())


def complete(source: Source | Encoding, model: Model | None = None, *, drop_invalid: bool = False) -> Completion:
    """Completes one partial object: an array or tensor ``[N, 3]``, a path, a trimesh, or the encoding of one.

    Without a ``model`` the weights that ship with the package are used. ``drop_invalid`` leaves out points that are NaN
    or infinite, which are refused otherwise.
    """
    encoding = source
    if not isinstance(encoding, Encoding):
        encoding = (model or load()).encode(encoding, drop_invalid=drop_invalid)
    return Completion(
        name=encoding.cloud.name,
        given=encoding.cloud.points,
        points=encoding.complete(),
        center=encoding.pose.translation,
        radius=encoding.radius,
        confidence=encoding.confidence,
        ambiguous=encoding.ambiguous,
        dropped=encoding.cloud.dropped,
    )
