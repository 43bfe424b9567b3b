import math

import torch

from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import agree, consensus, perturbed_viewpoints, vote_pose


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_mean_variance_and_sample_are_the_papers():
    """σ is the variance, and it is the noise scale: c_f = μ + σ·ε, literally."""
    percepts = torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]])
    noise = torch.randn(2, generator=generator())
    expected = torch.tensor([3.0, 4.0]) + torch.tensor([8.0 / 3, 8.0]) * noise
    torch.testing.assert_close(consensus(percepts, generator()), expected)


def test_inference_has_no_noise():
    percepts = torch.randn(5, 4, 3)
    torch.testing.assert_close(consensus(percepts, None), percepts.mean(dim=1))


def test_agreeing_percepts_have_no_noise():
    percepts = torch.randn(5, 1, 3).expand(5, 4, 3)
    torch.testing.assert_close(consensus(percepts, generator()), percepts[:, 0])


def test_perturbed_viewpoints():
    start = Pose.random(2, 3, generator=generator())
    views = perturbed_viewpoints(start, 50, math.radians(45), 0.1, generator(1))
    assert views.shape == (2, 3, 50)
    assert views.angle_to(start[..., None]).max() <= math.radians(45) + 1e-3
    assert (views.translation - start.translation[..., None, :]).abs().max() <= 0.1 * math.sqrt(3)


def test_each_voting_step_starts_from_the_previous_viewpoint():
    start = Pose.random(4, generator=generator())
    step = torch.tensor([0.1, 0, 0, math.cos(0.1), math.sin(0.1), 0, 0])
    seen = []

    def vote(z):
        seen.append(z)
        return step.expand(4, 7)

    end = vote_pose(start, vote, 3)
    delta = Pose.from_network(step)
    torch.testing.assert_close(end.matrix(), (start @ delta @ delta @ delta).matrix())
    torch.testing.assert_close(seen[2].matrix(), (start @ delta @ delta).matrix())


def test_a_perfect_pose_vote_makes_percepts_agree_and_the_first_view_is_the_pose():
    """With Q that always finds the object's frame, F sees the same thing from everywhere: no variance."""
    truth = Pose.random(2, generator=generator())
    points = torch.randn(2, 10, 3)
    views = perturbed_viewpoints(Pose.identity(2), 4, math.pi, 0.5, generator(2))
    result = agree(
        views,
        lambda z: truth[:, None].relative_to(z).vector(),
        lambda z: z.observe(points[:, None]).flatten(-2),
        generator=generator(3),
    )
    torch.testing.assert_close(result.pose.matrix(), truth.matrix(), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.feature, truth.observe(points).flatten(-2), atol=1e-5, rtol=0)
