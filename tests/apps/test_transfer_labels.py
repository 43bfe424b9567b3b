"""Labels of one object on others of its kind, in arbitrary orientations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import geocaps
from geocaps.apps.transfer import references
from geocaps.data.synthetic import make_shape
from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.io import load_points, save_points


def chair(seed: int, turned: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A chair whose points are labelled 0 (back, armrests: what is above the seat), 1 (seat) or 2 (legs)."""
    shape = make_shape("chair", seed)
    sample = shape.sample(1200, torch.Generator().manual_seed(seed))
    kinds = np.array([{"seat": 1, "legs": 2}.get(name, 0) for name in shape.part_names])
    points, labels = sample.points.numpy(), kinds[sample.part_labels.numpy()]
    if turned is not None:
        points = geocaps.Similarity.from_wxyz(np.random.default_rng(turned).normal(size=4), np.zeros(3)).apply(points)
    return points, labels


@pytest.fixture(scope="module")
def model() -> geocaps.Model:
    return geocaps.load()


def test_a_chair_is_labelled_as_another_one(model: geocaps.Model) -> None:
    given, truths = chair(1), [chair(seed, turned=seed) for seed in (2, 3, 4)]
    found = geocaps.transfer(given, [points for points, _ in truths], model)
    right = [(one.labels == labels).mean() for one, (_, labels) in zip(found, truths, strict=True)]
    assert np.mean(right) > 0.7, right
    for one, (points, labels) in zip(found, truths, strict=True):
        assert one.labels.shape == one.confidence.shape == (len(points),)
        assert ((one.confidence > 0) & (one.confidence <= 1 + 1e-9)).all()
        sure = one.confidence > np.median(one.confidence)
        if 0 < sure.sum() < len(sure):
            # What it is surer of is right at least as often.
            hits = one.labels == labels
            assert hits[sure].mean() >= hits[~sure].mean() - 0.05


def test_the_same_object_gets_its_own_labels_wherever_it_lies(model: geocaps.Model) -> None:
    points, labels = chair(5)
    moved = geocaps.Similarity.from_wxyz(np.array([0.3, -0.5, 0.7, 0.2]), np.array([4.0, 5, -6]), 12.0)
    (found,) = geocaps.transfer((points, labels), [moved.apply(points)], model)
    assert (found.labels == labels).mean() > 0.97
    assert found.similarity > 0.99


def test_labels_keep_their_numbers_and_order_of_points_does_not_matter(model: geocaps.Model) -> None:
    points, labels = chair(6)
    target, _ = chair(7, turned=1)
    first = geocaps.transfer((points, labels), [target], model)[0]
    other = geocaps.transfer((points, 100 - 7 * labels), [target], model)[0]
    np.testing.assert_array_equal(other.labels, 100 - 7 * first.labels)
    assert set(np.unique(other.labels)) <= {100, 93, 86}


def test_of_several_labelled_objects_the_most_similar_says_most(model: geocaps.Model) -> None:
    """A chair among lamps: the lamps' label, which no chair has, stays away from the chair."""
    lamp = make_shape("lamp", 1).sample(1200, torch.Generator().manual_seed(0)).points.numpy()
    target, labels = chair(9, turned=2)
    (found,) = geocaps.transfer([(lamp, np.full(1200, 9)), chair(8)], [target], model)
    assert (found.labels == 9).mean() < 0.1
    assert (found.labels == labels).mean() > 0.6


@pytest.mark.parametrize("suffix", [".ply", ".npz", ".xyz"])
def test_labels_are_read_from_files_and_written_to_files(model: geocaps.Model, tmp_path, suffix: str) -> None:
    points, labels = chair(1)
    save_points(tmp_path / f"labelled{suffix}", points, labels=labels)
    (tmp_path / "targets").mkdir()
    for seed in (2, 3):
        save_points(tmp_path / "targets" / f"{seed}.ply", chair(seed, turned=seed)[0])
    found = geocaps.transfer(
        tmp_path / f"labelled{suffix}", tmp_path / "targets", model, out=tmp_path / "out", suffix=suffix
    )
    assert [one.name for one in found] == [str(tmp_path / "targets" / f"{seed}.ply") for seed in (2, 3)]
    for one, seed in zip(found, (2, 3), strict=True):
        written = load_points(tmp_path / "out" / f"{seed}{suffix}")
        np.testing.assert_array_equal(written.labels, one.labels)
        np.testing.assert_allclose(written.points, one.points, atol=1e-6)
    # What was written can be the next labelled object.
    assert (references(tmp_path / "out" / f"2{suffix}", model)[0].labels == found[0].labels).all()


def test_pictures(model: geocaps.Model) -> None:
    (found,) = geocaps.transfer(chair(1), [chair(2)[0]], model)
    assert "image/png" in found._repr_html_()
    assert "labels from" in repr(found)


def test_what_has_no_labels_is_refused_in_one_sentence(model: geocaps.Model, tmp_path) -> None:
    points, labels = chair(1)
    save_points(tmp_path / "plain.ply", points)
    for labelled, sentence in (
        (tmp_path / "plain.ply", r"plain\.ply has no labels"),
        ((points, labels[:-1]), "must be 1200 whole numbers"),
        ((points, labels + 0.5), "must be 1200 whole numbers"),
        ([], "no labelled object was given"),
        (3, "a labelled object is a file with labels or a pair"),
        (tmp_path / "missing.ply", "does not exist"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            geocaps.transfer(labelled, [points], model)
    with pytest.raises(GeocapsError, match="does not exist"):
        geocaps.transfer((points, labels), [tmp_path / "missing.ply"], model)
