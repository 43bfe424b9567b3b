"""glTF 2.0: `.gltf` (JSON, with buffers inside or beside it) and `.glb` (all in one).

Only positions, indices and transforms are read. Every count is checked before its bytes are touched, and no file is
opened but buffers in the folder of the file.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

# Vertices and indices that a scene may have beyond those stored: one mesh may stand in many places.
MAX_INSTANCED = 5_000_000

_GLB_MAGIC, _JSON_CHUNK, _BIN_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
_COMPONENTS = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_FLOAT = 5126
_POINTS, _TRIANGLES, _STRIP, _FAN = 0, 4, 5, 6
_COMPRESSIONS = ("KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_meshopt_compression")
_TRANSFORMS = {"matrix": 16, "translation": 3, "rotation": 4, "scale": 3}

Json = dict[str, Any]


def read_glb(path: Path) -> Geometry:
    """Read the scene of a GLB file: its meshes assembled or, if it has none, its points."""
    data = limits.read_bytes(path)
    limits.check_present(20, len(data), "the header of a GLB file")
    magic, version, length, json_length, json_kind = struct.unpack_from("<5I", data)
    if magic != _GLB_MAGIC or version != 2 or json_kind != _JSON_CHUNK:
        raise ValueError("it does not begin with the header of a GLB file, version 2")
    limits.check_present(length, len(data), "the chunks that the header declares")
    limits.check_present(20 + json_length, length, "its description")
    tree = _parse(data[20 : 20 + json_length])
    binary, position = b"", 20 + json_length
    while position + 8 <= length:
        size, kind = struct.unpack_from("<2I", data, position)
        limits.check_present(position + 8 + size, length, "the chunks that it declares")
        if kind == _BIN_CHUNK and not binary:
            binary = data[position + 8 : position + 8 + size]
        position += 8 + size
    return _read_scene(tree, path, binary)


def read_gltf(path: Path) -> Geometry:
    """Read the scene of a glTF file, whose buffers are inside it or in files of the same folder."""
    return _read_scene(_parse(limits.read_bytes(path, limits.MAX_TEXT_BYTES)), path, b"")


def _parse(text: bytes) -> Json:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ValueError("its description is not valid JSON: damaged, cut short or of another format") from error
    if not isinstance(tree, dict):
        raise ValueError("its description is not a JSON object")
    version = str(_dict(tree.get("asset", {})).get("version", ""))
    if not version.startswith("2."):
        raise ValueError(f"glTF 2 was expected, the file says version {version[:20]!r}")
    return tree


def _read_scene(tree: Json, path: Path, binary: bytes) -> Geometry:
    """The parts of the scene assembled, each moved by the transforms of the nodes above it."""
    buffers = _read_buffers(tree, path, binary)
    tree = tree | {key: _dicts(tree, key) for key in ("meshes", "accessors", "bufferViews")}
    meshes = [_primitives(tree, mesh) for mesh in tree["meshes"]]
    nodes = _dicts(tree, "nodes") or [{"mesh": i} for i in range(len(meshes))]
    placed = _placed(tree, nodes)
    _check_sizes(tree, meshes, [_whole(node, "mesh") for _, node in placed if "mesh" in node], buffers)
    vertices: list[np.ndarray] = []
    triangles: list[np.ndarray] = []
    loose: list[np.ndarray] = [np.empty((0, 3))]
    offset = 0
    world: list[np.ndarray] = []
    for parent, node in placed:
        matrix = _transform(node) if parent is None else world[parent] @ _transform(node)
        world.append(matrix)
        for part in meshes[node["mesh"]] if "mesh" in node else []:
            points, *indices = (_read_accessor(tree, accessor, buffers) for accessor in part["accessors"])
            points = points.astype(np.float64) @ matrix[:3, :3].T + matrix[:3, 3]
            if part["mode"] == _POINTS:
                loose.append(points)
                continue
            faces = _faces(indices[0].astype(np.int64) if indices else np.arange(len(points)), part["mode"])
            if len(faces) and faces.max() >= len(points):
                raise ValueError(f"a face refers to vertex {faces.max()}, and its mesh has {len(points)}")
            vertices.append(points)
            triangles.append(faces + offset)
            offset += len(points)
    primitives = [primitive for mesh in tree["meshes"] for primitive in _dicts(mesh, "primitives")]
    named = {name for primitive in primitives for name in _dict(primitive.get("attributes", {}))}
    known = limits.extras_of(named), "metres"  # as glTF has it for every file
    if not vertices:
        return limits.cloud(np.concatenate(loose), *known)
    return limits.mesh(np.concatenate(vertices), np.concatenate(triangles), *known)


def _check_sizes(tree: Json, meshes: list[list[Json]], placed: list[int], buffers: list[bytes]) -> None:
    """Refuse scenes far larger than what is stored: one mesh may stand at many nodes, and views may overlap."""
    stored = sum(map(len, buffers))
    elements = [sum(accessor["count"] for part in mesh for accessor in part["accessors"]) for mesh in meshes]
    copies, limit = sum(_item(elements, mesh) for mesh in placed), MAX_INSTANCED + stored
    if copies > limit:
        raise ValueError(f"its scene has {copies:,} vertices and indices, the limit is {limit:,}")
    views = {accessor["bufferView"] for mesh in meshes for part in mesh for accessor in part["accessors"]}
    total = sum(_whole(_item(tree["bufferViews"], view), "byteLength") for view in views)
    # Views of a sound file do not overlap, but for vertices that stand interleaved.
    if total > max(limits.HARMLESS_BYTES, 8 * stored):
        raise ValueError(f"its vertices and indices take {total:,} bytes, and {stored:,} are there: the parts overlap")


def _read_buffers(tree: Json, path: Path, binary: bytes) -> list[bytes]:
    buffers: list[bytes] = []
    for index, buffer in enumerate(_dicts(tree, "buffers")):
        uri = buffer.get("uri")
        if uri is None and index == 0:
            content = binary
        elif isinstance(uri, str):
            content = _read_uri(uri, path.parent, limits.MAX_FILE_BYTES - sum(map(len, buffers)))
        else:
            raise ValueError(f"buffer {index} has no content")
        limits.check_present(_whole(buffer, "byteLength"), len(content), f"the contents of buffer {index}")
        buffers.append(content)
    return buffers


def _read_uri(uri: str, folder: Path, limit: int) -> bytes:
    """The bytes of a `data:` address, or of a file that lies in the folder of the glTF file."""
    if uri.startswith("data:"):
        head, comma, payload = uri.partition(",")
        if not comma or not head.endswith(";base64"):
            raise ValueError("a data: address that is not base64")
        return base64.b64decode(payload, validate=True)
    name = unquote(uri)
    parts = urlsplit(uri)
    target = folder / name
    inside = target.resolve().is_relative_to(folder.resolve())
    if parts.scheme or parts.netloc or "\\" in name or "\0" in name or ":" in name or not inside:
        raise ValueError(f"it refers to {uri[:80]!r}, and only files in its own folder are read")
    if not target.is_file():
        raise ValueError(f"its buffer {uri[:80]!r} is not there: copy it beside the file")
    return limits.read_bytes(target, limit)


def _primitives(tree: Json, mesh: Json) -> list[Json]:
    """The parts of a mesh that are points or triangles: their mode, and their accessors (positions, then indices)."""
    parts = []
    for primitive in _dicts(mesh, "primitives"):
        _refuse_compression(primitive)
        mode = primitive.get("mode", _TRIANGLES)
        if mode == _FAN:
            raise ValueError("it has triangle fans, which are not read: export it with triangles")
        attributes = _dict(primitive.get("attributes", {}))
        if mode in (_POINTS, _TRIANGLES, _STRIP) and "POSITION" in attributes:
            accessors = [_accessor(tree, _whole(attributes, "POSITION"), "VEC3")]
            if "indices" in primitive and mode != _POINTS:
                accessors.append(_accessor(tree, _whole(primitive, "indices"), "SCALAR"))
            parts.append({"mode": mode, "accessors": accessors})
    return parts


def _accessor(tree: Json, index: int, kind: str) -> Json:
    """A description of numbers in a buffer, checked in itself."""
    source = _item(tree["accessors"], index)
    if "sparse" in source or "bufferView" not in source:
        raise ValueError("it has sparse positions, which are not read: export it without them")
    if source.get("normalized") and source.get("componentType") != _FLOAT:
        raise ValueError("it has normalised integer positions, which are not read: export it with floats")
    kept: Json = {key: _whole(source, key) for key in ("bufferView", "byteOffset", "componentType", "count")}
    if kept["componentType"] not in _COMPONENTS or source.get("type") != kind:
        raise ValueError("its positions or indices have a type that glTF does not allow")
    limits.check_count(kept["count"], "vertices or indices")
    return kept | {"columns": 3 if kind == "VEC3" else 1}


def _read_accessor(tree: Json, accessor: Json, buffers: list[bytes]) -> np.ndarray:
    """The numbers, [count, 3] or [count]: an accessor must lie in its view, and the view in its buffer."""
    source = _item(tree["bufferViews"], accessor["bufferView"])
    _refuse_compression(source)
    buffer = _item(buffers, _whole(source, "buffer"))
    start, length = _whole(source, "byteOffset"), _whole(source, "byteLength")
    limits.check_present(start + length, len(buffer), "the parts of its buffers")
    dtype = np.dtype(_COMPONENTS[accessor["componentType"]])
    count, item = accessor["count"], dtype.itemsize * accessor["columns"]
    stride = _whole(source, "byteStride") or item
    end = accessor["byteOffset"] + (max(count, 1) - 1) * stride + item
    limits.check_present(end, length, "the vertices or indices it declares")
    shape, steps = (count, accessor["columns"]), (stride, dtype.itemsize)
    values = np.ndarray(shape, dtype, buffer, start + accessor["byteOffset"], steps)
    return values if accessor["columns"] == 3 else values[:, 0]


def _faces(corners: np.ndarray, mode: int) -> np.ndarray:
    if mode == _TRIANGLES:
        return corners[: len(corners) // 3 * 3].reshape(-1, 3)
    faces = np.column_stack([corners[:-2], corners[1:-1], corners[2:]])
    faces[1::2] = faces[1::2, ::-1]  # of a strip every second triangle faces the other way
    return faces


def _placed(tree: Json, nodes: list[Json]) -> list[tuple[int | None, Json]]:
    """The nodes of the chosen scene (without one: all), each with the place of its parent in the list."""
    children = [[_whole({"child": child}, "child") for child in node.get("children", [])] for node in nodes]
    scenes = _dicts(tree, "scenes")
    if scenes:
        scene = _item(scenes, _whole(tree, "scene"))
        roots = [_whole({"node": node}, "node") for node in scene.get("nodes", [])]
    else:
        roots = sorted(set(range(len(nodes))).difference(*children))
    placed: list[tuple[int | None, Json]] = []
    waiting: list[tuple[int | None, int | None, int]] = [(None, None, root) for root in roots]
    seen = set()
    while waiting:
        place, parent, index = waiting.pop()
        if (parent, index) in seen:  # a loop
            continue
        seen.add((parent, index))
        placed.append((place, _item(nodes, index)))
        waiting += [(len(placed) - 1, index, child) for child in children[index]]
    return placed


def _transform(node: Json) -> np.ndarray:
    given = {key: np.asarray(node[key], dtype=np.float64) for key in _TRANSFORMS if key in node}
    for key, values in given.items():
        if values.shape != (_TRANSFORMS[key],):
            raise ValueError(f"the {key} of a node must be {_TRANSFORMS[key]} numbers")
    matrix = given["matrix"].reshape(4, 4).T if "matrix" in given else np.eye(4)
    local = np.eye(4)
    local[:3, 3] = given.get("translation", 0)
    x, y, z, w = given.get("rotation", (0, 0, 0, 1))
    square = x * x + y * y + z * z + w * w
    if square > 0:
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        local[:3, :3] += 2 / square * (w * cross + cross @ cross)
    local[:3, :3] *= given.get("scale", 1)
    return matrix @ local


def _refuse_compression(item: Json) -> None:
    found = [name for name in _COMPRESSIONS if name in _dict(item.get("extensions", {}))]
    if found:
        raise ValueError(f"its geometry is packed with {found[0]}, which is not read: export it without compression")


def _dict(value: Any) -> Json:
    if not isinstance(value, dict):
        raise ValueError("its description is malformed: an object was expected")
    return value


def _dicts(tree: Json, key: str) -> list[Json]:
    values = tree.get(key, [])
    if not isinstance(values, list):
        raise ValueError(f"its description is malformed: {key} must be a list")
    return [_dict(value) for value in values]


def _item(values: list, index: int) -> Any:
    if index >= len(values):
        raise ValueError(f"its description refers to item {index} of a list of {len(values)}")
    return values[index]


def _whole(item: Json, key: str) -> int:
    """A number of bytes, a count or an index; 0 if it is missing."""
    value = item.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"its description is malformed: {key} must be a whole number of at least 0")
    return value
