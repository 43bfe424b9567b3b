"""What the page shows of an object, and the steps to it, without a page."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from geocaps import Model, untrained
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError
from geocaps.viewer import clouds
from geocaps.viewer import session as viewer_session
from geocaps.viewer.clouds import AS_GIVEN, KNOWN, ShownCloud, embedded_cloud, shown_cloud, stances
from geocaps.viewer.object_mode import viewpoint_frames
from geocaps.viewer.session import UPRIGHT, ObjectSession, Principal


def test_the_canonical_view_stands_as_the_object_did_when_it_was_opened(session):
    opened = session.picture()
    seen = session.canonical_view(opened)
    np.testing.assert_allclose(np.ptp(seen.points, axis=0), np.ptp(opened.points, axis=0), atol=1e-4)
    session.turn_to((90.0, 20.0, 10.0))
    np.testing.assert_allclose(session.canonical_view(session.picture()).points, seen.points, atol=0.02)


def test_a_turned_object_stands_still_in_the_canonical_view(session):
    before = session.picture()
    assert len(set(before.labels.tolist())) > 4
    session.turn_to((30.0, -75.0, 140.0))
    after = session.picture()
    assert session.rotation_error < 0.5
    assert session.canonical_motion < 0.01
    assert np.abs(after.points - before.points).max() > 0.5
    np.testing.assert_allclose(after.canonical().points, before.canonical().points, atol=0.02)
    assert (after.labels == before.labels).mean() > 0.97
    session.turn_to(UPRIGHT)
    assert session.rotation_error == 0
    np.testing.assert_array_equal(session.picture().points, before.points)


def test_the_turn_is_about_the_centre_in_degrees_about_fixed_axes(session):
    session.turn_to((0.0, 90.0, 0.0))
    center = session.still.points.mean(axis=0, dtype=np.float64)
    x, y, z = (session.still.points - center).T
    np.testing.assert_allclose(session.now.points - center, np.stack([z, y, -x], axis=1), atol=1e-6)


def test_random_angles_are_whole_degrees_and_differ(session):
    drawn = {session.random_angles() for _ in range(5)}
    assert len(drawn) == 5
    assert all(value == round(value) and abs(value) <= 180 for angles in drawn for value in angles)


def test_a_dragged_object_is_encoded_once_for_each_place_and_nothing_else_is_found_again(model, monkeypatch):
    """So that the page follows a slider: normals are turned, and how it stands is known since it was opened."""
    counts = Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*args, **options):
            counts[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, call)

    counted(Model, "encode")
    counted(clouds, "surface")
    counted(viewer_session, "stances")
    points = make_shape("chair", 3).sample(1024, torch.Generator().manual_seed(0)).points.numpy()
    session = ObjectSession(model, ShownCloud("a", points, 1024), torch.Generator())
    session.picture()
    assert counts == {"encode": 1, "surface": 1, "stances": 1}
    for turn in range(6):
        session.turn_to((10.0 * turn, 20.0, 0.0))
        session.canonical_view(session.picture())
    assert counts == {"encode": 7, "surface": 1, "stances": 1}
    assert session.now.milliseconds > 0


def test_what_cannot_be_opened_leaves_what_was_shown(session, chair):
    session.turn_to((10.0, 0.0, 0.0))
    # Past the check of a file's points, found only when it is encoded.
    endless = np.full((20, 3), 1e300)
    with pytest.raises(InvalidInputError):
        session.open(ShownCloud("endless", endless, 20))
    assert session.still.cloud is chair
    assert session.now.angles == (10.0, 0.0, 0.0)


def test_a_changed_feature_folds_its_own_surface_alone(session):
    before = session.picture().surfaces
    values = session.part_feature(3).tolist()
    session.set_part_feature(3, [values[0] + 0.3, *values[1:]])
    assert session.part_feature(3).tolist()[0] == pytest.approx(values[0] + 0.3)
    after = session.picture().surfaces
    moved = np.abs(after - before).max(axis=(1, 2))
    assert moved[3] > 1e-3
    assert np.delete(moved, 3).max() == 0
    session.turn_to((0.0, 45.0, 0.0))
    assert session.part_feature(3).tolist()[0] == pytest.approx(values[0] + 0.3, abs=0.02), "the change turns too"
    session.reset_edits()
    session.turn_to(UPRIGHT)
    np.testing.assert_array_equal(session.picture().surfaces, before)


def test_principal_directions_move_the_decoded_object(model, session):
    found = Principal.of_embedded_objects(model)
    assert torch.allclose(found.directions @ found.directions.T, torch.eye(4), atol=1e-4)
    assert (found.deviations[:-1] >= found.deviations[1:]).all()
    before = session.picture(found)
    session.object_amounts = torch.tensor([2.0, 0.0, 0.0, 0.0])
    after = session.picture(found)
    assert np.abs(after.object_surfaces - before.object_surfaces).max() > 1e-3
    np.testing.assert_array_equal(after.surfaces, before.surfaces)


def test_principal_directions_of_a_known_spread():
    spread = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.5, 4.0, 1.0])
    found = Principal.of_features(spread + 7, 2)
    assert found.directions.abs().argmax(dim=1).tolist() == [1, 2]
    assert found.deviations.tolist() == pytest.approx([4.0, 1.0], rel=0.05)
    moved = found.moved(torch.zeros(3), torch.tensor([1.0, 0.0]))
    assert float(moved.norm()) == pytest.approx(4.0, rel=0.05)


def test_a_click_means_the_nearest_part_on_its_way(session):
    square = np.array([[[x, y, 0.0] for x in (-0.1, 0.1) for y in (-0.1, 0.1)]])
    surfaces = np.concatenate([square + np.array([0, 0, z]) for z in (-2.0, -3.0, -4.0)])
    picture = replace(
        session.picture(),
        points=np.array([[0.0, 0.0, 0.5], [0.0, 0.0, -0.5], [0.5, 0.0, 0.0]]),
        normals=np.zeros((3, 3)),
        labels=np.array([2, 1, 0]),
        surfaces=surfaces,
        object_surfaces=surfaces,
    )
    ahead, behind = np.array([0.0, 0.0, -1.0]), np.array([0.0, 0.0, 1.0])

    def under(x: float, y: float, z: float, direction: np.ndarray):
        return picture.part_under_ray(np.array([x, y, z], dtype=np.float64), direction)

    assert under(0, 0, 5, 3 * ahead) == (2, pytest.approx(4.5))
    assert under(0, 0, -1, behind) == (1, pytest.approx(0.5))
    assert under(0.5, 0, 5, ahead) == (0, pytest.approx(5.0))
    assert under(0.1, 0.1, 5, ahead) == (0, pytest.approx(7.0)), "a decoded surface"
    assert under(0.3, 0.1, 5, ahead) is None
    assert under(0, 0, 5, behind) is None, "away from the object"


def test_clouds_in_far_coordinates_are_shown_in_the_models_units(model):
    points = embedded_cloud("chair 1", 16).points.astype(np.float64) * 30 + [4e5, 5e6, 100]
    session = ObjectSession(model, shown_cloud("utm", points, 16), torch.Generator())
    session.turn_to((0.0, 120.0, 0.0))
    picture = session.picture()
    assert np.linalg.norm(picture.points, axis=1).max() == pytest.approx(1, abs=0.05)
    assert session.rotation_error < 1
    assert session.canonical_motion < 0.02


# ── the steps that the page shows are the steps that encoding takes ───────────────────────────────────────────────────


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
    torch.testing.assert_close(steps[-1].probability.max(), session.now.encoding.parse.probability.max())
    assert [len(step.viewpoints.wxyz) for step in steps] == [24] * len(steps)
    assert int((steps[-1].probability > 0).sum()) <= 6, "the others were dropped after the first vote"


def test_random_starts_are_several_and_repeat(session):
    one, other = session.now.voting(8, seed=1), session.now.voting(8, seed=1)
    assert len(one[0].viewpoints.wxyz) == 8
    assert (one[-1].viewpoints.wxyz == other[-1].viewpoints.wxyz).all()
    assert (one[0].viewpoints.wxyz != session.now.voting(8, seed=2)[0].viewpoints.wxyz).any()


def test_viewpoints_stand_around_the_object(session):
    frames = viewpoint_frames(session.now.voting(8, seed=0)[0].viewpoints)
    away = (frames.translation - session.now.model_points.mean(dim=0)).norm(dim=-1)
    torch.testing.assert_close(away, torch.full((8,), 1.25, dtype=torch.float64), atol=1e-3, rtol=0)


def test_the_papers_model_that_scores_no_starts_can_be_watched(chair):
    session = ObjectSession(untrained("paper"), chair, torch.Generator())
    steps = session.now.voting(0, seed=0)
    assert steps[0].probability is None
    assert len(steps) == session.model.config.object.voting_steps + 1
    assert len(session.now.routing) == session.model.config.parts.iterations + 1


# ── which way is up ───────────────────────────────────────────────────────────────────────────────────────────────────


def along_z(points):
    return np.stack([points[:, 0], -points[:, 2], points[:, 1]], axis=1)


def test_a_file_along_z_is_shown_standing_and_says_why(model):
    table = embedded_cloud("table 1", 16)
    session = ObjectSession(model, shown_cloud("table.ply", along_z(table.points), 16), torch.Generator())
    assert session.stance.how.startswith("z is up by what would support it")
    session.turn_to((40.0, 10.0, 70.0))
    local = (table.points - table.points.mean(axis=0)) / session.still.encoding.normalization.scale
    seen = session.canonical_view(session.picture()).points
    np.testing.assert_allclose(np.ptp(seen, axis=0), np.ptp(local, axis=0), atol=0.02)


def test_what_is_known_stays_and_what_is_doubtful_is_not_turned(model, chair):
    assert ObjectSession(model, chair, torch.Generator()).stance is KNOWN
    doubtful = shown_cloud("chair.ply", along_z(chair.points), 16)
    assert ObjectSession(model, doubtful, torch.Generator()).stance is AS_GIVEN
    # One that tells speaks for the others.
    sure = along_z(embedded_cloud("table 1", 16).points)
    together = stances([(model.encode(one), False) for one in (doubtful.points, sure)])
    assert [one.how[0] for one in together] == ["z", "z"]
    assert stances([(untrained("paper").encode(chair.points), False)]) == [AS_GIVEN]
