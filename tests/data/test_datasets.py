"""The interface, the embedded sets, selections and concatenations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geocaps.data.base import draw_indices
from geocaps.data.synthetic import CLASS_NAMES
from geocaps.datasets import concat, load
from geocaps.errors import DatasetError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def write_npz(path, objects=6, points=32, **changes):
    """A small sound data set file, with columns changed, added or (None) left out."""
    rng = np.random.default_rng(0)
    columns = {
        "points": rng.integers(-1000, 1000, (objects, points, 3)).astype(np.int16),
        "scale": np.float32(0.001),
        "labels": np.arange(objects) % 2,
        "class_names": np.array(["cup", "bowl"]),
        "object_ids": np.array([f"id{index}" for index in range(objects)]),
        "split": (np.arange(objects) % 3).astype(np.uint8),
    } | changes
    np.savez_compressed(path, **{key: value for key, value in columns.items() if value is not None})
    return path


def test_enough_points_give_disjoint_views():
    chosen = draw_indices(100, 25, 4, generator())
    assert sorted(chosen.flatten().tolist()) == list(range(100))


def test_too_few_points_for_disjoint_views_give_views_without_repeats():
    chosen = draw_indices(100, 60, 2, generator())
    assert [len(set(view.tolist())) for view in chosen] == [60, 60]
    assert not torch.equal(chosen[0], chosen[1])


def test_an_object_smaller_than_the_count_uses_all_its_points_evenly():
    chosen = draw_indices(10, 25, 2, generator())
    for view in chosen:
        times = torch.bincount(view, minlength=10)
        assert times.min() == 2
        assert times.max() == 3


def test_samplings_follow_the_generator(tmp_path):
    dataset = load(write_npz(tmp_path / "a.npz"))
    first, again, other = (dataset.samplings(0, 8, 3, generator(seed)) for seed in (1, 1, 2))
    assert first.shape == (3, 8, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    stored = {tuple(point) for point in dataset.points(0).tolist()}
    assert all(tuple(point) in stored for point in first.reshape(-1, 3).tolist())


def test_selections_keep_ids_labels_and_points(tmp_path):
    dataset = load(write_npz(tmp_path / "a.npz"))
    bowls = dataset.of_classes(["bowl"])
    assert list(bowls.object_ids) == ["id1", "id3", "id5"]
    assert bowls.class_names == ("cup", "bowl")
    assert bowls.labels.tolist() == [1, 1, 1]
    last = bowls.subset([2])
    assert np.array_equal(last.points(0), dataset.points(5))
    assert torch.equal(last.samplings(0, 4, 2, generator()), dataset.samplings(5, 4, 2, generator()))
    assert len({dataset.fingerprint, bowls.fingerprint, last.fingerprint}) == 3
    assert load(tmp_path / "a.npz").of_classes("bowl").fingerprint == bowls.fingerprint


def test_splits(tmp_path):
    dataset = load(write_npz(tmp_path / "a.npz", split=np.array([0, 0, 2, 2, 2, 0])))
    assert dataset.splits == ("train", "test")
    assert list(dataset.split("test").object_ids) == ["id2", "id3", "id4"]
    assert list(load(tmp_path / "a.npz", split="train").object_ids) == ["id0", "id1", "id5"]
    with pytest.raises(DatasetError, match=r"no split 'val'.*train, test"):
        dataset.split("val")


def test_unknown_class_names_the_known_ones(tmp_path):
    with pytest.raises(DatasetError, match=r"no class 'sofa'.*cup, bowl"):
        load(write_npz(tmp_path / "a.npz")).of_classes(["cup", "sofa"])


@pytest.mark.parametrize("places", [[6], [-1], [0, 99]])
def test_a_subset_outside_the_set_is_refused(tmp_path, places):
    with pytest.raises(DatasetError, match="indices are 0 to 5"):
        load(write_npz(tmp_path / "a.npz")).subset(places)


def test_concat_joins_classes_by_name(tmp_path):
    one = load(write_npz(tmp_path / "a.npz"))
    two = load(write_npz(tmp_path / "b.npz", objects=3, points=16, class_names=np.array(["bowl", "vase"])))
    plain = load(write_npz(tmp_path / "c.npz", objects=2, labels=None, class_names=None, split=None))
    both = concat([one, two, plain])
    assert both.class_names == ("cup", "bowl", "vase")
    assert both.labels.tolist() == [0, 1, 0, 1, 0, 1, 1, 2, 1, -1, -1]
    assert np.array_equal(both.points(7), two.points(1))
    assert np.array_equal(both.points(-1), plain.points(1))
    assert torch.equal(both.samplings(8, 4, 2, generator()), two.samplings(2, 4, 2, generator()))
    assert both.digest(8) == two.digest(2)
    assert both.part_labels(8) is None
    assert len(both.split("train")) == 2 + 1
    assert both.fingerprint != concat([two, one, plain]).fingerprint
    with pytest.raises(IndexError):
        both.points(11)
    with pytest.raises(DatasetError, match="at least one"):
        concat([])


def test_shapes_are_the_same_for_the_same_seed_and_grow_in_place():
    few, more, other = load("shapes", per_class=2), load("shapes", per_class=10), load("shapes", per_class=2, seed=7)
    assert few.class_names == tuple(CLASS_NAMES)
    assert len(few) == 2 * len(CLASS_NAMES)
    place = list(more.object_ids).index(few.object_ids[3])
    assert np.array_equal(few.points(3), more.points(place))
    assert not np.array_equal(few.points(3), other.points(3))
    assert few.fingerprint == load("shapes", per_class=2, seed=0).fingerprint
    assert few.fingerprint != other.fingerprint
    assert more.splits == ("train", "val", "test")
    assert len(more.split("train")) == 8 * len(CLASS_NAMES)


def test_shapes_sample_afresh_and_have_parts():
    shapes = load("shapes", per_class=1)
    points, parts = shapes.points(0), shapes.part_labels(0)
    assert points.dtype == np.float32
    assert parts is not None
    assert len(parts) == len(points)
    views = shapes.samplings(0, 5000, 2, generator())
    assert views.shape == (2, 5000, 3)
    assert len(np.intersect1d(views[0].numpy().view("V12"), views[1].numpy().view("V12"))) == 0


def test_furniture_is_there_without_a_download():
    furniture = load("furniture")
    assert len(furniture) == 175
    assert "chair" in furniture.class_names
    assert "" not in furniture.class_names
    assert (furniture.labels == -1).sum() == 86
    chairs = furniture.of_classes(["chair"])
    assert len(chairs) == 17
    assert chairs.points(0).shape == (2048, 3)
    assert all(np.isfinite(furniture.points(index)).all() for index in range(len(furniture)))
    assert furniture.splits == ()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("furniture", {"per_class": 3}, "for the procedural set"),
        ("furniture", {"split": "train"}, "no split 'train'"),
        ("shapes", {"per_class": 0}, "at least 1"),
        ("shapes", {"seed": -1}, "must not be negative"),
        ("nowhere/at/all.npz", {}, "no such file"),
    ],
)
def test_calls_that_cannot_be_served(source, options, message):
    with pytest.raises(DatasetError, match=message):
        load(source, **options)


def test_a_single_object_file_is_not_a_data_set(tmp_path):
    (tmp_path / "one.obj").write_text("v 0 0 0\n")
    with pytest.raises(DatasetError, match="put single objects into a folder"):
        load(tmp_path / "one.obj")
