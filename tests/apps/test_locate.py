"""``geocaps.locate``: every instance of a known object, or none."""

import numpy as np
import pytest
import torch

import geocaps
from geocaps.apps.locate import pairs
from geocaps.apps.locate.known import Known
from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity


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


@pytest.mark.parametrize("seed", [1, 2])
def test_tables_side_by_side_are_no_floor(seed):
    """Their tops are one large plane; and a thin board may lie on the wrong side of what is seen of it."""
    table = make_shape("table", 2019)
    made = compose([table] * 3, torch.Generator().manual_seed(seed), points=20000, sizes={id(table): 0.9})
    finds = geocaps.locate(made.members[0].model(20000), made.points)
    assert len(finds) == 3
    for member in made.members:
        assert min(np.linalg.norm(find.pose.translation - member.pose.translation) for find in finds) < 0.06


def test_partners_lie_on_the_side_that_is_seen():
    """What is nearest to points just below the middle of a board is its underside, which nobody sees from above."""
    flat = np.random.default_rng(0).uniform(-0.35, 0.35, (20000, 3))
    flat[:, 2] = np.where(np.arange(len(flat)) % 2, 0.03, -0.03)
    board = Known.of(flat, 0.02)
    asked = np.array([[[0.1, 0.1, -0.01], [-0.2, 0.05, -0.01]]])
    upright = Similarity(np.eye(3)[None], np.zeros((1, 3)))
    for viewers, height in (([[0.0, 0, 4]], 0.03), ([[0.0, 0, -4]], -0.03), ([], -0.03)):
        view = board.views_in(np.array(viewers).reshape(-1, 3), upright)
        found = board.cloud.points[board.partners(view, asked, 0.2)[0]]
        assert np.allclose(found[:, 2], height)
        assert np.linalg.norm(found[:, :2] - asked[0, :, :2], axis=1).max() < 0.03
    both = board.views_in(np.array([[0.0, 0, 4], [0, 0, -4]]), upright)
    assert np.allclose(board.cloud.points[board.partners(both, asked, 0.2)[0], 2], -0.03)


def test_votes_agree_on_the_turn():
    """Half of them fell into the next bin, and hardly more than half as many hypotheses were right."""
    shares = []
    for name in ("airplane", "car", "chair"):
        for seed in (0, 1):
            generator = torch.Generator().manual_seed(seed)
            one, other = (make_shape(name, seed).sample(1500, generator) for _ in range(2))
            truth = Similarity.from_wxyz(torch.randn(4, generator=generator).double().numpy(), np.zeros(3))
            model, scan = ((both.points.double().numpy() / 2, both.normals.double().numpy()) for both in (one, other))
            sign = np.where(np.arange(len(scan[1])) % 2, 1.0, -1.0)[:, None]  # a normal has no sign
            rotation, shift = pairs.hypotheses(model, (truth.apply(scan[0]), sign * scan[1] @ truth.rotation.T))
            near = np.degrees(Similarity(rotation, shift).angle_to(truth)) < 10
            shares.append((near & (np.linalg.norm(shift, axis=1) < 0.05)).mean())
    assert np.mean(shares) > 0.08


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
