"""PointsToParts against the paper's formulas written out in `literal.py`: values and gradients."""

import math
from dataclasses import replace

import pytest
import torch

from geocaps.evaluation import literal
from geocaps.geometry.se3 import Pose
from geocaps.model.losses import chamfer
from geocaps.model.parts import PointsToParts, Routing, route
from tests.model.conftest import TINY, TINY_PAPER, clouds, make_model, rotations


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def dense_routing(kind, points, parts):
    """R [n, j]: arbitrary, or as peaked as after training."""
    n = len(points)
    if kind == "random":
        return torch.softmax(torch.randn(n, parts, generator=generator(5)), dim=1)
    logits = torch.randn(n, parts, generator=generator(6)) * 40
    return torch.softmax(logits, dim=1)


@pytest.mark.parametrize("kind", ["random", "peaked"])
def test_encoder_and_loss_equal_the_literal_formulas(kind):
    layer = make_model(TINY).parts
    config = layer.config
    points = clouds(2, 60)
    dense = torch.stack([dense_routing(kind, cloud, config.parts) for cloud in points])
    viewpoints = Pose.random(2, config.parts, config.views, generator=generator(1))
    viewpoints = Pose(0.3 * torch.randn(2, config.parts, config.views, 3, generator=generator(2)), viewpoints.wxyz)
    epsilon = torch.randn(2, config.parts, config.feature, generator=generator(3))
    square = torch.rand(config.decoded, 2, generator=generator(4)) - 0.5

    def product():
        routing = Routing.from_dense(dense)
        from geocaps.model.capsules import agree

        found = agree(
            viewpoints,
            lambda z: layer.pose_vote(points, routing, z),
            lambda z: layer.feature_vote(points, routing, z),
            generator=generator(3),  # that of epsilon
        )
        surfaces = layer.decoder.decode(found, square)
        return found.pose, found.feature, chamfer(points, surfaces.flatten(1, 2))

    def slow():
        losses, poses, features = [], [], []
        for b, cloud in enumerate(points):
            views = [
                [(viewpoints.translation[b, j, k], viewpoints.wxyz[b, j, k]) for k in range(config.views)]
                for j in range(config.parts)
            ]
            parts = literal.encode_parts(layer, cloud, dense[b], views, epsilon[b])
            surface = torch.cat(literal.decode_parts(layer, parts, square))
            losses.append(literal.chamfer(cloud, surface))
            poses += [torch.cat(pose) for pose, _ in parts]
            features += [feature for _, feature in parts]
        return torch.stack(poses), torch.stack(features), torch.stack(losses)

    pose, feature, loss = product()
    gradients = torch.autograd.grad(loss.sum(), list(layer.parameters()))
    slow_pose, slow_feature, slow_loss = slow()
    slow_gradients = torch.autograd.grad(slow_loss.sum(), list(layer.parameters()))
    torch.testing.assert_close(pose.vector().flatten(0, 1), slow_pose, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(feature.flatten(0, 1), slow_feature, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss, slow_loss, atol=1e-4, rtol=1e-4)
    assert sum(float(g.abs().sum()) for g in slow_gradients) > 0
    for (name, _), fast, slow_gradient in zip(layer.named_parameters(), gradients, slow_gradients, strict=True):
        torch.testing.assert_close(fast, slow_gradient, atol=1e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("log_sigma", [-6.0, -2.0])
def test_routing_equals_the_literal_softmax(log_sigma):
    """Point i < 6 lies between a point of part i and one of part i + 1, at distances of the order of σ: contested."""
    points, parts, sigma = clouds(3, 80), 6, math.exp(log_sigma)
    surfaces = points[:, torch.randperm(74, generator=generator())[:48] + parts].view(3, parts, 8, 3) + 0.02
    away = torch.nn.functional.normalize(torch.randn(3, parts, 3, generator=generator(1)), dim=-1)
    for i in range(parts):
        surfaces[:, i, 0] = points[:, i] + sigma * away[:, i]
        surfaces[:, (i + 1) % parts, 1] = points[:, i] - (0.6 + 0.2 * i) * sigma * away[:, i]
    found = route(points, surfaces, torch.full((3, parts), log_sigma)).dense()
    for cloud, parts_of_cloud, R in zip(points, surfaces, found, strict=True):
        expected = literal.routing(cloud.double(), list(parts_of_cloud.double()), log_sigma)
        torch.testing.assert_close(R.double(), expected, atol=1e-4, rtol=0)
        assert ((expected > 0.1) & (expected < 0.9)).any(dim=1)[:parts].all()


def test_algorithm_1_equals_the_literal_loop():
    """Three whole iterations at inference: decode, route, encode, in loops, with dense R."""
    layer = make_model(TINY).parts
    points = clouds(1, 60)
    start = layer.initial(points)
    with torch.no_grad():
        found = layer(points, start).capsules
        parts = [
            ((start.pose.translation[0, j], start.pose.wxyz[0, j]), start.feature[0, j])
            for j in range(layer.config.parts)
        ]
        for _ in range(3):
            R = literal.routing(points[0], literal.decode_parts(layer, parts, layer.square), layer.config.log_sigma)
            views = [[pose] for pose, _ in parts]
            parts = literal.encode_parts(layer, points[0], R, views, torch.zeros(len(parts), layer.config.feature))
    expected = torch.stack([torch.cat([*pose, feature]) for pose, feature in parts])
    torch.testing.assert_close(
        torch.cat([found.pose.vector(), found.feature], dim=-1)[0], expected, atol=1e-4, rtol=1e-4
    )


def test_gradient_passes_through_the_last_iteration_only():
    """Appendix A.2: R from the first iterations, then one encoder and one decoder application with gradient."""
    layer = make_model(TINY).parts
    points = clouds(2, 60)
    whole = layer(points)
    (gradient,) = torch.autograd.grad(whole.capsules.feature.sum(), [layer.pose_vote.project[0].weight])
    with torch.no_grad():
        *_, before, end = layer.iterate(points, layer.initial(points))
    last = layer.encode(points, end.routing, before.capsules, None)
    (expected,) = torch.autograd.grad(last.feature.sum(), [layer.pose_vote.project[0].weight])
    torch.testing.assert_close(gradient, expected)


def test_frames_start_follows_rotation_and_translation(cpu_model):
    """Every part pose turns and moves with the points, every part feature stays."""
    points = clouds(4, 1024)
    motion = Pose(torch.randn(4, 3, generator=generator(9)), rotations(4).wxyz)
    with torch.no_grad():
        before, after = cpu_model.parts(points).capsules, cpu_model.parts(motion.apply(points)).capsules
    expected = motion[:, None] @ before.pose
    torch.testing.assert_close(after.feature, before.feature, atol=1e-3, rtol=0)
    torch.testing.assert_close(after.pose.matrix(), expected.matrix(), atol=1e-3, rtol=0)
    assert before.feature.std() > 1e-3


def test_random_start_is_the_papers_and_does_not_follow():
    layer = make_model(TINY_PAPER).parts
    points = clouds(2, 64)
    first = layer.initial(points, generator(0)).pose
    other = layer.initial(points, generator(1)).pose
    torch.testing.assert_close(first.translation, other.translation)
    assert first.angle_to(other).min() > 0.01
    torch.testing.assert_close(layer.initial(points).pose.wxyz, layer.initial(points).pose.wxyz)
    assert (layer.initial(points).feature == 0).all()


def test_training_draws_are_the_generators(tiny):
    points = clouds(2, 64)
    same = tiny.parts.loss(points, generator(1)), tiny.parts.loss(points, generator(1))
    torch.testing.assert_close(*same, atol=0, rtol=0)
    assert not torch.equal(same[0], tiny.parts.loss(points, generator(2)))


DEGENERATE = {
    "duplicated": lambda: clouds(1, 32).repeat(1, 2, 1),
    "collinear": lambda: torch.linspace(-1, 1, 64)[None, :, None] * torch.tensor([0.6, 0.8, 0.0]),
    "coplanar": lambda: clouds(1, 64) * torch.tensor([1.0, 1.0, 0.0]),
    "identical": lambda: torch.zeros(1, 64, 3),
}


@pytest.mark.parametrize("name", list(DEGENERATE))
def test_gradients_are_finite_for_degenerate_clouds(name):
    model = make_model(TINY)
    loss = model.parts.loss(DEGENERATE[name](), generator())
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    gradients = [parameter.grad for parameter in model.parts.parameters() if parameter.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_learned_sigma_gets_a_gradient_and_moves_towards_the_residual():
    """With surfaces far from the points the likelihood wants a larger σ."""
    torch.manual_seed(0)
    layer = PointsToParts(replace(TINY.parts, learn_sigma=True))
    head = layer.decoder.to_log_sigma
    layer.loss(clouds(2, 64), generator()).sum().backward()
    assert head.bias.grad < 0
    features = torch.randn(2, 3, TINY.parts.feature)
    torch.testing.assert_close(layer.decoder.log_sigma(features), torch.full((2, 3), -6.0))
    with torch.no_grad():
        head.bias.fill_(1.0)
    torch.testing.assert_close(layer.decoder.log_sigma(features), torch.full((2, 3), -5.0))


def test_a_learned_sigma_per_part_changes_the_routing():
    points = torch.zeros(1, 1, 3)
    surfaces = torch.tensor([[[[0.1, 0, 0]], [[0.11, 0, 0]]]])
    equal = route(points, surfaces, torch.tensor([[-2.0, -2.0]])).dense()[0, 0]
    wider = route(points, surfaces, torch.tensor([[-2.0, -4.5]])).dense()[0, 0]
    assert equal[0] > 0.5
    b = [-(0.01 * math.exp(4.0) - 2.0), -(0.0121 * math.exp(9.0) - 4.5)]
    torch.testing.assert_close(wider, torch.softmax(torch.tensor(b), dim=0), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_layer_trains():
    """A few steps on one cloud reduce its Chamfer distance: every piece is connected."""
    torch.manual_seed(0)
    layer = PointsToParts(TINY.parts)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    points, draws, losses = clouds(4, 64), generator(), []
    for _ in range(60):
        loss = layer.loss(points, draws).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
