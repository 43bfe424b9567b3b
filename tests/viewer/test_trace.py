"""The steps that the page shows are the steps that encoding takes."""

import torch

from geocaps import untrained
from geocaps.viewer.scene import viewpoint_frames
from geocaps.viewer.session import ObjectSession


def test_routing_ends_where_encoding_ends(session):
    steps = session.now.routing
    assert len(steps) == session.model.config.parts.iterations + 1
    torch.testing.assert_close(steps[-1].parts.pose.vector(), session.now.parts.pose.vector(), atol=1e-5, rtol=0)
    torch.testing.assert_close(steps[-1].parts.feature, session.now.parts.feature, atol=1e-5, rtol=0)
    assert steps[0].parts.feature.abs().max() == 0, "parts start with empty features"
    assert (steps[0].labels != steps[-1].labels).float().mean() > 0.01, "points change parts"


def test_an_earlier_iteration_can_be_looked_at(session):
    first, last = session.picture(step=0), session.picture(step=session.model.config.parts.iterations)
    final = session.picture()
    assert (first.labels != final.labels).mean() > 0.01
    assert (last.labels == final.labels).all()
    assert (last.surfaces == final.surfaces).all()


def test_votes_of_the_models_starts_end_where_encoding_ends(session):
    steps = session.now.voting(0, seed=0)
    assert len(steps) == session.model.config.object.voting_steps + 1
    best = int(steps[-1].probability.argmax())
    assert float(steps[-1].degrees_to(session.now.object.pose)[best]) < 0.05
    torch.testing.assert_close(steps[0].probability.sum(), torch.tensor(1.0))
    starts = session.model.network.starts(session.now.model_points[None])
    assert len(steps[0].viewpoints.wxyz) == int(starts.valid.sum()) > 1


def test_random_starts_are_several_and_repeat(session):
    one, other = session.now.voting(8, seed=1), session.now.voting(8, seed=1)
    assert len(one[0].viewpoints.wxyz) == 8
    assert (one[-1].viewpoints.wxyz == other[-1].viewpoints.wxyz).all()
    assert (one[0].viewpoints.wxyz != session.now.voting(8, seed=2)[0].viewpoints.wxyz).any()


def test_viewpoints_stand_around_the_object(session):
    frames = viewpoint_frames(session.now.voting(8, seed=0)[0])
    away = (frames.translation - session.now.model_points.mean(dim=0)).norm(dim=-1)
    torch.testing.assert_close(away, torch.full((8,), 1.25, dtype=torch.float64), atol=1e-3, rtol=0)


def test_the_papers_model_that_scores_no_starts_can_be_watched(chair):
    session = ObjectSession(untrained("paper"), chair, torch.Generator())
    steps = session.now.voting(0, seed=0)
    assert steps[0].probability is None
    assert len(steps) == session.model.config.object.voting_steps + 1
    assert len(session.now.routing) == session.model.config.parts.iterations + 1
