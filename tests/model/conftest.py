import math
from dataclasses import replace

import pytest
import torch

from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.config import PRESETS, ModelConfig, ObjectConfig, PaperObjectConfig, PartsConfig

TINY = ModelConfig(
    points=64,
    parts=PartsConfig(parts=6, feature=4, width=16, blocks=2, decoder_width=16, decoded=16, views=3),
    object=ObjectConfig(feature=12, percept=8, width=24, channels=4, decoder_width=10),
)
TINY_PAPER = replace(
    TINY,
    parts=replace(TINY.parts, start="random"),
    object=PaperObjectConfig(feature=12, width=24, blocks=2, decoder_width=10, decoder_blocks=2, views=3),
)


def make_model(config, seed=0):
    """An untrained model whose votes are lively: the last layers of Q are not left near zero."""
    torch.manual_seed(seed)
    model = GeometricCapsuleAutoencoder(config)
    with torch.no_grad():
        model.parts.pose_vote.project[-1].weight[:7].mul_(10)
        if isinstance(config.object, ObjectConfig):
            model.object.pose_head[-1].weight.mul_(10)
        # Decoded objects that fill the unit sphere, so that reconstructions differ.
        model.parts.decoder.to_point.weight.mul_(4)
        model.object.decoder.layers[-1].weight.mul_(4)
    return model.eval()


@pytest.fixture
def tiny():
    return make_model(TINY)


@pytest.fixture
def tiny_paper():
    return make_model(TINY_PAPER)


@pytest.fixture(scope="session")
def cpu_model():
    return make_model(PRESETS["cpu"])


def clouds(batch, count, seed=0):
    """Clean asymmetric clouds: noisy ellipsoids with a bump, no two axes alike, centred, in the unit sphere."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.nn.functional.normalize(torch.randn(batch, count, 3, generator=generator), dim=-1)
    axes = torch.tensor([1.0, 0.62, 0.35]) * (1 + 0.1 * torch.rand(batch, 1, 3, generator=generator))
    bump = 1 + 0.35 * torch.exp(-8 * (direction - torch.tensor([0.5, 0.7, 0.5]) / math.sqrt(0.99)).square().sum(-1))
    points = direction * axes * bump[..., None]
    points = points - points.mean(dim=1, keepdim=True)
    return points / points.norm(dim=-1).amax(dim=1)[:, None, None]


def rotations(batch, seed=0):
    from geocaps.geometry.se3 import Pose

    return Pose.random(batch, generator=torch.Generator().manual_seed(seed))
