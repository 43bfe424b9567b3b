"""Tracking: an object on its way, covered, gone and found again; frames that cannot be used; no reference."""

import json

import numpy as np
import pytest

import geocaps
from geocaps.apps.track.files import Frames, natural, poses_file
from geocaps.data.sequences import MOST_SHIFT, MOST_TURN, VANISHED, sequence
from geocaps.errors import DroppedPointsWarning, GeocapsError, InvalidInputError
from geocaps.evaluation.tracking import measured, summary, symmetries
from geocaps.geometry.similarity import stack


@pytest.fixture(scope="module")
def model():
    return geocaps.load()


@pytest.fixture(scope="module")
def airplane():
    """A sequence in which the object vanishes for ten frames."""
    return sequence(0, points=600, vanishes=True)


@pytest.fixture(scope="module")
def tracked(model, airplane):
    """The frames around the gap, of an object whose reference lies elsewhere and in other units."""
    gone = np.flatnonzero(airplane.hidden >= 1)
    some = range(gone[0] - 4, gone[-1] + 5)
    tracker = geocaps.Tracker(30 * airplane.reference + [100, 0, 0], model=model)
    return list(some), [tracker.update(30 * airplane.frames[index]) for index in some]


def test_sequences_move_within_their_bounds_and_are_repeated(airplane):
    again = sequence(0, points=600, vanishes=True)
    assert all(np.array_equal(a, b) for a, b in zip(airplane.frames, again.frames, strict=True))
    assert airplane.poses[1:].angle_to(airplane.poses[:-1]).max() <= MOST_TURN + 1e-9
    assert np.linalg.norm(np.diff(airplane.poses.translation, axis=0), axis=1).max() <= MOST_SHIFT + 1e-9
    assert (airplane.hidden >= 1).sum() == VANISHED
    assert all(len(airplane.frames[index]) == 0 for index in np.flatnonzero(airplane.hidden >= 1))
    walled = sequence(1, points=200)
    assert 0.4 < walled.hidden.max() <= 0.81
    for cloud, pose in zip(airplane.frames, airplane.poses, strict=False):
        assert np.linalg.norm(pose.observe(cloud), axis=1).max(initial=0) < 1.1


def test_an_object_that_was_gone_is_found_again(airplane, tracked):
    some, found = tracked
    moved = geocaps.Similarity(np.eye(3), [-100 / 30, 0, 0], 1 / 30)
    for index, one in zip(some, found, strict=True):
        assert one.lost == (airplane.hidden[index] >= 1)
        if one.lost:
            assert "0 points" in one.reason
            assert one.confidence == 0
            assert not one.parts_visible.any()
            continue
        truth = airplane.poses[index]
        assert np.degrees(float(one.pose.angle_to(truth))) < 10
        # Lengths of the user are 30 times as large.
        assert np.linalg.norm(one.apply([100, 0, 0]) / 30 - truth.apply(moved.apply([100, 0, 0]))) < 0.1
        assert 0 < one.confidence <= 1
        assert 3 <= one.parts_visible.sum() < len(one.visible)


def test_the_same_frames_give_the_same_bits(model, airplane):
    def poses():
        tracker = geocaps.Tracker(airplane.reference, model=model)
        return [tracker.update(frame).matrix for frame in airplane.frames[:3]]

    assert np.array_equal(poses(), poses())


@pytest.mark.parametrize("viewer", [(0, 0, 0), None])
def test_bad_frames_are_reported_and_skipped(model, airplane, viewer):
    tracker = geocaps.Tracker(airplane.reference, model=model, pose=airplane.poses[0], viewer=viewer)
    assert not tracker.update(airplane.frames[0]).lost
    other = np.random.default_rng(0).uniform(-1, 1, (400, 3)) + np.array([0, 0, 5])
    for bad, reason in (
        (np.empty((0, 3)), "0 points"),
        (np.full((50, 3), np.nan), "NaN"),
        ([[0.0, 0, 5]], "1 points"),
        (np.zeros((50, 3)), "one place"),
        (np.linspace([0, 0, 4], [0, 0, 5], 50), "one line"),
        ("no/such/frame.ply", "does not exist"),
        ("not a cloud at all", "does not exist"),
        (np.zeros((5, 2)), "[N, 3]"),
        (other, "lies on the object"),
    ):
        found = tracker.update(bad)
        assert found.lost
        assert reason in found.reason
        assert np.isfinite(found.matrix).all()
    dirty = np.concatenate([airplane.frames[1], np.full((20, 3), np.nan)])
    with pytest.warns(DroppedPointsWarning):
        found = tracker.update(dirty)
    assert not found.lost
    assert np.degrees(float(found.pose.angle_to(airplane.poses[1]))) < 10


def test_missing_points_of_the_reference_are_left_out_only_when_asked(model, airplane):
    dirty = np.concatenate([airplane.reference, np.full((3, 3), np.nan)])
    with pytest.raises(InvalidInputError, match="NaN"):
        geocaps.Tracker(dirty, model=model)
    with pytest.warns(DroppedPointsWarning):
        tracker = geocaps.Tracker(dirty, model=model, drop_invalid=True)
    np.testing.assert_array_equal(tracker.reference, geocaps.Tracker(airplane.reference, model=model).reference)


@pytest.mark.slow
def test_without_a_reference_the_first_frames_build_it(model, airplane):
    tracker = geocaps.Tracker(model=model)
    assert tracker.reference is None
    assert tracker.update(np.empty((0, 3))).lost
    found = [tracker.update(frame) for frame in airplane.frames[:8]]
    assert tracker.reference is not None
    truth = airplane.poses[:8] @ airplane.poses[0].inverse()
    assert np.degrees(stack([one.pose for one in found]).angle_to(truth)).max() < 10
    assert not any(one.lost for one in found)
    with pytest.raises(GeocapsError, match="a pose needs a reference"):
        geocaps.Tracker(model=model, pose=airplane.poses[0])
    with pytest.raises(GeocapsError, match="viewer must be"):
        geocaps.Tracker(model=model, viewer=(1, 2))


def test_symmetry_is_taken_out_of_the_error():
    bottle = sequence(3, points=100)
    assert len(symmetries(bottle.reference)) > 100
    plane = sequence(0, points=100, vanishes=True)
    same = symmetries(plane.reference)
    assert len(same) == 1
    perfect = measured(plane, plane.poses, same)
    assert perfect.right.all()
    assert perfect.recovered_after == 1
    assert not perfect.lost
    still = measured(plane, stack([plane.poses[0]] * len(plane.frames)), same)
    assert still.lost
    assert still.recovered_after == float("inf")
    assert summary([perfect, still])["lost"] == 0.5


def test_frames_come_in_natural_order(tmp_path):
    assert sorted(["f10.ply", "f9.ply", "f1.ply"], key=natural) == ["f1.ply", "f9.ply", "f10.ply"]
    with pytest.raises(GeocapsError, match="no frames"):
        Frames(tmp_path)
    with pytest.raises(GeocapsError, match="does not exist"):
        Frames(tmp_path / "none.npy")
    np.save(tmp_path / "flat.npy", np.zeros((4, 3)))
    with pytest.raises(GeocapsError, match="expected"):
        Frames(tmp_path / "flat.npy")
    np.savez(tmp_path / "some.npz", frames=np.ones((2, 5, 3)))
    assert [one.shape for one in Frames(tmp_path / "some.npz")] == [(5, 3), (5, 3)]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".txt"])
def test_poses_are_written_line_by_line(tmp_path, tracked, suffix):
    path = tmp_path / f"poses{suffix}"
    _, found = tracked
    with poses_file(path) as poses:
        for count, one in enumerate(found, 1):
            poses.write(one, f"frame {count}")
            if suffix != ".txt":
                assert len(path.read_text().splitlines()) == count + (suffix == ".csv")
    lines = path.read_text().splitlines()
    if suffix == ".jsonl":
        assert [json.loads(line)["lost"] for line in lines] == [one.lost for one in found]
        assert np.allclose(json.loads(lines[0])["translation"], found[0].pose.translation)
    if suffix == ".txt":
        values = [list(map(float, line.split())) for line in lines if line[0] != "#"]
        kept = [one for one in found if not one.lost]
        assert [row[0] for row in values] == [one.frame for one in kept]
        assert np.allclose([row[7:] + row[4:7] for row in values], [one.pose.wxyz for one in kept], atol=1e-8)


def test_a_reference_of_few_points_is_refused_by_its_name(model):
    few = np.random.default_rng(0).normal(size=(64, 3)) * [1, 0.5, 0.2]
    with pytest.raises(InvalidInputError, match="the reference has too few points to be tracked"):
        geocaps.Tracker(few, model=model)
