"""The shipped weights: that they are the ones described, and that a broken change is noticed in seconds."""

import hashlib
from importlib.resources import files

import numpy as np
import torch

import geocaps
from geocaps.points.synthetic import basic_shape, make_shape

SHA256 = "ec0b31f1762235276f1af7183dbc0d5bc0b7c5f535137784ab6414e4f1355671"
GOLDEN = {
    "chair": [-0.0968, -0.1254, 0.1739, -0.5927],
    "airplane": [-0.6208, -0.3273, -0.0001, 0.8280],
    "mug": [0.7786, -0.4974, -0.3216, -0.1135],
}


def sample(name, seed=0, count=1024):
    return make_shape(name, 0).sample(count, torch.Generator().manual_seed(seed)).points.numpy()


def test_checksum_and_size():
    content = (files("geocaps") / "weights" / "default" / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256
    assert len(content) <= 25_000_000
    assert "ShapeNet" in (files("geocaps") / "weights" / "default" / "card.md").read_text()


def test_golden_encodings():
    model = geocaps.load()
    for name, expected in GOLDEN.items():
        found = model.encode(sample(name))
        np.testing.assert_allclose(found.feature[:4], expected, atol=2e-3, rtol=2e-3)


def test_part_surfaces_explain_the_points():
    """One-layer Chamfer, far below that of an untrained layer."""
    model = geocaps.load()
    for name in GOLDEN:
        cloud = sample(name)
        surface = model.encode(cloud).reconstruct("parts").points.reshape(-1, 3)
        square = ((cloud[:, None] - surface[None]) ** 2).sum(-1)
        assert square.min(axis=0).mean() + square.min(axis=1).mean() < 0.01


def test_two_samplings_of_an_object_are_found_again_and_seen_alike():
    model = geocaps.load()
    names = ["airplane", "bottle", "car", "chair", "guitar", "hammer", "lamp", "mug", "sofa", "toilet"]
    first = model.encode_many([sample(name, 1) for name in names])
    second = model.encode_many([sample(name, 2) for name in names])
    nearest = np.linalg.norm(second.feature[:, None] - first.feature, axis=-1).argmin(axis=1)
    assert float(np.mean(nearest == np.arange(len(names)))) >= 0.8
    asymmetric = [names.index(name) for name in ("airplane", "car", "chair", "mug", "sofa", "toilet")]
    angles = np.degrees(first.pose.angle_to(second.pose))[asymmetric]
    assert (angles < 15).mean() >= 0.6


def test_what_looks_alike_another_way_round_is_said():
    model = geocaps.load()
    for name in ("sphere", "cylinder", "cube", "square_table"):
        cloud = basic_shape(name).sample(1024, torch.Generator().manual_seed(0)).points.numpy()
        assert model.encode(cloud).ambiguous, name
    chair = model.encode(sample("chair"))
    assert not chair.ambiguous
    assert chair.confidence > 0.9
