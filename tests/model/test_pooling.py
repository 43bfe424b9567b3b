import torch

from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import embedding
from geocaps.model.parts import Routing


def setup(n=50, b=2, j=3, k=2):
    torch.manual_seed(0)
    points = torch.randn(b, n, 3)
    embed = embedding(3, 8, 2)
    views = Pose.random(b, j, k, generator=torch.Generator().manual_seed(1))
    return points, embed, views


def literal(points, embed, dense, views):
    local = views.observe(points[:, None, None])
    return (dense.mT[:, :, None, :, None] * embed(local)).amax(dim=-2)


def test_with_and_without_gradient_the_values_are_the_formulas():
    points, embed, views = setup()
    dense = torch.softmax(8 * torch.randn(2, 50, 3), dim=-1)
    expected = literal(points, embed, dense, views)
    routing = Routing.from_dense(dense)
    torch.testing.assert_close(routing.max_pool(embed, points, views), expected)
    with torch.no_grad():
        torch.testing.assert_close(routing.max_pool(embed, points, views), expected)


def test_gradient_reaches_points_viewpoints_and_weights():
    points, embed, views = setup()
    dense = torch.softmax(8 * torch.randn(2, 50, 3), dim=-1)
    translation = torch.zeros(2, 3, 2, 3, requires_grad=True)
    points.requires_grad_()
    moved = Pose(translation, views.wxyz)
    inputs = [points, translation, *embed.parameters()]
    fast = torch.autograd.grad(Routing.from_dense(dense).max_pool(embed, points, moved).square().sum(), inputs)
    slow = torch.autograd.grad(literal(points, embed, dense, moved).square().sum(), inputs)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_part_without_points_pools_to_zero():
    points, embed, views = setup()
    dense = torch.zeros(2, 50, 3)
    dense[..., 1] = 1
    pooled = Routing.from_dense(dense).max_pool(embed, points, views)
    assert (pooled[:, [0, 2]] == 0).all()
    assert (pooled[:, 1] > 0).any()


def test_blocks_do_not_change_the_result(monkeypatch):
    points, embed, views = setup()
    routing = Routing.from_dense(torch.softmax(3 * torch.randn(2, 50, 3), dim=-1))
    expected = routing.max_pool(embed, points, views)
    monkeypatch.setattr("geocaps.model.parts._ROWS", 8)
    torch.testing.assert_close(routing.max_pool(embed, points, views), expected)


def test_dense_round_trip():
    dense = torch.softmax(20 * torch.randn(2, 30, 5), dim=-1)
    routing = Routing.from_dense(dense)
    torch.testing.assert_close(routing.dense(), dense, atol=1e-6, rtol=0)
    assert len(routing.part) < dense.numel()
    assert torch.equal(routing.labels(), dense.argmax(dim=-1))
    assert int(routing.counts.sum()) == len(routing.part)
