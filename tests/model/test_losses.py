import math

import torch

from geocaps.evaluation import literal
from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules
from geocaps.model.losses import (
    capsule_distance,
    chamfer,
    choice_agreement,
    contrast,
    matching_starts,
    pose_agreement,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_chamfer_equals_the_definition_in_value_and_gradient():
    x = torch.randn(3, 40, 3, generator=generator(), requires_grad=True)
    y = torch.randn(3, 25, 3, generator=generator(1), requires_grad=True)
    found = chamfer(x, y)
    expected = torch.stack([literal.chamfer(a, b) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(found, expected)
    for a, b in zip(torch.autograd.grad(found.sum(), (x, y)), torch.autograd.grad(expected.sum(), (x, y)), strict=True):
        torch.testing.assert_close(a, b)
    assert chamfer(x, x).abs().max() == 0


def test_capsule_distance_is_blind_to_a_quaternions_sign():
    pose = Pose.random(5, generator=generator())
    u = Capsules(Pose(torch.randn(5, 3), pose.wxyz), torch.randn(5, 8))
    flipped = Capsules(Pose(u.pose.translation, -pose.wxyz), u.feature)
    torch.testing.assert_close(capsule_distance(u, flipped), torch.zeros(5), atol=1e-6, rtol=0)
    turned = Capsules(u.pose @ Pose(torch.zeros(3), torch.tensor([0.0, 1, 0, 0])), u.feature)
    torch.testing.assert_close(capsule_distance(u, turned), torch.ones(5), atol=1e-6, rtol=0)


def test_choice_agreement_known_values():
    eye = torch.eye(4)[None]
    sure = torch.log_softmax(torch.tensor([[20.0, 0, 0, 0]]), dim=1)
    other = torch.log_softmax(torch.tensor([[0.0, 20, 0, 0]]), dim=1)
    unsure = torch.log_softmax(torch.zeros(1, 4), dim=1)
    assert choice_agreement(sure, sure, eye).item() < 1e-5
    assert choice_agreement(sure, other, eye).item() > 15
    assert abs(choice_agreement(unsure, unsure, eye).item() - math.log(4)) < 1e-5
    # The same choice under another numbering of B's starts.
    assert choice_agreement(sure, other, eye[:, :, [1, 0, 2, 3]]).item() < 1e-5


def test_matching_starts_is_one_for_the_same_start():
    starts = Pose.random(2, 4, generator=generator())
    kernel = matching_starts(starts, starts, width=0.3)
    torch.testing.assert_close(kernel.diagonal(dim1=1, dim2=2), torch.ones(2, 4), atol=1e-4, rtol=0)
    half_turn = starts @ Pose(torch.zeros(3), torch.tensor([0.0, 0, 0, 1]))
    assert matching_starts(starts, half_turn, width=0.3).diagonal(dim1=1, dim2=2).max() < 1e-6


def test_pose_agreement_is_the_weighted_chordal_distance():
    a, b = Pose.random(2, 4, generator=generator()), Pose.random(2, 4, generator=generator(1))
    eye = torch.eye(4).expand(2, 4, 4)
    torch.testing.assert_close(pose_agreement(a, a, eye), torch.zeros(2), atol=1e-3, rtol=0)
    angle = a.angle_to(b)
    # |A - B| = √8 sin(angle/2) for rotation matrices.
    torch.testing.assert_close(
        pose_agreement(a, b, eye), (8**0.5 * torch.sin(angle / 2)).mean(dim=1), atol=1e-3, rtol=0
    )
    moved = Pose(a.translation + torch.tensor([0.0, 3.0, 4.0]), a.wxyz)
    torch.testing.assert_close(pose_agreement(a, moved, eye), torch.full((2,), 5.0), atol=2e-3, rtol=0)


def test_pose_agreement_of_equal_poses_has_a_finite_gradient():
    wxyz = Pose.random(2, 4, generator=generator()).wxyz.requires_grad_()
    pose = Pose(torch.zeros(2, 4, 3), wxyz)
    pose_agreement(pose, pose.map(torch.detach), torch.eye(4).expand(2, 4, 4)).sum().backward()
    assert wxyz.grad is not None
    assert wxyz.grad.isfinite().all()


def test_contrast_prefers_the_right_partner():
    features = torch.randn(8, 16, generator=generator())
    scale = torch.tensor(20.0)
    right = contrast(features, features + 0.01, scale)
    wrong = contrast(features, features.roll(1, 0), scale)
    assert right.max() < 0.05
    assert wrong.min() > 1
    torch.testing.assert_close(contrast(features * 0, features * 0, scale), torch.full((8,), math.log(8)))
