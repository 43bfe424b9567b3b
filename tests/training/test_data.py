from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from geocaps.data import PointDataset, load
from geocaps.errors import ConfigError, DatasetError
from geocaps.training.batches import Batches, augmented_samplings, open_data, random_stream, unit_sphere
from geocaps.training.config import Augmentation
from geocaps.training.validation import Validation
from tests.training import tiny


def batches(dataset: PointDataset, **changes: object) -> Batches:
    values = {"points": 64, "samplings": 2, "batch": 4, "pieces": 2, "augmentation": Augmentation(), "key": (0, 0)}
    return Batches(dataset, **(values | changes))  # type: ignore[arg-type]


def test_every_object_once_an_epoch_whatever_the_pieces(data: Path) -> None:
    train, _ = open_data(tiny.config("unused", data))
    assert len(train) == 18
    for pieces in (1, 2, 4):
        made = batches(train, pieces=pieces)
        seen = [name for step in range(9) for piece in range(pieces) for name in made.piece(step, piece).object_ids]
        assert set(Counter(seen[:36]).values()) == {2}  # nine batches of four are two epochs of eighteen
        assert seen[:18] != seen[18:36]


def test_similar_objects_come_together_and_every_object_once(data: Path) -> None:
    """Kinds of six: in each epoch an object has others of its kind beside it, in every epoch other ones."""
    train, _ = open_data(tiny.config("unused", data))
    kinds = torch.arange(18) % 3
    similar = torch.stack(
        [torch.nonzero((kinds == kind) & (torch.arange(18) != i)).flatten() for i, kind in enumerate(kinds)]
    )
    made = batches(train, batch=6, pieces=1)
    alone = [index for step in range(3) for index in made.indices(step)]
    made.group(similar)
    epochs = [[index for step in range(3) for index in made.indices(3 * epoch + step)] for epoch in range(2)]
    for order in epochs:
        assert sorted(order) == list(range(18))
        assert [len(set(kinds[order[at : at + 6]].tolist())) for at in (0, 6, 12)] == [1, 1, 1]
    assert epochs[0] != epochs[1]
    assert any(len(set(kinds[alone[at : at + 6]].tolist())) > 1 for at in (0, 6, 12))


def test_copies_of_an_object_are_not_set_against_each_other(tmp_path: Path) -> None:
    """Data that are named twice: no batch of three has an object and its copy, though nothing is more similar."""
    path = tiny.write_data(tmp_path / "data.npz", objects=10)
    train, _ = open_data(tiny.config("unused", f"{path},{path}"))
    assert len(train) == 18
    others = torch.arange(18)
    similar = torch.stack([torch.cat([(i + 9 + torch.arange(9)) % 18, others[others != i][:2]]) for i in range(18)])
    made = batches(train, batch=9, pieces=1)
    made.group(similar)
    first = [train.object_ids[index] for index in made.indices(0)[:8]]
    assert len(set(first)) == 8


def test_a_step_is_the_same_whenever_it_is_asked_for(data: Path) -> None:
    train, _ = open_data(tiny.config("unused", data))
    made = batches(train, augmentation=tiny.AUGMENTATION)
    later = [made.piece(step, 0) for step in range(12)][-1]
    again = batches(train, augmentation=tiny.AUGMENTATION).piece(11, 0)
    assert again.object_ids == later.object_ids
    assert torch.equal(again.points, later.points)
    other = batches(train, augmentation=tiny.AUGMENTATION, key=(1, 0)).piece(11, 0)
    assert not torch.equal(other.points, later.points)


def test_samplings_of_an_object_differ_but_share_a_frame(data: Path) -> None:
    dataset = load(data)
    (*views, whole), _ = augmented_samplings(dataset, 3, 64, 2, Augmentation(stretch=1.2), random_stream(1))
    views = torch.stack(views)
    assert views.shape == (2, 64, 3)
    assert torch.equal(whole, views[0]), "nothing spoilt the first one"
    a, b = ({tuple(row) for row in view.tolist()} for view in views)
    assert not a & b  # 200 stored points are enough for two disjoint samplings
    nearest = torch.cdist(views[0], views[1]).amin(1)
    assert nearest.max() < 0.6  # the same ellipsoid, turned the same way
    assert views.norm(dim=-1).max() == pytest.approx(1, abs=1e-5)


def test_the_whole_object_comes_last_and_unspoilt(data: Path) -> None:
    """Centred, the farthest point of all samplings at 1, whatever was cut off the views."""
    cropped = Augmentation(crop_share=1.0, crop_keep=0.5)
    for seed in range(5):
        (*views, whole), _ = augmented_samplings(load(data), seed, 64, 2, cropped, random_stream(seed))
        assert whole.mean(dim=0).norm() < 0.2
        assert whole.norm(dim=-1).max() > 0.8
        assert any(view.mean(dim=0).norm() > whole.mean(dim=0).norm() for view in views)


def test_the_trust_is_calibrated_on_halves(data: Path) -> None:
    """Each pair is the whole object and half of another sampling: by turns a crop, and what is seen from one side."""
    whole, half, truth = Validation(load(data), 6, 64).halved.unbind(1)
    assert torch.equal(whole, truth)
    off = half.mean(dim=1).norm(dim=-1) - whole.mean(dim=1).norm(dim=-1)
    for objects in (slice(0, None, 2), slice(1, None, 2)):
        assert off[objects].mean() > 0.1


def test_strays_are_left_out_as_the_model_leaves_them_out(data: Path) -> None:
    strewn, dataset = Augmentation(outlier_share=1.0, outlier_fraction=0.3), load(data)
    views = torch.cat([augmented_samplings(dataset, k, 100, 2, strewn, random_stream(k))[0][:2] for k in range(10)])
    different = [len(view.unique(dim=0)) for view in views]
    assert max(different) <= 100
    assert sum(count < 100 for count in different) > 3, "others come twice in the place of strays"


def test_how_an_object_was_turned_is_told(data: Path) -> None:
    """Turned back, every drawn point is one of the stored ones, but for the common centre and scale."""
    dataset = load(data)
    found, turned = augmented_samplings(dataset, 2, 64, 2, Augmentation(), random_stream(3))
    torch.testing.assert_close(turned @ turned.mT, torch.eye(3), atol=1e-5, rtol=0)
    back, stored = found[:2].flatten(0, 1) @ turned, torch.from_numpy(dataset.points(2))
    # Differences of points know no centre, their ratios no scale: of the stored ones, some are these.
    between = torch.cdist(stored, stored)
    here = torch.cdist(back, back)
    scale = between.max() / here.max()
    center = stored.mean(dim=0)
    distance = torch.cdist(back * scale + center, stored).amin(dim=1)
    assert distance.max() < 0.5 * between.max(), "in the stored orientation"
    other = torch.cdist(found[:2].flatten(0, 1) * scale + center, stored).amin(dim=1)
    assert distance.mean() < 0.5 * other.mean(), "and not in the turned one"


def test_stretch_is_the_same_for_both_samplings(data: Path) -> None:
    dataset = load(data)
    plain, _ = augmented_samplings(dataset, 0, 100, 2, Augmentation(), random_stream(7))
    wide, _ = augmented_samplings(dataset, 0, 100, 2, Augmentation(stretch=3.0), random_stream(7))
    spreads = [[torch.linalg.svdvals(v - v.mean(0))[0] / torch.linalg.svdvals(v - v.mean(0))[2] for v in x] for x in
               (plain, wide)]  # fmt: skip
    assert spreads[0][0] != pytest.approx(float(spreads[1][0]), rel=0.05)
    assert float(spreads[1][0]) == pytest.approx(float(spreads[1][1]), rel=0.35)


@pytest.mark.parametrize("name", ["noise_share", "outlier_share", "crop_share", "density_share"])
def test_each_way_of_spoiling(name: str, data: Path) -> None:
    dataset = load(data)
    clean, _ = augmented_samplings(dataset, 0, 64, 1, Augmentation(), random_stream(5))
    always, _ = augmented_samplings(dataset, 0, 64, 1, Augmentation(**{name: 1.0}), random_stream(5))
    never, _ = augmented_samplings(dataset, 0, 64, 1, Augmentation(**{name: 0.0}), random_stream(5))
    assert torch.equal(clean, never)
    assert always.shape == clean.shape
    assert not torch.allclose(always, clean, atol=1e-4)


def test_held_out_objects_are_not_trained_on(tmp_path: Path) -> None:
    train, held_out = open_data(tiny.config("unused", tiny.write_data(tmp_path / "twenty.npz")))
    assert (len(train), len(held_out)) == (18, 2)
    assert not set(train.object_ids) & set(held_out.object_ids)
    train, held_out = open_data(tiny.config("unused", "shapes"))
    assert set(train.split_codes) == {0}
    assert set(held_out.split_codes) == {1}


def test_bad_objects_are_named_before_any_work(tmp_path: Path) -> None:
    for index in range(4):
        rows = np.random.default_rng(index).normal(size=(100, 3))
        rows[: index - 2] = np.nan if index == 3 else rows[: index - 2]
        np.savetxt(tmp_path / f"{index}.xyz", rows)
    (tmp_path / "4.ply").write_text("Dear reader")
    with pytest.raises(DatasetError, match=r"2 of the 5 objects.*first is 3\.xyz.*--drop-invalid.*geocaps data info"):
        open_data(tiny.config("unused", tmp_path))


def test_only_the_chosen_classes() -> None:
    train, held_out = open_data(tiny.config("unused", "shapes", classes="chair, mug"))
    for side in (train, held_out):
        assert {side.class_names[label] for label in side.labels} == {"chair", "mug"}
    with pytest.raises(DatasetError, match="no class 'unicorn'"):
        open_data(tiny.config("unused", "shapes", classes="unicorn"))
    with pytest.raises(ConfigError, match="classes must name at least one class, not ' , '"):
        tiny.config("unused", "shapes", classes=" , ")


def test_an_object_without_extent_or_with_infinities_is_named(tmp_path: Path) -> None:
    points = np.ones((2, 100, 3), dtype=np.float32)
    points[1, 0] = np.inf
    np.savez(tmp_path / "bad.npz", points=points, object_ids=["flat", "endless"])
    dataset = load(tmp_path / "bad.npz")
    for index, name, why in ((0, "flat", "one place"), (1, "endless", "not finite")):
        with pytest.raises(DatasetError, match=f"{name}.*{why}"):
            unit_sphere(dataset, index, torch.from_numpy(dataset.points(index))[None])
