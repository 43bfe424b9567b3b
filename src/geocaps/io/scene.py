"""Coloured meshes and clouds to PLY, OBJ, STL and GLB: the old file or the whole new one, never half of it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from geocaps.atomic import written_whole
from geocaps.errors import InvalidInputError
from geocaps.io.save import SAVE_SUFFIXES, check_target, save_points

if TYPE_CHECKING:
    import trimesh

CLOUD_SUFFIXES = (".glb", *SAVE_SUFFIXES)
MESH_SUFFIXES = (".glb", ".obj", ".ply", ".stl")
COLORED_MESH_SUFFIXES = (".glb", ".obj", ".ply")
_ROUGH = 0.8


@dataclass(frozen=True)
class Mesh:
    """A named mesh; with a colour (0 to 255) all of it has that colour."""

    name: str
    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"]
    color: UInt8[np.ndarray, "3"] | None = None
    face_colors: UInt8[np.ndarray, "f 3"] | None = None  # of each face, for PLY alone: the other formats have none


def save_meshes(path: str | os.PathLike[str], meshes: Sequence[Mesh]) -> None:
    """Write meshes as GLB (a node for each), OBJ (an object for each), PLY or STL (all in one; STL has no colours)."""
    path = Path(path)
    check_target(path, MESH_SUFFIXES)
    if not meshes:
        raise InvalidInputError(f"cannot write {path}: there is no mesh to write")
    write_whole(path, _MESH_WRITERS[path.suffix.lower()](meshes))


def save_cloud(
    path: str | os.PathLike[str],
    points: Float[np.ndarray, "n 3"],
    *,
    labels: Int[np.ndarray, "n"] | None = None,
    colors: UInt8[np.ndarray, "n 3"] | None = None,
) -> None:
    """Write a cloud as GLB (points and colours), or as :func:`save_points` does (labels too, but in NPY)."""
    path = Path(path)
    check_target(path, CLOUD_SUFFIXES)
    if path.suffix.lower() != ".glb":
        save_points(path, points, labels=labels, colors=colors)
        return
    if len(points) == 0:
        raise InvalidInputError(f"cannot write {path}: there are no points to write")
    import trimesh  # slow to import, and GLB alone needs it

    center = _center(points)
    cloud = trimesh.PointCloud(points - center, colors=None if colors is None else _opaque(colors))
    write_whole(path, _glb([("points", cloud)], center))


def write_whole(path: Path, content: bytes) -> None:
    """Beside first, then in place."""
    try:
        with written_whole(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def _glb(parts: Sequence[tuple[str, trimesh.Trimesh | trimesh.PointCloud]], center: Float[np.ndarray, "3"]) -> bytes:
    """GLB has float32 only: what lies far from the origin is stored about its centre, and the nodes move it there."""
    import trimesh
    from trimesh.transformations import translation_matrix

    scene = trimesh.Scene()
    for name, part in parts:
        scene.add_geometry(part, node_name=name, geom_name=name, transform=translation_matrix(center))
    return scene.export(file_type="glb")


def _write_glb(meshes: Sequence[Mesh]) -> bytes:
    center = _center(np.concatenate([mesh.vertices for mesh in meshes]))
    return _glb([(mesh.name, _painted(mesh, center)) for mesh in meshes], center)


def _painted(mesh: Mesh, center: Float[np.ndarray, "3"]) -> trimesh.Trimesh:
    import trimesh
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    # Double-sided: a decoded surface has no outside, and viewers hide the backs of what has one.
    paint = PBRMaterial(name=mesh.name, doubleSided=True, metallicFactor=0.0, roughnessFactor=_ROUGH)
    if mesh.color is not None:
        paint.baseColorFactor = [*mesh.color, 255]
    return trimesh.Trimesh(mesh.vertices - center, mesh.faces, process=False, visual=TextureVisuals(material=paint))


def _write_obj(meshes: Sequence[Mesh]) -> bytes:
    """Colours stand behind the coordinates, from 0 to 1, as most programs read them."""
    out, first = io.BytesIO(), 1
    for mesh in meshes:
        out.write(f"o {mesh.name}\n".encode())
        columns = mesh.vertices.astype(np.float64)
        form = "v" + " %.9g" * 3 if mesh.vertices.dtype == np.float32 else "v" + " %.17g" * 3
        if mesh.color is not None:
            columns = np.column_stack([columns, np.tile(mesh.color / 255, (len(columns), 1))])
            form += " %.6f" * 3
        np.savetxt(out, columns, fmt=form)
        np.savetxt(out, mesh.faces + first, fmt="f %d %d %d")
        first += len(mesh.vertices)
    return out.getvalue()


def _write_ply(meshes: Sequence[Mesh]) -> bytes:
    exact = any(mesh.vertices.dtype == np.float64 for mesh in meshes)
    kind = np.dtype("<f8" if exact else "<f4")
    painted = all(mesh.color is not None for mesh in meshes)
    colors = [(name, "u1") for name in ("red", "green", "blue")] if painted else []
    shaded = all(mesh.face_colors is not None for mesh in meshes)
    rows, faces, first = [], [], 0
    for mesh in meshes:
        row = np.empty(len(mesh.vertices), dtype=[*((axis, kind) for axis in "xyz"), *colors])
        for index, axis in enumerate("xyz"):
            row[axis] = mesh.vertices[:, index]
        for (name, _), value in zip(colors, mesh.color if mesh.color is not None else (), strict=False):
            row[name] = value
        rows.append(row)
        face = np.empty(len(mesh.faces), dtype=[("count", "u1"), ("corners", "<i4", 3), ("color", "u1", 3 * shaded)])
        face["count"], face["corners"] = 3, mesh.faces + first
        if mesh.face_colors is not None:
            face["color"] = mesh.face_colors
        faces.append(face)
        first += len(mesh.vertices)
    number = "double" if exact else "float"
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {first}",
        *(f"property {number} {axis}" for axis in "xyz"),
        *(f"property uchar {name}" for name, _ in colors),
        f"element face {sum(map(len, faces))}",
        "property list uchar int vertex_indices",
        *(f"property uchar {name}" for name in ("red", "green", "blue") if shaded),
        "end_header",
    ]
    header = "".join(f"{line}\n" for line in lines).encode()
    return header + np.concatenate(rows).tobytes() + np.concatenate(faces).tobytes()


def _write_stl(meshes: Sequence[Mesh]) -> bytes:
    """Binary: three corners in float32 and a normal for each triangle."""
    corners = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes]).astype(np.float64)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    rows = np.zeros(len(corners), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attributes", "<u2")])
    rows["normal"] = normals / np.where(length == 0, 1, length)
    rows["corners"] = corners
    return bytes(80) + len(rows).to_bytes(4, "little") + rows.tobytes()


def _center(points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "3"]:
    """Where the points lie if float32 would feel it, else the origin: a node without a shift is easier to read."""
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    return (low + high) / 2 if np.abs((low + high) / 2).max() > (high - low).max() else np.zeros(3)


def _opaque(colors: UInt8[np.ndarray, "n 3"]) -> UInt8[np.ndarray, "n 4"]:
    return np.column_stack([colors, np.full(len(colors), 255, dtype=np.uint8)])


_MESH_WRITERS: dict[str, Callable[[Sequence[Mesh]], bytes]] = {
    ".glb": _write_glb,
    ".obj": _write_obj,
    ".ply": _write_ply,
    ".stl": _write_stl,
}
