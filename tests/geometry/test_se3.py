"""The group axioms, over batch shapes and dtypes, near the identity and near π, with roma and scipy as oracles."""

import math

import pytest
import roma
import torch
from scipy.spatial.transform import Rotation

from geocaps.geometry.se3 import Pose, concatenate, normalize_quaternion, stack

BATCHES = [(), (1,), (5,), (2, 3), (0,)]
DTYPES = [torch.float32, torch.float64]
KINDS = ["anywhere", "near_identity", "near_pi"]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def poses(batch, dtype, kind="anywhere", seed=0):
    generator = torch.Generator().manual_seed(seed)
    axis = torch.nn.functional.normalize(torch.randn(*batch, 3, generator=generator, dtype=dtype), dim=-1)
    angle = {
        "anywhere": torch.rand(*batch, 1, generator=generator, dtype=dtype) * math.pi,
        "near_identity": torch.rand(*batch, 1, generator=generator, dtype=dtype) * 1e-7,
        "near_pi": math.pi - torch.rand(*batch, 1, generator=generator, dtype=dtype) * 1e-7,
    }[kind]
    wxyz = torch.cat([torch.cos(angle / 2), torch.sin(angle / 2) * axis], dim=-1)
    return Pose(torch.randn(*batch, 3, generator=generator, dtype=dtype), normalize_quaternion(wxyz))


def assert_same(a, b, dtype):
    """Equal as transformations: a quaternion and its negative are the same rotation (both occur at π)."""
    torch.testing.assert_close(a.matrix(), b.matrix(), atol=TOLERANCE[dtype], rtol=0)


cases = pytest.mark.parametrize(
    ("batch", "dtype", "kind"), [(batch, dtype, kind) for batch in BATCHES for dtype in DTYPES for kind in KINDS]
)


@cases
def test_associative(batch, dtype, kind):
    a, b, c = (poses(batch, dtype, kind, seed) for seed in range(3))
    assert_same((a @ b) @ c, a @ (b @ c), dtype)


@cases
def test_identity_and_inverse(batch, dtype, kind):
    a, e = poses(batch, dtype, kind), Pose.identity(*batch, dtype=dtype)
    assert_same(a @ e, a, dtype)
    assert_same(e @ a, a, dtype)
    assert_same(a @ a.inverse(), e, dtype)
    assert_same(a.inverse() @ a, e, dtype)
    assert_same((a @ a).inverse(), a.inverse() @ a.inverse(), dtype)


@cases
def test_acts_on_points(batch, dtype, kind):
    a, b = poses(batch, dtype, kind, 0), poses(batch, dtype, kind, 1)
    points = torch.randn(*batch, 7, 3, dtype=dtype)
    close = {"atol": TOLERANCE[dtype], "rtol": 0}
    torch.testing.assert_close((a @ b).apply(points), a.apply(b.apply(points)), **close)
    torch.testing.assert_close(a.observe(points), a.inverse().apply(points), **close)
    torch.testing.assert_close(a.observe(a.apply(points)), points, **close)
    assert_same(a.relative_to(b), b.inverse() @ a, dtype)


@cases
def test_stays_in_the_group(batch, dtype, kind):
    a, b = poses(batch, dtype, kind, 0), poses(batch, dtype, kind, 1)
    for pose in (a @ b, a.inverse(), a.relative_to(b)):
        ones = torch.ones(batch, dtype=dtype)
        torch.testing.assert_close(pose.wxyz.norm(dim=-1), ones, atol=TOLERANCE[dtype], rtol=0)
        assert (pose.wxyz[..., 0] >= 0).all()
        torch.testing.assert_close(torch.linalg.det(pose.rotation_matrix()), ones, atol=TOLERANCE[dtype], rtol=0)


@cases
def test_matrix_round_trip(batch, dtype, kind):
    pose = poses(batch, dtype, kind)
    assert_same(Pose.from_matrix(pose.matrix()), pose, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_roma_and_scipy(dtype, kind):
    a, b = poses((50,), dtype, kind, 0), poses((50,), dtype, kind, 1)
    close = {"atol": TOLERANCE[dtype], "rtol": 0}
    xyzw_a, xyzw_b = roma.quat_wxyz_to_xyzw(a.wxyz), roma.quat_wxyz_to_xyzw(b.wxyz)
    product = roma.unitquat_to_rotmat(roma.quat_product(xyzw_a, xyzw_b))
    torch.testing.assert_close((a @ b).rotation_matrix(), product, **close)
    torch.testing.assert_close(a.rotation_matrix(), roma.unitquat_to_rotmat(xyzw_a), **close)
    points = torch.randn(50, 3, dtype=dtype)
    rotated = roma.quat_action(xyzw_a, points) + a.translation
    torch.testing.assert_close(a.apply(points[:, None])[:, 0], rotated, **close)

    scipy_a, scipy_b = (Rotation.from_quat(q.double().numpy()) for q in (xyzw_a, xyzw_b))
    oracle = torch.from_numpy((scipy_a.inv() * scipy_b).magnitude())
    # Two rotations within 1e-7 of each other differ by a float32 rounding: their angle is only known to that.
    angle_tolerance = 2e-3 if dtype == torch.float32 and kind != "anywhere" else 100 * TOLERANCE[dtype]
    torch.testing.assert_close(a.angle_to(b).double(), oracle, atol=angle_tolerance, rtol=0)
    torch.testing.assert_close(
        (a @ b).rotation_matrix().double(), torch.from_numpy((scipy_a * scipy_b).as_matrix()), atol=2e-5, rtol=0
    )


def test_quaternion_from_matrix_at_half_turns():
    """Each of Shepperd's four branches, the exact half turns about the axes among them."""
    for axis in torch.eye(3, dtype=torch.float64):
        matrix = 2 * torch.outer(axis, axis) - torch.eye(3, dtype=torch.float64)
        wxyz = Pose.from_rotation(matrix, torch.zeros(3)).wxyz
        torch.testing.assert_close(wxyz.abs(), torch.cat([torch.zeros(1, dtype=torch.float64), axis]))


def test_network_vote_is_the_papers():
    """Normalise the last four; flip the sign when their first is negative."""
    vote = torch.tensor([[1.0, 2, 3, 0, 0, 3, 4], [1, 2, 3, -2, 0, 0, 2]])
    pose = Pose.from_network(vote)
    torch.testing.assert_close(pose.translation, vote[:, :3])
    half = math.sqrt(0.5)
    torch.testing.assert_close(pose.wxyz, torch.tensor([[0.0, 0, 0.6, 0.8], [half, 0, 0, -half]]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e30])
def test_network_vote_is_guarded_at_any_norm(dtype, scale):
    vote = (torch.tensor([0.0, 0, 0, 0.5, -0.5, 0.5, 0.5], dtype=torch.float64) * scale).to(dtype).requires_grad_()
    pose = Pose.from_network(vote)
    pose.matrix().square().sum().backward()
    torch.testing.assert_close(pose.wxyz.norm(), torch.ones((), dtype=dtype))
    assert torch.isfinite(vote.grad).all()


def test_zero_vote_is_the_identity():
    torch.testing.assert_close(Pose.from_network(torch.zeros(7)).wxyz, torch.tensor([1.0, 0, 0, 0]))


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-7, 1e-3, 1.0, math.pi - 1e-3, math.pi - 1e-12, math.pi])
def test_angle_is_exact_and_its_gradient_finite(angle):
    other = torch.tensor([math.cos(angle / 2), math.sin(angle / 2), 0, 0], dtype=torch.float64, requires_grad=True)
    found = Pose.identity(dtype=torch.float64).angle_to(Pose(torch.zeros(3, dtype=torch.float64), other))
    found.backward()
    assert abs(found.item() - angle) < 1e-9
    assert torch.isfinite(other.grad).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    a, b = poses((3,), torch.float64, kind, 0), poses((3,), torch.float64, kind, 1)
    points = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)

    def follow(translation, raw, points):
        pose = Pose.from_network(torch.cat([translation, raw], dim=-1))
        # The sign flip at w = 0 is a jump of the quaternion, not of the rotation: compare what it does to points.
        return (pose @ b).inverse().apply(points), pose.relative_to(b).rotation_matrix()

    inputs = (a.translation.requires_grad_(), (a.wxyz * 1.7).requires_grad_(), points)
    assert torch.autograd.gradcheck(follow, inputs, atol=1e-5)


def test_random_rotations_are_uniform():
    """The angle of a uniform rotation has mean π/2 + 2/π and its images of a vector have no preferred direction."""
    pose = Pose.random(20_000, generator=torch.Generator().manual_seed(0))
    angle = pose.angle_to(Pose.identity())
    assert abs(angle.mean().item() - (math.pi / 2 + 2 / math.pi)) < 0.02
    assert pose.apply(torch.tensor([[0.0, 0, 1]])).mean(dim=0).abs().max() < 0.02


def test_perturbation_stays_within_its_bounds():
    generator = torch.Generator().manual_seed(0)
    pose = Pose.perturbation(5000, max_angle=math.radians(45), max_translation=0.1, generator=generator)
    angle = pose.angle_to(Pose.identity())
    assert angle.max() <= math.radians(45) + 1e-5
    assert abs(angle.mean().item() - math.radians(22.5)) < 0.01
    assert pose.translation.abs().max() <= 0.1


def test_leading_dimensions():
    a = poses((2, 3), torch.float32)
    assert a[0].shape == (3,)
    assert a[..., None].shape == (2, 3, 1)
    assert a[:, None].shape == (2, 1, 3)
    assert stack([a, a], dim=1).shape == (2, 2, 3)
    assert concatenate([a, a], dim=1).shape == (2, 6)
    assert a.to(torch.float64).wxyz.dtype == torch.float64
    torch.testing.assert_close(a[1, 2].vector(), torch.cat([a.translation[1, 2], a.wxyz[1, 2]]))
