import math

import pytest
import torch

from geocaps.evaluation import literal
from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules
from geocaps.model.losses import (
    capsule_distance,
    chamfer,
    choice_agreement,
    chosen_frames,
    common_choice,
    contrast,
    fitted_trust,
    frame_contrast,
    late_interaction,
    near_frames,
    nearest_frame,
    trusted_agreement,
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


def test_two_views_agree_on_one_of_the_wholes_frames():
    """``choice`` by its definition, written out over frames and viewpoints."""
    frames = Pose.random(2, 5, generator=generator(1))
    viewpoints = Pose.random(2, 3, generator=generator(2))
    log_p = torch.randn(2, 3, generator=generator(3)).log_softmax(dim=1)
    near = near_frames(viewpoints, frames, 0.8)
    total = 0.0
    for f in range(5):
        share = [
            sum(
                float(log_p[v, s].exp())
                * max(1e-4, math.exp(-0.5 * (float(viewpoints[v, s].angle_to(frames[v, f])) / 0.8) ** 2))
                for s in range(3)
            )
            for v in range(2)
        ]
        total += share[0] * share[1]
    torch.testing.assert_close(
        choice_agreement(chosen_frames(log_p, near)), torch.tensor([-math.log(total)]), atol=1e-5, rtol=1e-5
    )


def test_views_choose_the_frame_of_similar_objects_where_it_is_known():
    log_chosen = torch.randn(4, 3, generator=generator()).log_softmax(dim=1)
    chance = torch.tensor([[0.2, 0.8, 0.0], [0.0, 0.0, 0.0]])
    expected = -sum(0.2 * float(log_chosen[v, 0]) + 0.8 * float(log_chosen[v, 1]) for v in (0, 1)) / 2
    torch.testing.assert_close(common_choice(log_chosen, chance), torch.tensor([expected, 0.0]))


def test_frames_are_told_apart_by_definition():
    """InfoNCE over an object's own frames, and over the frames of all objects, written out."""
    a, b = (torch.nn.functional.normalize(torch.randn(2, 3, 5, generator=generator(k)), dim=-1) for k in (1, 2))
    same = torch.tensor([[0, 1, 2], [2, 0, 1]])
    scale = torch.tensor(4.0)
    expected = []
    for i in range(2):
        total = 0.0
        for f in range(3):
            own = [math.exp(4 * float(a[i, f] @ b[i, g])) for g in range(3)]
            everyones = [math.exp(4 * float(a[i, f] @ b[j, g])) for j in range(2) for g in range(3)]
            match = own[same[i, f]]
            total -= math.log(match / sum(own)) + math.log(match / sum(everyones))
        expected.append(total / 3)
    torch.testing.assert_close(frame_contrast(a, b, same, scale), torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_votes_are_led_to_the_nearest_frame():
    frames = Pose.random(1, 4, generator=generator(1))
    turn = Pose(torch.zeros(3), torch.tensor([math.cos(0.1), math.sin(0.1), 0, 0]))
    viewpoints = frames[:, 2:3] @ turn
    chord = 2 * math.sqrt(2) * math.sin(0.1)
    torch.testing.assert_close(nearest_frame(viewpoints, frames), torch.tensor([chord]), atol=1e-4, rtol=1e-4)


def test_trust_is_the_chance_that_two_views_agree():
    logit = torch.tensor([1.0, -0.5, 2.0, 3.0])
    both = torch.sigmoid(logit[0::2]) * torch.sigmoid(logit[1::2])
    found = trusted_agreement(logit, torch.tensor([True, False]))
    torch.testing.assert_close(found, torch.stack([-both[0].log(), -(1 - both[1]).log()]))


def test_a_vote_on_a_frame_has_a_finite_gradient():
    frames = Pose.random(2, 3, generator=generator())
    wxyz = frames.wxyz.clone().requires_grad_()
    nearest_frame(Pose(frames.translation, wxyz), frames).sum().backward()
    assert torch.isfinite(wxyz.grad).all()


def test_late_interaction_is_the_mean_of_the_best_matches():
    query = torch.nn.functional.normalize(torch.randn(2, 3, 5, generator=generator()), dim=-1)
    query[1, 2] = 0  # a part that nothing is routed to
    gallery = torch.nn.functional.normalize(torch.randn(4, 6, 5, generator=generator(1)), dim=-1)
    for b in range(2):
        for c in range(4):
            best = [max(float(one @ other) for other in gallery[c]) for one in query[b] if one.any()]
            assert abs(float(late_interaction(query, gallery)[b, c]) - sum(best) / len(best)) < 1e-6


def test_contrast_prefers_the_right_partner():
    scale = torch.tensor(20.0)
    assert contrast(torch.eye(8), scale).max() < 0.05
    assert contrast(torch.eye(8).roll(1, 0), scale).min() > 1
    torch.testing.assert_close(contrast(torch.zeros(8, 8), scale), torch.full((8,), math.log(8)))


def test_fitted_trust_is_calibrated():
    """Views that are surer than they are right are made to doubt, by as much as they were wrong."""
    draws = torch.Generator().manual_seed(0)
    true = 1.5 * torch.randn(4000, generator=draws)
    right = torch.rand(4000, generator=draws) < true.sigmoid()
    agreed = right[0::2] & right[1::2]
    factor, shift = fitted_trust(3 * true + 2, agreed).tolist()
    assert factor == pytest.approx(1 / 3, abs=0.04)
    assert shift == pytest.approx(-2 / 3, abs=0.15)
    torch.testing.assert_close(fitted_trust(true[:0], agreed[:0]), torch.tensor([1.0, 0.0]))
