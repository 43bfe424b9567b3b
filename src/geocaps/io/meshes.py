"""Meshes: points sampled uniformly by area, and the formats OBJ, OFF, STL and PLY."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from geocaps.errors import InvalidInputError
from geocaps.io import limits
from geocaps.io.limits import Geometry

# ModelNet glues the counts to the keyword: "OFF490 518 0".
_OFF_HEADER = re.compile(r"\s*(?:ST)?(C?)(N?)OFF\s*(\d{1,18})\s+(\d{1,18})\b")
_STL_HEADER_BYTES, _STL_TRIANGLE_BYTES = 84, 50
_PLY_HEADER_BYTES = 64 * 1024
_PLY_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8",
}  # fmt: skip
_PLY_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_INDEX_NAMES = ("vertex_indices", "vertex_index")


def sample_surface(
    vertices: ArrayLike, faces: ArrayLike, count: int, *, seed: int
) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, " n"]]:
    """Sample `count` points uniformly by area from a triangle mesh.

    vertices [V, 3], faces [F, 3] (indices). Returns the points [count, 3] in float64 and the face of each [count].
    The same seed gives the same points. A mesh without area raises InvalidInputError.
    """
    corners = np.asarray(vertices, dtype=np.float64)
    triangles = np.asarray(faces)
    _check(corners, triangles, count, seed)

    # Areas of very large or very small meshes would leave the range of float64 if they were not scaled first.
    extent = np.ptp(corners, axis=0).max()
    if not np.isfinite(extent) or extent <= 0:
        raise InvalidInputError(f"cannot sample a surface whose extent is {extent:g}: the mesh has no area")
    a, b, c = (corners[triangles[:, i]] for i in range(3))
    areas = np.linalg.norm(np.cross((b - a) / extent, (c - a) / extent), axis=1)
    edges = np.cumsum(areas)
    if not edges[-1] > 0:
        raise InvalidInputError(f"cannot sample a surface without area: all {len(triangles)} triangles are degenerate")

    rng = np.random.default_rng(seed)
    # side="right" never selects a triangle of zero area; rounding may exceed the last, hence the minimum.
    last = int(np.flatnonzero(areas)[-1])
    face_index = np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), last)
    u, v = rng.random((2, count, 1))
    outside = u + v > 1
    u, v = np.where(outside, 1 - u, u), np.where(outside, 1 - v, v)
    start = a[face_index]
    return start + u * (b[face_index] - start) + v * (c[face_index] - start), face_index


def _check(corners: np.ndarray, triangles: np.ndarray, count: int, seed: int) -> None:
    if corners.ndim != 2 or corners.shape[1] != 3:
        raise InvalidInputError(f"vertices must have shape [V, 3], not {list(corners.shape)}")
    if triangles.ndim != 2 or triangles.shape[1] != 3 or triangles.dtype.kind not in "iu":
        raise InvalidInputError(
            f"faces must be integers of shape [F, 3], not {triangles.dtype} of shape {list(triangles.shape)}"
        )
    if len(triangles) == 0:
        raise InvalidInputError("cannot sample the surface of a mesh without faces")
    if triangles.min() < 0 or triangles.max() >= len(corners):
        raise InvalidInputError(f"faces must refer to the {len(corners)} vertices, some refer to others")
    if not np.isfinite(corners).all():
        raise InvalidInputError("vertices must be finite numbers, some are NaN or infinite")
    check_draw(count, seed)


def check_draw(count: int, seed: int) -> None:
    """Raise for an invalid number of points or seed."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidInputError(f"the number of points must be a whole number of at least 1, not {count!r}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"the seed must be a whole number of at least 0, not {seed!r}")


def read_obj(path: Path) -> Geometry:
    """Read the vertices and faces of a Wavefront OBJ; without faces its vertices are the cloud.

    Not by trimesh, which counts negative (relative) indices from the end of the file instead of from their line; and
    the materials and textures that OBJ keeps in other files are not needed.
    """
    vertices: list[list[str]] = []
    faces: list[list[int]] = []
    colored = normals = False
    for line in limits.read_text(path).replace("\\\n", " ").splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "v":
            if len(words) < 4:
                raise ValueError(f"vertex {len(vertices) + 1} has fewer than three coordinates")
            vertices.append(words[1:4])
            colored = colored or len(words) >= 7
        elif words[0] == "vn":
            normals = True
        elif words[0] == "f":
            faces.append([_obj_index(word, len(vertices)) for word in words[1:]])
    if not vertices:
        raise ValueError("there are no vertices (lines that begin with v)")
    extras = [name for name, there in (("colours", colored), ("normals", normals)) if there]
    return limits.mesh(np.array(vertices, dtype=np.float64), faces, extras)


def _obj_index(word: str, defined: int) -> int:
    """The vertex of `12`, `12/3`, `12//4` or `-1/2/3`, counted from 0."""
    index = int(word.split("/", 1)[0])
    if index == 0 or defined + index < 0:
        raise ValueError(f"a face refers to vertex {index}, and OBJ counts from 1")
    return index - 1 if index > 0 else defined + index


def read_off(path: Path) -> Geometry:
    """Read an OFF file (also COFF, NOFF), with the counts on the line of the keyword or below it."""
    from trimesh.exchange.off import load_off  # slow to import, and few formats need it

    text = re.sub(r"#[^\n]*", "", limits.read_text(path))
    header = _OFF_HEADER.match(text)
    if header is None:
        raise ValueError("it does not begin with OFF and the numbers of vertices and faces")
    vertex_count, face_count = int(header[3]), int(header[4])
    extras = [name for name, there in (("colours", header[1]), ("normals", header[2])) if there]
    limits.check_count(vertex_count, "vertices")
    limits.check_count(face_count, "faces")
    body = text[header.end() :]
    # The number of edges may follow on the line of the counts; it is not needed.
    lines = [line for line in body.split("\n")[1:] if line and not line.isspace()]
    if len(lines) < vertex_count + face_count:
        raise ValueError(
            f"{vertex_count:,} vertices and {face_count:,} faces are declared, and {len(lines):,} lines follow: "
            "damaged or cut short"
        )
    clean = "\n".join([f"OFF\n{vertex_count} {face_count} 0", *lines[: vertex_count + face_count]])
    loaded = load_off(io.StringIO(clean))
    return limits.mesh(loaded["vertices"], loaded["faces"], extras)


def read_stl(path: Path) -> Geometry:
    """Read an STL file: binary if its size matches its count (some binary files begin with "solid"), else ASCII."""
    from trimesh.exchange.stl import load_stl_ascii, load_stl_binary  # slow to import, and few formats need it

    data = limits.read_bytes(path)
    count = int.from_bytes(data[_STL_HEADER_BYTES - 4 : _STL_HEADER_BYTES], "little")
    expected = _STL_HEADER_BYTES + count * _STL_TRIANGLE_BYTES
    if len(data) >= _STL_HEADER_BYTES and len(data) == expected:
        limits.check_count(count, "triangles")
        solids = [load_stl_binary(io.BytesIO(data))]
    elif data[:512].lstrip()[:5].lower() == b"solid" and b"facet" in data[:4096].lower():
        loaded = load_stl_ascii(io.StringIO(limits.decode(data)))
        solids = list(loaded["geometry"].values()) if "geometry" in loaded else [loaded]
    else:
        raise ValueError(f"neither ASCII nor binary: its count asks for {expected:,} bytes, {len(data):,} are there")
    corners = [solid["vertices"] for solid in solids if "vertices" in solid]
    if not corners:
        raise ValueError("there is no complete solid with triangles: empty or cut short")
    vertices = np.concatenate(corners)
    return limits.mesh(vertices, np.arange(len(vertices)).reshape(-1, 3))


# ── PLY, ASCII and binary, with or without faces ──────────────────────────────────────────────────────────────────────


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


def read_ply(path: Path) -> Geometry:
    """Read a PLY file; without faces its vertices are the cloud. Labels are read, colours and the like ignored."""
    data = limits.read_bytes(path)
    elements, in_text, start = _ply_header(data)
    _check_ply_sizes(elements, in_text, start, data)
    rows = _Rows(data, start, in_text)
    vertices: np.ndarray = np.empty((0, 3))
    labels: np.ndarray | None = None
    faces: Any = np.empty((0, 3))
    for element in elements.values():
        if element.name == "vertex" and any(prop.length_dtype is not None for prop in element.properties):
            raise ValueError("its vertices have lists among their properties")
        table: dict[str, Any] = _read_even(element, rows) or _read_uneven(element, rows)
        if element.name == "vertex":
            vertices = np.column_stack([table[axis] for axis in "xyz"])
            labels = table[named][:, 0] if (named := limits.label_column(table)) is not None else None
        elif element.name == "face":
            faces = next((table[name] for name in _INDEX_NAMES if name in table), faces)
    extras = limits.extras_of(prop.name for prop in elements["vertex"].properties)
    return limits.mesh(vertices, faces, extras, labels=labels)


def _ply_header(data: bytes) -> tuple[dict[str, _Element], bool, int]:
    """The elements by name, whether their rows are text, and the offset of the first row."""
    end = data.find(b"end_header", 0, _PLY_HEADER_BYTES)
    newline = data.find(b"\n", end)
    if not data.startswith(b"ply") or end < 0 or newline < 0:
        raise ValueError("it does not begin with a PLY header (ply ... end_header)")
    lines = [line.split() for line in data[:end].decode("latin-1").splitlines()]
    if len(lines) < 2 or len(lines[1]) < 2 or lines[1][0] != "format" or lines[1][1] not in _PLY_FORMATS:
        raise ValueError("the second line does not give the format (ascii or binary, little or big endian)")
    order = _PLY_FORMATS[lines[1][1]]
    elements: dict[str, _Element] = {}
    for words in lines[2:]:
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "element" and len(words) == 3 and words[1] not in elements:
            element = _Element(words[1], int(words[2]))
            limits.check_count(element.count, f"rows of '{element.name}'")
            elements[element.name] = element
        elif words[0] == "property" and elements and len(words) in (3, 5):
            element.properties.append(_ply_property(words, order))
        else:
            raise ValueError(f"the header has a line that is not understood: {' '.join(words)[:60]!r}")
    if "vertex" not in elements or not {"x", "y", "z"} <= {p.name for p in elements["vertex"].properties}:
        raise ValueError("the header declares no vertex element with x, y and z")
    return elements, order == "", newline + 1


def _ply_property(words: list[str], order: str) -> _Property:
    types = words[2:4] if words[1] == "list" else words[1:2]
    unknown = [name for name in types if name not in _PLY_TYPES]
    if unknown or (len(words) == 5) != (words[1] == "list"):
        raise ValueError(f"the header has a property that is not understood: {' '.join(words)[:60]!r}")
    if len(types) == 2 and _PLY_TYPES[types[0]].startswith("f"):
        raise ValueError("the length of a list cannot be a floating-point number")
    dtypes = [np.dtype(order + _PLY_TYPES[name] if order else np.float64) for name in types]
    return _Property(words[-1], dtypes[-1], dtypes[0] if len(dtypes) == 2 else None)


def _check_ply_sizes(elements: dict[str, _Element], in_text: bool, start: int, data: bytes) -> None:
    if not in_text:
        needed = sum(element.count * element.least_bytes for element in elements.values())
        limits.check_present(needed, len(data) - start, "the rows that the header declares")
        if any(element.count and not element.properties for element in elements.values()):
            raise ValueError("the header declares an element without properties")
        return
    rows = sum(element.count for element in elements.values())
    lines = data.count(b"\n", start) + (not data.endswith(b"\n"))
    if lines < rows:
        raise ValueError(f"the header declares {rows:,} rows, and {lines:,} lines follow: damaged or cut short")
    # Each line becomes an array, so a file of blank lines could exhaust the memory.
    if lines > 2 * rows + 1000:
        raise ValueError(f"the header declares {rows:,} rows, and {lines:,} lines follow")


Field = tuple[str, np.dtype, int]  # a name, the type of its values, and how many of them a row has


class _Rows:
    """The rows of a file, read from `position` on. Text is turned into float64 first, and read like a binary file."""

    def __init__(self, data: bytes, start: int, in_text: bool) -> None:
        self.data, self.position, self.in_text = np.frombuffer(data, np.uint8), start, in_text
        if in_text:
            limits.check_text(len(data))
            self.data, self.position = np.array(limits.decode(data[start:]).split(), dtype=np.float64).view(np.uint8), 0

    def take(self, fields: list[Field], count: int) -> dict[str, np.ndarray]:
        """The next `count` rows, by column [count, n]; a file that has fewer is refused."""
        end = self.position + count * sum(dtype.itemsize * length for _, dtype, length in fields)
        if self.in_text and end > len(self.data):
            numbers, there = end // 8, len(self.data) // 8
            raise ValueError(f"{numbers:,} numbers are declared, and {there:,} are there: damaged or cut short")
        limits.check_present(end, len(self.data), "the rows that the header declares")
        row = np.dtype([(f"f{i}", dtype, (length,)) for i, (_, dtype, length) in enumerate(fields)])
        table = np.ndarray(count, row, self.data, self.position)
        self.position = end
        return {name: table[f"f{i}"] for i, (name, _, _) in enumerate(fields)}


def _list_length(prop: _Property, rows: _Rows) -> int:
    """How many values come next: of a list as its row says, else one."""
    if prop.length_dtype is None:
        return 1
    return max(int(rows.take([("n", prop.length_dtype, 1)], 1)["n"][0, 0]), 0)


def _read_even(element: _Element, rows: _Rows) -> dict[str, np.ndarray] | None:
    """The columns of an element whose lists are all as long as those of its first row; else None, and nothing read."""
    if element.count == 0:
        return {prop.name: np.empty((0, 1)) for prop in element.properties}
    start = rows.position
    fields: list[Field] = []
    lengths: dict[str, int] = {}
    for prop in element.properties:
        length = _list_length(prop, rows)
        if prop.length_dtype is not None:
            lengths[f"n {prop.name}"] = length
            fields.append((f"n {prop.name}", prop.length_dtype, 1))
        fields.append((prop.name, prop.dtype, length))
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
            values = rows.take([("v", prop.dtype, _list_length(prop, rows))], 1)["v"][0]
            if prop.length_dtype is not None:
                lists[prop.name].append(values)
    return lists
