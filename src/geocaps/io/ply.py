"""PLY, ASCII and binary, with or without faces."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

_MAX_HEADER_BYTES = 64 * 1024
_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8",
}  # fmt: skip
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_INDEX_NAMES = ("vertex_indices", "vertex_index")


@dataclass(frozen=True)
class _Property:
    name: str
    dtype: np.dtype
    length_dtype: np.dtype | None  # of a list, else None


@dataclass(frozen=True)
class _Element:
    name: str
    count: int
    properties: list[_Property] = field(default_factory=list)

    @property
    def least_bytes(self) -> int:
        """The bytes of a row whose lists are empty."""
        return sum((prop.length_dtype or prop.dtype).itemsize for prop in self.properties)


@dataclass(frozen=True)
class _Header:
    ascii: bool
    elements: dict[str, _Element]
    size: int  # bytes before the data


def read(path: Path) -> Geometry:
    """Read a PLY file; without faces its vertices are the cloud. Colours, normals and the like are ignored."""
    data = limits.read_bytes(path)
    header = _parse_header(data)
    _check_sizes(header, data)
    rows: _Rows = _TextRows(data, header.size) if header.ascii else _BinaryRows(data, header.size)
    vertices: np.ndarray = np.empty((0, 3))
    faces: Any = np.empty((0, 3))
    for element in header.elements.values():
        if element.name == "vertex" and any(prop.length_dtype is not None for prop in element.properties):
            raise ValueError("its vertices have lists among their properties")
        table: dict[str, Any] = _read_even(element, rows) or _read_uneven(element, rows)
        if element.name == "vertex":
            vertices = np.column_stack([table[axis] for axis in "xyz"])
        elif element.name == "face":
            faces = next((table[name] for name in _INDEX_NAMES if name in table), faces)
    return limits.mesh(vertices, faces, limits.extras_of(prop.name for prop in header.elements["vertex"].properties))


def _parse_header(data: bytes) -> _Header:
    end = data.find(b"end_header", 0, _MAX_HEADER_BYTES)
    newline = data.find(b"\n", end)
    if not data.startswith(b"ply") or end < 0 or newline < 0:
        raise ValueError("it does not begin with a PLY header (ply ... end_header)")
    lines = [line.split() for line in data[:end].decode("latin-1").splitlines()]
    if len(lines) < 2 or len(lines[1]) < 2 or lines[1][0] != "format" or lines[1][1] not in _FORMATS:
        raise ValueError("the second line does not give the format (ascii or binary, little or big endian)")
    order = _FORMATS[lines[1][1]]
    elements: dict[str, _Element] = {}
    for words in lines[2:]:
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "element" and len(words) == 3 and words[1] not in elements:
            element = _Element(words[1], int(words[2]))
            limits.check_count(element.count, f"rows of '{element.name}'")
            elements[element.name] = element
        elif words[0] == "property" and elements and len(words) in (3, 5):
            element.properties.append(_parse_property(words, order))
        else:
            raise ValueError(f"the header has a line that is not understood: {' '.join(words)[:60]!r}")
    if "vertex" not in elements or not {"x", "y", "z"} <= {p.name for p in elements["vertex"].properties}:
        raise ValueError("the header declares no vertex element with x, y and z")
    return _Header(order == "", elements, newline + 1)


def _parse_property(words: list[str], order: str) -> _Property:
    types = words[2:4] if words[1] == "list" else words[1:2]
    unknown = [name for name in types if name not in _TYPES]
    if unknown or (len(words) == 5) != (words[1] == "list"):
        raise ValueError(f"the header has a property that is not understood: {' '.join(words)[:60]!r}")
    dtypes = [np.dtype(order + _TYPES[name]) for name in types]
    if len(dtypes) == 2 and dtypes[0].kind == "f":
        raise ValueError("the length of a list cannot be a floating-point number")
    return _Property(words[-1], dtypes[-1], dtypes[0] if len(dtypes) == 2 else None)


def _check_sizes(header: _Header, data: bytes) -> None:
    rows = sum(element.count for element in header.elements.values())
    if not header.ascii:
        needed = sum(element.count * element.least_bytes for element in header.elements.values())
        limits.check_present(needed, len(data) - header.size, "the rows that the header declares")
        if any(element.count and not element.properties for element in header.elements.values()):
            raise ValueError("the header declares an element without properties")
        return
    lines = data.count(b"\n", header.size) + (not data.endswith(b"\n"))
    if lines < rows:
        raise ValueError(f"the header declares {rows:,} rows, and {lines:,} lines follow: damaged or cut short")
    # Each line becomes an array, so a file of blank lines would fill the memory.
    if lines > 2 * rows + 1000:
        raise ValueError(f"the header declares {rows:,} rows, and {lines:,} lines follow")


Field = tuple[str, np.dtype, int]
"""A name, the type of its values, and how many of them a row has."""


class _BinaryRows:
    """The rows of a binary file, read from `position` on."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def take(self, fields: list[Field], count: int) -> dict[str, np.ndarray]:
        """So many rows, by column [count, n]; a file that has fewer is refused."""
        row = np.dtype([(f"f{i}", dtype, (length,)) for i, (_, dtype, length) in enumerate(fields)])
        end = self.position + count * row.itemsize
        limits.check_present(end, len(self.data), "the rows that the header declares")
        table = np.frombuffer(self.data, row, count, self.position) if row.itemsize else np.empty(count, row)
        self.position = end
        return {name: table[f"f{i}"] for i, (name, _, _) in enumerate(fields)}


class _TextRows:
    """The same of an ASCII file."""

    def __init__(self, data: bytes, start: int) -> None:
        limits.check_text(len(data))
        self.values, self.position = np.array(limits.decode(data[start:]).split(), dtype=np.float64), 0

    def take(self, fields: list[Field], count: int) -> dict[str, np.ndarray]:
        ends = np.cumsum([length for _, _, length in fields])
        width = int(ends[-1]) if fields else 0
        end = self.position + count * width
        if end > len(self.values):
            raise ValueError(f"{end:,} numbers are declared, and {len(self.values):,} are there: damaged or cut short")
        table = self.values[self.position : end].reshape(count, width)
        self.position = end
        return {name: table[:, e - n : e] for (name, _, n), e in zip(fields, ends, strict=True)}


_Rows = _BinaryRows | _TextRows


def _read_even(element: _Element, rows: _Rows) -> dict[str, np.ndarray] | None:
    """The columns of an element whose lists are all as long as those of its first row; else None, and nothing read."""
    start = rows.position
    fields: list[Field] = []
    lengths: dict[str, int] = {}
    for prop in element.properties:
        length = 1
        if prop.length_dtype is not None and element.count:
            length = max(int(rows.take([("n", prop.length_dtype, 1)], 1)["n"][0, 0]), 0)
            lengths[f"n {prop.name}"] = length
            fields.append((f"n {prop.name}", prop.length_dtype, 1))
        fields.append((prop.name, prop.dtype, length))
        if element.count:
            rows.take(fields[-1:], 1)
    rows.position = start
    try:
        table = rows.take(fields, element.count)
    except ValueError:  # too few bytes for lists of that length
        return None
    if any((table[name] != length).any() for name, length in lengths.items()):
        rows.position = start
        return None
    return table


def _read_uneven(element: _Element, rows: _Rows) -> dict[str, list[np.ndarray]]:
    """The lists of an element by name, row by row."""
    lists: dict[str, list[np.ndarray]] = {prop.name: [] for prop in element.properties if prop.length_dtype is not None}
    for _ in range(element.count):
        for prop in element.properties:
            length = 1
            if prop.length_dtype is not None:
                length = max(int(rows.take([("n", prop.length_dtype, 1)], 1)["n"][0, 0]), 0)
            values = rows.take([("v", prop.dtype, length)], 1)["v"][0]
            if prop.length_dtype is not None:
                lists[prop.name].append(values)
    return lists
