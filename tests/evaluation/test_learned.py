"""The systems that the paper compares with: their mathematics, a few steps of training, and runs that are kept."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch

from geocaps.datasets import load
from geocaps.errors import CheckpointError, ConfigError
from geocaps.evaluation.learned import fitting, locality
from geocaps.evaluation.learned.fitting import Fitting, fit, trained
from geocaps.evaluation.learned.point_capsules import PointCapsules, dynamic_routing, squash
from geocaps.evaluation.learned.pointnetlk import PointNet, PointNetLK, cube_rotations
from geocaps.evaluation.learned.quaternion_capsules import QuaternionCapsules, quaternion_mean, route
from geocaps.evaluation.pairs import Pairs
from geocaps.geometry.se3 import Pose, quaternion_product
from tests.model.conftest import clouds

SYSTEMS = {
    "pointnetlk": lambda: PointNetLK(training_iterations=2),
    "quaternion_capsules": lambda: QuaternionCapsules(capsules=12, neighbours=8, width=16),
    "point_capsules": lambda: PointCapsules(primary=16, latent=6, latent_size=8, width=16),
}
SHORT = Fitting(batch=8, points=96, rate=2e-3)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def made(name):
    torch.manual_seed(0)
    return SYSTEMS[name]().eval()


def twist_matrix(twist):
    x, y, z, *shift = twist.tolist()
    return np.array([[0, -z, y, shift[0]], [z, 0, -x, shift[1]], [-y, x, 0, shift[2]], [0, 0, 0, 0]])


# ── PointNetLK ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3, 0.5, 3.0])
def test_the_exponential_is_that_of_matrices(size):
    for twist in size * torch.randn(5, 6, generator=seeded(), dtype=torch.float64):
        expected = scipy.linalg.expm(twist_matrix(twist))
        np.testing.assert_allclose(Pose.from_twist(twist).matrix().numpy(), expected, atol=1e-9)
        if twist[:3].norm() < 3:
            np.testing.assert_allclose(scipy.linalg.logm(expected).real, twist_matrix(twist), atol=1e-8)


def test_the_exponential_has_a_gradient_at_zero():
    twist = torch.zeros(6, requires_grad=True)
    Pose.from_twist(twist).matrix()[:3].sum().backward()
    assert torch.isfinite(twist.grad).all()
    assert twist.grad[3:].tolist() == [1, 1, 1]


def test_the_jacobian_is_that_of_finite_differences():
    torch.manual_seed(0)
    net, points, step = PointNet((16, 32, 24)).double(), clouds(2, 50).double(), 1e-6
    value, jacobian = net.linearised(points)
    torch.testing.assert_close(value, net(points))
    for axis, direction in enumerate(torch.eye(6).double()):
        ahead, behind = (net(Pose.from_twist(-sign * step * direction).apply(points)) for sign in (1, -1))
        torch.testing.assert_close(jacobian[..., axis], (ahead - behind) / (2 * step), atol=1e-6, rtol=1e-5)


def test_the_gradient_through_winners_is_that_of_the_maximum():
    torch.manual_seed(0)
    net, points = PointNet((16, 32, 24)), clouds(2, 50)
    hidden = points
    for layer in list(net.layers)[:-1]:
        hidden = layer(hidden).relu()
    literal = net.layers[-1](hidden).amax(dim=1)
    torch.testing.assert_close(net(points), literal)
    ours = torch.autograd.grad(net(points).square().sum(), list(net.parameters()))
    torch.testing.assert_close(ours, torch.autograd.grad(literal.square().sum(), list(net.parameters())))


def test_small_motions_are_undone():
    torch.manual_seed(0)
    system = PointNetLK(iterations=30).double().eval()
    template = clouds(3, 200).double()
    motion = Pose.from_twist(0.03 * torch.randn(3, 6, generator=seeded()).double())
    found, residual = system(template, motion.inverse().apply(template), Pose.identity(3, dtype=torch.float64))
    torch.testing.assert_close(found.matrix(), motion.matrix(), atol=1e-3, rtol=0)
    assert residual.max() < 1e-3


def test_the_best_of_24_starts_finds_a_cube_rotation():
    starts = cube_rotations()
    assert starts.rotation_matrix()[0].equal(torch.eye(3))
    assert len({tuple(one.flatten().round().int().tolist()) for one in starts.rotation_matrix()}) == 24
    system, points = made("pointnetlk"), clouds(1, 150)[0].double()
    truth = starts[17].to(torch.float64)
    found = system.align(points.numpy(), truth.apply(points).numpy(), starts)
    np.testing.assert_allclose(found, truth.rotation_matrix().numpy(), atol=1e-3)


# ── quaternion capsules ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_mean_of_equal_votes_is_exact_whatever_their_signs():
    truth = Pose.random(5, generator=seeded(), dtype=torch.float64).wxyz
    signs = torch.tensor([1.0, -1, -1, 1, -1, 1, 1]).double()
    votes = (truth[:, None] * signs[:, None]).requires_grad_()
    weight = torch.rand(5, 7, generator=seeded()).double()
    mean = quaternion_mean(votes, weight)
    torch.testing.assert_close(mean, truth, atol=1e-12, rtol=0)
    mean.sum().backward()
    assert torch.isfinite(votes.grad).all()


def test_signs_of_votes_do_not_matter():
    votes = Pose.random(4, 9, generator=seeded(), dtype=torch.float64).wxyz
    signs = torch.randn(4, 9, 1, generator=seeded(1)).sign()
    weight = torch.rand(4, 9, generator=seeded(2)).double()
    torch.testing.assert_close(quaternion_mean(votes, weight), quaternion_mean(signs * votes, weight))


def test_routing_ignores_wrong_votes_and_its_coefficients_sum_to_one():
    truth = Pose.random(generator=seeded(), dtype=torch.float64).wxyz
    wrong = Pose.random(4, generator=seeded(1), dtype=torch.float64).wxyz
    votes = torch.cat([truth.expand(8, 4), wrong])
    even = torch.full((12,), 1 / 12).double()
    mean, coefficient = route(votes, even, iterations=20)
    torch.testing.assert_close(coefficient.sum(), torch.tensor(1.0).double())
    assert coefficient[:8].sum() > 0.95
    assert (mean @ truth).abs() > 0.9999 > (quaternion_mean(votes, even) @ truth).abs()


def test_the_rotation_turns_with_the_cloud():
    system, points = made("quaternion_capsules").double(), clouds(3, 120).double()
    turn = Pose.random(3, generator=seeded(), dtype=torch.float64)
    shift = Pose(torch.randn(3, 3, generator=seeded()).double(), turn.wxyz)
    before, after = system(points), system(shift.apply(points))
    expected = quaternion_product(turn.wxyz, before.wxyz)
    torch.testing.assert_close((expected * after.wxyz).sum(-1).abs(), torch.ones(3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(before.coefficient, after.coefficient)
    found = system.align(points[0].numpy(), shift.apply(points)[0].numpy())
    np.testing.assert_allclose(found, turn.rotation_matrix()[0].numpy(), atol=1e-6)


# ── point capsules ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_coefficients_sum_to_one_over_the_latent_capsules():
    votes = torch.randn(2, 5, 7, 3, generator=seeded())
    output, coefficient = dynamic_routing(votes)
    torch.testing.assert_close(coefficient.sum(dim=1), torch.ones(2, 7))
    torch.testing.assert_close(output, squash(torch.einsum("bji,bjid->bjd", coefficient, votes)))
    assert output.norm(dim=-1).max() < 1


def test_routing_prefers_the_output_on_which_inputs_agree():
    votes = torch.randn(1, 2, 30, 4, generator=seeded())
    votes[:, 0] = torch.tensor([1.0, 1, 0, 0])
    means = [dynamic_routing(votes, iterations=count)[1][0, 0].mean() for count in (1, 2, 5)]
    assert means[0] == 0.5
    assert means[0] < means[1] < means[2]


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_order_of_points_does_not_matter(name):
    system, points = made(name), clouds(2, 120)
    shuffled = points[:, torch.randperm(120, generator=seeded())]
    if name == "point_capsules":
        torch.testing.assert_close(system.patches(points), system.patches(shuffled))
    elif name == "pointnetlk":
        torch.testing.assert_close(system.feature(points), system.feature(shuffled))
    else:
        torch.testing.assert_close(system(points).wxyz, system(shuffled).wxyz, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_steps_lower_the_loss_of_a_batch(name):
    system = made(name).train()
    batch = SHORT.batches(system, load("shapes", per_class=1)).piece(0, 0)
    optimizer = torch.optim.Adam(system.parameters(), lr=2e-3)
    losses = []
    for _ in range(12):
        loss = system.loss(batch.points[:, :2], batch.turned, seeded())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses[-3:]) < 0.98 * losses[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_training_is_deterministic(name):
    data = load("shapes", per_class=1)
    (first, one), (second, other) = ((system, fit(system, data, SHORT, 3)) for system in (made(name), made(name)))
    assert one == other
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not any(a.equal(b) for a, b in zip(first.parameters(), made(name).parameters(), strict=True))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_finished_run_is_kept(name, tmp_path, monkeypatch):
    data, short = load("shapes", per_class=1), Fitting(steps=2, batch=4, points=64)
    system, record = trained(SYSTEMS[name], data, short, tmp_path / "run")
    monkeypatch.setattr(fitting, "fit", None)  # it is not trained again
    again, kept = trained(SYSTEMS[name], data, short, tmp_path / "run")
    assert kept == record
    for one, other in zip(system.parameters(), again.parameters(), strict=True):
        assert one.equal(other)
    with pytest.raises(ConfigError, match="other settings"):
        trained(SYSTEMS[name], data, Fitting(steps=3, batch=4, points=64), tmp_path / "run")
    (tmp_path / "run" / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="delete the folder"):
        trained(SYSTEMS[name], data, short, tmp_path / "run")


def test_steps_follow_from_the_minutes():
    data, system = load("shapes", per_class=1), made("pointnetlk")
    steps = [fitting.affordable_steps(system, data, Fitting(minutes=m, batch=4, points=64)) for m in (0.01, 1.0)]
    assert 1 <= steps[0] < steps[1]
    assert all(
        one.equal(other) for one, other in zip(system.parameters(), made("pointnetlk").parameters(), strict=True)
    )


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ball(center, count=100, radius=0.1):
    offset = np.random.default_rng(0).normal(size=(count, 3))
    return np.asarray(center) + radius * offset / np.linalg.norm(offset, axis=1, keepdims=True)


def test_locality_of_balls():
    points = np.concatenate([ball((1, 0, 0)), ball((-1, 0, 0)), ball((0, 1, 0)), ball((0, -1, 0))])
    number = np.repeat(np.arange(4), 100)
    each, pairwise, whole = (locality.locality(points, number // count) for count in (1, 2, 4))
    assert [one["parts"] for one in (each, pairwise, whole)] == [4, 2, 1]
    assert [one["connected"] for one in (each, pairwise, whole)] == [1, 0.5, 0.25]
    assert each["radius"] == pytest.approx(0.1, rel=0.02)
    assert pairwise["radius"] == pytest.approx(1, rel=0.02)
    assert whole["radius"] == 1
    surfaces = points.reshape(4, 100, 3)
    assert locality.surface_radius(surfaces, points) == pytest.approx(each["radius"])


def test_parts_of_turned_clouds_are_measured_alike_if_they_turn_with_them(make_set, model):
    pairs = Pairs(make_set(), 100, seed=0)
    network = PointCapsules(primary=16, latent=6, latent_size=8, width=16).eval()
    parters = (locality.of_farthest_points(6), locality.of_capsules(model), locality.of_point_capsules(network))
    for parter, turned in itertools.product(parters, (False, True)):
        found = locality.measure_parts(parter, pairs, [0, 1], turned=turned)
        assert found["objects"] == 2
        assert 0 < found["radius"] <= 1
        assert 0 < found["connected"] <= 1
        assert -1 <= found["agreement"] <= 1
        assert all(math.isfinite(found[name]) for name in ("chamfer", "surface_radius") if name in found)
    upright, turned = (locality.measure_parts(parters[0], pairs, [0, 1], turned=one) for one in (False, True))
    assert upright["radius"] == pytest.approx(turned["radius"])
