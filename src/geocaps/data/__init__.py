"""Data sets of point clouds behind one interface: ``load`` opens, ``concat`` joins, ``survey`` looks for problems."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from geocaps.data import files
from geocaps.data.base import SPLIT_NAMES, UNLABELLED, PointDataset, concat, fingerprint_of
from geocaps.data.folder import FolderDataset
from geocaps.data.synthetic import CLASS_NAMES, Shape, SurfaceSample, make_shape
from geocaps.errors import DatasetError, GeocapsError

__all__ = ["EMBEDDED", "SPLIT_NAMES", "PointDataset", "Problem", "Survey", "concat", "fault_of", "load", "survey"]

EMBEDDED = ("shapes", "furniture")
_PER_CLASS = 50
_STORED_POINTS = 2048
_CONTENT_VERSION = 1  # part of the fingerprint: raised when the same class and seed no longer give the same shape
_EXAMPLES = 10
_UNITS_RATIO = 1000.0


def load(
    source: str | os.PathLike[str],
    *,
    split: str | None = None,
    per_class: int | None = None,
    seed: int | None = None,
) -> PointDataset:
    """Opens a data set.

    ``source`` is ``"shapes"`` (procedural; ``per_class`` of each class, default 50, drawn with ``seed``, default 0),
    ``"furniture"``, or the path of an ``.npz``, of an HDF5 file, of a folder of HDF5 files, or of a folder of meshes
    and clouds with a subfolder per class. A folder with the name of an embedded set is ``./shapes``.
    """
    if source != "shapes" and not (per_class is None and seed is None):
        raise DatasetError(f"per_class and seed are for the procedural set 'shapes', not for {os.fspath(source)!r}")
    if source == "shapes":
        dataset: PointDataset = ShapesDataset(_PER_CLASS if per_class is None else per_class, seed or 0)
    elif source == "furniture":  # clouds of 2,048 points, about half with a class; credits: data/CREDITS.md
        with resources.as_file(resources.files("geocaps") / "data" / "furniture.npz") as path:
            dataset = files.read_npz(path)
    else:
        dataset = open_path(Path(source))
    return dataset if split is None else dataset.split(split)


def open_path(path: Path, *, strict: bool = True) -> PointDataset:
    """The data set at a path; ``strict=False`` accepts labels out of range, for a survey to report."""
    if path.is_dir():
        holds_hdf5 = any(one.suffix.lower() in files.HDF5_SUFFIXES and one.is_file() for one in path.iterdir())
        return files.read_hdf5(path, strict=strict) if holds_hdf5 else FolderDataset(path)
    if not path.exists():
        raise DatasetError(
            f"{path}: there is no such file or folder; give a path, or one of the embedded sets {', '.join(EMBEDDED)}"
        )
    if path.suffix.lower() == ".npz":
        return files.read_npz(path, strict=strict)
    if path.suffix.lower() in files.HDF5_SUFFIXES:
        return files.read_hdf5(path, strict=strict)
    raise DatasetError(
        f"{path}: a data set is an .npz, an HDF5 file ({', '.join(files.HDF5_SUFFIXES)}) or a folder; "
        "put single objects into a folder, with a subfolder for each class"
    )


# ── the embedded sets ─────────────────────────────────────────────────────────────────────────────────────────────────


class ShapesDataset(PointDataset):
    """Procedural shapes, ``per_class`` of each class, the same for the same seed; every sampling is fresh.

    Of every ten shapes of a class, the ninth is for validation and the tenth for test, so that a larger
    ``per_class`` only adds shapes.
    """

    def __init__(self, per_class: int, seed: int) -> None:
        if per_class < 1:
            raise DatasetError(f"shapes: per_class must be at least 1, got {per_class}")
        if seed < 0:
            raise DatasetError(f"shapes: seed must not be negative, got {seed}")
        labels, places = np.divmod(np.arange(per_class * len(CLASS_NAMES)), per_class)
        super().__init__(
            name="shapes",
            class_names=CLASS_NAMES,
            labels=labels,
            object_ids=[
                f"{CLASS_NAMES[label]}/{seed}/{place:06d}" for label, place in zip(labels, places, strict=True)
            ],
            split_codes=np.select([places % 10 == 8, places % 10 == 9], [1, 2], default=0),
            fingerprint=fingerprint_of("shapes", str(_CONTENT_VERSION), *CLASS_NAMES, str(per_class), str(seed)),
        )
        self._places = places
        self._seed = seed

    def points(self, index: int) -> Float32[np.ndarray, "n 3"]:
        return self._stored(index).points.numpy()

    def part_labels(self, index: int) -> Int64[np.ndarray, "n"] | None:
        return self._stored(index).part_labels.numpy()

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        shape = self._shape(index)
        return torch.stack([shape.sample(count, generator).points for _ in range(views)])

    def _stored(self, index: int) -> SurfaceSample:
        shape = self._shape(index)
        return shape.sample(_STORED_POINTS, torch.Generator().manual_seed(shape.seed))

    def _shape(self, index: int) -> Shape:
        class_name = CLASS_NAMES[self.labels[index]]
        entropy = [self._seed, zlib.crc32(class_name.encode()), int(self._places[index])]
        return _made(class_name, int(np.random.SeedSequence(entropy).generate_state(1)[0]))


_made = lru_cache(maxsize=4096)(make_shape)


# ── surveys of the contents and problems of data sets ─────────────────────────────────────────────────────────────────


@dataclass
class Problem:
    """One kind of problem: the number of objects (or classes) with it, and the first few."""

    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass(frozen=True)
class Survey:
    """Summary of a data set. Ranges are (smallest, median, largest) over its valid objects; None if there are none."""

    name: str
    objects: int
    fingerprint: str
    classes: dict[str, int]
    unlabelled: int
    splits: dict[str, int]
    point_counts: tuple[int, int, int] | None
    radii: tuple[float, float, float] | None
    lowest: tuple[float, ...] | None
    highest: tuple[float, ...] | None
    problems: list[Problem]


def survey(
    source: str | os.PathLike[str] | PointDataset,
    *,
    split: str | None = None,
    on_object: Callable[[int, int], None] | None = None,
) -> Survey:
    """Reads every object once and reports; ``on_object(done, of)`` is called with the progress."""
    problems: dict[str, Problem] = {}

    def found(kind: str, example: str) -> None:
        problems.setdefault(kind, Problem(kind)).add(example)

    if isinstance(source, PointDataset):
        dataset, path = source, None
    else:
        path = None if source in EMBEDDED else Path(source)
        dataset = load(source) if path is None else open_path(path, strict=False)
    dataset = dataset if split is None else dataset.split(split)
    if path is not None and path.suffix.lower() == ".npz":
        for key in files.damaged_members(path):
            found("damaged data (checksum)", key)
    counts: list[int] = []
    corners: list[np.ndarray] = []
    copies: dict[bytes, str] = {}
    for index, object_id in enumerate(dataset.object_ids):
        if on_object is not None:
            on_object(index, len(dataset))
        try:
            points = dataset.points(index)
        except GeocapsError as error:
            found("unreadable", f"{object_id}: {error}")
            continue
        fault = fault_of(points)
        if fault is not None:
            found(fault, object_id)
            continue
        digest = dataset.digest(index)
        if digest in copies:
            found("duplicated object", f"{object_id} = {copies[digest]}")
        copies.setdefault(digest, object_id)
        counts.append(len(points))
        corners.append(np.stack([points.min(0), points.max(0)]))
    radii = [float(np.linalg.norm((high - low).astype(np.float64)) / 2) for low, high in corners]
    sizes = [radius for radius in radii if radius > 0]
    if sizes and max(sizes) > _UNITS_RATIO * min(sizes):
        found("sizes differ a thousandfold (mixed units?)", f"half diagonals {min(sizes):.3g} to {max(sizes):.3g}")
    _check_names(dataset, found)
    return Survey(
        name=dataset.name,
        objects=len(dataset),
        fingerprint=dataset.fingerprint,
        classes={name: int((dataset.labels == code).sum()) for code, name in enumerate(dataset.class_names)},
        unlabelled=int((dataset.labels == UNLABELLED).sum()),
        splits={name: len(dataset.split(name)) for name in dataset.splits},
        point_counts=(min(counts), int(np.median(counts)), max(counts)) if counts else None,
        radii=(min(radii), float(np.median(radii)), max(radii)) if radii else None,
        lowest=tuple(np.min(corners, axis=(0, 1)).tolist()) if corners else None,
        highest=tuple(np.max(corners, axis=(0, 1)).tolist()) if corners else None,
        problems=list(problems.values()),
    )


def fault_of(points: np.ndarray) -> str | None:
    """The reason why a cloud cannot be used, or None."""
    if len(points) == 0:
        return "empty cloud"
    if not np.isfinite(points).all():
        return "points that are not finite"
    if (points == points[0]).all():
        return "constant cloud (all points in one place)"
    return None


def _check_names(dataset: PointDataset, found: Callable[[str, str], None]) -> None:
    for object_id, count in Counter(dataset.object_ids).items():
        if count > 1:
            found("object id used twice", f"{object_id} x {count}")
    outside = (dataset.labels < UNLABELLED) | (dataset.labels >= len(dataset.class_names))
    for index in np.flatnonzero(outside).tolist():
        found("label out of range", f"{dataset.object_ids[index]}: {dataset.labels[index]}")
    present = set(dataset.labels.tolist())
    for code, name in enumerate(dataset.class_names):
        if code not in present:
            found("class without objects", name)
