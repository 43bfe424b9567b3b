"""Reading HDF5 data sets: the ModelNet40 folder, the ShapeNet layouts, and damaged files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from geocaps.data import files
from geocaps.datasets import load
from geocaps.errors import DatasetError


def clouds(objects, seed=0, points=16):
    return np.random.default_rng(seed).normal(size=(objects, points, 3)).astype(np.float32)


def write(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip")
    return path


@pytest.fixture
def modelnet(tmp_path):
    """The layout of modelnet40_ply_hdf5_2048: lists name files by a folder that is not there any more."""
    folder = tmp_path / "modelnet40_ply_hdf5_2048"
    folder.mkdir()
    for number, (name, objects) in enumerate([("train0", 3), ("train1", 2), ("test0", 4)]):
        write(
            folder / f"ply_data_{name}.h5",
            data=clouds(objects, number),
            label=(np.arange(objects) % 2)[:, None].astype(np.uint8),
            normal=clouds(objects, 9),
            faceId=np.zeros((objects, 16), np.int32),
        )
    prefix = "data/modelnet40_ply_hdf5_2048/ply_data_"
    (folder / "train_files.txt").write_text(f"{prefix}train0.h5\n{prefix}train1.h5\n")
    (folder / "test_files.txt").write_text(f"{prefix}test0.h5\n")
    (folder / "shape_names.txt").write_text("airplane\nbathtub\nbed\n")
    return folder


def test_modelnet_folder(modelnet):
    dataset = load(modelnet)
    assert len(dataset) == 9
    assert dataset.class_names == ("airplane", "bathtub", "bed")
    assert dataset.labels.tolist() == [0, 1, 0, 0, 1, 0, 1, 0, 1]
    assert dataset.splits == ("train", "test")
    assert len(set(dataset.object_ids)) == 9
    np.testing.assert_array_equal(dataset.points(4), clouds(2, 1)[1])
    np.testing.assert_array_equal(load(modelnet, split="test").points(3), clouds(4, 2)[3])
    assert dataset.samplings(8, 8, 2, torch.Generator().manual_seed(0)).shape == (2, 8, 3)
    assert dataset.fingerprint == load(modelnet).fingerprint


def test_one_file_of_the_modelnet_folder_finds_its_class_names(modelnet):
    dataset = load(modelnet / "ply_data_test0.h5")
    assert dataset.class_names == ("airplane", "bathtub", "bed")
    assert dataset.splits == ("test",)


def test_a_folder_without_lists_is_split_by_file_names(tmp_path):
    for name in ("train0", "train1", "val0", "test0"):
        write(tmp_path / f"{name}.h5", data=clouds(2), label=np.array([[0], [54]]))
    dataset = load(tmp_path)
    assert dataset.splits == ("train", "val", "test")
    assert len(dataset.split("train")) == 4
    assert len(dataset.class_names) == 55


def test_part_labels_of_shapenet_part(tmp_path):
    parts = np.arange(32).reshape(2, 16)
    write(tmp_path / "ply_data_val0.h5", data=clouds(2), label=np.zeros((2, 1), int), pid=parts)
    (tmp_path / "val_hdf5_file_list.txt").write_text("ply_data_val0.h5\n")
    (tmp_path / "all_object_categories.txt").write_text("Airplane\t02691156\nBag\t02773838\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("Airplane", "Bag")
    assert dataset.part_labels(1).tolist() == parts[1].tolist()


LAYOUTS = {
    "group per split": {
        "train/data": 4,
        "train/label": 4,
        "val/data": 1,
        "val/label": 1,
        "test/data": 2,
        "test/label": 2,
    },
    "points and labels": {"train/points": 4, "train/labels": 4, "valid/points": 1, "valid/labels": 1},
    "prefixed": {"train_data": 4, "train_label": 4, "val_data": 1, "val_label": 1, "test_data": 2, "test_label": 2},
    "suffixed": {"data_train": 4, "label_train": 4, "data_val": 1, "label_val": 1},
    "array per split": {"train": 4, "train_labels": 4, "val": 1, "val_labels": 1},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_within_one_file(tmp_path, layout):
    arrays = {
        key: np.arange(objects) % 2 if "label" in key else clouds(objects, objects)
        for key, objects in LAYOUTS[layout].items()
    }
    dataset = load(write(tmp_path / "shapenet_core55.h5", **arrays))
    assert dataset.split("train").labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(dataset.split("train").points(2), clouds(4, 4)[2])
    np.testing.assert_array_equal(dataset.split("val").points(0), clouds(1, 1)[0])


@pytest.mark.parametrize("key", ["{class_name}/{split}", "{split}/{class_name}", "{class_name}/{split}/points"])
def test_a_group_for_each_class(tmp_path, key):
    sizes = {("02691156", "train"): 3, ("02691156", "test"): 1, ("03001627", "train"): 2}
    arrays = {key.format(class_name=name, split=split): clouds(size) for (name, split), size in sizes.items()}
    dataset = load(write(tmp_path / "shapenet.hdf5", **arrays))
    assert dataset.class_names == ("02691156", "03001627")
    assert len(dataset.split("train").of_classes(["02691156"])) == 3
    assert len(dataset.split("train").of_classes(["03001627"])) == 2
    assert len(dataset.split("test")) == 1


def test_unlabelled(tmp_path):
    dataset = load(write(tmp_path / "a.h5", data=clouds(3)))
    assert dataset.labels.tolist() == [-1, -1, -1]
    assert dataset.class_names == ()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_large_arrays_are_mapped(tmp_path, monkeypatch, compression):
    monkeypatch.setattr(files, "MEMORY_LIMIT", 64)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=clouds(300), compression=compression)
    dataset = load(tmp_path / "a.h5")
    assert isinstance(dataset._found[0][0]._points, np.memmap)
    np.testing.assert_array_equal(dataset.points(299), clouds(300)[299])


def test_a_listed_file_that_is_missing_is_named(modelnet):
    (modelnet / "ply_data_train1.h5").unlink()
    with pytest.raises(DatasetError, match=r"train_files.txt names .*train1\.h5"):
        load(modelnet)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": np.zeros(3)}, "no point clouds found"),
        ({"data": clouds(3), "label": np.zeros(2, int)}, r"labels must be .*\[3\]"),
        ({"data": clouds(3), "label": np.array([0, -5, 1])}, "outside"),
        ({"data": clouds(3).astype(np.int16)}, "need a scale"),
        ({"data": clouds(3), "pid": np.zeros((3, 4), int)}, "part_labels"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, arrays, message):
    with pytest.raises(DatasetError, match=message):
        load(write(tmp_path / "a.h5", **arrays))


def test_labels_beyond_the_class_names(modelnet):
    (modelnet / "shape_names.txt").write_text("airplane\n")
    with pytest.raises(DatasetError, match=r"there are 1 class names"):
        load(modelnet)


@pytest.mark.parametrize("keep", [0, 10, 400, 1500])
def test_a_file_cut_short(tmp_path, keep):
    path = write(tmp_path / "a.h5", data=clouds(3))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match=r"a\.h5: cannot be read as HDF5"):
        load(path)


def test_links_to_other_files_are_not_followed(tmp_path):
    write(tmp_path / "secret.h5", data=clouds(3))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/data")
    with pytest.raises(DatasetError, match="no point clouds found"):
        load(tmp_path / "a.h5")
