"""PLY, ASCII and binary, with or without faces."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from trimesh.exchange.ply import load_ply

from geocaps.points.io import limits
from geocaps.points.io.limits import Geometry

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
    """Read a PLY file; without faces its vertices are the cloud. Colours, normals and the like are passed over."""
    data = limits.read_bytes(path)
    header = _parse_header(data)
    _check_sizes(header, data)
    if header.ascii:
        limits.check_text(len(data))
    elif not _is_even(header, data):
        return _read_uneven(header, data)
    loaded = load_ply(io.BytesIO(data), skip_materials=True, fix_texture=False)
    if "vertices" not in loaded:
        return limits.cloud(np.empty((0, 3)))
    if len(loaded["vertices"]) != header.elements["vertex"].count:
        raise ValueError("some vertices are missing: damaged or cut short")
    faces = loaded.get("faces")
    return limits.mesh(loaded["vertices"], [] if faces is None else faces)


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


def _is_even(header: _Header, data: bytes) -> bool:
    """Whether trimesh reads the file: vertices and faces only, and every list as long as the first of its kind."""
    if not set(header.elements) <= {"vertex", "face"}:
        return False
    position = header.size
    for element in header.elements.values():
        row: list[tuple] = []
        lengths: dict[str, int] = {}
        for i, prop in enumerate(element.properties):
            if prop.length_dtype is not None and element.count:
                start = position + np.dtype(row).itemsize
                lengths[f"n{i}"] = max(int(_values(data, start, prop.length_dtype, 1)[0]), 0)
                row.append((f"n{i}", prop.length_dtype))
                limits.check_present(start + lengths[f"n{i}"] * prop.dtype.itemsize, len(data), "the lists it declares")
            row.append((f"f{i}", prop.dtype, (lengths.get(f"n{i}", 1),)))
        size = np.dtype(row).itemsize * element.count
        if position + size > len(data):
            return False
        table = _values(data, position, np.dtype(row), element.count)
        if any((table[name] != length).any() for name, length in lengths.items()):
            return False
        position += size
    return position == len(data)


def _read_uneven(header: _Header, data: bytes) -> Geometry:
    """Read a binary file that trimesh does not: triangles beside quads, other elements, or bytes after the end."""
    position = header.size
    vertices, faces = np.empty((0, 3)), []
    for element in header.elements.values():
        if element.name == "vertex" and all(prop.length_dtype is None for prop in element.properties):
            row = np.dtype([(f"f{i}", prop.dtype) for i, prop in enumerate(element.properties)])
            names = [prop.name for prop in element.properties]
            table = _values(data, position, row, element.count)
            vertices = np.column_stack([table[f"f{names.index(axis)}"] for axis in "xyz"])
            position += row.itemsize * element.count
        elif element.name == "vertex":
            raise ValueError("its vertices have lists among their properties")
        else:
            for _ in range(element.count):
                lists, position = _read_row(element, data, position)
                if element.name == "face":
                    faces.append(next((lists[name] for name in _INDEX_NAMES if name in lists), []))
    return limits.mesh(vertices, faces)


def _read_row(element: _Element, data: bytes, position: int) -> tuple[dict[str, list[int]], int]:
    """The lists of one row, by name, and where the next row begins."""
    lists = {}
    for prop in element.properties:
        if prop.length_dtype is None:
            position += prop.dtype.itemsize
            continue
        length = int(_values(data, position, prop.length_dtype, 1)[0])
        position += prop.length_dtype.itemsize
        lists[prop.name] = _values(data, position, prop.dtype, max(length, 0)).tolist()
        position += prop.dtype.itemsize * max(length, 0)
    return lists, position


def _values(data: bytes, position: int, dtype: np.dtype, count: int) -> np.ndarray:
    limits.check_present(position + count * dtype.itemsize, len(data), "the rows that the header declares")
    return np.frombuffer(data, dtype=dtype, count=count, offset=position)
