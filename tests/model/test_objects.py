"""PartsToObject against the paper's formulas written out in `literal.py`: values and gradients."""

import math
from dataclasses import asdict, replace

import pytest
import torch

from geocaps.geometry.frames import surface_axes
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import NOISE_TRANSLATION, Capsules, Parts, agree
from geocaps.model.config import AgreementWeights, PaperWeights
from geocaps.model.look import CUBE, Shown, Viewpoints
from geocaps.model.losses import chamfer, part_regression, weighted
from geocaps.model.object import LEADING, NEAR_ENOUGH, merged, misplacement
from tests.model import literal
from tests.model.conftest import TINY, TINY_PAPER, clouds, make_model
from tests.model.test_parts import DEGENERATE

J, D = TINY.parts.parts, TINY.parts.feature


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def capsules(*batch, seed=0):
    draws = generator(seed)
    pose = Pose(0.5 * torch.randn(*batch, 3, generator=draws), Pose.random(*batch, generator=draws).wxyz)
    return Capsules(pose, torch.randn(*batch, D, generator=draws))


def as_list(parts):
    return [((parts.pose.translation[j], parts.pose.wxyz[j]), parts.feature[j]) for j in range(J)]


@pytest.mark.parametrize("steps", [1, 3])
def test_agreement_decoders_and_loss_equal_the_literal_formulas(steps):
    """Lines 3–14 of Algorithm 2 with given viewpoints, noise and targets."""
    layer = make_model(TINY_PAPER).object
    parts = capsules(2, J)
    viewpoints = capsules(2, 3, seed=1).pose
    target = capsules(2, J, seed=2)
    epsilon = torch.randn(2, TINY.object.feature, generator=generator(3))

    found = agree(
        viewpoints,
        lambda z: layer.pose_network(parts, z),
        lambda z: layer.feature_network(parts, z),
        steps=steps,
        generator=generator(3),  # that of epsilon
    )
    everything = torch.ones(2, J, dtype=torch.bool)
    loss = part_regression(layer.decode(found), target, everything)
    used = list(layer.parameters())
    gradients = torch.autograd.grad(loss.sum(), used)

    losses, poses = [], []
    for b in range(2):
        percepts, ends = [], []
        for k in range(3):
            z = (viewpoints.translation[b, k], viewpoints.wxyz[b, k])
            for _ in range(steps):
                z = literal.compose(
                    z, literal.vote_to_pose(literal.object_vote(layer.pose_network, as_list(parts[b]), z))
                )
            percepts.append(literal.object_vote(layer.feature_network, as_list(parts[b]), z))
            ends.append(z)
        f = torch.stack(percepts)
        mean = f.mean(dim=0)
        h_f = mean + ((f - mean) ** 2).mean(dim=0) * epsilon[b]
        decoded = literal.decode_object(layer, ends[0], h_f)
        losses.append(sum(literal.capsule_distance(u, t) for u, t in zip(decoded, as_list(target[b]), strict=True)))
        poses.append(torch.cat(ends[0]))
    expected = torch.stack(losses)
    expected_gradients = torch.autograd.grad(expected.sum(), used)

    torch.testing.assert_close(found.pose.vector(), torch.stack(poses), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    for fast, slow in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("log_sigma", "steps"), [(0.0, 3), (-6.0, 1)])
def test_algorithm_2_equals_the_paper_line_by_line(log_sigma, steps):
    """All of it, from points and initial part capsules to the loss and its gradients.

    With the wide σ every part has points, and the reference is the paper's to the letter. With the paper's σ some part
    has none, and leaves L_part (our one departure: `part_regression` says why).
    """
    model = make_model(
        replace(
            TINY_PAPER,
            parts=replace(TINY_PAPER.parts, log_sigma=log_sigma),
            object=replace(TINY_PAPER.object, voting_steps=steps),
        )
    )
    batch, views, noise = 2, model.config.object.views, 60.0
    reach = NOISE_TRANSLATION
    points, weights = clouds(batch, 64), PaperWeights()
    initial = model.parts.initial(points, generator(11))
    with torch.no_grad():
        parts = model.parts(points, initial).capsules
    terms = model.object.loss(model.parts, points, parts, weights, noise, generator(12))
    loss = weighted(terms, weights)["loss"]
    used = list(model.object.parameters())
    gradients = torch.autograd.grad(loss, used)

    draws = generator(12)
    start = torch.randn(batch, 1, 4, generator=draws)
    axis = torch.randn(batch, views, 3, generator=draws)
    angle = (torch.rand(batch, views, 1, generator=draws) * 2 - 1) * math.radians(noise)
    shift = (torch.rand(batch, views, 3, generator=draws) * 2 - 1) * reach
    epsilon = torch.randn(batch, model.config.object.feature, generator=draws)
    squares = torch.rand(batch, J, model.config.parts.decoded, 2, generator=draws) - 0.5
    found, everywhere = [], []
    for b in range(batch):
        h_q = points[b].mean(dim=0), literal.vote_to_pose(torch.cat([torch.zeros(3), start[b, 0]]))[1]
        perturbations = []
        for k in range(views):
            turn = torch.cat([torch.cos(angle[b, k] / 2), torch.sin(angle[b, k] / 2) * axis[b, k] / axis[b, k].norm()])
            perturbations.append((shift[b, k], turn))
        *numbers, reached = literal.algorithm_2(
            model, points[b], as_list(initial[b]), h_q, perturbations, epsilon[b], squares[b], weights.chamfer
        )
        found.append(torch.stack(numbers))
        everywhere.append(all(reached))
    part, far, whole = torch.stack(found).T
    assert all(everywhere) == (log_sigma == 0.0)
    assert reach > 0
    torch.testing.assert_close(terms["part"], part, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(terms["chamfer"], far, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss, whole.mean(), atol=1e-4, rtol=1e-4)
    for fast, slow in zip(gradients, torch.autograd.grad(whole.mean(), used), strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-3)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0


def test_targets_and_loss_of_algorithm_2(tiny_paper):
    """T is PointsToParts started at U, without gradient; L = L_part + λ·Chamfer."""
    points = clouds(2, 64)
    capsule = Capsules(capsules(2, seed=4).pose, torch.randn(2, TINY.object.feature, requires_grad=True))
    weights = PaperWeights(part=1.0, chamfer=0.01)
    terms = tiny_paper.object.reconstruction(tiny_paper.parts, points, capsule, weights, generator(7))
    decoded = tiny_paper.object.decode(capsule)
    with torch.no_grad():
        refined = tiny_paper.parts(points, decoded)
    surface = tiny_paper.parts.decode(decoded, generator(7))
    reached = refined.routing.dense().sum(dim=1) > 0
    torch.testing.assert_close(terms["part"], part_regression(decoded, refined.capsules, reached))
    torch.testing.assert_close(terms["chamfer"], chamfer(points, surface.flatten(1, 2)))
    expected = terms["part"].mean() + 0.01 * terms["chamfer"].mean()
    loss = weighted(terms, weights)["loss"]
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert capsule.feature.grad.abs().sum() > 0


def test_a_part_that_no_point_reaches_has_no_target(tiny_paper):
    """Its vote would come from nothing, and the same step away, again and again, leads it out of sight."""
    last = tiny_paper.object.decoder.layers[-1]
    with torch.no_grad():
        last.bias[0, 0, :3] = 100.0
    capsule = Capsules(capsules(2, seed=4).pose, torch.randn(2, TINY.object.feature))
    layer = tiny_paper.parts
    terms = tiny_paper.object.reconstruction(layer, clouds(2, 64), capsule, PaperWeights(), generator(7))
    (towards_target,) = torch.autograd.grad(terms["part"].sum(), last.bias, retain_graph=True)
    (towards_points,) = torch.autograd.grad(terms["chamfer"].sum(), last.bias)
    assert towards_target[0].abs().max() == 0
    assert towards_target[1:].abs().max() > 0
    assert towards_points[0].abs().max() > 0


def test_spread_is_the_angle_between_two_votes(tiny_paper):
    points, parts, layer = clouds(2, 64), capsules(2, J), tiny_paper.object
    found = layer.spread(points, parts, generator(3))
    starts = layer.starts(points, generator(3), 2)
    for b in range(2):
        first, second = (
            literal.vote_to_pose(
                literal.object_vote(
                    layer.pose_network, as_list(parts[b]), (starts.translation[b, k], starts.wxyz[b, k])
                )
            )[1]
            for k in range(2)
        )
        assert math.degrees(2 * math.acos(min(1.0, abs(float((first @ second).detach()))))) == pytest.approx(
            float(found[b]), abs=0.1
        )
        assert found[b] > 1
    with torch.no_grad():
        layer.pose_network.project[-1].weight.zero_()
    assert layer.spread(points, parts, generator(3)).max() < 0.1


def test_a_cheaper_step_sees_fewer_points_and_smaller_surfaces(tiny_paper):
    """Chamfer and targets T alike, as if the layer decoded so few and the cloud had so few."""
    points, capsule = clouds(2, 64), Capsules(capsules(2, seed=4).pose, torch.randn(2, TINY.object.feature))
    weights, layer = PaperWeights(), tiny_paper.parts
    cheap = tiny_paper.object.reconstruction(layer, points, capsule, weights, generator(7), 32, 4)
    smaller = make_model(replace(TINY_PAPER, parts=replace(TINY_PAPER.parts, decoded=4))).parts
    fewer = points[:, evenly(32, 64)]
    expected = tiny_paper.object.reconstruction(smaller, fewer, capsule, weights, generator(7))
    torch.testing.assert_close(cheap, expected)
    assert (
        cheap["chamfer"]
        .ne(tiny_paper.object.reconstruction(layer, points, capsule, weights, generator(7))["chamfer"])
        .all()
    )


def test_paper_objective_is_repeatable_and_differentiable(tiny_paper):
    points = clouds(2, 64)
    parts = capsules(2, J)
    weights = PaperWeights()
    first, again = (
        weighted(tiny_paper.object.loss(tiny_paper.parts, points, parts, weights, 45.0, generator(1)), weights)["loss"]
        for _ in range(2)
    )
    assert first.item() == again.item()
    first.backward()
    gradients = [p.grad for p in tiny_paper.object.pose_network.parameters()]
    assert all(torch.isfinite(g).all() for g in gradients)
    assert sum(float(g.abs().sum()) for g in gradients) > 0


def two_views(model, batch=3, count=64, turn=None):
    """Two samplings of each object, and the whole."""
    whole = clouds(batch, 2 * count)
    if turn is not None:
        whole = turn.apply(whole)
    return views_of(model, whole.unflatten(1, (2, count)), whole)


def views_of(model, points, whole, center=0.0, scale=1.0):
    """Clouds ``[b, 2, n, 3]`` as the loss needs them."""
    with torch.no_grad():
        parts = model.parts(points.flatten(0, 1)).parts.map(lambda tensor: tensor.unflatten(0, points.shape[:2]))
    center, scale = torch.full_like(points[:, :, 0], center), torch.full(points.shape[:2], scale)
    return model.object.views(model.parts, parts, whole, whole, center, scale)


def test_every_term_of_the_agreement_objective_teaches(tiny):
    views = replace(two_views(tiny), chance=torch.full((3, 24), 1 / 24))
    terms = tiny.object.loss(tiny.parts, views, 10.0, generator())
    assert set(terms) == set(asdict(AgreementWeights()))
    assert all(term.shape == (3,) for term in terms.values())
    for name, term in terms.items():
        gradient = torch.autograd.grad(term.sum(), list(tiny.object.parameters()), retain_graph=True, allow_unused=True)
        total_gradient = sum(float(g.abs().sum()) for g in gradient if g is not None)
        assert math.isfinite(total_gradient), name
        assert total_gradient > 0, name


def test_agreement_objective_does_not_depend_on_the_pose_of_the_pair(tiny):
    """Equivariance holds by construction: the upright pose of a data set cannot reach the loss."""
    turn = Pose.random(3, generator=generator(5))
    still, turned = (tiny.object.loss(tiny.parts, two_views(tiny, turn=one), 0.0, generator()) for one in (None, turn))
    for name in still:
        torch.testing.assert_close(still[name], turned[name], atol=5e-3, rtol=5e-3)


def test_starts_are_the_frames_on_the_surfaces_axes(tiny):
    shown = two_views(tiny).shown
    axes, center = surface_axes(shown.points, shown.weight)
    starts = tiny.object.starts(shown)
    for number, rotation in enumerate(CUBE):
        torch.testing.assert_close(starts.pose.rotation_matrix()[:, number], axes @ rotation, atol=1e-5, rtol=0)
        torch.testing.assert_close(starts.pose.translation[:, number], center)


def test_the_whole_object_is_where_the_votes_should_put_it(tiny):
    """``place`` is 0 for votes at the whole's centre with its radius, else a distance in radii and a ratio in nats.

    Each is softened where it is small.
    """
    at = Viewpoints(Pose.random(2, 5, generator=generator()), torch.full((2, 5), 2.0))
    assert misplacement(at, torch.zeros(2, 3), torch.full((2,), 2.0)).max() < 1e-6
    moved = misplacement(at, torch.tensor([[0.0, 3, 4]]).expand(2, 3), torch.full((2,), 1.0))
    expected = math.hypot(5, NEAR_ENOUGH) + math.hypot(math.log(2), NEAR_ENOUGH) - 2 * NEAR_ENOUGH
    torch.testing.assert_close(moved, torch.full((2,), expected))


def test_the_best_starts_are_led_on_and_scored_again(tiny):
    """Against the same written out for one object and one viewpoint at a time."""
    layer = tiny.object
    parts = tiny.parts(clouds(2, 64)).parts
    shown = layer.shown(tiny.parts, parts)
    starts = layer.starts(shown)
    with torch.no_grad():
        seen = layer.lead(shown, starts)
        found = layer.perceive(tiny.parts, parts)
        for b in range(2):
            own = Shown(shown.points[b : b + 1], shown.weight[b : b + 1])
            first = [layer.score(own, starts[b : b + 1, s : s + 1])[0][0, 0, 0] for s in range(24)]
            probability = torch.stack(first).softmax(dim=0)
            torch.testing.assert_close(seen.log_first[b].exp(), probability, atol=1e-5, rtol=1e-4)
            order = probability.argsort(descending=True)[:LEADING].tolist()
            led, scores = [], []
            for s in order:
                at = starts[b : b + 1, s : s + 1]
                for _ in range(2):
                    at = layer.vote(own, at)
                led.append(at)
                scores.append(probability[s].log() + layer.score(own, at)[0][0, 0, 1])
            torch.testing.assert_close(seen.log_last[b].exp(), torch.stack(scores).softmax(dim=0), atol=1e-4, rtol=1e-3)
            for place, at in enumerate(led):
                assert seen.led.pose[b, place].angle_to(at.pose[0, 0]) < 2e-3
                torch.testing.assert_close(seen.led.width[b, place], at.width[0, 0], atol=1e-4, rtol=1e-4)
            best = int(found.probability[b].argmax())
            assert found.object.pose[b].angle_to(led[best].pose[0, 0]) < 2e-3
            torch.testing.assert_close(found.scale[b], led[best].width[0, 0], atol=1e-4, rtol=1e-4)


def test_viewpoints_that_were_led_to_one_pose_are_one():
    apart = Pose.random(1, 1, generator=generator())
    poses = Pose(torch.zeros(1, 3, 3), torch.cat([apart.wxyz, apart.wxyz, (-apart.wxyz).roll(1, -1)], dim=1))
    found = merged(poses, torch.tensor([[0.3, 0.4, 0.3]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.7, 0.3]]))


def test_percepts_are_unit_vectors_and_0_without_a_part(tiny):
    parts = tiny.parts(clouds(2, 64)).parts
    share = parts.share.clone()
    share[:, 1] = 0
    percept = tiny.object.perceive(tiny.parts, Parts(parts.capsules, share)).percept
    length = percept.norm(dim=-1)
    assert (length[:, 1] == 0).all()
    torch.testing.assert_close(length[share > 0], torch.ones_like(length[share > 0]))


@pytest.mark.slow
def test_layer_trains(tiny):
    """Some steps lower every term of the objective but ``trust`` on one batch of two nearly equal views."""
    cloud = clouds(4, 64)
    views = torch.stack([cloud, cloud + 0.003 * torch.randn(cloud.shape, generator=generator(2))], dim=1)
    common = torch.nn.functional.one_hot(torch.tensor([3, 5, 7, 11]), 24).float()
    seen = replace(views_of(tiny, views, cloud, 0.1, 1.2), chance=common)
    weights = AgreementWeights(chamfer=1.0)
    optimizer = torch.optim.Adam(tiny.object.parameters(), lr=3e-3)
    draws, history = generator(), []
    for _ in range(220):
        terms = tiny.object.loss(tiny.parts, seen, 0.0, draws)
        optimizer.zero_grad()
        weighted(terms, weights)["loss"].backward()
        optimizer.step()
        history.append({name: term.mean().item() for name, term in terms.items()})
    del history[0]["trust"]  # what it is to say changes with the choice
    for name, first in history[0].items():
        assert history[-1][name] < 0.6 * first, name


@pytest.mark.parametrize("name", list(DEGENERATE))
def test_gradients_are_finite_for_degenerate_clouds(name):
    points = DEGENERATE[name]()[:, None].repeat(2, 2, 1, 1)
    for config, weights in ((TINY, AgreementWeights()), (TINY_PAPER, PaperWeights(chamfer=1.0))):
        model = make_model(config)
        if config is TINY:
            terms = model.object.loss(model.parts, views_of(model, points, points[:, 0]), 30.0, generator())
        else:
            with torch.no_grad():
                parts = model.parts(points[:, 0]).capsules
            terms = model.object.loss(model.parts, points[:, 0], parts, weights, 30.0, generator())
        loss = weighted(terms, weights)["loss"]
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in model.object.parameters() if p.grad is not None)
