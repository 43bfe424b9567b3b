"""The literal formulas compute what the product computes: otherwise their ratio would compare two different things."""

import pytest
import torch

from geocaps.evaluation.bench import shapes
from geocaps.evaluation.literal import part_decoders, parts_loss
from geocaps.model.blocks import ParallelDecoders
from geocaps.model.config import PartsConfig
from geocaps.model.parts import PointsToParts


@pytest.mark.parametrize(("views", "noise"), [(1, 0.0), (3, 20.0)])
def test_from_the_same_draws_literal_and_product_losses_are_equal(views, noise):
    torch.manual_seed(0)
    layer = PointsToParts(PartsConfig(parts=6, width=16, decoded=16, views=views, noise_degrees=noise))
    points = shapes(2, 128)
    fast = layer.loss(points, torch.Generator().manual_seed(0))
    slow = parts_loss(layer, points, torch.Generator().manual_seed(0))
    torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-4)
    for a, b in zip(
        torch.autograd.grad(fast.sum(), list(layer.parameters())),
        torch.autograd.grad(slow.sum(), list(layer.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-2)


def test_looped_decoders_equal_the_batched_product():
    torch.manual_seed(0)
    parallel = ParallelDecoders(5, 12, 8, 2, 15)
    feature = torch.randn(3, 12)
    torch.testing.assert_close(part_decoders(parallel, feature), parallel(feature))
