"""The promise of the README on the shipped weights: a rotated and moved cloud gives the rotated and moved capsules."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import geocaps
from geocaps.points.datasets import load

PROMISED = 1e-3
"""In radii of the object, in entries of rotation matrices, and in entries of features of root mean square 1."""


@pytest.fixture(scope="module")
def model():
    return geocaps.load()


def embedded(name, count):
    """Two shapes of each class, or every third piece of furniture, with so many points."""
    dataset = load(name)
    chosen = range(0, len(dataset), 25 if name == "shapes" else 3)
    for index in chosen:
        if name == "shapes":
            yield dataset.object_ids[index], dataset.samplings(index, count, 1, torch.Generator().manual_seed(index))[0]
        else:
            stored, draw = dataset.points(index), np.random.default_rng(index)
            more = stored[draw.integers(len(stored), size=count - len(stored))]
            more = more + 0.01 * draw.normal(size=more.shape)
            yield dataset.object_ids[index], np.concatenate([stored, more])


def difference(given, moved, rotation, translation):
    """The largest of all differences between what was found and what the motion says should be found."""
    size = np.ptp(given.cloud.points, axis=0).max() / 2
    differences = []
    for before, after in ((given.pose, moved.pose), (given.parts.pose, moved.parts.pose)):
        differences.append(after.rotation - rotation @ before.rotation)
        differences.append((after.translation - before.translation @ rotation.T - translation) / size)
    differences += [given.feature - moved.feature, given.parts.feature - moved.parts.feature]
    return max(float(np.abs(one).max()) for one in differences)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_048, 10_000, 100_000])
@pytest.mark.parametrize("name", ["shapes", "furniture"])
def test_capsules_move_with_the_cloud(model, name, count):
    worst = {}
    for index, (object_id, cloud) in enumerate(embedded(name, count)):
        cloud = np.asarray(cloud, dtype=np.float64)
        rotation, translation = Rotation.random(random_state=index).as_matrix(), np.array([3.0, -1.0, 0.5])
        given, moved = model.encode(cloud), model.encode(cloud @ rotation.T + translation)
        worst[object_id] = difference(given, moved, rotation, translation)
    broken = {object_id: found for object_id, found in worst.items() if found > PROMISED}
    assert not broken
