"""Objects stood upright: by what supports one, and by how its kind stands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import geocaps
from geocaps import cli
from geocaps.apps.orient import WEIGHTS, Described, Standing, _carried, _least_turn, evidence, stood_up
from geocaps.data.synthetic import make_shape
from geocaps.errors import UsageError
from geocaps.geometry.similarity import Similarity
from geocaps.io import save_points
from geocaps.model.look import CUBE, cube_products

UP = np.array([0.0, 1.0, 0.0])


def sampled(name: str, seed: int) -> np.ndarray:
    return make_shape(name, seed).sample(1024, torch.Generator().manual_seed(seed)).points.numpy()


def turn(seed: int) -> Similarity:
    return Similarity.from_wxyz(np.random.default_rng(seed).normal(size=4), np.zeros(3))


@pytest.fixture(scope="module")
def model() -> geocaps.Model:
    return geocaps.load()


def test_a_pyramid_stands_on_its_base():
    height = np.random.default_rng(0).uniform(0, 1, 3000) ** 0.5
    across = np.random.default_rng(1).uniform(-1, 1, (3000, 2))
    points = np.column_stack([across[:, 0] * height, 1 - height, across[:, 1] * height])
    score = [evidence(points, up) @ WEIGHTS for up in np.concatenate([np.eye(3), -np.eye(3)])]
    assert np.argmax(score) == 1


def test_the_support_is_the_base_and_its_margin():
    side = np.linspace(-1, 1, 41)
    base = np.array([[x, 0, z] for x in side for z in side]) / 2
    column = np.column_stack([np.zeros(200), np.linspace(0, 1, 200), np.zeros(200)])
    points = np.concatenate([base, column])
    area, margin, share, *_ = evidence(points, UP)
    assert area == pytest.approx(1, abs=1e-6)
    assert margin == pytest.approx(0.5, abs=1e-6)  # the middle of a square of side 1, in its widths
    assert share == pytest.approx((len(base) + 12) / len(points), abs=2 / len(points))
    assert evidence(points, -UP)[0] == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_least_turn_takes_one_direction_to_the_other(seed):
    start, end = np.random.default_rng(seed).normal(size=(2, 3))
    start, end = start / np.linalg.norm(start), end / np.linalg.norm(end)
    for goal in (end, start, -start):
        found = _least_turn(start, goal)
        np.testing.assert_allclose(found @ start, goal, atol=1e-12)
        np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(found) == pytest.approx(1)


def test_directions_are_carried_as_frames_are():
    """A tie says that frame k of an object looks like frame ``C_g C_k`` of the other."""
    cube, product, six = CUBE.double().numpy(), cube_products().numpy(), np.vstack([np.eye(3), -np.eye(3)])
    for g, k in ((3, 5), (17, 20), (9, 0)):
        for direction in range(6):
            seen = cube[k].T @ six[direction]  # from frame k
            np.testing.assert_allclose(cube[product[g, k]].T @ six[_carried()[g, direction]], seen, atol=1e-9)


def test_the_kind_outweighs_one_that_doubts():
    """Ten objects that look alike, one of which its support would stand on its side."""
    cube = CUBE.double().numpy()
    descriptor = torch.nn.functional.normalize(torch.randn(24, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    sure, wrong = np.log([0.02, 0.9, 0.02, 0.02, 0.02, 0.02]), np.log([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    described = Described(cube, descriptor, np.zeros(3))
    objects = [Standing(described, Similarity.identity(), wrong if index == 4 else sure) for index in range(10)]
    alone, together = stood_up([objects[4]], "z")[0], stood_up(objects, "z")[4]
    np.testing.assert_allclose(alone.pose.rotation[:, 2], [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(together.pose.rotation[:, 2], UP, atol=1e-9)
    assert (alone.by, together.by) == ("stability", "kind")
    assert alone.confidence == pytest.approx(0.4)
    assert together.confidence > 0.6


def test_turned_chairs_stand_along_the_axis_and_face_one_way(model):
    seeds = range(2, 10)
    found = geocaps.canonical([turn(seed).apply(sampled("chair", seed)) for seed in seeds], model, up="y")
    standing = [one.pose.rotation.T @ turn(seed).rotation for one, seed in zip(found, seeds, strict=True)]
    upright = [matrix[1, 1] > np.cos(np.radians(20)) for matrix in standing]
    assert np.mean(upright) >= 0.75
    assert all(one.oriented_by == "kind" for one in found)


def test_the_command_says_what_it_went_by(model, tmp_path, capsys):
    for seed in (2, 3):
        save_points(tmp_path / f"{seed}.ply", turn(seed).apply(sampled("chair", seed)))
    assert cli.run(["canonical", str(tmp_path), "--up", "z", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["objects"]
    assert [one["oriented_by"] for one in found] == ["kind", "kind"]
    assert cli.run(["canonical", str(tmp_path / "2.ply"), "--up", "z", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"][0]["oriented_by"] == "stability"


def test_wrong_axes_and_two_wishes_are_refused(model):
    with pytest.raises(UsageError, match="up must be x, y or z, not w"):
        geocaps.canonical(sampled("chair", 1), model, up="w")
    with pytest.raises(UsageError, match="like and up both set the orientation"):
        geocaps.canonical(sampled("chair", 1), model, up="z", like=sampled("chair", 2))
