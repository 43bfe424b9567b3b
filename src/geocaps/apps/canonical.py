"""``geocaps.canonical(sources)``: objects brought to their canonical poses, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Float64

from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import Alternative, Encoding, is_ambiguous
from geocaps.apps.orient import Described, Oriented, Standing, check_axis, oriented_like, stood_up
from geocaps.atomic import make_folder
from geocaps.data.folder import list_items
from geocaps.errors import GeocapsError, InvalidInputError, Skipped, UsageError
from geocaps.geometry.sampling import at_most
from geocaps.geometry.similarity import Similarity
from geocaps.io.save import CLOUD_SUFFIXES, MESH_SUFFIXES, Mesh, check_target, save_cloud, save_meshes, write_whole

MOST_DRAWN = 64  # objects in one picture
_COLUMNS, _DRAWN_POINTS = 8, 1024
Result = TypeVar("Result")


@dataclass(frozen=True, repr=False)
class Canonical:
    """One object in its canonical pose, in your units: rotated and moved, not scaled. All arrays are in numpy."""

    name: str
    given: Float[np.ndarray, "n 3"]
    """Points as given (for a mesh: sampled from its surface)."""
    pose: Similarity
    """``T_world_object``: its inverse brings the object to its canonical pose (scale 1)."""
    confidence: float
    """Confidence in the pose, from 0 to 1."""
    alternatives: tuple[Alternative, ...]
    """Other poses that are nearly as probable, such as the object's symmetries."""
    mesh: Mesh | None
    """The mesh that the points were sampled from, as given."""
    dropped: int = 0
    """Points (of a mesh: vertices) that were NaN or infinite, and were left out."""
    oriented_by: str = "capsule"
    """Basis of its orientation: its capsule; with ``like``, the example; with ``up``, its own stability, or that of its
    kind as well."""

    @property
    def points(self) -> Float64[np.ndarray, "n 3"]:
        """Points in the canonical frame."""
        return self.pose.observe(self.given)

    @property
    def ambiguous(self) -> bool:
        """Whether another pose is nearly as probable, as for symmetric objects."""
        return is_ambiguous(self.confidence, self.alternatives)

    def __repr__(self) -> str:
        doubt = f", ambiguous: {len(self.alternatives)} alternatives" if self.ambiguous else ""
        return f"Canonical({self.name}: {len(self.given):,} points, confidence {self.confidence:.2f}{doubt})"

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import page

        return page(self, picture([self.thumbnail()]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the object in its canonical frame; a mesh stays a mesh in PLY, OBJ, STL and GLB."""
        suffix = Path(path).suffix.lower()
        if self.mesh is not None and suffix in MESH_SUFFIXES:
            save_meshes(path, [Mesh(self.mesh.name, self.pose.observe(self.mesh.vertices), self.mesh.faces)])
        else:
            save_cloud(path, self.points)

    def thumbnail(self) -> Canonical:
        """The same with only some of the points, for a picture."""
        chosen = at_most(_DRAWN_POINTS, len(self.given))
        return replace(self, given=self.given[chosen], mesh=None)


@dataclass(frozen=True)
class Job:
    """One object, and the file for its result."""

    name: str
    source: Source | Encoding
    target: Path | None = None


def canonical(
    sources: Source | Encoding | Iterable[Source | Encoding],
    model: Model | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    suffix: str = ".ply",
    png: str | os.PathLike[str] | None = None,
    like: Source | Encoding | None = None,
    up: str | None = None,
    drop_invalid: bool = False,
) -> list[Canonical]:
    """Brings objects to their canonical poses: files, folders, clouds, trimeshes, encodings, or several of these.

    One source gives a list of one. ``out`` is a folder for the results, which keep their names and get the type
    ``suffix``; ``png`` is a picture of all objects, as given above and canonical below. Unreadable sources raise, as in
    ``encode``; :func:`canonical_each` skips them. Without a ``model`` the shipped weights are used. ``like`` is an
    example of the orientation wanted for objects of its kind. ``up`` (x, y or z) is the axis that should point up: each
    object is stood on a side that would support it, and like similar ones among them. ``drop_invalid`` leaves out
    points that are NaN or infinite, which are refused otherwise.
    """
    jobs = find_jobs(sources, None if out is None else Path(out), suffix)
    if png is not None:
        check_target(Path(png), (".png",))
    model = model or load()
    if like is not None and not isinstance(like, Encoding):
        like = model.encode(like, drop_invalid=drop_invalid)
    turning = turning_by(like, up)
    if turning is None:
        found = [saved(_one(job, model, drop_invalid), job) for job in jobs]
    else:
        described = [turning.describe(encoded(job, model, drop_invalid)) for job in jobs]
        oriented = turning.orient(described)
        found = [saved(_as_oriented(one, drop_invalid, job), job) for one, job in zip(oriented, jobs, strict=True)]
    if png is not None:
        write_whole(Path(png), picture([one.thumbnail() for one in found], up or "y"))
    return found


class Turning(NamedTuple):
    """A way to orient all objects together: the data needed from each, and the function that orients them."""

    describe: Callable[[Encoding], Any]
    orient: Callable[[list[Any]], list[Oriented]]


def turning_by(like: Encoding | None, up: str | None) -> Turning | None:
    """The way to orient like an example, or upright; None if every object keeps its canonical pose."""
    if up is None:
        return None if like is None else Turning(Described.of, partial(oriented_like, Described.of(like)))
    check_axis(up)
    if like is not None:
        raise UsageError("like and up both set the orientation: give only one of them")
    return Turning(Standing.of, partial(stood_up, axis=up))


def canonical_each(
    jobs: Iterable[Job], model: Model, *, turning: Turning | None = None, drop_invalid: bool = False
) -> Iterator[Canonical | Skipped]:
    """Results one at a time, for any number of objects, each saved as its job says; a failed one gives the reason.

    With ``turning`` all objects are encoded first, because they are compared with each other, and then read again.
    """
    if turning is None:
        yield from each_saved(jobs, lambda job: _one(job, model, drop_invalid))
        return
    jobs = list(jobs)
    described = [_tried(job, lambda job: turning.describe(encoded(job, model, drop_invalid))) for job in jobs]
    objects = [one for one in described if not isinstance(one, Skipped)]
    oriented = iter(turning.orient(objects) if objects else ())
    for job, one in zip(jobs, described, strict=True):
        if isinstance(one, Skipped):
            yield one
        else:
            yield from each_saved([job], partial(_as_oriented, next(oriented), drop_invalid))


def each_saved(jobs: Iterable[Job], work: Callable[[Job], Result]) -> Iterator[Result | Skipped]:
    """Results one at a time, each saved as its job says; an object that fails gives the reason."""
    for job in jobs:
        found = _tried(job, work)
        yield found if isinstance(found, Skipped) else saved(found, job)


def saved(found: Result, job: Job) -> Result:
    """A result, saved as its job says."""
    if job.target is not None:
        make_folder(job.target.parent)
        found.save(job.target)  # type: ignore[attr-defined]
    return found


def _tried(job: Job, work: Callable[[Job], Result]) -> Result | Skipped:
    try:
        return work(job)
    except GeocapsError as error:
        return Skipped(job.name, str(error), job.name if isinstance(job.source, (str, os.PathLike)) else None)


def _as_oriented(found: Oriented, drop_invalid: bool, job: Job) -> Canonical:
    source = job.source
    cloud = source.cloud if isinstance(source, Encoding) else as_cloud(source, 0, job.name, drop_invalid=drop_invalid)
    return replace(_canonical(job, cloud, found.pose, found.confidence, ()), oriented_by=found.by)


def picture(objects: Sequence[Canonical], up: str = "y") -> bytes:
    """A PNG of the objects as given, with the canonical pose of each below; ``?`` marks ambiguous ones.

    At most 64 objects are shown, evenly spread. ``up`` is the axis of the canonical poses that points up in the
    picture: that of ``--up``, or else y, which is up in most collections.
    """
    from geocaps.apps.drawing import Grid, draw_points

    if not objects:
        raise InvalidInputError("there is no object to draw")
    # A cyclic permutation of the axes is a rotation, not a reflection.
    along = np.roll(np.arange(3), 1 - "xyz".index(up))

    def stood(one: Canonical) -> Float64[np.ndarray, "n 3"]:
        return one.points[:, along]

    shown = [objects[index] for index in at_most(MOST_DRAWN, len(objects))]
    columns = min(len(shown), _COLUMNS)
    grid = Grid(2 * -(-len(shown) // columns), columns)
    for index, one in enumerate(shown):
        row, column = divmod(index, columns)
        draw_points(grid.panel(2 * row, column, Path(one.name).stem), one.given)
        draw_points(grid.panel(2 * row + 1, column, "canonical ?" if one.ambiguous else "canonical"), stood(one))
    return grid.png()


def find_jobs(sources: Source | Encoding | Iterable[Source | Encoding], out: Path | None, suffix: str) -> list[Job]:
    """All objects, including those in folders, with a file of its own in ``out`` for each result."""
    written = sorted({*CLOUD_SUFFIXES, *MESH_SUFFIXES})
    if suffix not in written:
        raise UsageError(f"files of type {suffix} cannot be written: choose one of {' '.join(written)}")
    found = list(_listed(sources))
    if not found:
        raise UsageError("no files were given: name clouds, meshes or folders of them")
    if out is None:
        return [job for job, _ in found]
    if out.exists() and not out.is_dir():
        raise UsageError(f"the output {out} is a file: name a folder")
    inputs = {Path(job.source).resolve() for job, _ in found if isinstance(job.source, (str, os.PathLike))}
    owner: dict[Path, str] = {}
    jobs = []
    for job, place in found:
        target = (out / place).with_suffix(suffix)
        if target.resolve() in inputs:
            raise UsageError(
                f"the result for {job.name} would replace the input {target}: choose another output folder"
            )
        if target in owner:
            raise UsageError(
                f"{owner[target]} and {job.name} would both be written to {target}: rename one, or run twice"
            )
        owner[target] = job.name
        jobs.append(Job(job.name, job.source, target))
    return jobs


def _listed(sources: Any) -> Iterator[tuple[Job, Path]]:
    """Every object, and its path in the output folder: a file's name, or its path below the given folder."""
    is_one = isinstance(sources, (str, os.PathLike, Encoding)) or hasattr(sources, "vertices")
    for index, source in enumerate([sources] if is_one or getattr(sources, "ndim", 3) == 2 else sources):
        if not isinstance(source, (str, os.PathLike)):
            name = f"object {index}"
            yield Job(source.cloud.name if isinstance(source, Encoding) else name, source), Path(name.replace(" ", "_"))
            continue
        path = Path(source)
        if not path.is_dir():
            yield Job(str(source), source), Path(path.name)
            continue
        items = list_items(path)
        if not items:
            raise InvalidInputError(f"{path}: no meshes or point clouds are in this folder")
        for item in items:
            yield Job(str(item.path), item.path), Path(item.object_id)


def _one(job: Job, model: Model, drop_invalid: bool) -> Canonical:
    encoding = encoded(job, model, drop_invalid)
    return _canonical(job, encoding.cloud, encoding.pose, encoding.confidence, encoding.alternatives)


def encoded(job: Job, model: Model, drop_invalid: bool) -> Encoding:
    """The encoding of a job's object; errors name the object."""
    if isinstance(job.source, Encoding):
        return job.source
    try:
        return model.encode(job.source, drop_invalid=drop_invalid)
    except InvalidInputError as error:
        raise InvalidInputError(str(error) if job.name in str(error) else f"{job.name}: {error}") from error


def _canonical(
    job: Job, cloud: Cloud, pose: Similarity, confidence: float, alternatives: tuple[Alternative, ...]
) -> Canonical:
    mesh = None
    if cloud.vertices is not None and cloud.faces is not None:
        mesh = Mesh(Path(job.name).stem, cloud.vertices, cloud.faces)
    return Canonical(job.name, cloud.points, pose, confidence, alternatives, mesh, cloud.dropped)
