"""Folders of files as data sets, and what a survey finds in any set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import trimesh

from geocaps.data import folder as folder_module
from geocaps.datasets import load, survey
from geocaps.errors import DatasetError, FileFormatError


@pytest.fixture
def meshes(tmp_path):
    """Meshes in the layout of the original ModelNet40: class, split, file."""
    root = tmp_path / "meshes"
    for class_name, split, number in [
        ("cup", "train", 1),
        ("cup", "test", 2),
        ("box", "train", 1),
        ("box", "train", 3),
    ]:
        (root / class_name / split).mkdir(parents=True, exist_ok=True)
        mesh = trimesh.creation.box((1, 2, number)) if class_name == "box" else trimesh.creation.cylinder(number, 2.0)
        mesh.export(root / class_name / split / f"{class_name}_{number}.off")
    return root


def test_classes_and_splits_come_from_the_folders(meshes):
    dataset = load(meshes)
    assert list(dataset.object_ids) == [
        "box/train/box_1.off",
        "box/train/box_3.off",
        "cup/test/cup_2.off",
        "cup/train/cup_1.off",
    ]
    assert dataset.class_names == ("box", "cup")
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert dataset.splits == ("train", "test")
    assert list(dataset.split("test").object_ids) == ["cup/test/cup_2.off"]


def test_split_folders_may_come_first(tmp_path):
    for place in ("train/cup", "Validation/cup"):
        (tmp_path / place).mkdir(parents=True)
        np.save(tmp_path / place / "a.npy", np.eye(3, dtype=np.float32))
    dataset = load(tmp_path)
    assert dataset.class_names == ("cup",)
    assert dataset.splits == ("train", "val")


def test_units_are_kept_and_sampling_does_not_depend_on_the_place(meshes, tmp_path):
    dataset = load(meshes)
    points = dataset.points(1)
    assert points.dtype == np.float32
    assert points.shape == (4096, 3)
    np.testing.assert_allclose(np.abs(points).max(axis=0), [0.5, 1.0, 1.5], atol=1e-6)
    moved = meshes.rename(tmp_path / "moved")
    again = load(moved)
    assert np.array_equal(again.points(1), points)
    assert again.fingerprint == dataset.fingerprint


def test_a_file_is_read_once_and_its_copy_cannot_be_spoiled(meshes):
    dataset = load(meshes)
    first = dataset.points(0)
    (meshes / "box/train/box_1.off").unlink()
    kept = dataset.points(0)
    assert np.array_equal(kept, first)
    kept[:] = 0
    assert np.array_equal(dataset.points(0), first)
    views = dataset.samplings(0, 2048, 2, torch.Generator().manual_seed(0))
    assert len(np.unique(views.reshape(-1, 3).numpy(), axis=0)) == 4096


def test_old_objects_give_way_when_memory_is_full(meshes, monkeypatch):
    monkeypatch.setattr(folder_module, "MEMORY_LIMIT", 2 * 4096 * 12)
    dataset = load(meshes)
    first = dataset.points(0)
    for index in range(len(dataset)):
        dataset.points(index)
    assert len(dataset._kept) == 2
    assert np.array_equal(dataset.points(0), first)


def test_a_scan_far_from_the_origin_keeps_its_shape(tmp_path):
    rng = np.random.default_rng(0)
    shape = rng.uniform(-1, 1, (50, 3))
    np.save(tmp_path / "scan.npy", shape + np.array([5e5, 5e6, 100]))
    points = load(tmp_path).points(0)
    np.testing.assert_allclose(points, shape - shape.mean(0), atol=1e-6)


def test_files_at_the_top_have_no_class(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    (tmp_path / ".hidden.npy").write_bytes(b"x")
    (tmp_path / "notes.md").write_text("not a cloud")
    dataset = load(tmp_path)
    assert list(dataset.object_ids) == ["a.npy"]
    assert dataset.class_names == ()
    assert dataset.labels.tolist() == [-1]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="no meshes or point clouds found"):
        load(tmp_path)


def test_a_bad_file_is_named_when_it_is_used(meshes):
    (meshes / "box/train/box_1.off").write_text("OFF\nnonsense")
    with pytest.raises(FileFormatError, match=r"box_1\.off"):
        load(meshes).points(0)


def kinds(found):
    return {problem.kind: problem for problem in found.problems}


def test_survey_of_a_sound_folder(meshes):
    found = survey(meshes)
    assert found.objects == 4
    assert found.classes == {"box": 2, "cup": 2}
    assert found.splits == {"train": 3, "test": 1}
    assert found.point_counts == (4096, 4096, 4096)
    assert found.highest == pytest.approx((2, 2, 1.5), abs=0.01)
    assert found.problems == []


def test_survey_finds_bad_files_and_copies(meshes):
    (meshes / "cup/train/broken.off").write_text("OFF\nnonsense")
    (meshes / "cup/train/zero.ply").write_bytes(b"")
    (meshes / "box/copy.off").write_bytes((meshes / "box/train/box_1.off").read_bytes())
    np.save(meshes / "box/nan.npy", np.full((9, 3), np.nan))
    np.save(meshes / "box/one_place.npy", np.ones((9, 3)))
    np.save(meshes / "box/kilometres.npy", np.random.default_rng(0).normal(size=(9, 3)) * 1e5)
    found = kinds(survey(meshes))
    assert found["unreadable"].count == 3
    assert any("broken.off" in example for example in found["unreadable"].examples)
    assert found["duplicated object"].examples == ["box/train/box_1.off = box/copy.off"]
    assert found["constant cloud (all points in one place)"].examples == ["box/one_place.npy"]
    assert "sizes differ a thousandfold (mixed units?)" in found


def test_survey_of_arrays(tmp_path):
    points = np.random.default_rng(0).normal(size=(7, 8, 3)).astype(np.float32)
    points[1, 3, 0] = np.nan
    points[2, 0, 2] = np.inf
    points[3] = 0.25
    points[5] = points[4]
    np.savez(
        tmp_path / "a.npz",
        points=points,
        labels=np.array([0, 0, 0, 0, 5, -1, -7]),
        class_names=np.array(["cup", "bowl"]),
        object_ids=np.array(list("abcdeff")),
    )
    summary = survey(tmp_path / "a.npz")
    found = kinds(summary)
    assert summary.classes == {"cup": 4, "bowl": 0}
    assert summary.unlabelled == 1
    assert found["points that are not finite"].examples == ["b", "c"]
    assert found["constant cloud (all points in one place)"].examples == ["d"]
    assert found["duplicated object"].examples == ["f = e"]
    assert found["label out of range"].count == 2
    assert found["object id used twice"].examples == ["f x 2"]
    assert found["class without objects"].examples == ["bowl"]


def test_survey_counts_all_but_lists_a_few(tmp_path):
    np.savez(tmp_path / "a.npz", points=np.zeros((30, 0, 3), np.float32))
    found = survey(tmp_path / "a.npz")
    assert found.point_counts is None
    assert found.problems[0].kind == "empty cloud"
    assert found.problems[0].count == 30
    assert len(found.problems[0].examples) == 10


def test_survey_finds_flipped_bits_in_mapped_points(tmp_path):
    points = np.random.default_rng(0).normal(size=(4, 2048, 3)).astype(np.float32)
    np.savez(tmp_path / "a.npz", points=points)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(points[2].tobytes()) + 5] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    assert kinds(survey(tmp_path / "a.npz"))["damaged data (checksum)"].examples == ["points"]


def test_survey_of_a_loaded_set_and_of_a_split(tmp_path):
    assert survey(load("furniture").of_classes(["bed"])).objects == 5
    seen = []
    found = survey("shapes", split="test", on_object=lambda done, of: seen.append((done, of)))
    assert found.splits == {"test": found.objects}
    assert len(seen) == found.objects
    assert found.problems == []
