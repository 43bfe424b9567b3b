"""One real file of every format that geocaps reads, made once for the tests of `geocaps.io`."""

import base64
import json
import struct
from pathlib import Path

import h5py
import laspy
import numpy as np
import trimesh


def make_points(count=200, seed=0):
    """Coordinates that float32 and three decimals both hold exactly enough to compare."""
    return np.round(np.random.default_rng(seed).normal(size=(count, 3)), 3).astype(np.float32)


def make_box():
    """A box of 1 x 2 x 3: 8 vertices, 12 triangles, area 22."""
    box = trimesh.creation.box(extents=(1, 2, 3))
    return np.asarray(box.vertices, dtype=np.float64), np.asarray(box.faces, dtype=np.int64)


def pcd_header(count, encoding, fields="x y z", sizes="4 4 4", kinds="F F F", counts="1 1 1"):
    return (
        "# .PCD v0.7\nVERSION 0.7\n"
        f"FIELDS {fields}\nSIZE {sizes}\nTYPE {kinds}\nCOUNT {counts}\n"
        f"WIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA {encoding}\n"
    ).encode()


def compress_lzf(folder: Path, data: bytes) -> bytes:
    """LZF by the C library inside h5py, so that our reader is held against another's writer."""
    with h5py.File(folder / "lzf.h5", "w") as file:
        dataset = file.create_dataset("d", data=np.frombuffer(data, "u1"), chunks=(len(data),), compression="lzf")
        skipped, packed = dataset.id.read_direct_chunk((0,))
    assert skipped == 0, "the data did not compress"
    return packed


def ply_bytes(vertices, polygons, order):
    """A binary PLY with a normal beside each vertex and polygons of any length."""
    name = {"<": "little", ">": "big"}[order]
    head = (
        f"ply\nformat binary_{name}_endian 1.0\ncomment made by a test\nelement vertex {len(vertices)}\n"
        "property double x\nproperty double y\nproperty double z\nproperty float nx\n"
    )
    if polygons is not None:
        head += f"element face {len(polygons)}\nproperty uchar flags\nproperty list uchar int vertex_indices\n"
    table = np.zeros(len(vertices), dtype=[("p", order + "f8", (3,)), ("n", order + "f4")])
    table["p"] = vertices
    faces = b"".join(b"\7" + bytes([len(p)]) + np.asarray(p, dtype=order + "i4").tobytes() for p in polygons or [])
    return head.encode() + b"end_header\n" + table.tobytes() + faces


def gltf_tree(vertices, faces, uri):
    """A glTF with one mesh and the buffer that belongs to it."""
    index, position = faces.astype("<u4").tobytes(), vertices.astype("<f4").tobytes()
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 1}, "indices": 0}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5125, "count": faces.size, "type": "SCALAR"},
            {"bufferView": 1, "componentType": 5126, "count": len(vertices), "type": "VEC3"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": len(index)},
            {"buffer": 0, "byteOffset": len(index), "byteLength": len(position)},
        ],
        "buffers": [{"byteLength": len(index) + len(position), "uri": uri}],
    }
    return tree, index + position


def write_glb(path, tree, buffer):
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    buffer += b"\0" * (-len(buffer) % 4)
    chunks = struct.pack("<2I", len(text), 0x4E4F534A) + text + struct.pack("<2I", len(buffer), 0x004E4942) + buffer
    path.write_bytes(struct.pack("<3I", 0x46546C67, 2, 12 + len(chunks)) + chunks)


def write_clouds(folder: Path, points: np.ndarray) -> None:
    rows = [" ".join(f"{value:.3f}" for value in row) for row in points]
    body = "\n".join(rows) + "\n"
    doubles = points.astype(np.float64)

    (folder / "points_ascii.ply").write_text(
        f"ply\nformat ascii 1.0\nelement vertex {len(points)}\nproperty float x\nproperty float y\nproperty float z\n"
        f"end_header\n{body}"
    )
    (folder / "points_little.ply").write_bytes(ply_bytes(doubles, None, "<"))
    (folder / "points_big.ply").write_bytes(ply_bytes(doubles, None, ">"))
    (folder / "points.obj").write_text("# a cloud\n" + "".join(f"v {row}\n" for row in rows))
    (folder / "points.off").write_text(f"OFF\n{len(points)} 0 0\n{body}")

    (folder / "ascii.pcd").write_bytes(pcd_header(len(points), "ascii") + body.encode())
    extra = {"fields": "rgb x y z _", "sizes": "4 4 4 4 1", "kinds": "U F F F U", "counts": "1 1 1 1 3"}
    table = np.zeros(len(points), dtype=[("rgb", "<u4"), ("p", "<f4", (3,)), ("pad", "u1", (3,))])
    table["p"] = points
    (folder / "binary.pcd").write_bytes(pcd_header(len(points), "binary", **extra) + table.tobytes())
    by_field = table["rgb"].tobytes() + b"".join(points[:, i].tobytes() for i in range(3)) + table["pad"].tobytes()
    packed = compress_lzf(folder, by_field)
    sizes = np.array([len(packed), len(by_field)], dtype="<u4").tobytes()
    (folder / "compressed.pcd").write_bytes(pcd_header(len(points), "binary_compressed", **extra) + sizes + packed)

    (folder / "plain.xyz").write_text(body)
    (folder / "tabs.txt").write_text(
        "# scan of today\n\n" + "".join(row.replace(" ", "\t") + "\t7\tchair leg\n" for row in rows)
    )
    (folder / "counted.pts").write_text(f"{len(points)}\n" + "".join(f"{row} -12 255 0 9\n" for row in rows))
    (folder / "header.csv").write_text(
        "label,Z,X,Y\n" + "".join(f"leg,{z:.3f},{x:.3f},{y:.3f}\n" for x, y, z in points)
    )
    (folder / "semicolons.csv").write_bytes(
        b"\xef\xbb\xbfx;y;z;note\r\n" + "".join(row.replace(" ", ";") + ";ok\r\n" for row in rows).encode()
    )

    np.save(folder / "single.npy", points)
    np.save(folder / "wide.npy", np.asfortranarray(np.hstack([doubles, doubles])))
    np.savez(folder / "stored.npz", points=points, labels=np.zeros(len(points), int), normals=points)
    np.savez_compressed(folder / "packed.npz", anything=points, labels=np.zeros(len(points), int))
    with h5py.File(folder / "plain.h5", "w") as file:
        file["points"], file["normals"] = points, points
    with h5py.File(folder / "packed.hdf5", "w", libver="latest") as file:
        file.create_dataset("scan/only", data=points, chunks=(64, 3), compression="gzip", shuffle=True)
        file["scan/label"] = np.arange(5)

    for name, point_format, version in (
        ("format3.las", 3, "1.2"),
        ("format3.laz", 3, "1.2"),
        ("format7.laz", 7, "1.4"),
    ):
        header = laspy.LasHeader(point_format=point_format, version=version)
        header.scales = [0.001] * 3
        las = laspy.LasData(header)
        las.x, las.y, las.z = doubles.T
        las.write(folder / name)


def write_boxes(folder: Path, vertices: np.ndarray, faces: np.ndarray) -> None:
    box = trimesh.Trimesh(vertices, faces, process=False)
    for name in ("box.obj", "box.off", "box_binary.stl", "box.glb"):
        box.export(folder / name)
    (folder / "box_ascii.stl").write_text(box.export(file_type="stl_ascii"))
    (folder / "box_ascii.ply").write_bytes(box.export(file_type="ply", encoding="ascii"))
    (folder / "box_little.ply").write_bytes(box.export(file_type="ply"))
    (folder / "box_big.ply").write_bytes(ply_bytes(vertices, faces.tolist(), ">"))
    # Two triangles of one side as a quad, the others as they are.
    merged = [face for face in faces.tolist() if not (vertices[face][:, 0] > 0).all()] + [_side(vertices)]
    (folder / "box_mixed.ply").write_bytes(ply_bytes(vertices, merged, "<"))
    rows = "".join(f"{x} {y} {z}\n" for x, y, z in vertices)
    corners = "".join(f"{len(face)} {' '.join(map(str, face))}\n" for face in merged)
    (folder / "box_glued.off").write_text(f"OFF{len(vertices)} {len(merged)} 0\n{rows}{corners}")
    tree, buffer = gltf_tree(vertices, faces, "data:application/octet-stream;base64,")
    tree["buffers"][0]["uri"] += base64.b64encode(buffer).decode()
    (folder / "box_inside.gltf").write_text(json.dumps(tree))
    tree["buffers"][0]["uri"] = "box%20data.bin"
    (folder / "box data.bin").write_bytes(buffer)
    (folder / "box_beside.gltf").write_text(json.dumps(tree))


def _side(vertices):
    """The four corners of the side x > 0, in order around it."""
    corners = np.flatnonzero(vertices[:, 0] > 0)
    return corners[np.argsort(np.arctan2(vertices[corners, 2], vertices[corners, 1]))].tolist()


CLOUDS = [
    *("points_ascii.ply", "points_little.ply", "points_big.ply", "points.obj", "points.off"),
    *("ascii.pcd", "binary.pcd", "compressed.pcd"),
    *("plain.xyz", "tabs.txt", "counted.pts", "header.csv", "semicolons.csv"),
    *("single.npy", "wide.npy", "stored.npz", "packed.npz", "plain.h5", "packed.hdf5"),
    *("format3.las", "format3.laz", "format7.laz"),
]
BOXES = [
    *("box_ascii.ply", "box_little.ply", "box_big.ply", "box_mixed.ply", "box.obj", "box.off", "box_glued.off"),
    *("box_binary.stl", "box_ascii.stl", "box.glb", "box_inside.gltf", "box_beside.gltf"),
]
