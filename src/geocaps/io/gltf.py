"""glTF 2.0: `.gltf` (JSON, with buffers inside or beside it) and `.glb` (all in one).

trimesh reads a copy of the description that was stripped to geometry, together with the bytes it refers to: every count
is checked first, and no file is opened but buffers in the folder of the file.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

# Vertices and indices that a scene may have beyond those stored: one mesh may stand in many places.
MAX_INSTANCED = 5_000_000

_GLB_MAGIC, _JSON_CHUNK, _BIN_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
_COMPONENT_BYTES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}
_FLOAT = 5126
_POINTS, _TRIANGLES, _STRIP, _FAN = 0, 4, 5, 6
_COMPRESSIONS = ("KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_meshopt_compression")
_TRANSFORMS = {"matrix": 16, "translation": 3, "rotation": 4, "scale": 3}

Json = dict[str, Any]


def read_glb(path: Path) -> Geometry:
    """Read the scene of a GLB file: its meshes put together, or, when it has none, its points."""
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
    from trimesh.exchange.gltf import load_gltf  # slow to import, and few formats need it

    buffers = _read_buffers(tree, path, binary)
    stripped = _strip(tree, buffers)
    _check_views(stripped, buffers)
    _check_instances(stripped, sum(map(len, buffers)))
    loaded = load_gltf(
        io.BytesIO(json.dumps(stripped).encode()),
        resolver={str(i): buffer for i, buffer in enumerate(buffers)},
        skip_materials=True,
    )
    flat = _flatten(loaded["geometry"], loaded["graph"])
    primitives = [primitive for mesh in _dicts(tree, "meshes") for primitive in _dicts(mesh, "primitives")]
    named = {name for primitive in primitives for name in _dict(primitive.get("attributes", {}))}
    return replace(flat, extras=limits.extras_of(named), units="metres")  # as glTF has it for every file


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


def _strip(tree: Json, buffers: list[bytes]) -> Json:
    """The same scene with positions, indices and transforms only; what nothing refers to is emptied."""
    accessors, views = _dicts(tree, "accessors"), _dicts(tree, "bufferViews")
    meshes = [{"primitives": _strip_primitives(mesh)} for mesh in _dicts(tree, "meshes")]
    used = {i for mesh in meshes for p in mesh["primitives"] for i in [*p["attributes"].values(), p.get("indices")]}
    kept_accessors: list[Json] = [{"count": 0, "componentType": _FLOAT, "type": "VEC3"} for _ in accessors]
    kept_views: list[Json] = [{"buffer": 0, "byteLength": 0} for _ in views]
    for index in used - {None}:
        kept_accessors[index] = _strip_accessor(_item(accessors, index))
        view = kept_accessors[index]["bufferView"]
        source = _item(views, view)
        _refuse_compression(source)
        kept_views[view] = {key: _whole(source, key) for key in ("buffer", "byteOffset", "byteLength", "byteStride")}
        if not kept_views[view]["byteStride"]:
            del kept_views[view]["byteStride"]
    nodes = [_strip_node(node) for node in _dicts(tree, "nodes")] or [{"mesh": i} for i in range(len(meshes))]
    return {
        "asset": {"version": "2.0"},
        "buffers": [{"uri": str(i)} for i in range(len(buffers))],
        "bufferViews": kept_views,
        "accessors": kept_accessors,
        "meshes": meshes,
        "nodes": nodes,
        "scenes": [{"nodes": _roots(tree, nodes)}],
    }


def _strip_primitives(mesh: Json) -> list[Json]:
    primitives = []
    for source in _dicts(mesh, "primitives"):
        _refuse_compression(source)
        mode = source.get("mode", _TRIANGLES)
        if mode == _FAN:
            raise ValueError("it has triangle fans, which are not read: export it with triangles")
        attributes = _dict(source.get("attributes", {}))
        if mode in (_POINTS, _TRIANGLES, _STRIP) and "POSITION" in attributes:
            primitive: Json = {"mode": mode, "attributes": {"POSITION": _whole(attributes, "POSITION")}}
            if "indices" in source:
                primitive["indices"] = _whole(source, "indices")
            primitives.append(primitive)
    return primitives


def _strip_accessor(source: Json) -> Json:
    if "sparse" in source or "bufferView" not in source:
        raise ValueError("it has sparse positions, which are not read: export it without them")
    if source.get("normalized") and source.get("componentType") != _FLOAT:
        raise ValueError("it has normalised integer positions, which are not read: export it with floats")
    kept: Json = {key: _whole(source, key) for key in ("bufferView", "byteOffset", "componentType", "count")}
    kept["type"] = source.get("type")
    if kept["componentType"] not in _COMPONENT_BYTES or kept["type"] not in ("SCALAR", "VEC3"):
        raise ValueError("its positions or indices have a type that glTF does not allow")
    limits.check_count(kept["count"], "vertices or indices")
    return kept


def _strip_node(source: Json) -> Json:
    node: Json = {}
    for key, length in _TRANSFORMS.items():
        if key in source:
            values = np.asarray(source[key], dtype=np.float64)
            if values.shape != (length,):
                raise ValueError(f"the {key} of a node must be {length} numbers")
            node[key] = values.tolist()
    if "mesh" in source:
        node["mesh"] = _whole(source, "mesh")
    if "children" in source:
        node["children"] = [_whole({"child": child}, "child") for child in source["children"]]
    return node


def _roots(tree: Json, nodes: list[Json]) -> list[int]:
    """The nodes that the chosen scene begins with; without a scene, all that are nobody's child."""
    scenes = _dicts(tree, "scenes")
    if scenes:
        scene = _item(scenes, _whole(tree, "scene"))
        return [_whole({"node": node}, "node") for node in scene.get("nodes", [])]
    children = {child for node in nodes for child in node.get("children", [])}
    return [i for i in range(len(nodes)) if i not in children]


def _check_views(tree: Json, buffers: list[bytes]) -> None:
    """Every view must lie in its buffer and every accessor in its view; trimesh copies each of them."""
    views, total = tree["bufferViews"], 0
    for accessor in tree["accessors"]:
        if "bufferView" not in accessor:
            continue
        view = views[accessor["bufferView"]]
        item = _COMPONENT_BYTES[accessor["componentType"]] * (3 if accessor["type"] == "VEC3" else 1)
        span = (max(accessor["count"], 1) - 1) * view.get("byteStride", item) + item
        limits.check_present(accessor["byteOffset"] + span, view["byteLength"], "the vertices or indices it declares")
        total += accessor["count"] * item
    for view in views:
        buffer = _item(buffers, view["buffer"]) if view["byteLength"] else b""
        limits.check_present(view.get("byteOffset", 0) + view["byteLength"], len(buffer), "the parts of its buffers")
        total += view["byteLength"]
    # Parts of a sound file do not overlap, but for vertices that stand interleaved.
    stored = sum(map(len, buffers))
    if total > max(limits.HARMLESS_BYTES, 8 * stored):
        raise ValueError(f"its vertices and indices take {total:,} bytes, and {stored:,} are there: the parts overlap")


def _check_instances(tree: Json, stored: int) -> None:
    """Count what the scene has once every node has its own copy of its mesh."""
    accessors, limit = tree["accessors"], MAX_INSTANCED + stored
    elements = []
    for mesh in tree["meshes"]:
        used = [i for p in mesh["primitives"] for i in [*p["attributes"].values(), p.get("indices")] if i is not None]
        elements.append(sum(accessors[i]["count"] for i in used))
    nodes = tree["nodes"]
    placed = [*tree["scenes"][0]["nodes"], *(child for node in nodes for child in node.get("children", []))]
    copies = sum(_item(elements, node["mesh"]) for node in (_item(nodes, i) for i in placed) if "mesh" in node)
    if max(copies, sum(elements)) > limit:
        raise ValueError(f"its scene has {max(copies, sum(elements)):,} vertices and indices, the limit is {limit:,}")


def _flatten(parts: Json, graph: Any) -> Geometry:
    """Put the parts together, each moved by the transforms of the nodes above it.

    The edges come parents first. (trimesh's own scene looks for the path from the root anew for each part, which takes
    for ever in a long chain of nodes.)
    """
    world = {"world": np.eye(4)}
    vertices: list[np.ndarray] = []
    triangles: list[np.ndarray] = []
    loose: list[np.ndarray] = []
    offset = 0
    for edge in graph:
        matrix = world[edge["frame_from"]] @ edge["matrix"]
        world[edge["frame_to"]] = matrix
        if "geometry" not in edge:
            continue
        part = parts[edge["geometry"]]
        moved = part["vertices"].astype(np.float64) @ matrix[:3, :3].T + matrix[:3, 3]
        if "faces" not in part:
            loose.append(moved)
            continue
        vertices.append(moved)
        triangles.append(part["faces"].astype(np.int64) + offset)
        if len(part["faces"]) and part["faces"].max() >= len(moved):
            raise ValueError(f"a face refers to vertex {part['faces'].max()}, and its mesh has {len(moved)}")
        offset += len(moved)
    if vertices:
        return limits.mesh(np.concatenate(vertices), np.concatenate(triangles))
    return limits.cloud(np.concatenate([np.empty((0, 3)), *loose]))


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
    """A number of bytes, a count or an index; 0 when it is not there."""
    value = item.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"its description is malformed: {key} must be a whole number of at least 0")
    return value
