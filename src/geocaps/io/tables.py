"""Tables of coordinates: columns of text (XYZ, TXT, PTS, CSV) and arrays (NPY, NPZ, HDF5).

Nothing is unpickled, and an array is read only after its shape was checked.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy_format

from geocaps.io import limits
from geocaps.io.limits import Geometry

if TYPE_CHECKING:
    import h5py

_COMMENTS = ("#", "//", "%")
_MAX_MEMBERS = 1000
_MAX_COLUMNS = 16
_LABELLED_COLUMNS = (4, 7, 8)
_NPY_HEADER_BYTES = 64 * 1024
_NAMES = ("points", "data")
# deflate, shuffle, fletcher32, szip, nbit, scale-offset and LZF: what h5py itself holds, no plug-in is ever loaded.
_HDF5_FILTERS = {1, 2, 3, 4, 5, 6, 32000}

Shape = tuple[int, ...]
Stream = io.BufferedIOBase | IO[bytes]


def read_text(path: Path) -> Geometry:
    """Read x, y, z from columns, divided by space, comma, semicolon or tab.

    They are the columns that a header line names x, y and z, else the first three. Labels are the column that it calls
    so; without a header the last of four, of seven (after a colour) or of eight (after a confidence too), where it has
    whole numbers. Other columns are ignored.
    Lines that are blank or begin with #, // or % are comments. A lone number first (PTS) is the number of points.
    """
    stream = io.StringIO(limits.read_text(path))
    start, line = _next_line(stream)
    expected = None
    if line.isascii() and line.isdigit():
        expected = int(line)
        limits.check_count(expected)
        start, line = _next_line(stream)
    delimiter = next((mark for mark in ";,\t" if line.count(mark) >= 2), None)
    names = [name.strip(" \"'").lower() for name in line.split(delimiter)]
    if len(names) < 3:
        raise ValueError(f"expected at least three columns, the first line is {line[:60]!r}")
    columns: tuple[int, ...] = (0, 1, 2)
    label = len(names) - 1 if len(names) in _LABELLED_COLUMNS else None
    extras: tuple[str, ...] = (f"{len(names) - 3} more columns",) if len(names) > 3 else ()
    try:
        list(map(float, names[:3]))
    except ValueError:  # a header
        if {"x", "y", "z"} <= set(names):
            columns = (names.index("x"), names.index("y"), names.index("z"))
        named = limits.label_column(names)
        label = None if named is None else names.index(named)
        extras = limits.extras_of(names) or extras
        start, _ = _next_line(stream)
    stream.seek(start)
    rows = _read_columns(stream, delimiter, columns, label)
    if expected is not None and len(rows) != expected:
        raise ValueError(f"the first line declares {expected:,} points, and {len(rows):,} follow: damaged or cut short")
    return limits.cloud(rows[:, :3], extras, labels=rows[:, 3] if rows.shape[1] > 3 else None)


def _read_columns(stream: io.StringIO, delimiter: str | None, axes: tuple[int, ...], label: int | None) -> np.ndarray:
    """The coordinates, and the labels where they are numbers: a class may be a word."""
    start = stream.tell()
    if label is not None:
        try:
            return np.loadtxt(stream, dtype=np.float64, delimiter=delimiter, usecols=(*axes, label), ndmin=2)
        except ValueError:
            stream.seek(start)
    return np.loadtxt(stream, dtype=np.float64, delimiter=delimiter, usecols=axes, ndmin=2)


def _next_line(stream: io.StringIO) -> tuple[int, str]:
    """Where the next line that is neither blank nor a comment begins, and the line."""
    start = stream.tell()
    while line := stream.readline():
        if line.strip() and not line.strip().startswith(_COMMENTS):
            return start, line.strip()
        start = stream.tell()
    raise ValueError("there are no lines of numbers")


def read_npy(path: Path) -> Geometry:
    """Read an array [N, 3], or [N, C] whose first three columns are x, y, z."""
    data = limits.read_bytes(path)
    shape, _, dtype = npy_header(io.BytesIO(data))
    _check_array(shape, dtype, "the array")
    return _cloud(_array(data, "the points that the header declares"))


def read_npz(path: Path) -> Geometry:
    """Read the array `points` (or `data`), else the only array of shape [N, 3]; and `labels`, if they are numbers."""
    archive = _opened_npz(path)
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    headers = {}
    for name, info in members.items():
        # Other methods, which NumPy never writes, unpack without a bound.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"the array '{name[:40]}' is compressed by a method that NumPy does not use")
        if info.filename.endswith(".npy"):
            with archive.open(info) as member:
                headers[name] = npy_header(member)
    name = _choose({key: shape for key, (shape, _, _) in headers.items()})
    shape, _, dtype = headers[name]
    _check_array(shape, dtype, f"the array '{name[:40]}'")
    limits.check_expansion(members[name].file_size, members[name].compress_size)
    labels = None
    if "labels" in headers and headers["labels"][0] == shape[:1] and headers["labels"][2].kind in "fiu":
        limits.check_expansion(members["labels"].file_size, members["labels"].compress_size)
        labels = _array(archive.read(members["labels"]), "the array 'labels'")
    # The size in the directory, checked above, is all that a member can give.
    return _cloud(_array(archive.read(members[name]), f"the array '{name[:40]}'"), labels)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an archive that ``np.savez`` wrote (not packed), each after its size was checked."""
    archive, found = _opened_npz(path), {}
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or not info.filename.endswith(".npy"):
            raise ValueError(f"its member '{info.filename[:40]}' is packed, or is no array")
        name = info.filename.removesuffix(".npy")
        found[name] = _array(archive.read(info), f"the array '{name[:40]}'")
    return found


def npy_header(stream: Stream) -> tuple[Shape, bool, np.dtype]:
    """Shape, whether in Fortran order, and type of an NPY stream, which is left where its data begin."""
    try:
        version = npy_format.read_magic(stream)
    except ValueError as error:
        raise ValueError("it does not begin with an NPY header") from error
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"NPY version {version} is not read, save it with version 1.0 or 2.0")
    length_bytes = stream.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(length_bytes, "little")
    if length > _NPY_HEADER_BYTES:
        raise ValueError(f"its header declares {length:,} bytes for itself, the limit is {_NPY_HEADER_BYTES:,}")
    return readers[version](io.BytesIO(length_bytes + stream.read(length)))


def _array(data: bytes, what: str) -> np.ndarray:
    """The array of an NPY file, whose header must not declare more than is there."""
    stream = io.BytesIO(data)
    shape, _, dtype = npy_header(stream)
    limits.check_present(_nbytes(shape, dtype), len(data) - stream.tell(), what)
    return npy_format.read_array(io.BytesIO(data), allow_pickle=False)


def _cloud(table: np.ndarray, labels: np.ndarray | None = None) -> Geometry:
    more = table.shape[1] - 3
    return limits.cloud(table[:, :3], [f"{more} more columns"] if more else [], labels=labels)


def _opened_npz(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(limits.read_bytes(path)))
    except zipfile.BadZipFile as error:
        raise ValueError(
            "it is not a zip archive, as NPZ files are: damaged, cut short or of another format"
        ) from error
    if len(archive.infolist()) > _MAX_MEMBERS:
        raise ValueError(f"it has {len(archive.infolist()):,} arrays, the limit is {_MAX_MEMBERS:,}")
    return archive


def read_hdf5(path: Path) -> Geometry:
    """Read the dataset `points` (or `data`), else the only dataset of shape [N, 3], in any group."""
    import h5py  # slow to import

    size = limits.checked_size(path)
    try:
        opened = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(why_not_hdf5(path, error)) from error
    with opened as file:
        datasets = _hdf5_datasets(file)
        name = _choose({key: item.shape for key, item in datasets.items()})
        chosen = datasets[name]
        _check_array(chosen.shape, chosen.dtype, f"the dataset '{name[:40]}'")
        if chosen.external or chosen.is_virtual:
            raise ValueError(f"the dataset '{name[:40]}' has its data in other files, which are not read")
        plan = chosen.id.get_create_plist()
        filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
        if not filters <= _HDF5_FILTERS:
            raise ValueError(f"the dataset '{name[:40]}' is packed with a plug-in, which is not loaded")
        limits.check_expansion(_nbytes(chosen.shape, chosen.dtype), chosen.id.get_storage_size())
        limits.check_expansion(_nbytes(chosen.chunks or (), chosen.dtype), size)
        return _cloud(chosen[:])


def why_not_hdf5(path: Path, error: Exception) -> str:
    """A plain reason why a file does not open: HDF5 itself reports on its internals."""
    import h5py

    if not isinstance(error, OSError) or error.errno is not None:
        return str(error)
    return "it is damaged or cut short" if h5py.is_hdf5(path) else "it does not begin with an HDF5 header"


def _hdf5_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Every dataset of numbers by its name, reached without following a link out of the file."""
    import h5py

    found: dict[str, h5py.Dataset] = {}
    waiting: list[tuple[str, h5py.Group]] = [("", file)]
    seen = 0
    while waiting:
        prefix, group = waiting.pop()
        for name in group:
            seen += 1
            # Groups may hold themselves: without a limit the walk would not end.
            if seen > _MAX_MEMBERS:
                raise ValueError(f"it has more than {_MAX_MEMBERS:,} members")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                waiting.append((f"{prefix}{name}/", item))
            elif isinstance(item, h5py.Dataset) and item.shape is not None:
                found[f"{prefix}{name}"] = item
    return found


def _choose(shapes: Mapping[str, Shape]) -> str:
    """The name of the array that holds the points."""
    for name in _NAMES:
        if name in shapes:
            return name
    fitting = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] == 3]
    if len(fitting) == 1:
        return fitting[0]
    sets = [name for name, shape in shapes.items() if len(shape) == 3 and shape[2] == 3]
    if sets and not fitting:
        return sets[0]
    listed = ", ".join(f"{name} {list(shape)}" for name, shape in list(shapes.items())[:8])
    raise ValueError(f"expected an array named points, or one single array of shape [N, 3]; found: {listed or 'none'}")


def _check_array(shape: Shape, dtype: np.dtype, what: str) -> None:
    if len(shape) == 3 and shape[2] == 3:
        raise ValueError(f"{what} of shape {list(shape)} is a data set, not one cloud: `geocaps encode` takes it")
    if len(shape) != 2 or not 3 <= shape[1] <= _MAX_COLUMNS:
        raise ValueError(f"{what} has shape {list(shape)[:8]}, expected [N, 3]")
    if dtype.kind not in "fiu" or dtype.hasobject:
        raise ValueError(f"{what} has type {str(dtype)[:60]}, expected numbers")
    limits.check_count(shape[0])


def _nbytes(shape: Shape, dtype: np.dtype) -> int:
    return math.prod(map(int, shape)) * dtype.itemsize
