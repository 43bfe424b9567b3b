import pytest
import torch

import geocaps
from geocaps.viewer.clouds import EXAMPLE, embedded_cloud
from geocaps.viewer.session import ObjectSession


@pytest.fixture(scope="session")
def model():
    return geocaps.load()


@pytest.fixture(scope="session")
def chair(model):
    return embedded_cloud(EXAMPLE, model.config.parts.parts)


@pytest.fixture
def session(model, chair):
    return ObjectSession(model, chair, torch.Generator().manual_seed(0))
