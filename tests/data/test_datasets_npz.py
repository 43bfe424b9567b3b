"""Reading .npz data sets: every good form opens, every bad form is one DatasetError that names the file."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geocaps.data import base, files
from geocaps.datasets import load, survey
from geocaps.errors import DatasetError

POINTS = np.random.default_rng(0).normal(size=(4, 16, 3)).astype(np.float32)
STRINGS = np.array(["a", "b", "c", "d"])


def write(path, *, compressed=True, **columns):
    (np.savez_compressed if compressed else np.savez)(path, **columns)
    return path


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_floats_keep_their_units(tmp_path, dtype, compressed):
    stored = (POINTS * 100).astype(dtype)
    dataset = load(write(tmp_path / "a.npz", compressed=compressed, points=stored))
    assert dataset.points(2).dtype == np.float32
    np.testing.assert_array_equal(dataset.points(2), stored[2].astype(np.float32))
    assert dataset.class_names == ()
    assert dataset.labels.tolist() == [-1] * 4
    assert list(dataset.object_ids) == ["000000", "000001", "000002", "000003"]


@pytest.mark.parametrize("compressed", [True, False])
def test_int16_times_scale(tmp_path, compressed):
    stored = np.round(POINTS * 1000).astype(np.int16)
    dataset = load(write(tmp_path / "a.npz", compressed=compressed, points=stored, scale=np.float32(0.001)))
    np.testing.assert_allclose(dataset.points(1), POINTS[1], atol=6e-4)


def test_uncompressed_points_are_mapped_and_never_handed_out(tmp_path):
    dataset = load(write(tmp_path / "a.npz", compressed=False, points=POINTS))
    assert isinstance(dataset._points, np.memmap)
    dataset.points(0)[:] = 0
    np.testing.assert_array_equal(dataset.points(0), POINTS[0])


def test_large_compressed_points_go_through_a_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MEMORY_LIMIT", 64)
    dataset = load(write(tmp_path / "a.npz", points=POINTS))
    assert isinstance(dataset._points, np.memmap)
    np.testing.assert_array_equal(dataset.points(3), POINTS[3])


def test_no_room_for_the_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MEMORY_LIMIT", 64)
    full = base.shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(base.shutil, "disk_usage", lambda _: full)
    with pytest.raises(DatasetError, match="only 10 bytes free"):
        load(write(tmp_path / "a.npz", points=POINTS))


def test_the_file_of_3d_point_capsule_networks(tmp_path):
    dataset = load(write(tmp_path / "shapenet57448xyzonly.npz", data=POINTS))
    assert len(dataset) == 4
    np.testing.assert_array_equal(dataset.points(0), POINTS[0])


def test_labels_splits_and_parts(tmp_path):
    parts = np.arange(64).reshape(4, 16).astype(np.uint8)
    dataset = load(
        write(
            tmp_path / "a.npz",
            points=POINTS,
            labels=np.array([[1], [0], [-1], [1]], dtype=np.int16),
            class_names=np.array([b"cup", b"bowl"]),
            split=np.array([1, 0, -1, 1]),
            split_names=np.array(["test", "train"]),
            part_labels=parts,
        )
    )
    assert dataset.labels.tolist() == [1, 0, -1, 1]
    assert dataset.class_names == ("cup", "bowl")
    assert list(dataset.split("train").object_ids) == ["000000", "000003"]
    assert dataset.part_labels(2).tolist() == parts[2].tolist()


def test_labels_without_names_get_numbered_ones(tmp_path):
    dataset = load(write(tmp_path / "a.npz", points=POINTS, labels=np.array([0, 2, 2, -1])))
    assert dataset.class_names == ("class_0", "class_1", "class_2")


def test_fingerprint_is_of_the_content_not_of_the_place(tmp_path):
    one = load(write(tmp_path / "a.npz", points=POINTS))
    same = load(write(tmp_path / "b.npz", compressed=False, points=POINTS))
    other = load(write(tmp_path / "c.npz", points=POINTS + 1))
    assert one.fingerprint == same.fingerprint != other.fingerprint


BAD_COLUMNS = {
    "no points": ({"labels": np.arange(4)}, "needs the key 'points'.*labels"),
    "a single cloud": ({"points": POINTS[0]}, "a single cloud is not a data set"),
    "two coordinates": ({"points": POINTS[..., :2]}, r"\[objects, points, 3\]"),
    "int16 without scale": ({"points": POINTS.astype(np.int16)}, "need a scale"),
    "int32": ({"points": POINTS.astype(np.int32)}, "got int32"),
    "complex": ({"points": POINTS.astype(complex)}, "got complex"),
    "strings": ({"points": POINTS.astype(str)}, "must be float"),
    "two scales": ({"points": POINTS.astype(np.int16), "scale": np.ones(2)}, "one number"),
    "zero scale": ({"points": POINTS.astype(np.int16), "scale": np.float32(0)}, "positive"),
    "nan scale": ({"points": POINTS.astype(np.int16), "scale": np.float32(np.nan)}, "finite"),
    "short labels": ({"points": POINTS, "labels": np.arange(3)}, r"labels must be.*\[4\]"),
    "float labels": ({"points": POINTS, "labels": np.zeros(4)}, "whole numbers"),
    "label too high": ({"points": POINTS, "labels": np.arange(4), "class_names": STRINGS[:2]}, "outside -1 to 1"),
    "label too low": ({"points": POINTS, "labels": np.arange(4) - 2}, "the first is -2"),
    "huge label": ({"points": POINTS, "labels": np.full(4, 2**40)}, "outside"),
    "short ids": ({"points": POINTS, "object_ids": STRINGS[:3]}, "each of the 4 objects, got 3"),
    "number ids": ({"points": POINTS, "object_ids": np.arange(4)}, "array of strings"),
    "two names alike": ({"points": POINTS, "class_names": np.array(["a", "a"])}, "repeated: a"),
    "names not utf-8": ({"points": POINTS, "class_names": np.array([b"\xff\xfe"])}, "not UTF-8"),
    "short split": ({"points": POINTS, "split": np.arange(3)}, r"split must be.*\[4\]"),
    "split too high": ({"points": POINTS, "split": np.arange(4)}, "got 3"),
    "strange split": ({"points": POINTS, "split": np.zeros(4, int), "split_names": STRINGS}, "split_names"),
    "short parts": ({"points": POINTS, "part_labels": np.zeros((4, 15), int)}, r"part_labels.*\[4, 16\]"),
    "objects": ({"points": np.array([[1, "x"]], dtype=object)}, "never loaded"),
    "fortran order": ({"points": np.asfortranarray(POINTS)}, "Fortran"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_a_bad_column_is_named(tmp_path, case):
    columns, message = BAD_COLUMNS[case]
    path = write(tmp_path / "bad.npz", **columns)
    with pytest.raises(DatasetError, match=message) as error:
        load(path)
    assert "bad.npz" in str(error.value)


def test_an_empty_set_opens_and_says_so(tmp_path):
    assert len(load(write(tmp_path / "a.npz", points=POINTS[:0]))) == 0


def test_an_object_without_points_cannot_be_sampled(tmp_path):
    dataset = load(write(tmp_path / "a.npz", points=POINTS[:, :0]))
    assert dataset.points(0).shape == (0, 3)
    with pytest.raises(DatasetError, match="'000000' has no points"):
        dataset.samplings(0, 4, 1, torch.Generator())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip at all", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_archive(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"bad\.npz.*cannot be read"):
        load(tmp_path / "bad.npz")


def test_a_header_that_promises_more_than_there_is(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 2048, 3)})
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "bad.npz", "w", method) as archive:
            archive.writestr("points.npy", header.getvalue() + b"\0" * 96)
        with pytest.raises(DatasetError, match=r"should take .* bytes but 96 are stored"):
            load(tmp_path / "bad.npz")


def test_an_encrypted_member(tmp_path):
    path = write(tmp_path / "bad.npz", points=POINTS)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + offset
        data[place : place + 2] = struct.pack("<H", 1)
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"bad\.npz"):
        load(path)


@pytest.fixture(scope="module")
def sound_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    columns = {"points": POINTS, "labels": np.arange(4) % 2, "class_names": STRINGS[:2], "object_ids": STRINGS}
    return [
        write(folder / f"{compressed}.npz", compressed=compressed, **columns).read_bytes()
        for compressed in (True, False)
    ]


@settings(max_examples=300)
@given(
    which=st.integers(0, 1),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), max_size=4),
    keep=st.floats(0.0, 1.0),
)
@example(which=0, edits=[], keep=1.0)
@example(which=1, edits=[(0, b"\xff\xff\xff\xff")], keep=1.0)
def test_a_changed_file_loads_or_is_refused_in_one_sentence(tmp_path, sound_files, which, edits, keep):
    data = bytearray(sound_files[which])
    for place, patch in edits:
        place %= len(data)
        data[place : place + len(patch)] = patch
    path = tmp_path / "changed.npz"
    path.write_bytes(bytes(data[: int(len(data) * keep)]))
    refusal = ""
    try:
        dataset = load(path)
    except DatasetError as error:
        refusal = str(error)
    if refusal:
        assert "changed.npz" in refusal
        assert "\n" not in refusal
        return
    for index in range(len(dataset)):
        assert dataset.points(index).shape[1] == 3
    survey(path)
