"""``geocaps.canonical(clouds)``: objects brought to their canonical poses, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64

from geocaps.apps.clouds import Source
from geocaps.apps.encode import Alternative, Encoding, Model, is_ambiguous, load
from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.points.io import load_points
from geocaps.points.io.scene import CLOUD_SUFFIXES, MESH_SUFFIXES, Mesh, save_cloud, save_meshes
from geocaps.points.sampling import evenly
from geocaps.se3 import Pose

MOST_DRAWN = 64
"""Objects in one picture."""
_COLUMNS, _DRAWN_POINTS = 8, 1024


@dataclass(frozen=True)
class Thumbnail:
    """What a picture shows of one object."""

    name: str
    given: Float[np.ndarray, "k 3"]
    canonical: Float[np.ndarray, "k 3"]
    ambiguous: bool


@dataclass(frozen=True, repr=False)
class Canonical:
    """One object in its canonical pose, in the user's units: moved rigidly, not scaled."""

    name: str
    given: Float[np.ndarray, "n 3"]
    """The points as they came (of a mesh: drawn from its surface)."""
    pose: Pose
    """``T_world_object`` (float64): its inverse brings the object to its canonical pose."""
    confidence: float
    """Probability of this pose among those that were considered."""
    alternatives: list[Alternative]
    """Other poses that are nearly as probable: the object's symmetries."""
    mesh: Mesh | None
    """The mesh that the points were drawn from, as it came."""

    @property
    def points(self) -> Float64[np.ndarray, "n 3"]:
        """The points in the canonical frame."""
        return self._moved(self.given)

    @property
    def ambiguous(self) -> bool:
        """Whether another pose is nearly as probable, as for anything symmetric."""
        return is_ambiguous(self.confidence, self.alternatives)

    def __repr__(self) -> str:
        doubt = f", ambiguous: {len(self.alternatives)} alternatives" if self.ambiguous else ""
        return f"Canonical({self.name}: {len(self.given):,} points, confidence {self.confidence:.2f}{doubt})"

    def _repr_html_(self) -> str:
        from geocaps.apps.notebook import page

        return page(repr(self), picture([self.thumbnail()]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """The object in its canonical frame; a mesh stays a mesh in the formats that have them (PLY, OBJ, GLB)."""
        suffix = Path(path).suffix.lower()
        if self.mesh is not None and suffix in MESH_SUFFIXES:
            save_meshes(path, [Mesh(self.mesh.name, self._moved(self.mesh.vertices), self.mesh.faces)])
        else:
            save_cloud(path, self.points)

    def thumbnail(self) -> Thumbnail:
        chosen = evenly(min(len(self.given), _DRAWN_POINTS), len(self.given))
        return Thumbnail(self.name, self.given[chosen], self._moved(self.given[chosen]), self.ambiguous)

    def _moved(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return self.pose.observe(torch.from_numpy(points.astype(np.float64))).numpy()


@dataclass(frozen=True)
class Skipped:
    """A source that could not be brought to a canonical pose, and why."""

    name: str
    reason: str


def canonical(sources: Source | Encoding | Iterable[Source], model: Model | None = None) -> list[Canonical]:
    """Objects brought to their canonical poses: clouds, paths, tensors, trimeshes, or an encoding of them.

    One source gives a list of one. What cannot be read raises, as in ``encode``; :func:`canonical_each` skips it and
    goes on. Without a ``model`` the weights that ship with the package are used.
    """
    if isinstance(sources, Encoding):
        encodings = list(sources) if sources.is_batch else [sources]
        return [_result(one, one.clouds[0].name, None) for one in encodings]
    model = model or load()
    return [_one(source, name, model) for name, source in _named(sources)]


def canonical_each(sources: Iterable[tuple[str, Source]], model: Model) -> Iterator[Canonical | Skipped]:
    """One at a time, for any number of named sources; bad ones come back with the reason."""
    for name, source in sources:
        try:
            yield _one(source, name, model)
        except GeocapsError as error:
            yield Skipped(name, str(error))


def picture(objects: Sequence[Thumbnail]) -> bytes:
    """PNG: the objects as given, and below each its canonical pose; ``?`` marks those that are ambiguous.

    Of more than 64 objects it shows 64, spread evenly.
    """
    from geocaps.apps.drawing import Grid, draw_points

    if not objects:
        raise InvalidInputError("there is no object to draw")
    shown = [objects[index] for index in evenly(min(len(objects), MOST_DRAWN), len(objects))]
    columns = min(len(shown), _COLUMNS)
    grid = Grid(2 * -(-len(shown) // columns), columns)
    for index, one in enumerate(shown):
        row, column = divmod(index, columns)
        name = Path(one.name).stem
        draw_points(grid.panel(2 * row, column, name[:22]), one.given)
        draw_points(grid.panel(2 * row + 1, column, "canonical ?" if one.ambiguous else "canonical"), one.canonical)
    return grid.png()


def save_suffixes() -> tuple[str, ...]:
    """Formats that :meth:`Canonical.save` writes."""
    return tuple(sorted({*CLOUD_SUFFIXES, *MESH_SUFFIXES}))


def _named(sources: Any) -> Iterator[tuple[str, Source]]:
    is_one = isinstance(sources, (str, os.PathLike)) or hasattr(sources, "vertices") or getattr(sources, "ndim", 3) == 2
    for index, source in enumerate([sources] if is_one else sources):
        yield (str(source) if isinstance(source, (str, os.PathLike)) else f"object {index}"), source


def _one(source: Source, name: str, model: Model) -> Canonical:
    vertices, faces = getattr(source, "vertices", None), getattr(source, "faces", None)
    if isinstance(source, (str, os.PathLike)):
        loaded = load_points(source)
        source, vertices, faces = loaded.points, loaded.vertices, loaded.faces
    try:
        encoding = model.encode(source)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    if encoding.is_batch:
        raise InvalidInputError(f"{name} is a batch of {len(encoding)} clouds: one cloud was expected")
    is_mesh = vertices is not None and faces is not None and len(faces) > 0
    return _result(encoding, name, Mesh(Path(name).stem, _floats(vertices), np.asarray(faces)) if is_mesh else None)


def _floats(vertices: Any) -> Float[np.ndarray, "v 3"]:
    array = np.asarray(vertices)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _result(encoding: Encoding, name: str, mesh: Mesh | None) -> Canonical:
    return Canonical(
        name=name,
        given=encoding.clouds[0].points,
        pose=encoding.pose,
        confidence=float(encoding.confidence),
        alternatives=encoding.model.alternatives(encoding)[0],
        mesh=mesh,
    )
