"""Mesh files other than PLY and glTF: OBJ, OFF, STL."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

# ModelNet glues the counts to the keyword: "OFF490 518 0".
_OFF_HEADER = re.compile(r"\s*(?:ST)?(C?)(N?)OFF\s*(\d{1,18})\s+(\d{1,18})\b")
_STL_HEADER_BYTES, _STL_TRIANGLE_BYTES = 84, 50


def read_obj(path: Path) -> Geometry:
    """Read the vertices and faces of a Wavefront OBJ; without faces its vertices are the cloud.

    By hand: trimesh counts negative (relative) indices from the end of the file, not from the line they stand in, and
    nothing here needs the materials and textures that OBJ names in other files.
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
    # What may follow on the line of the counts is the number of edges, which nobody needs.
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
    """Read an STL file: binary when its size fits its count (some binary files begin with "solid"), else ASCII."""
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
