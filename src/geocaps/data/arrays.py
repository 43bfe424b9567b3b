"""A data set whose objects all have the same number of points, in one array; and the checks such arrays must pass."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.data.base import NO_SPLIT, SPLIT_NAMES, UNLABELLED, PointDataset
from geocaps.errors import DatasetError

MEMORY_LIMIT = 2**30
"""Compressed arrays up to this many bytes are read into memory; larger ones go through a temporary file."""

MOST_CLASSES = 100_000


class ArrayDataset(PointDataset):
    """Objects of equal size, ``points[index] * scale``; the array may be mapped from a file."""

    def __init__(
        self,
        points: np.ndarray,
        scale: float | None,
        part_labels: np.ndarray | None,
        **description: Any,
    ) -> None:
        super().__init__(**description)
        self._points = points
        self._scale = None if scale is None else np.float32(scale)
        self._part_labels = part_labels

    def points(self, index: int) -> Float[Tensor, "n 3"]:
        stored = self._points[index]
        if self._scale is None:
            return torch.from_numpy(stored.astype(np.float32))
        return torch.from_numpy(np.multiply(stored, self._scale, dtype=np.float32))

    def part_labels(self, index: int) -> Int[Tensor, "n"] | None:
        if self._part_labels is None:
            return None
        return torch.from_numpy(self._part_labels[index].astype(np.int64))


@dataclass(frozen=True)
class Columns:
    """What a file says about its objects, before it is checked; None stands for a column that is not there."""

    points: np.ndarray
    scale: np.ndarray | None = None
    labels: np.ndarray | None = None
    class_names: np.ndarray | None = None
    object_ids: np.ndarray | None = None
    split: np.ndarray | None = None
    split_names: np.ndarray | None = None
    part_labels: np.ndarray | None = None


def checked_dataset(where: str, name: str, columns: Columns, fingerprint: str, *, strict: bool = True) -> ArrayDataset:
    """A data set from the columns of a file, or a DatasetError that says which column is wrong, and how.

    ``strict=False`` lets labels point outside the class names: only ``survey`` asks for this, to report them.
    """
    points = columns.points
    if points.ndim != 3 or points.shape[2] != 3:
        hint = "; a single cloud is not a data set" if points.ndim == 2 else ""
        raise DatasetError(f"{where}: points must have the shape [objects, points, 3], got {list(points.shape)}{hint}")
    count = len(points)
    class_names = _class_names(where, columns)
    labels = _labels(where, columns.labels, count)
    if columns.class_names is None and labels.max(initial=UNLABELLED) < MOST_CLASSES:
        class_names = tuple(f"class_{code}" for code in range(int(labels.max(initial=UNLABELLED)) + 1))
    outside = (labels < UNLABELLED) | (labels >= len(class_names))
    if strict and outside.any():
        raise DatasetError(
            f"{where}: {int(outside.sum())} labels are outside -1 to {len(class_names) - 1} "
            f"(there are {len(class_names)} class names), the first is {labels[outside][0]} at {np.argmax(outside)}"
        )
    return ArrayDataset(
        points,
        _scale(where, points, columns.scale),
        _part_labels(where, points, columns.part_labels),
        name=name,
        class_names=class_names,
        labels=labels,
        object_ids=_object_ids(where, columns.object_ids, count),
        split_codes=_split_codes(where, columns, count),
        fingerprint=fingerprint,
    )


def spilled(shape: tuple[int, ...], dtype: np.dtype, fill: Callable[[np.memmap], None]) -> np.ndarray:
    """An array too large for memory, in a temporary file that vanishes with the process; ``fill`` writes into it."""
    size, free = math.prod(shape) * dtype.itemsize, shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise DatasetError(
            f"an array {list(shape)} of {size} bytes has to be unpacked to {tempfile.gettempdir()}, which has only "
            f"{free} bytes free; set TMPDIR to a larger place or store the array without compression"
        )
    with tempfile.TemporaryFile(prefix="geocaps-") as file:
        array = np.memmap(file, dtype=dtype, mode="w+", shape=shape)
        fill(array)
        array.flush()
    array.setflags(write=False)
    return array


def strings(where: str, key: str, values: np.ndarray | None) -> tuple[str, ...]:
    """A one-dimensional array of text as plain strings."""
    if values is None:
        return ()
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise DatasetError(
            f"{where}: {key} must be a one-dimensional array of strings, "
            f"got {values.dtype} of shape {list(values.shape)}"
        )
    try:
        return tuple(value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values.tolist())
    except UnicodeDecodeError as error:
        raise DatasetError(f"{where}: {key} has text that is not UTF-8") from error


def _scale(where: str, points: np.ndarray, scale: np.ndarray | None) -> float | None:
    if points.dtype.kind == "f":
        if scale is None:
            return None
    elif points.dtype.kind != "i" or points.dtype.itemsize != 2:
        raise DatasetError(f"{where}: points must be float16, float32, float64 or int16, got {points.dtype}")
    if scale is None:
        raise DatasetError(
            f"{where}: int16 points need a scale beside them (value x scale = coordinate); there is none"
        )
    if scale.size != 1 or scale.dtype.kind not in "fiu":
        raise DatasetError(f"{where}: scale must be one number, got {scale.dtype} of shape {list(scale.shape)}")
    value = float(scale.reshape(()))
    if not (np.isfinite(value) and value > 0):
        raise DatasetError(f"{where}: scale must be positive and finite, got {value}")
    return value


def _labels(where: str, labels: np.ndarray | None, count: int) -> np.ndarray:
    if labels is None:
        return np.full(count, UNLABELLED, dtype=np.int64)
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    _check_column(where, "labels", labels, (count,))
    return labels.astype(np.int64)


def _class_names(where: str, columns: Columns) -> tuple[str, ...]:
    names = strings(where, "class_names", columns.class_names)
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DatasetError(f"{where}: class_names must differ from one another, repeated: {', '.join(repeated[:5])}")
    return names


def _object_ids(where: str, object_ids: np.ndarray | None, count: int) -> Iterable[str]:
    if object_ids is None:
        return [f"{index:06d}" for index in range(count)]
    ids = strings(where, "object_ids", object_ids)
    if len(ids) != count:
        raise DatasetError(f"{where}: object_ids must have one entry for each of the {count} objects, got {len(ids)}")
    return ids


def _split_codes(where: str, columns: Columns, count: int) -> np.ndarray:
    if columns.split is None:
        return np.full(count, NO_SPLIT, dtype=np.int64)
    _check_column(where, "split", columns.split, (count,))
    names = strings(where, "split_names", columns.split_names) or SPLIT_NAMES
    unknown = [name for name in names if name not in SPLIT_NAMES]
    if unknown:
        raise DatasetError(f"{where}: split_names must be among {', '.join(SPLIT_NAMES)}; got {', '.join(unknown)}")
    codes = columns.split.astype(np.int64)
    outside = (codes < NO_SPLIT) | (codes >= len(names))
    if outside.any():
        raise DatasetError(
            f"{where}: split must be 0 to {len(names) - 1} ({', '.join(names)}) or -1, got {codes[outside][0]}"
        )
    numbers = np.array([*(SPLIT_NAMES.index(name) for name in names), NO_SPLIT], dtype=np.int64)
    return numbers[codes]


def _part_labels(where: str, points: np.ndarray, part_labels: np.ndarray | None) -> np.ndarray | None:
    if part_labels is not None:
        _check_column(where, "part_labels", part_labels, points.shape[:2])
    return part_labels


def _check_column(where: str, key: str, column: np.ndarray, shape: tuple[int, ...]) -> None:
    if column.shape != shape or column.dtype.kind not in "iu":
        raise DatasetError(
            f"{where}: {key} must be whole numbers of shape {list(shape)} (one per "
            f"{'object' if len(shape) == 1 else 'point'}), got {column.dtype} of shape {list(column.shape)}"
        )
