"""What a user meets when a file is not what it should be: one sentence that names it."""

import json
import os
import sys

import h5py
import numpy as np
import pytest
from io_files import gltf_tree, make_box, make_points, pcd_header

from geocaps.errors import DroppedPointsWarning, FileFormatError, InvalidInputError, MissingExtraError
from geocaps.io import SUFFIXES, limits, load_points, save_points


def check_sentence(path, kind, words):
    with pytest.raises(kind) as caught:
        load_points(path)
    message = str(caught.value)
    assert str(path) in message
    assert words in message
    assert "\n" not in message


def test_missing_folder_pipe_unknown(tmp_path):
    check_sentence(tmp_path / "none.ply", InvalidInputError, "does not exist")
    (tmp_path / "folder.ply").mkdir()
    check_sentence(tmp_path / "folder.ply", InvalidInputError, "is a folder")
    os.mkfifo(tmp_path / "pipe.ply")
    check_sentence(tmp_path / "pipe.ply", InvalidInputError, "not a regular file")
    (tmp_path / "a.docx").write_text("words")
    check_sentence(tmp_path / "a.docx", FileFormatError, "'.docx', which is not read: expected one of .csv")
    (tmp_path / "plain").write_text("words")
    check_sentence(tmp_path / "plain", FileFormatError, "no suffix")


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_empty_and_foreign_content(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"")
    check_sentence(path, FileFormatError, "is empty (0 bytes)")
    path.write_bytes(b"Dear reader,\nthis is a letter\nand no cloud.\n" * 20)
    check_sentence(path, FileFormatError, f"cannot read {path} as {suffix[1:].upper()}: ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.npz", "it is not a zip archive"),
        ("a.npy", "it does not begin with an NPY header"),
        ("a.h5", "it does not begin with an HDF5 header"),
        ("a.gltf", "its description is not valid JSON"),
    ],
)
def test_foreign_content_is_said_in_our_words(tmp_path, name, words):
    (tmp_path / name).write_text("Dear reader, this is a letter.")
    check_sentence(tmp_path / name, FileFormatError, words)


def test_a_cut_hdf5_file_is_said_in_our_words(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["points"] = make_points()
    whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(whole[: len(whole) // 2])
    check_sentence(tmp_path / "a.h5", FileFormatError, "as H5: it is damaged or cut short")


def test_an_empty_name_is_not_the_folder_at_hand():
    with pytest.raises(InvalidInputError, match="an empty name was given"):
        load_points("")


NO_POINTS = {
    "a.ply": b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nproperty float y\nproperty float z\n"
    b"end_header\n",
    "b.ply": b"ply\nformat binary_little_endian 1.0\nelement vertex 0\nproperty float x\nproperty float y\n"
    b"property float z\nelement face 0\nproperty list uchar int vertex_indices\nend_header\n",
    "a.off": b"OFF\n0 0 0\n",
    "a.obj": b"# nothing\n",
    "a.pcd": pcd_header(0, "ascii"),
    "b.pcd": pcd_header(0, "binary"),
    "a.stl": b"\0" * 84,
    "b.stl": b"solid a\nfacet\nendsolid a\n",
    "a.xyz": b"# only a comment\n",
    "b.csv": b"x,y,z\n",
    "a.pts": b"0\n",
    "a.gltf": b'{"asset": {"version": "2.0"}}',
}


@pytest.mark.parametrize("name", NO_POINTS)
def test_no_points(tmp_path, name):
    (tmp_path / name).write_bytes(NO_POINTS[name])
    check_sentence(tmp_path / name, FileFormatError, "no" if name != "a.stl" else "no complete solid")


def test_no_points_in_arrays(tmp_path):
    np.save(tmp_path / "a.npy", np.empty((0, 3)))
    np.savez(tmp_path / "a.npz", points=np.empty((0, 3)))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["points"] = np.empty((0, 3))
    for name in ("a.npy", "a.npz", "a.h5"):
        check_sentence(tmp_path / name, FileFormatError, "holds no points")


NAN = np.nan
SPOILT = np.vstack([make_points().astype(np.float64), [[NAN, 0, 0], [0, np.inf, 0]]])
WRONG = r"2 of 202 points have a coordinate that is NaN or infinite"


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.xyz", "a.ply", "a.obj"])
def test_not_finite_is_refused_unless_they_are_to_be_dropped(tmp_path, name):
    path = tmp_path / name
    if name == "a.npz":
        np.savez(path, points=SPOILT)
    elif name == "a.npy":
        np.save(path, SPOILT)
    elif name == "a.h5":
        with h5py.File(path, "w") as file:
            file["points"] = SPOILT
    elif name == "a.obj":
        path.write_text("".join("v {} {} {}\n".format(*row) for row in SPOILT))
    else:
        save_points(path, SPOILT)
    check_sentence(path, InvalidInputError, f"{WRONG}: leave them out with --drop-invalid")
    with pytest.warns(DroppedPointsWarning, match=rf"{name}: {WRONG}; they are left out"):
        cloud = load_points(path, drop_invalid=True)
    np.testing.assert_allclose(cloud.points, make_points(), atol=1e-6)
    assert cloud.dropped == 2


def test_pcd_means_no_return_by_it_and_says_how_many(tmp_path):
    save_points(tmp_path / "scan.pcd", SPOILT)
    with pytest.warns(DroppedPointsWarning, match=WRONG):
        cloud = load_points(tmp_path / "scan.pcd")
    np.testing.assert_allclose(cloud.points, make_points(), atol=1e-6)
    assert cloud.dropped == 2
    (tmp_path / "none.pcd").write_bytes(pcd_header(1, "ascii") + b"nan nan nan\n")
    check_sentence(tmp_path / "none.pcd", InvalidInputError, "1 of 1 points")


def test_a_mesh_without_its_bad_vertices_keeps_the_faces_between_the_others(tmp_path):
    (tmp_path / "a.off").write_text("OFF\n5 2 0\nnan 0 0\n0 0 0\n1 0 0\n0 1 0\n9 9 9\n3 0 1 2\n3 1 2 3\n")
    check_sentence(tmp_path / "a.off", InvalidInputError, "1 of 5 points")
    with pytest.warns(DroppedPointsWarning, match="1 of 5"):
        mesh = load_points(tmp_path / "a.off", drop_invalid=True)
    assert mesh.dropped == 1
    np.testing.assert_array_equal(mesh.vertices, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [9, 9, 9]])
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2]])
    assert mesh.points.max() <= 1


def test_mesh_without_area(tmp_path):
    (tmp_path / "flat.off").write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n2 0 0\n3 0 1 2\n")
    check_sentence(tmp_path / "flat.off", InvalidInputError, "degenerate")


def test_data_set_is_not_a_cloud(tmp_path):
    points = np.zeros((4, 5, 3), dtype=np.float32)
    np.savez(tmp_path / "a.npz", points=points, labels=np.arange(4))
    np.save(tmp_path / "a.npy", points)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"], file["label"] = points, np.arange(4)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["shapes"] = points
    for name in ("a.npz", "a.npy", "a.h5", "b.h5"):
        check_sentence(tmp_path / name, FileFormatError, "is a data set, not one cloud: `geocaps encode` takes it")


def test_which_array_is_unclear(tmp_path):
    np.savez(tmp_path / "a.npz", first=np.zeros((4, 3)), second=np.zeros((4, 3)))
    check_sentence(tmp_path / "a.npz", FileFormatError, "found: first [4, 3], second [4, 3]")
    np.save(tmp_path / "a.npy", np.zeros((3, 100)))
    check_sentence(tmp_path / "a.npy", FileFormatError, "has shape [3, 100], expected [N, 3]")
    np.save(tmp_path / "b.npy", np.array([["a", "b", "c"]]))
    check_sentence(tmp_path / "b.npy", FileFormatError, "expected numbers")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.xyz", "1 2\n3 4\n", "at least three columns"),
        ("a.csv", "x,y,z\n1,2,three\n", "could not convert"),
        ("a.pts", "3\n1 2 3\n4 5 6\n", "declares 3 points, and 2 follow"),
        ("a.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n", "vert"),
        ("b.off", "OFF\n3 2 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", "4 lines follow"),
        ("c.off", "off of the wall\n1 1\n", "does not begin with OFF"),
        ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 4\n", "refers to vertex 3, and there are 3"),
        ("b.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n", "counts from 1"),
        ("c.obj", "v 0 0\n", "fewer than three coordinates"),
        ("a.pcd", pcd_header(3, "ascii").decode() + "1 2 3\n", "damaged or cut short"),
        ("b.pcd", pcd_header(3, "zip").decode(), "DATA must be"),
        ("c.pcd", pcd_header(3, "ascii", kinds="F F Q").decode(), "TYPE Q"),
        ("a.gltf", '{"asset": {"version": "1.0"}}', "glTF 2 was expected"),
    ],
)
def test_damaged_text(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    check_sentence(tmp_path / name, FileFormatError, words)


def test_las_needs_its_extra(tmp_path, io_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "laspy", None)
    with pytest.raises(MissingExtraError, match=r"\.\[las\]"):
        load_points(io_folder / "format3.las")


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (-3, 0), (5, -1), (50_000_001, 0), (True, 0)])
def test_count_and_seed(io_folder, count, seed):
    with pytest.raises(InvalidInputError):
        load_points(io_folder / "box.off", count, seed=seed)


@pytest.mark.parametrize(("constant", "value"), [("MAX_FILE_BYTES", 100), ("MAX_POINTS", 5), ("MAX_TEXT_BYTES", 100)])
def test_limits_hold_for_every_format(io_folder, file_name, monkeypatch, constant, value):
    text = {".obj", ".off", ".xyz", ".txt", ".pts", ".csv", ".gltf"}
    is_text = (io_folder / file_name).suffix in text or "ascii" in file_name
    monkeypatch.setattr(limits, constant, value)
    if constant == "MAX_TEXT_BYTES" and not is_text:
        assert len(load_points(io_folder / file_name).points)
    else:
        with pytest.raises(FileFormatError, match="the limit is"):
            load_points(io_folder / file_name)


def test_expansion_limit(io_folder, monkeypatch):
    monkeypatch.setattr(limits, "HARMLESS_BYTES", 100)
    monkeypatch.setattr(limits, "MAX_EXPANSION", 0)
    for name in ("compressed.pcd", "packed.npz", "packed.hdf5", "format3.laz"):
        check_sentence(io_folder / name, FileFormatError, "would unpack to")


def test_gltf_packed_geometry_says_so(tmp_path):
    tree, buffer = gltf_tree(*make_box(), "a.bin")
    (tmp_path / "a.bin").write_bytes(buffer)
    cases = {
        "KHR_draco_mesh_compression": lambda t: t["meshes"][0]["primitives"][0],
        "EXT_meshopt_compression": lambda t: t["bufferViews"][1],
    }
    for name, where in cases.items():
        changed = json.loads(json.dumps(tree))
        where(changed)["extensions"] = {name: {}}
        (tmp_path / "a.gltf").write_text(json.dumps(changed))
        check_sentence(tmp_path / "a.gltf", FileFormatError, name)
