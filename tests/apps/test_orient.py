"""Objects brought to the orientation of one example."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.errors import FileFormatError, InvalidInputError
from geocaps.io import load_points, save_points


def chair(seed: int) -> np.ndarray:
    return make_shape("chair", seed).sample(1024, torch.Generator().manual_seed(seed)).points.numpy()


def turn(seed: int) -> geocaps.Similarity:
    return geocaps.Similarity.from_wxyz(np.random.default_rng(seed).normal(size=4), np.zeros(3))


def angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip((np.trace(a.T @ b) - 1) / 2, -1, 1))))


@pytest.fixture(scope="module")
def model() -> geocaps.Model:
    return geocaps.load()


def test_the_example_itself_turned_comes_back_as_it_was(model: geocaps.Model) -> None:
    points = chair(1)
    (found,) = geocaps.canonical([turn(5).apply(points) + 3], model, like=points)
    assert angle(found.pose.rotation, turn(5).rotation) < 3
    assert found.confidence == 1


def test_chairs_are_turned_as_the_example_is(model: geocaps.Model) -> None:
    seeds = range(2, 10)
    found = geocaps.canonical([turn(seed).apply(chair(seed)) for seed in seeds], model, like=chair(1))
    errors = [angle(one.pose.rotation, turn(seed).rotation) for one, seed in zip(found, seeds, strict=True)]
    assert np.mean(np.array(errors) < 15) >= 0.75, errors
    for one, seed in zip(found, seeds, strict=True):
        np.testing.assert_allclose(one.points, one.pose.observe(turn(seed).apply(chair(seed))))


def test_files_keep_their_meshes_and_bad_ones_are_refused(model: geocaps.Model, tmp_path) -> None:
    (tmp_path / "chairs").mkdir()
    for seed in (2, 3):
        save_points(tmp_path / "chairs" / f"{seed}.ply", turn(seed).apply(chair(seed)))
    found = geocaps.canonical(tmp_path / "chairs", model, like=chair(1), out=tmp_path / "out")
    for one, seed in zip(found, (2, 3), strict=True):
        np.testing.assert_allclose(load_points(tmp_path / "out" / f"{seed}.ply").points, one.points, atol=1e-5)
    (tmp_path / "chairs" / "bad.ply").write_text("no")
    with pytest.raises(FileFormatError, match=r"bad\.ply"):
        geocaps.canonical(tmp_path / "chairs", model, like=chair(1))


def test_a_model_without_frames_is_refused(model: geocaps.Model) -> None:
    """As those with the paper's object layer are."""
    found = model.encode(chair(1))
    without = replace(found, inside=replace(found.inside, parse=replace(found.parse, frames=None)))
    with pytest.raises(InvalidInputError, match="needs a model with our object layer"):
        geocaps.canonical([without], model, like=chair(1))
