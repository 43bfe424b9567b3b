"""Damaged and hostile files: an error of ours or a valid result, soon, in little memory, and nothing is executed."""

import contextlib
import json
import os
import pickle
import random
import socket
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from io_files import BOXES, CLOUDS, compress_lzf, gltf_tree, make_box, make_points, pcd_header, ply_bytes, write_glb

from geocaps.errors import FileFormatError, InvalidInputError
from geocaps.io import gltf, load_points
from geocaps.io.scans import decompress_lzf

PLY = "ply\nformat {0} 1.0\nelement vertex {1}\nproperty float x\nproperty float y\nproperty float z\n{2}end_header\n"
FACES = "element face {0}\nproperty list {1} int vertex_indices\n"


def load_or_refuse(path: Path) -> None:
    started = time.process_time()
    message = points = None
    try:
        points = load_points(path, 64).points
    except (FileFormatError, InvalidInputError) as error:
        message = str(error)
    assert time.process_time() - started < 1
    if message is None:
        assert points.shape[0] > 0
        assert points.shape[1] == 3
        assert np.isfinite(points).all()
    else:
        assert str(path) in message
        assert "\n" not in message


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Cut the data short, or turn some bits and bytes, half of the time near the start, where the counts stand."""
    if rng.random() < 0.2:
        return data[: rng.randrange(1, len(data))]
    changed = bytearray(data)
    reach = len(data) if rng.random() < 0.5 else min(len(data), 600)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(reach)
        changed[at] = rng.choice(
            [changed[at] ^ (1 << rng.randrange(8)), 0, 255, ord("9"), ord("-"), rng.randrange(256)]
        )
    return bytes(changed)


@settings(max_examples=400)
@given(name=st.sampled_from(CLOUDS + BOXES), seed=st.integers(0, 2**32))
def test_mutated_files(io_folder, tmp_path, name, seed):
    path = tmp_path / name
    (tmp_path / "box data.bin").write_bytes((io_folder / "box data.bin").read_bytes())
    path.write_bytes(mutate((io_folder / name).read_bytes(), random.Random(seed)))
    load_or_refuse(path)


def test_every_format_mutated_and_cut(io_folder, tmp_path, file_name):
    """Fixed seeds, so that each format has its share in every run."""
    (tmp_path / "box data.bin").write_bytes((io_folder / "box data.bin").read_bytes())
    data = (io_folder / file_name).read_bytes()
    path = tmp_path / file_name
    for seed in range(60):
        path.write_bytes(mutate(data, random.Random(f"{file_name} {seed}")))
        load_or_refuse(path)
    for cut in np.linspace(1, len(data) - 1, 25).astype(int):
        path.write_bytes(data[:cut])
        load_or_refuse(path)


@settings(max_examples=150)
@given(suffix=st.sampled_from([".xyz", ".csv", ".pts", ".obj", ".off", ".pcd", ".ply"]), text=st.text(max_size=200))
def test_any_text(tmp_path, suffix, text):
    heads = {".ply": PLY.format("ascii", 2, ""), ".pcd": pcd_header(2, "ascii").decode(), ".off": "OFF\n1 0 0\n"}
    path = tmp_path / f"a{suffix}"
    path.write_text(heads.get(suffix, "") + text + "\n", encoding="utf-8")
    load_or_refuse(path)


ONE, STEPS = struct.pack("<f", 1), np.arange(100, dtype="<f4").tobytes()
GOLDEN_LZF = (
    b"\x03" + ONE + b"\xe0\xff\x03\xe0\x7b\x03"  # x: 4 bytes as they are, then 264 and 132 from 4 back, overlapping
    b"\xe1\xff\x8f\xe1\x7f\x8f"  # y: 264 and 136 bytes from 400 back
    + b"".join(bytes([len(STEPS[i : i + 32]) - 1]) + STEPS[i : i + 32] for i in range(0, 400, 32))  # z: all as they are
)


def test_lzf_of_known_bytes_gives_the_known_points(tmp_path):
    head = pcd_header(100, "binary_compressed") + struct.pack("<2I", len(GOLDEN_LZF), 1200)
    (tmp_path / "a.pcd").write_bytes(head + GOLDEN_LZF)
    expected = np.column_stack([np.ones(100), np.ones(100), np.arange(100)])
    np.testing.assert_array_equal(load_points(tmp_path / "a.pcd").points, expected)


@settings(max_examples=60)
@given(pieces=st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(20, 80)), min_size=1, max_size=12))
def test_lzf_unpacks_what_another_program_packed_and_nothing_less(tmp_path, pieces):
    data = b"".join(piece * times for piece, times in pieces) + b"\0" * 64
    packed = compress_lzf(tmp_path, data)
    assert decompress_lzf(packed, len(data)) == data
    for damaged, size in ((packed[:-1], len(data)), (packed, len(data) - 1), (packed, len(data) + 1), (b"", 1)):
        with pytest.raises(ValueError, match="damaged"):
            decompress_lzf(damaged, size)


@given(data=st.binary(max_size=300), size=st.integers(0, 2000))
def test_lzf_of_any_bytes_ends(data, size):
    with contextlib.suppress(ValueError):
        assert len(decompress_lzf(data, size)) == size


def _deflate_bomb(path: Path, member: str, shape: tuple, size: int) -> None:
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(member, "w", force_zip64=True) as file,
    ):
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


def _npy(shape: str, descr: str = "'<f4'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def write_text_bombs(folder: Path) -> None:
    (folder / "ascii_count.ply").write_text(PLY.format("ascii", 40_000_000, "") + "0 0 0\n")
    (folder / "ascii_blank.ply").write_text(PLY.format("ascii", 1, "") + "0 0 0\n" + "\n" * 4_000_000)
    (folder / "digits.ply").write_text(PLY.format("ascii", "9" * 5000, "") + "0 0 0\n")
    (folder / "negative.ply").write_text(PLY.format("ascii", -5, "") + "0 0 0\n")
    (folder / "count.off").write_text("OFF\n49999999 49999999 0\n0 0 0\n")
    (folder / "glued.off").write_text("OFF999999999999 3 0\n0 0 0\n")
    (folder / "polygon.off").write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n4000000000 0 1 2\n")
    (folder / "digits.pts").write_text("9" * 5000 + "\n1 2 3\n")
    (folder / "count.pts").write_text("49999999\n1 2 3\n")
    (folder / "fan.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf" + " 1 2 3" * 100_000 + "\n")
    (folder / "materials.obj").write_text("".join(f"v {i} 0 0\nusemtl {i}\nf -1 -1 -1\n" for i in range(30_000)))
    (folder / "ascii_count.pcd").write_bytes(pcd_header(49_999_999, "ascii") + b"1 2 3\n")
    (folder / "columns.pcd").write_bytes(pcd_header(9, "ascii", counts="1 1 65536") + b"1 2 3\n" * 9)


def write_binary_bombs(folder: Path) -> None:
    little = "binary_little_endian"
    (folder / "count.ply").write_bytes(PLY.format(little, 40_000_000, "").encode() + bytes(24))
    face = PLY.format(little, 1, FACES.format(1, "uint")).encode() + bytes(12)
    (folder / "list.ply").write_bytes(face + b"\xff\xff\xff\xff" + bytes(12))
    (folder / "lists.ply").write_bytes(PLY.format(little, 1, FACES.format(40_000_000, "uchar")).encode() + bytes(12))
    (folder / "count.pcd").write_bytes(pcd_header(49_999_999, "binary") + bytes(24))
    (folder / "count_u64.pcd").write_bytes(pcd_header(2**63, "binary") + bytes(24))
    packed = pcd_header(49_999_999, "binary_compressed") + struct.pack("<2I", 12, 49_999_999 * 12) + bytes(12)
    (folder / "packed.pcd").write_bytes(packed)
    runs = b"\0\0" + b"\xe0\xff\0" * 200_000
    size = 1 + 264 * 200_000 + 11
    (folder / "runs.pcd").write_bytes(
        pcd_header(size // 12, "binary_compressed") + struct.pack("<2I", len(runs), size // 12 * 12) + runs
    )
    (folder / "count.stl").write_bytes(bytes(80) + b"\xff\xff\xff\xff" + bytes(50))
    (folder / "count.npy").write_bytes(_npy("(1000000000000, 3)") + bytes(24))
    (folder / "allowed.npy").write_bytes(_npy("(49999999, 3)") + bytes(24))
    (folder / "negative.npy").write_bytes(_npy("(-1, 3)") + bytes(24))
    (folder / "void.npy").write_bytes(_npy("(2, 3)", "'|V2000000000'") + bytes(24))
    (folder / "header.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}")
    (folder / "nested.npy").write_bytes(_npy("(" * 90))
    _deflate_bomb(folder / "deflate.npz", "points.npy", (5_592_405, 3), 64 * 2**20)
    with zipfile.ZipFile(folder / "lzma.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("points.npy", _npy("(400000, 3)") + bytes(4_800_000))
    with zipfile.ZipFile(folder / "many.npz", "w") as archive:
        for i in range(3000):
            archive.writestr(f"{i}.npy", _npy("(0, 3)"))
    # The directory says 4 GB where a few bytes are.
    np.savez(folder / "lie.npz", points=make_points(4))
    data = bytearray((folder / "lie.npz").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = b"\xf0\xff\xff\xff"
    (folder / "lie.npz").write_bytes(data)


def write_hdf5_bombs(folder: Path) -> None:
    with h5py.File(folder / "unwritten.h5", "w") as file:
        file.create_dataset("points", shape=(49_999_999, 3), dtype="f8", chunks=(1000, 3))
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("points", shape=(2**60, 3), dtype="f4", chunks=(1000, 3))
    with h5py.File(folder / "chunk.h5", "w") as file:
        chunk = (60_000_000, 3)
        file.create_dataset("points", shape=(8, 3), maxshape=(None, 3), dtype="f4", chunks=chunk, compression="gzip")
    with h5py.File(folder / "gzip.h5", "w") as file:
        zeros = np.zeros((4_000_000, 3), dtype=np.float32)
        file.create_dataset("points", data=zeros, chunks=(1_000_000, 3), compression="gzip", compression_opts=1)
    with h5py.File(folder / "cycle.h5", "w") as file:
        for i in range(20):
            file[f"again{i}"] = file["/"]
    with h5py.File(folder / "text.h5", "w") as file:
        file.create_dataset("points", data=[[b"a", b"b", b"c"]], dtype=h5py.string_dtype())


def write_las_bombs(folder: Path, io_folder: Path) -> None:
    las = (io_folder / "format3.las").read_bytes()
    laz, layered = (io_folder / "format3.laz").read_bytes(), (io_folder / "format7.laz").read_bytes()
    (folder / "count.las").write_bytes(las[:107] + b"\xff\xff\xff\xff" + las[111:])
    (folder / "allowed.las").write_bytes(las[:107] + struct.pack("<I", 49_999_999) + las[111:])
    (folder / "records.las").write_bytes(las[:100] + b"\xff\xff\xff\xff" + las[104:])
    (folder / "start.las").write_bytes(las[:96] + b"\xff\xff\xff\xff" + las[100:])
    (folder / "allowed.laz").write_bytes(laz[:107] + struct.pack("<I", 49_999_999) + laz[111:])
    start = struct.unpack_from("<I", laz, 96)[0]
    table = struct.unpack_from("<q", laz, start)[0]
    (folder / "chunks.laz").write_bytes(laz[: table + 4] + b"\x01\x00\x00\x10" + laz[table + 8 :])
    # In the layered format the sizes of the layers follow the first point (36 bytes) and the number of points.
    start = struct.unpack_from("<I", layered, 96)[0] + 8 + 36 + 4
    (folder / "layers.laz").write_bytes(layered[:start] + b"\xff\xff\xff\xff" * 3 + layered[start + 12 :])


def write_gltf_bombs(folder: Path) -> None:
    def save(name: str, change) -> None:
        tree, buffer = gltf_tree(*make_box(), None)
        del tree["buffers"][0]["uri"]
        buffer = change(tree, buffer) or buffer
        write_glb(folder / f"{name}.glb", tree, buffer)

    def accessor(tree, buffer):
        tree["accessors"][1]["count"] = 49_999_999

    def unused(tree, buffer):
        tree["accessors"].append({"componentType": 5126, "count": 49_999_999, "type": "MAT4"})

    def overlap(tree, buffer):
        tree["buffers"][0]["byteLength"] = 2**22
        tree["bufferViews"] = [{"buffer": 0, "byteOffset": 0, "byteLength": 2**22} for _ in range(5000)]
        tree["accessors"] = [dict(tree["accessors"][1], bufferView=i, count=8) for i in range(5000)]
        tree["meshes"][0]["primitives"] = [{"attributes": {"POSITION": i}, "mode": 0} for i in range(5000)]
        return bytes(2**22)

    def instances(tree, buffer):
        tree["nodes"] = [{"mesh": 0} for _ in range(60_000)]
        tree["scenes"][0]["nodes"] = list(range(60_000))
        tree["meshes"][0]["primitives"] *= 40

    def chain(tree, buffer):
        count = 5_000
        tree["nodes"] = [{"mesh": 0, "children": [i + 1], "translation": [1, 0, 0]} for i in range(count)] + [{}]

    def loop(tree, buffer):
        tree["nodes"] = [{"mesh": 0, "children": [1, 0]}, {"mesh": 0, "children": [0, 1]}]

    def infinite(tree, buffer):
        tree["nodes"][0]["scale"] = [1e308, 1e308, 1e308]
        tree["nodes"][0]["translation"] = [1e308, 1e308, 1e308]

    for change in (accessor, unused, overlap, instances, chain, loop, infinite):
        save(change.__name__, change)
    (folder / "deep.gltf").write_text('{"asset": {"version": "2.0"}, "nodes": ' + "[" * 200_000)
    (folder / "digits.gltf").write_text('{"asset": {"version": "2.0"}, "scene": ' + "9" * 100_000 + "}")


CHILD = """
import json, resource, sys, time
import psutil
from pathlib import Path
from geocaps.io import load_points
from geocaps.errors import FileFormatError, InvalidInputError, MissingExtraError
for suffix in (".ply", ".off", ".obj", ".stl", ".xyz", ".glb", ".h5", ".npz", ".laz", ".pcd"):  # what is imported late
    for path in sorted(Path(sys.argv[1]).glob("*" + suffix))[:1]:
        try: load_points(path)
        except (FileFormatError, InvalidInputError): pass
room = 400 * 2**20
limit = psutil.Process().memory_info().vms + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(Path(sys.argv[2]).iterdir()):
    started = time.process_time()
    try:
        answer = f"read {len(load_points(path).points)}"
    except (FileFormatError, InvalidInputError) as error:
        answer = str(error)
    print(json.dumps([path.name, time.process_time() - started, answer]), flush=True)
"""


def test_hostile_files_in_a_process_with_little_memory(io_folder, tmp_path):
    write_text_bombs(tmp_path)
    write_binary_bombs(tmp_path)
    write_hdf5_bombs(tmp_path)
    write_las_bombs(tmp_path, io_folder)
    write_gltf_bombs(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(io_folder), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert [name for name, _, _ in answers] == sorted(path.name for path in tmp_path.iterdir())
    read = {name for name, _, answer in answers if answer.startswith("read ")}
    # These only look hostile; all the others are refused, and not because the memory ran out.
    assert read == {"polygon.off", "fan.obj", "unused.glb", "chain.glb", "loop.glb"}
    assert not [answer for _, _, answer in answers if "MemoryError" in answer or "allocate" in answer]
    assert [(name, seconds) for name, seconds, _ in answers if seconds > 1] == []


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_pickle_is_never_opened(tmp_path, name):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    path = tmp_path / name
    content = np.array([[Bomb(), 1, 2]], dtype=object)
    if name == "a.npy":
        np.save(path, content, allow_pickle=True)
        (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb()))
    else:
        np.savez(path, points=content)
    assert b"executed" in path.read_bytes()
    for hostile in tmp_path.iterdir():
        with pytest.raises(FileFormatError, match=hostile.name):
            load_points(hostile)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "%2e%2e/secret.bin",
        "..\\secret.bin",
        "{absolute}",
        "file://{absolute}",
        "http://localhost:{port}/secret.bin",
        "//localhost:{port}/secret.bin",
        "link.bin",
    ],
)
def test_gltf_reads_nothing_outside_its_folder(tmp_path, uri):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    tree, buffer = gltf_tree(*make_box(), None)
    secret.write_bytes(buffer)
    (folder / "link.bin").symlink_to(secret)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        tree["buffers"][0]["uri"] = uri.format(absolute=secret, port=server.getsockname()[1])
        (folder / "a.gltf").write_text(json.dumps(tree))
        with pytest.raises(FileFormatError, match="only files in its own folder are read"):
            load_points(folder / "a.gltf")
        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()


def test_gltf_instances_are_limited(tmp_path, io_folder, monkeypatch):
    monkeypatch.setattr(gltf, "MAX_INSTANCED", 10)
    tree, buffer = gltf_tree(*make_box(), "a.bin")
    (tmp_path / "a.bin").write_bytes(buffer)
    for copies, refused in ((2, False), (10, True)):
        tree["nodes"], tree["scenes"] = [{"mesh": 0}] * copies, [{"nodes": list(range(copies))}]
        (tmp_path / "a.gltf").write_text(json.dumps(tree))
        if refused:
            with pytest.raises(FileFormatError, match="its scene has 440 vertices and indices"):
                load_points(tmp_path / "a.gltf")
        else:
            assert load_points(tmp_path / "a.gltf").faces.shape == (24, 3)


def test_hdf5_reads_no_other_file(tmp_path):
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["points"] = make_points()
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["points"] = h5py.ExternalLink(str(secret), "points")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("points", shape=(10, 3), dtype="f4", external=[(str(secret), 0, 120)])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=(200, 3), dtype="f4")
        layout[:] = h5py.VirtualSource(str(secret), "points", shape=(200, 3))
        file.create_virtual_dataset("points", layout)
    for name in ("link.h5", "external.h5", "virtual.h5"):
        with pytest.raises(FileFormatError, match=r"other files|found: none"):
            load_points(tmp_path / name)


def test_uneven_ply_cut_anywhere(tmp_path):
    vertices, faces = make_box()
    data = ply_bytes(vertices, [*faces.tolist(), [0, 1, 2, 3]], "<")
    path = tmp_path / "a.ply"
    for cut in range(data.index(b"end_header") + 11, len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(FileFormatError, match="damaged or cut short"):
            load_points(path)
