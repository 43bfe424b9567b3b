"""Points to a file: the old file or the whole new one, never half of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from geocaps.atomic import written_whole
from geocaps.errors import InvalidInputError, UsageError

# The names that PLY has for the types that are written.
_PLY_TYPES = {"f4": "float", "f8": "double", "u1": "uchar", "i4": "int"}

SAVE_SUFFIXES = (".npy", ".npz", ".pcd", ".ply", ".xyz")

# Columns in the order of the file: x, y, z, then red, green, blue and label where they are given.
Columns = dict[str, np.ndarray]


def save_points(
    path: str | os.PathLike, points: ArrayLike, *, labels: ArrayLike | None = None, colors: ArrayLike | None = None
) -> None:
    """Write points [N, 3] as PLY (binary), XYZ, NPY, NPZ or PCD (ascii); the suffix of the path says which.

    labels [N] are integers, colors [N, 3] are 0 to 255 (uint8) or 0 to 1 (floats). NPY holds the points alone. float64
    stays float64, anything else becomes float32. A file of that name is replaced once the new one is complete.
    """
    path = Path(path)
    check_target(path, SAVE_SUFFIXES)
    writer = _WRITERS[path.suffix.lower()]
    if path.suffix.lower() == ".npy" and (labels is not None or colors is not None):
        raise InvalidInputError(f"cannot write {path}: NPY holds points alone, use NPZ or PLY for labels and colors")
    array = np.asarray(points)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise InvalidInputError(f"points must be numbers of shape [N, 3], not {array.dtype} of {list(array.shape)}")
    array = array.astype("<f8" if array.dtype.itemsize == 8 and array.dtype.kind == "f" else "<f4")
    columns: Columns = dict(zip("xyz", array.T, strict=True))
    if colors is not None:
        columns |= dict(zip(("red", "green", "blue"), _check_colors(colors, len(array)).T, strict=True))
    if labels is not None:
        columns["label"] = _check_labels(labels, len(array))

    try:
        with written_whole(path) as beside, beside.open("wb") as file:
            writer(file, columns)
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def check_target(path: Path, suffixes: Collection[str], *, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Refuse a name that cannot be written, or that is one of the inputs: worth asking before hours of work."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"cannot write {path}: the name must end in {' or '.join(sorted(suffixes))}")
    if not path.parent.is_dir():
        what = f"{path.parent} is not a folder" if path.parent.exists() else f"the folder {path.parent} does not exist"
        raise UsageError(f"cannot write {path}: {what}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: a folder has this name")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: nothing may be written in the folder {path.parent}")
    if path.exists() and any(os.path.exists(one) and os.path.samefile(path, one) for one in inputs):
        raise UsageError(f"cannot write {path}: it is an input, and would be replaced")


def _check_colors(colors: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(colors)
    if array.shape != (count, 3):
        raise InvalidInputError(f"colors must have shape [{count}, 3], not {list(array.shape)}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f" or not ((array >= 0) & (array <= 1)).all():
        raise InvalidInputError("colors must be uint8 from 0 to 255, or floats from 0 to 1")
    return np.rint(array * 255).astype(np.uint8)


def _check_labels(labels: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InvalidInputError(f"labels must be {count} integers, not {array.dtype} of shape {list(array.shape)}")
    limits = np.iinfo(np.int32)
    if count and (array.min() < limits.min or array.max() > limits.max):
        raise InvalidInputError("labels must fit 32 bits")
    return array.astype("<i4")


def _table(columns: Columns) -> np.ndarray:
    table = np.empty(len(columns["x"]), dtype=[(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return table


def _points(columns: Columns) -> np.ndarray:
    return np.column_stack([columns[axis] for axis in "xyz"])


def _write_ply(file: IO[bytes], columns: Columns) -> None:
    properties = [f"property {_PLY_TYPES[values.dtype.str[1:]]} {name}" for name, values in columns.items()]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(columns['x'])}", *properties, "end_header"]
    file.write("".join(f"{line}\n" for line in lines).encode())
    file.write(_table(columns).tobytes())


def _number_format(values: np.ndarray) -> str:
    """The digits that bring the same number back."""
    return {"f4": "%.9g", "f8": "%.17g"}.get(values.dtype.str[1:], "%d")


def _write_rows(file: IO[bytes], columns: Columns) -> None:
    np.savetxt(file, _table(columns), fmt=" ".join(_number_format(values) for values in columns.values()))


def _write_npy(file: IO[bytes], columns: Columns) -> None:
    np.save(file, _points(columns), allow_pickle=False)


def _write_npz(file: IO[bytes], columns: Columns) -> None:
    arrays: dict[str, Any] = {"points": _points(columns)}
    if "red" in columns:
        arrays["colors"] = np.column_stack([columns[name] for name in ("red", "green", "blue")])
    if "label" in columns:
        arrays["labels"] = columns["label"]
    np.savez_compressed(file, **arrays)


def _write_pcd(file: IO[bytes], columns: Columns) -> None:
    """PCD keeps a colour in one number, 0xRRGGBB."""
    fields = dict(columns)
    if "red" in fields:
        red, green, blue = (fields.pop(name).astype(np.uint32) for name in ("red", "green", "blue"))
        fields["rgb"] = (red << 16) | (green << 8) | blue
    kinds = [values.dtype.kind.upper() for values in fields.values()]
    sizes = [str(values.dtype.itemsize) for values in fields.values()]
    count = len(columns["x"])
    lines = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        f"FIELDS {' '.join(fields)}",
        f"SIZE {' '.join(sizes)}",
        f"TYPE {' '.join(kinds)}",
        f"COUNT {' '.join('1' for _ in fields)}",
        f"WIDTH {count}",
        "HEIGHT 1",
        "VIEWPOINT 0 0 0 1 0 0 0",
        f"POINTS {count}",
        "DATA ascii",
    ]
    file.write("".join(f"{line}\n" for line in lines).encode())
    _write_rows(file, fields)


_WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".ply": _write_ply,
    ".xyz": _write_rows,
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".pcd": _write_pcd,
}
