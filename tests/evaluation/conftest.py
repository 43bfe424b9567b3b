"""A tiny model and small labelled sets: a whole evaluation takes a second."""

import numpy as np
import pytest

from geocaps.apps.encode import Model
from geocaps.datasets import load
from geocaps.model.checkpoint import save_checkpoint
from tests.model.conftest import TINY, TINY_PAPER, clouds, make_model


@pytest.fixture(scope="session")
def model():
    return Model(make_model(TINY))


@pytest.fixture(scope="session")
def paper_model():
    return Model(make_model(TINY_PAPER))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, model):
    return save_checkpoint(tmp_path_factory.mktemp("weights") / "tiny", model.network, card="untrained")


def write_set(path, objects=6, class_names=("chair", "ball"), labels=None, part_labels=False):
    """Lopsided ellipsoids of 200 points, the classes taking turns."""
    points = clouds(objects, 200, seed=1).numpy()
    columns = {"points": points}
    if class_names:
        columns["class_names"] = list(class_names)
        columns["labels"] = np.arange(objects) % len(class_names) if labels is None else np.asarray(labels)
    if part_labels:
        columns["part_labels"] = (points[..., 0] > 0).astype(np.int64)
    np.savez(path, **columns)
    return path


@pytest.fixture
def make_set(tmp_path):
    def made(**options):
        return load(write_set(tmp_path / "set.npz", **options))

    return made
