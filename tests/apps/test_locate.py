"""``geocaps.locate``: every instance of a known object, or none."""

import numpy as np
import pytest
import torch

import geocaps
from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError


@pytest.fixture(scope="module")
def scan():
    """Two mugs, a car and a chair, from one side; a mug as its owner has it."""
    mug = make_shape("mug", 3)
    others = [make_shape("car", 1), make_shape("chair", 2)]
    made = compose(
        [mug, others[0], mug, others[1]],
        torch.Generator().manual_seed(4),
        points=20000,
        sizes={id(mug): 0.9},
    )
    return made, [one for one in made.members if one.shape is mug]


def tilt(find, member):
    """Between the axes of two mugs: where the handle is hidden, nothing tells how they are turned about it."""
    return np.degrees(np.arccos(np.clip(find.pose.rotation[:, 1] @ member.pose.rotation[:, 1], -1, 1)))


def test_every_instance_is_found_where_it_is(scan):
    made, mugs = scan
    finds = geocaps.locate(mugs[0].model(20000), made.points)
    assert len(finds) == 2
    for member in mugs:
        nearest = min(finds, key=lambda find: np.linalg.norm(find.pose.translation - member.pose.translation))
        assert np.linalg.norm(nearest.pose.translation - member.pose.translation) < 0.1
        assert tilt(nearest, member) < 10
        assert nearest.confidence > 0.5
        assert nearest.explained > 0.7
        assert 0 < nearest.visible < 1
    assert [one.confidence for one in finds] == sorted((one.confidence for one in finds), reverse=True)
    assert "T_scan_model" in repr(finds[0])


@pytest.mark.slow
def test_the_same_again_and_in_other_units(scan):
    made, mugs = scan
    model = mugs[0].model(20000)
    first, second = geocaps.locate(model, made.points), geocaps.locate(model, made.points)
    assert [one.matrix.tolist() for one in first] == [one.matrix.tolist() for one in second]
    larger = geocaps.locate(1000 * model, 1000 * made.points)
    assert len(larger) == len(first)
    assert np.allclose(larger[0].pose.translation, 1000 * first[0].pose.translation, atol=10)


def test_what_is_not_there_is_not_found(scan):
    made, _ = scan
    guitar = 0.9 * make_shape("guitar", 5).sample(20000, torch.Generator().manual_seed(0)).points.double().numpy()
    assert geocaps.locate(guitar, made.points) == []


def test_a_scan_without_a_known_viewer(scan):
    """Moved so that the origin lies in its middle: no sensor stood there."""
    made, mugs = scan
    shift = made.points.mean(axis=0)
    finds = geocaps.locate(mugs[0].model(20000), made.points - shift)
    assert finds
    assert min(np.linalg.norm(finds[0].pose.translation + shift - one.pose.translation) for one in mugs) < 0.25


def test_a_plane_alone_holds_nothing():
    flat = np.random.default_rng(0).uniform(-4, 4, (5000, 3)) * [1, 1, 0] + [0, 0, 6]
    model = make_shape("chair", 0).sample(5000, torch.Generator().manual_seed(0)).points.double().numpy()
    assert geocaps.locate(model, flat) == []


def test_bad_input_is_one_sentence(scan):
    made, mugs = scan
    model = mugs[0].model(200)
    for args, sentence in (
        ((model, np.empty((0, 3))), "the scan has 0 points"),
        ((model[:5], made.points), "the model has 5 points"),
        ((model, np.full((100, 3), np.nan)), "NaN or infinite"),
        ((model, np.ones((100, 3))), "all in one place"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            geocaps.locate(*args)
    with pytest.raises(InvalidInputError, match="viewer"):
        geocaps.locate(model, made.points, viewer=[1, 2])
