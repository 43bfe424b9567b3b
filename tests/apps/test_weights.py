"""The shipped weights: that they are the ones described, and that a broken change is noticed in seconds."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest
import torch

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope, encode_all, measure
from geocaps.geometry.se3 import Pose
from geocaps.model.checkpoint import save_checkpoint
from tests.basic_shapes import basic_shape

SHA256 = "84cab93e49f71b6d28e0127f0b186ce72f1a70f47348ecd8c982cb9c21ffb8f8"
GOLDEN = {
    "chair": [0.5416, -0.178, -0.595, 0.2236],
    "airplane": [0.467, 0.3802, -0.3365, 1.746],
    "mug": [-0.7181, -0.8428, -0.09155, 1.124],
}


@pytest.fixture(scope="module")
def model():
    return geocaps.load()


def sample(name, seed=0, count=1024):
    return make_shape(name, 0).sample(count, torch.Generator().manual_seed(seed)).points.numpy()


def test_checksum_and_size():
    content = (files("geocaps") / "weights" / "default" / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256
    assert len(content) <= 25_000_000
    assert "ShapeNet" in (files("geocaps") / "weights" / "default" / "card.md").read_text()


def test_golden_encodings(model):
    for name, expected in GOLDEN.items():
        found = model.encode(sample(name))
        np.testing.assert_allclose(found.feature[:4], expected, atol=2e-3, rtol=2e-3)


def test_part_surfaces_explain_the_points(model):
    """One-layer Chamfer: measured 0.0017, 0.0007 and 0.0039."""
    for name, most in (("chair", 0.0019), ("airplane", 0.0008), ("mug", 0.0043)):
        cloud = sample(name)
        surface = model.encode(cloud).reconstruct("parts").points.reshape(-1, 3)
        square = ((cloud[:, None] - surface[None]) ** 2).sum(-1)
        assert square.min(axis=0).mean() + square.min(axis=1).mean() < most, name


FLOORS = {
    # Measured: 25 of 30 aligned to 15°, median error 0.0100, 46 of 46 found.
    "shapes": {"within_15": 24 / 30, "rae_median": 0.0115, "top1": 45 / 46},
    # Measured: 27 of 31 aligned to 15°, median error 0.0111, 171 of 175 found.
    "furniture": {"within_15": 26 / 31, "rae_median": 0.0125, "top1": 169 / 175},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOORS)
def test_two_samplings_of_an_object_are_found_again_and_seen_alike(model, name):
    """``geocaps eval --protocol resampled``, with room for one or two objects: another processor rounds otherwise."""
    dataset = geocaps.datasets.load(name, per_class=2) if name == "shapes" else geocaps.datasets.load(name)
    pairs = Pairs(dataset, 1024, seed=0)
    first = encode_all(model, [pairs.first(index) for index in range(len(pairs))])
    figures = measure(model, pairs, first, "resampled").summary(dataset, alignment_scope(dataset))
    assert figures["within_15"] >= FLOORS[name]["within_15"] - 1e-9
    assert figures["rae_median"] <= FLOORS[name]["rae_median"]
    assert figures["top1"] >= FLOORS[name]["top1"] - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, 1024])
@pytest.mark.parametrize("name", ["shapes", "furniture"])
def test_moved_and_shuffled_objects_are_seen_the_same(model, name, count):
    """Poses move with the points, features and confidence stay, nearly all of them to 1e-5; order changes no bit."""
    dataset = geocaps.datasets.load(name, per_class=1) if name == "shapes" else geocaps.datasets.load(name)
    dataset = dataset if name == "shapes" else dataset.subset(range(0, len(dataset), 6))
    draws = torch.Generator().manual_seed(0)
    clouds = [dataset.samplings(index, count, 1, draws)[0].numpy() for index in range(len(dataset))]
    wxyz, shifts = Pose.random(len(clouds), generator=draws).wxyz, torch.randn(len(clouds), 3, generator=draws)
    motion = geocaps.Similarity.from_wxyz(wxyz.numpy(), shifts.numpy())
    order = torch.randperm(count, generator=draws).numpy()
    seen = model.encode_many(clouds)
    moved = model.encode_many([motion[i].apply(cloud) for i, cloud in enumerate(clouds)])
    shuffled = model.encode_many([cloud[order] for cloud in clouds])

    off = [
        [
            np.abs(b.pose.matrix() - (turn @ a.pose).matrix()).max(),
            np.abs(b.parts.pose.matrix() - (turn @ a.parts.pose).matrix()).max(),
            np.abs(b.feature - a.feature).max(),
            abs(b.confidence - a.confidence),
        ]
        for turn, a, b in zip([motion[i] for i in range(len(clouds))], seen, moved, strict=True)
    ]
    worst = np.sort(np.max(off, axis=1))
    assert worst[-1] < 1e-3
    assert worst[-2] < 1e-5, "all but one at most"  # measured: 4.2e-7

    np.testing.assert_array_equal(shuffled.feature, seen.feature)
    np.testing.assert_array_equal(shuffled.pose.matrix(), seen.pose.matrix())
    for a, b in zip(seen, shuffled, strict=True):
        np.testing.assert_array_equal(a.labels[order], b.labels)


def test_what_looks_alike_another_way_round_is_said(model):
    for name in ("sphere", "cylinder", "cube", "square_table"):
        cloud = basic_shape(name).sample(1024, torch.Generator().manual_seed(0)).points.numpy()
        assert model.encode(cloud).ambiguous, name
    chair = model.encode(sample("chair"))
    assert not chair.ambiguous
    assert chair.confidence > 0.9


def test_every_part_of_geocaps_knows_the_weights_by_the_same_name(model, tmp_path, capsys):
    """The SHA-256 of their file: in ``info``, in what ``encode`` writes, and in an index."""
    from geocaps import cli
    from geocaps.model.checkpoint import find_weights

    index = geocaps.Index(tmp_path / "i.lance", model)
    index.add(sample("chair"))
    assert index.info().weights == find_weights().sha256 == SHA256
    for call in (["info"], ["index", "info", str(tmp_path / "i.lance")]):
        assert cli.run(call) == 0
        assert SHA256 in capsys.readouterr().out
    saved = save_checkpoint(tmp_path / "copy", model.network, card="copy")
    assert find_weights(saved).sha256 == SHA256
