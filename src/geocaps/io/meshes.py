"""Meshes: points drawn uniformly by area from triangles, and the formats OBJ, OFF and STL."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from geocaps.errors import InvalidInputError
from geocaps.io import limits
from geocaps.io.limits import Geometry

# ModelNet glues the counts to the keyword: "OFF490 518 0".
_OFF_HEADER = re.compile(r"\s*(?:ST)?(C?)(N?)OFF\s*(\d{1,18})\s+(\d{1,18})\b")
_STL_HEADER_BYTES, _STL_TRIANGLE_BYTES = 84, 50


def sample_surface(
    vertices: ArrayLike, faces: ArrayLike, count: int, *, seed: int
) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, " n"]]:
    """Draw `count` points uniformly by area from a triangle mesh.

    vertices [V, 3], faces [F, 3] (indices). Gives the points [count, 3] in float64 and the face of each [count].
    The same seed gives the same points. A mesh without area raises InvalidInputError.
    """
    corners = np.asarray(vertices, dtype=np.float64)
    triangles = np.asarray(faces)
    _check(corners, triangles, count, seed)

    # The areas of very large or very small meshes leave the range of float64 unless they are brought to size first.
    extent = np.ptp(corners, axis=0).max()
    if not np.isfinite(extent) or extent <= 0:
        raise InvalidInputError(f"cannot sample a surface whose extent is {extent:g}: the mesh has no area")
    a, b, c = (corners[triangles[:, i]] for i in range(3))
    areas = np.linalg.norm(np.cross((b - a) / extent, (c - a) / extent), axis=1)
    edges = np.cumsum(areas)
    if not edges[-1] > 0:
        raise InvalidInputError(f"cannot sample a surface without area: all {len(triangles)} triangles are degenerate")

    rng = np.random.default_rng(seed)
    # side="right" never picks a triangle of zero area; rounding may reach past the last, hence the minimum.
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
    """Refuse a number of points or a seed that cannot be drawn with."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidInputError(f"the number of points must be a whole number of at least 1, not {count!r}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"the seed must be a whole number of at least 0, not {seed!r}")


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
