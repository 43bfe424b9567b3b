"""The promise of the README on the shipped weights: a rotated and moved cloud gives the rotated and moved capsules."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import geocaps
from geocaps.data import load

PROMISED = 1e-5
"""In radii of the object, in entries of rotation matrices, and in entries of features of root mean square 1. Measured:
3e-7 for poses of objects, 7e-7 for poses of parts and for features."""
AT_MOST = 1e-3
"""In its own frame a rotated cloud has the same float32 coordinates. A coordinate on the border between two of them may
become the other one, and routing amplifies that: on another processor this may happen to one of these objects."""
TRANSLATION = np.array([3.0, -1.0, 0.5])


@pytest.fixture(scope="module")
def model():
    return geocaps.load()


def embedded(name, count):
    """Two shapes of each class, or the pieces of furniture (every third of them, where points are many)."""
    dataset = load(name)
    every = 25 if name == "shapes" else 1 if count == 2_048 else 3
    for index in range(0, len(dataset), every):
        if name == "shapes":
            yield dataset.samplings(index, count, 1, torch.Generator().manual_seed(index))[0].double().numpy()
        else:
            stored, draw = dataset.points(index).astype(np.float64), np.random.default_rng(index)
            more = stored[draw.integers(len(stored), size=count - len(stored))]
            yield np.concatenate([stored, more + 0.01 * draw.normal(size=more.shape)])


def differences(before, after, rotation, size):
    """Of poses and what the motion makes of them, largest entries first of rotations, then of positions."""
    turned = np.abs(after.rotation - rotation @ before.rotation).max(axis=(-2, -1))
    return np.maximum(
        turned, np.abs(after.translation - before.translation @ rotation.T - TRANSLATION).max(axis=-1) / size
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_048, 10_000, 100_000])
@pytest.mark.parametrize("name", ["shapes", "furniture"])
def test_capsules_move_with_the_cloud(model, name, count):
    clouds = list(embedded(name, count))
    rotations = Rotation.random(len(clouds), random_state=0).as_matrix()
    given = model.encode_many(clouds)
    moved = model.encode_many([cloud @ turn.T + TRANSLATION for cloud, turn in zip(clouds, rotations, strict=True)])
    poses, features, parts = [], [], []
    for before, after, turn in zip(given, moved, rotations, strict=True):
        size = np.ptp(before.cloud.points, axis=0).max() / 2
        poses.append(float(differences(before.pose, after.pose, turn, size)))
        features.append(np.abs(before.feature - after.feature).max())
        parts.append(differences(before.parts.pose, after.parts.pose, turn, size).max())
    worst = np.max([poses, features, parts], axis=0)
    assert worst.max() < AT_MOST
    assert np.sort(worst)[-2] < PROMISED, "all but one at most"
