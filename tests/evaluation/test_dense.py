"""The yardstick computes what the product computes: otherwise the ratio would compare two different things."""

import torch

from geocaps.evaluation.bench import shapes
from geocaps.evaluation.dense import LoopedDecoders, dense_loss
from geocaps.model.config import PartsConfig
from geocaps.model.blocks import ParallelDecoders
from geocaps.model.parts import PointsToParts


def test_without_noise_literal_and_product_losses_are_equal():
    torch.manual_seed(0)
    config = PartsConfig(parts=6, width=16, decoded=16, views=1, noise_degrees=0.0, noise_translation=0.0)
    layer = PointsToParts(config)
    layer.decode = lambda parts, generator=None: layer.decoder.decode(parts, layer.square)
    points = shapes(2, 128)
    fast = layer.loss(points, torch.Generator().manual_seed(0))
    slow = dense_loss(layer, points, torch.Generator().manual_seed(0))
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
    torch.testing.assert_close(LoopedDecoders(parallel)(feature), parallel(feature))
