"""Base classes of data sets: the interface, stored arrays and their checks, selections and concatenations."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor

from geocaps.errors import DatasetError

SPLIT_NAMES = ("train", "val", "test")
NO_SPLIT = -1
UNLABELLED = -1
MEMORY_LIMIT = 2**30  # largest compressed array, in bytes, that is read into memory; larger ones go to a temporary file
_MOST_CLASSES = 100_000


class PointDataset(ABC):
    """An ordered set of objects, each a cloud of points in its own units.

    ``labels`` index ``class_names`` (-1: no label); ``split_codes`` index ``SPLIT_NAMES`` (-1: in no split).
    ``fingerprint`` depends on the content but not on the location; training compares it on resuming.
    """

    def __init__(
        self,
        *,
        name: str,
        class_names: Iterable[str],
        labels: Int[np.ndarray, "m"],
        object_ids: Iterable[str],
        split_codes: Int[np.ndarray, "m"],
        fingerprint: str,
    ) -> None:
        self.name = name
        self.class_names: tuple[str, ...] = tuple(class_names)
        self.labels: Int64[np.ndarray, "m"] = labels.astype(np.int64)
        self.labels.setflags(write=False)
        self.object_ids: Sequence[str] = tuple(object_ids)
        self.split_codes: Int64[np.ndarray, "m"] = split_codes.astype(np.int64)
        self.split_codes.setflags(write=False)
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} objects, {len(self.class_names)} classes)"

    @abstractmethod
    def points(self, index: int) -> Float32[np.ndarray, "n 3"]:
        """All stored points of one object (for a procedural set, a fixed sampling)."""

    def part_labels(self, index: int) -> Int64[np.ndarray, "n"] | None:
        """The part of each point of ``points(index)``, or None if the set has no part labels."""
        return None

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        """Independent samplings of the object's surface.

        Disjoint subsets of the stored points if there are enough; otherwise each view is drawn from all of them without
        replacement, and points are repeated only if the object has fewer than ``count``.
        """
        stored = self.points(index)
        if len(stored) == 0:
            raise DatasetError(
                f"{self.name}: the object {self.object_ids[index]!r} has no points to sample from; "
                "find such objects with  geocaps data info"
            )
        return torch.from_numpy(stored)[draw_indices(len(stored), count, views, generator)]

    def digest(self, index: int) -> bytes:
        """A hash of the stored data of one object, equal for copies of it."""
        return hashlib.blake2b(self.points(index).tobytes(), digest_size=16).digest()

    def subset(self, indices: Sequence[int] | Int[np.ndarray, "k"]) -> PointDataset:
        """The objects with these indices, in this order; classes keep their numbers."""
        indices = np.asarray(indices, dtype=np.int64).reshape(-1)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self)):
            raise DatasetError(
                f"{self.name} has {len(self)} objects, so indices are 0 to {len(self) - 1}; "
                f"got {indices.min()} to {indices.max()}"
            )
        return Selection(
            [(self, index) for index in indices.tolist()],
            name=self.name,
            class_names=self.class_names,
            labels=self.labels[indices],
            object_ids=[self.object_ids[index] for index in indices.tolist()],
            split_codes=self.split_codes[indices],
            fingerprint=fingerprint_of(self.fingerprint, indices.tobytes()),
        )

    def of_classes(self, names: Iterable[str]) -> PointDataset:
        """The objects of these classes, in their order; classes keep their numbers."""
        wanted = [names] if isinstance(names, str) else list(names)
        unknown = [name for name in wanted if name not in self.class_names]
        if unknown:
            known = ", ".join(self.class_names) or "none: the set has no labels"
            raise DatasetError(f"{self.name} has no class {', '.join(map(repr, unknown))}; its classes are: {known}")
        codes = [self.class_names.index(name) for name in wanted]
        return self.subset(np.flatnonzero(np.isin(self.labels, codes)))

    def split(self, name: str) -> PointDataset:
        """The objects of the split ``train``, ``val`` or ``test``."""
        if name not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise DatasetError(f"{self.name} has no split {name!r}; its splits are: {known}")
        return self.subset(np.flatnonzero(self.split_codes == SPLIT_NAMES.index(name)))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that contain objects."""
        return tuple(name for code, name in enumerate(SPLIT_NAMES) if (self.split_codes == code).any())


class Selection(PointDataset):
    """Objects of other data sets, each given by its set and its index there."""

    def __init__(self, found: Sequence[tuple[PointDataset, int]], **description: Any) -> None:
        super().__init__(**description)
        self._found = found

    def points(self, index: int) -> Float32[np.ndarray, "n 3"]:
        one, place = self._found[index]
        return one.points(place)

    def part_labels(self, index: int) -> Int64[np.ndarray, "n"] | None:
        one, place = self._found[index]
        return one.part_labels(place)

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        one, place = self._found[index]
        return one.samplings(place, count, views, generator)

    def digest(self, index: int) -> bytes:
        one, place = self._found[index]
        return one.digest(place)


def concat(datasets: Sequence[PointDataset], name: str | None = None) -> PointDataset:
    """Several sets as one, in this order; classes with the same name are merged."""
    if not datasets:
        raise DatasetError("concat needs at least one data set, got none")
    class_names = tuple(dict.fromkeys(class_name for one in datasets for class_name in one.class_names))
    return Selection(
        [(one, place) for one in datasets for place in range(len(one))],
        name=name or " + ".join(one.name for one in datasets),
        class_names=class_names,
        labels=np.concatenate([_renumbered(one, class_names) for one in datasets]),
        object_ids=[object_id for one in datasets for object_id in one.object_ids],
        split_codes=np.concatenate([one.split_codes for one in datasets]),
        fingerprint=fingerprint_of(*(one.fingerprint for one in datasets)),
    )


def draw_indices(stored: int, count: int, views: int, generator: torch.Generator) -> Int64[Tensor, "views count"]:
    """The stored points in each sampling (see ``PointDataset.samplings``)."""
    if stored >= count * views:
        return torch.randperm(stored, generator=generator)[: count * views].reshape(views, count)
    rounds = -(-count // stored)
    return torch.stack(
        [torch.cat([torch.randperm(stored, generator=generator) for _ in range(rounds)])[:count] for _ in range(views)]
    )


def fingerprint_of(*contents: str | bytes) -> str:
    """A short, stable identifier of these contents, in this order."""
    whole = hashlib.sha256()
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()[:32]


def hashed(path: Path, whole: Any) -> str:
    """The hexadecimal digest of a file, which is read in blocks into a hash of ``hashlib``."""
    with path.open("rb") as file:
        while block := file.read(2**20):
            whole.update(block)
    return whole.hexdigest()


def _renumbered(one: PointDataset, class_names: tuple[str, ...]) -> Int64[np.ndarray, "m"]:
    numbers = np.array([class_names.index(name) for name in one.class_names], dtype=np.int64)
    known = (one.labels >= 0) & (one.labels < len(numbers))
    labels = np.where(one.labels == UNLABELLED, UNLABELLED, len(class_names))  # a label out of range stays out of range
    labels[known] = numbers[one.labels[known]]
    return labels


class ArrayDataset(PointDataset):
    """Objects of equal size, ``points[index] * scale``; the array may be mapped from a file."""

    def __init__(
        self, points: np.ndarray, scale: float | None, part_labels: np.ndarray | None, **description: Any
    ) -> None:
        super().__init__(**description)
        self._points = points
        self._scale = None if scale is None else np.float32(scale)
        self._part_labels = part_labels

    def points(self, index: int) -> Float32[np.ndarray, "n 3"]:
        stored = self._points[index]
        if self._scale is None:
            return stored.astype(np.float32)
        return np.multiply(stored, self._scale, dtype=np.float32)

    def part_labels(self, index: int) -> Int64[np.ndarray, "n"] | None:
        return None if self._part_labels is None else self._part_labels[index].astype(np.int64)


Columns = Mapping[str, np.ndarray]
"""The unchecked contents of a file: points, and possibly a scale, labels and so on."""


def checked_dataset(where: str, name: str, columns: Columns, fingerprint: str, *, strict: bool = True) -> ArrayDataset:
    """A data set from the columns of a file, or a DatasetError that names the file, the column and the problem.

    ``strict=False`` accepts labels out of range, so that ``survey`` can report them.
    """
    try:
        return _checked(name, columns, fingerprint, strict)
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from error.__cause__


def _checked(name: str, columns: Columns, fingerprint: str, strict: bool) -> ArrayDataset:
    points = columns["points"]
    if points.ndim != 3 or points.shape[2] != 3:
        hint = "; a single cloud is not a data set" if points.ndim == 2 else ""
        raise DatasetError(f"points must have the shape [objects, points, 3], got {list(points.shape)}{hint}")
    count = len(points)
    class_names = _strings(columns, "class_names")
    if len(set(class_names)) < len(class_names):
        repeated = sorted({name for name in class_names if class_names.count(name) > 1})
        raise DatasetError(f"class_names must differ from one another, repeated: {', '.join(repeated[:5])}")
    labels = columns.get("labels", np.full(count, UNLABELLED))
    labels = labels[:, 0] if labels.shape == (count, 1) else labels
    _check_column("labels", labels, (count,))
    labels = labels.astype(np.int64)
    if "class_names" not in columns and labels.max(initial=UNLABELLED) < _MOST_CLASSES:
        class_names = tuple(f"class_{code}" for code in range(int(labels.max(initial=UNLABELLED)) + 1))
    outside = (labels < UNLABELLED) | (labels >= len(class_names))
    if strict and outside.any():
        raise DatasetError(
            f"{int(outside.sum())} labels are outside -1 to {len(class_names) - 1} "
            f"(there are {len(class_names)} class names), the first is {labels[outside][0]} at {np.argmax(outside)}"
        )
    if "part_labels" in columns:
        _check_column("part_labels", columns["part_labels"], points.shape[:2])
    scale = _scale(points, columns.get("scale"))
    ids = _strings(columns, "object_ids") if "object_ids" in columns else [f"{index:06d}" for index in range(count)]
    if len(ids) != count:
        raise DatasetError(f"object_ids must have one entry for each of the {count} objects, got {len(ids)}")
    return ArrayDataset(
        points,
        scale,
        columns.get("part_labels"),
        name=name,
        class_names=class_names,
        labels=labels,
        object_ids=ids,
        split_codes=_split_codes(columns, count),
        fingerprint=fingerprint,
    )


def spilled(shape: tuple[int, ...], dtype: np.dtype, fill: Callable[[np.memmap], None]) -> np.ndarray:
    """An array too large for memory, in a temporary file that is gone when the process ends; ``fill`` writes it."""
    size, free = math.prod(shape) * dtype.itemsize, shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise DatasetError(
            f"an array {list(shape)} of {size} bytes has to be unpacked to {tempfile.gettempdir()}, which has only "
            f"{free} bytes free; set TMPDIR to a larger disk, or store the array without compression"
        )
    with tempfile.TemporaryFile(prefix="geocaps-") as file:
        array = np.memmap(file, dtype=dtype, mode="w+", shape=shape)
        fill(array)
        array.flush()
    array.setflags(write=False)
    return array


def _strings(columns: Columns, key: str) -> tuple[str, ...]:
    """A one-dimensional array of text, as strings."""
    values = columns.get(key, np.array([], dtype=str))
    if values.ndim != 1 or values.dtype.kind not in "US":
        got = f"{values.dtype} of shape {list(values.shape)}"
        raise DatasetError(f"{key} must be a one-dimensional array of strings, got {got}")
    try:
        return tuple(value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values.tolist())
    except UnicodeDecodeError as error:
        raise DatasetError(f"{key} has text that is not UTF-8") from error


def _scale(points: np.ndarray, scale: np.ndarray | None) -> float | None:
    if points.dtype.kind != "f" and points.dtype.str[1:] != "i2":
        raise DatasetError(f"points must be float16, float32, float64 or int16, got {points.dtype}")
    if scale is None:
        if points.dtype.kind == "f":
            return None
        raise DatasetError("int16 points need a scale (value x scale = coordinate), and there is none")
    if scale.size != 1 or scale.dtype.kind not in "fiu":
        raise DatasetError(f"scale must be one number, got {scale.dtype} of shape {list(scale.shape)}")
    value = float(scale.reshape(()))
    if not (np.isfinite(value) and value > 0):
        raise DatasetError(f"scale must be positive and finite, got {value}")
    return value


def _split_codes(columns: Columns, count: int) -> np.ndarray:
    split = columns.get("split")
    if split is None:
        return np.full(count, NO_SPLIT, dtype=np.int64)
    _check_column("split", split, (count,))
    names = _strings(columns, "split_names") or SPLIT_NAMES
    unknown = [name for name in names if name not in SPLIT_NAMES]
    if unknown:
        raise DatasetError(f"split_names must be among {', '.join(SPLIT_NAMES)}; got {', '.join(unknown)}")
    codes = split.astype(np.int64)
    outside = (codes < NO_SPLIT) | (codes >= len(names))
    if outside.any():
        raise DatasetError(f"split must be 0 to {len(names) - 1} ({', '.join(names)}) or -1, got {codes[outside][0]}")
    numbers = np.array([*(SPLIT_NAMES.index(name) for name in names), NO_SPLIT], dtype=np.int64)
    return numbers[codes]


def _check_column(key: str, column: np.ndarray, shape: tuple[int, ...]) -> None:
    if column.shape != shape or column.dtype.kind not in "iu":
        raise DatasetError(
            f"{key} must be whole numbers of shape {list(shape)} (one per "
            f"{'object' if len(shape) == 1 else 'point'}), got {column.dtype} of shape {list(column.shape)}"
        )
