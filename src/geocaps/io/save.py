"""Files written whole or not at all: clouds as PLY, XYZ, NPY, NPZ, PCD or GLB, meshes as PLY, OBJ, STL or GLB."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.typing import ArrayLike

from geocaps.atomic import written_whole
from geocaps.errors import InvalidInputError, UsageError

if TYPE_CHECKING:
    import trimesh

SAVE_SUFFIXES = (".npy", ".npz", ".pcd", ".ply", ".xyz")
CLOUD_SUFFIXES = (".glb", *SAVE_SUFFIXES)
MESH_SUFFIXES = (".glb", ".obj", ".ply", ".stl")
COLORED_MESH_SUFFIXES = (".glb", ".obj", ".ply")

# PLY's names for the types that are written.
_PLY_TYPES = {"f4": "float", "f8": "double", "u1": "uchar", "i4": "int"}
# Enough digits to restore the exact number.
_DIGITS = {"f4": "%.9g", "f8": "%.17g"}
_COLORS = ("red", "green", "blue")
_ROUGH = 0.8

# Columns in the order of the file: x, y, z, then red, green, blue, confidence and label if they are given.
Columns = dict[str, np.ndarray]


def save_points(
    path: str | os.PathLike,
    points: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    colors: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
) -> None:
    """Write points [N, 3] as PLY (binary), XYZ, NPY, NPZ or PCD (ascii); the suffix of the path says which.

    labels [N] are integers, colors [N, 3] are 0 to 255 (uint8) or 0 to 1 (floats), confidence [N] is 0 to 1. NPY holds
    only the points. float64 stays float64, anything else becomes float32. An existing file is replaced once the new one
    is complete.
    """
    path = Path(path)
    check_target(path, SAVE_SUFFIXES)
    if path.suffix.lower() == ".npy" and any(one is not None for one in (labels, colors, confidence)):
        raise InvalidInputError(f"cannot write {path}: NPY holds only points, use NPZ or PLY for labels and colors")
    array = np.asarray(points)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise InvalidInputError(f"points must be numbers of shape [N, 3], not {array.dtype} of {list(array.shape)}")
    array = array.astype("<f8" if array.dtype.itemsize == 8 and array.dtype.kind == "f" else "<f4")
    columns: Columns = dict(zip("xyz", array.T, strict=True))
    if colors is not None:
        columns |= dict(zip(_COLORS, _check_colors(colors, len(array)).T, strict=True))
    if confidence is not None:
        columns["confidence"] = _check_confidence(confidence, len(array))
    if labels is not None:
        columns["label"] = _check_labels(labels, len(array))
    with writing(path) as file:
        _WRITERS[path.suffix.lower()](file, columns)


def save_cloud(
    path: str | os.PathLike[str],
    points: Float[np.ndarray, "n 3"],
    *,
    labels: Int[np.ndarray, "n"] | None = None,
    colors: UInt8[np.ndarray, "n 3"] | None = None,
    confidence: Float[np.ndarray, "n"] | None = None,
) -> None:
    """Write a cloud as GLB (points and colours), or in the formats of :func:`save_points` (with labels, except NPY)."""
    path = Path(path)
    check_target(path, CLOUD_SUFFIXES)
    if path.suffix.lower() != ".glb":
        save_points(path, points, labels=labels, colors=colors, confidence=confidence)
        return
    if len(points) == 0:
        raise InvalidInputError(f"cannot write {path}: there are no points to write")
    import trimesh  # slow to import, and GLB alone needs it

    center = _center(points)
    opaque = None if colors is None else np.pad(colors, ((0, 0), (0, 1)), constant_values=255)
    cloud = trimesh.PointCloud(points - center, colors=opaque)
    write_whole(path, _glb([("points", cloud)], center))


@dataclass(frozen=True)
class Mesh:
    """A named mesh, optionally with one colour (0 to 255)."""

    name: str
    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"]
    color: UInt8[np.ndarray, "3"] | None = None
    face_colors: UInt8[np.ndarray, "f 3"] | None = None  # of each face, only for PLY


def save_meshes(path: str | os.PathLike[str], meshes: Sequence[Mesh]) -> None:
    """Write meshes as GLB (a node for each), OBJ (an object for each), PLY or STL (all in one; STL has no colours)."""
    path = Path(path)
    check_target(path, MESH_SUFFIXES)
    if not meshes:
        raise InvalidInputError(f"cannot write {path}: there is no mesh to write")
    with writing(path) as file:
        _MESH_WRITERS[path.suffix.lower()](file, meshes)


def write_whole(path: Path, content: bytes) -> None:
    """Write these bytes to a file, completely or not at all."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place once it is complete."""
    try:
        with written_whole(path) as beside, beside.open("wb") as file:
            yield file
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def check_target(
    path: Path | None,
    suffixes: Collection[str],
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
    replaces: bool = True,
) -> None:
    """Raise for a path that cannot be written, or that is an input; to be called before any long work.

    None stands for an output that was not requested.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"cannot write {path}: the name must end in {' or '.join(sorted(suffixes))}")
    if not path.parent.is_dir():
        what = f"{path.parent} is not a folder" if path.parent.exists() else f"the folder {path.parent} does not exist"
        raise UsageError(f"cannot write {path}: {what}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: a folder has this name")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: the folder {path.parent} is not writable")
    if path.exists() and any(os.path.exists(one) and os.path.samefile(path, one) for one in inputs):
        raise UsageError(f"cannot write {path}: it is an input, and would be overwritten")
    if path.exists() and not replaces:
        raise UsageError(f"{path} exists already; choose another name or give --overwrite")


def write_member(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...], pieces: Iterable[np.ndarray]
) -> None:
    """Write an array of an NPZ piece by piece, without a date, so that the same arrays give the same bytes."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for piece in pieces:
            member.write(np.ascontiguousarray(piece, dtype).tobytes())


def _check_colors(colors: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(colors)
    if array.shape != (count, 3):
        raise InvalidInputError(f"colors must have shape [{count}, 3], not {list(array.shape)}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f" or not ((array >= 0) & (array <= 1)).all():
        raise InvalidInputError("colors must be uint8 from 0 to 255, or floats from 0 to 1")
    return np.rint(array * 255).astype(np.uint8)


def _check_confidence(confidence: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(confidence)
    if array.shape != (count,) or array.dtype.kind != "f" or not ((array >= 0) & (array <= 1)).all():
        raise InvalidInputError(f"confidence must be {count} numbers from 0 to 1")
    return array.astype("<f4")


def _check_labels(labels: ArrayLike, count: int) -> np.ndarray:
    array = np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InvalidInputError(f"labels must be {count} integers, not {array.dtype} of shape {list(array.shape)}")
    bounds = np.iinfo(np.int32)
    if count and (array.min() < bounds.min or array.max() > bounds.max):
        raise InvalidInputError("labels must fit 32 bits")
    return array.astype("<i4")


def _table(columns: Columns) -> np.ndarray:
    table = np.empty(len(columns["x"]), dtype=[(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return table


def _points(columns: Columns) -> np.ndarray:
    return np.column_stack([columns[axis] for axis in "xyz"])


def _write_ply(file: IO[bytes], columns: Columns, faces: np.ndarray | None = None) -> None:
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(columns['x'])}"]
    lines += [f"property {_PLY_TYPES[values.dtype.str[1:]]} {name}" for name, values in columns.items()]
    if faces is not None:
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
        lines += [f"property uchar {name}" for name in _COLORS if faces["color"].size]
    file.write("".join(f"{line}\n" for line in [*lines, "end_header"]).encode())
    file.write(_table(columns).tobytes())
    if faces is not None:
        file.write(faces.tobytes())


def _write_rows(file: IO[bytes], columns: Columns) -> None:
    forms = [_DIGITS.get(values.dtype.str[1:], "%d") for values in columns.values()]
    np.savetxt(file, _table(columns), fmt=" ".join(forms))


def _write_npz(file: IO[bytes], columns: Columns) -> None:
    arrays: dict[str, Any] = {"points": _points(columns)}
    if "red" in columns:
        arrays["colors"] = np.column_stack([columns[name] for name in _COLORS])
    if "confidence" in columns:
        arrays["confidence"] = columns["confidence"]
    if "label" in columns:
        arrays["labels"] = columns["label"]
    np.savez_compressed(file, **arrays)


def _write_pcd(file: IO[bytes], columns: Columns) -> None:
    """PCD stores a colour as one number, 0xRRGGBB."""
    fields = dict(columns)
    if "red" in fields:
        red, green, blue = (fields.pop(name).astype(np.uint32) for name in _COLORS)
        fields["rgb"] = (red << 16) | (green << 8) | blue
    kinds = " ".join(values.dtype.kind.upper() for values in fields.values())
    sizes = " ".join(str(values.dtype.itemsize) for values in fields.values())
    count, ones = len(columns["x"]), " ".join("1" for _ in fields)
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {' '.join(fields)}\nSIZE {sizes}\nTYPE {kinds}\nCOUNT {ones}\n"
        f"WIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA ascii\n"
    )
    file.write(header.encode())
    _write_rows(file, fields)


def _glb(parts: Sequence[tuple[str, trimesh.Trimesh | trimesh.PointCloud]], center: Float[np.ndarray, "3"]) -> bytes:
    """GLB has only float32, so points far from the origin are stored about their centre, and moved by the nodes."""
    import trimesh
    from trimesh.transformations import translation_matrix

    scene = trimesh.Scene()
    for name, part in parts:
        scene.add_geometry(part, node_name=name, geom_name=name, transform=translation_matrix(center))
    return scene.export(file_type="glb")


def _write_glb(file: IO[bytes], meshes: Sequence[Mesh]) -> None:
    import trimesh
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    center, parts = _center(np.concatenate([mesh.vertices for mesh in meshes])), []
    for mesh in meshes:
        # Double-sided, because a decoded surface has no outside, and viewers hide back faces otherwise.
        paint = PBRMaterial(name=mesh.name, doubleSided=True, metallicFactor=0.0, roughnessFactor=_ROUGH)
        if mesh.color is not None:
            paint.baseColorFactor = [*mesh.color, 255]
        visual = TextureVisuals(material=paint)
        parts.append((mesh.name, trimesh.Trimesh(mesh.vertices - center, mesh.faces, process=False, visual=visual)))
    file.write(_glb(parts, center))


def _write_obj(file: IO[bytes], meshes: Sequence[Mesh]) -> None:
    """Colours follow the coordinates, from 0 to 1, as most programs read them."""
    first = 1
    for mesh in meshes:
        file.write(f"o {mesh.name}\n".encode())
        columns = mesh.vertices.astype(np.float64)
        form = "v" + f" {_DIGITS['f4' if mesh.vertices.dtype == np.float32 else 'f8']}" * 3
        if mesh.color is not None:
            columns = np.column_stack([columns, np.tile(mesh.color / 255, (len(columns), 1))])
            form += " %.6f" * 3
        np.savetxt(file, columns, fmt=form)
        np.savetxt(file, mesh.faces + first, fmt="f %d %d %d")
        first += len(mesh.vertices)


def _write_ply_meshes(file: IO[bytes], meshes: Sequence[Mesh]) -> None:
    """With colours only if every mesh has one."""
    exact = any(mesh.vertices.dtype == np.float64 for mesh in meshes)
    vertices = np.concatenate([mesh.vertices for mesh in meshes]).astype("<f8" if exact else "<f4")
    columns: Columns = dict(zip("xyz", vertices.T, strict=True))
    counts = [len(mesh.vertices) for mesh in meshes]
    colors = [mesh.color for mesh in meshes if mesh.color is not None]
    if len(colors) == len(meshes):
        columns |= dict(zip(_COLORS, np.repeat(colors, counts, axis=0).T, strict=True))
    shades = [mesh.face_colors for mesh in meshes if mesh.face_colors is not None]
    shaded = len(shades) == len(meshes)
    starts = np.cumsum([0, *counts[:-1]])
    corners = np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=True)])
    faces = np.empty(len(corners), dtype=[("count", "u1"), ("corners", "<i4", 3), ("color", "u1", 3 * shaded)])
    faces["count"], faces["corners"] = 3, corners
    if shaded:
        faces["color"] = np.concatenate(shades)
    _write_ply(file, columns, faces)


def _write_stl(file: IO[bytes], meshes: Sequence[Mesh]) -> None:
    """Binary: three corners in float32 and a normal for each triangle."""
    corners = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes]).astype(np.float64)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    rows = np.zeros(len(corners), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attributes", "<u2")])
    rows["normal"] = normals / np.where(length == 0, 1, length)
    rows["corners"] = corners
    file.write(bytes(80) + len(rows).to_bytes(4, "little") + rows.tobytes())


def _center(points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "3"]:
    """The middle of points so far out that float32 would lose digits, or else the origin."""
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    return (low + high) / 2 if np.abs((low + high) / 2).max() > (high - low).max() else np.zeros(3)


_WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".ply": _write_ply,
    ".xyz": _write_rows,
    ".npy": lambda file, columns: np.save(file, _points(columns), allow_pickle=False),
    ".npz": _write_npz,
    ".pcd": _write_pcd,
}
_MESH_WRITERS: dict[str, Callable[[IO[bytes], Sequence[Mesh]], None]] = {
    ".glb": _write_glb,
    ".obj": _write_obj,
    ".ply": _write_ply_meshes,
    ".stl": _write_stl,
}
