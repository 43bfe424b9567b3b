"""Alignment, search and the pieces of the page, without a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from geocaps import Index, align
from geocaps.apps.scene import parse_scene
from geocaps.apps.track.files import Frames, poses_file
from geocaps.data.scenes import FLOOR, scene
from geocaps.data.synthetic import make_shape
from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.geometry.se3 import Pose
from geocaps.io import load_points
from geocaps.viewer import mode
from geocaps.viewer.cloud_modes import AlignedPair, Found, trimmed_distance
from geocaps.viewer.clouds import AS_GIVEN, ShownCloud, embedded_cloud, shown_cloud
from geocaps.viewer.page import json_bytes, ply_bytes
from geocaps.viewer.paint_mode import Painting, of_its_kind
from geocaps.viewer.scene_mode import SeenScene
from geocaps.viewer.track_mode import ToTrack, followed, read_poses


@pytest.fixture(scope="module")
def pair():
    shape, generator = make_shape("chair", 1), torch.Generator().manual_seed(0)
    a, b = (shape.sample(1500, generator).points for _ in range(2))
    turn = Pose.random(generator=generator)
    moved = turn.apply(a).numpy() * 1.0 + np.float32([5, 0, 0])
    found = align(moved, b.numpy())
    return AlignedPair(ShownCloud("a", moved, 1500), ShownCloud("b", b.numpy(), 1500), found), a.numpy()


def test_alignment_before_and_after(pair):
    found, a = pair
    assert found.residuals[None] > 1
    assert found.residuals[0] < 0.05
    assert found.residuals[0] == pytest.approx(found.found.error, rel=0.15)
    np.testing.assert_allclose(found.laid(0), a, atol=0.08)
    np.testing.assert_array_equal(found.laid(None), found.a.points)
    assert found.ways[0].confidence == found.found.confidence
    assert len(found.ways) == 1 + len(found.found.alternatives)


def test_both_clouds_are_in_sight_before_and_after(pair):
    for way in (None, 0):
        for cloud in pair[0].drawn(way):
            assert np.linalg.norm(cloud, axis=1).max() < 3


def test_trimmed_distance_is_that_of_the_better_explained_cloud():
    whole = np.random.default_rng(0).normal(size=(400, 3))
    assert trimmed_distance(whole, whole + np.array([0.001, 0, 0])) == pytest.approx(0.001, rel=1e-6)
    assert trimmed_distance(whole, whole[:100]) == 0


def test_alignment_is_saved(pair, tmp_path):
    found, _ = pair
    (tmp_path / "pair.ply").write_bytes(ply_bytes(*found.joined(0)))
    assert len(load_points(tmp_path / "pair.ply").points) == 3000
    record = json.loads(json_bytes(found.record(0)))
    assert record["ways"][0]["wxyz"] == found.found.pose.wxyz.tolist()
    assert record["error"] == found.found.error


def test_hits_stand_in_a_row_in_the_querys_pose(model, tmp_path):
    names = ("chair 1", "mug 1", "airplane 1")
    clouds = [embedded_cloud(name, 16) for name in names]
    index = Index(tmp_path / "index", model)
    index.add([cloud.points for cloud in clouds], names=list(names))
    turn = Pose.random(generator=torch.Generator().manual_seed(3))
    turned = turn.apply(torch.from_numpy(clouds[0].points)).numpy() * 2
    hits = index.search(turned, k=3)
    found = Found(ShownCloud("query", turned, len(turned)), tuple(hits), hits.verdict, hits.found, AS_GIVEN)
    assert found.hits[0].name == "chair 1"
    row = found.row()
    assert len(row) == len(found.places()) == 4
    assert trimmed_distance(row[0], row[1]) < 0.05 * found.size, "the same object lies as the query lies"
    apart = np.diff([place[0] for place in found.places()])
    assert (apart > 1.5 * found.size).all()
    assert abs(found.places()[0][0]) + found.size < 2.5, "the row fits the page"
    points, numbers = found.joined()
    assert len(points) == sum(len(one) for one in row)
    assert set(numbers.tolist()) == {0, 1, 2, 3}
    best = json.loads(json_bytes(found.record()))["hits"][0]
    assert best["name"] == "chair 1"
    np.testing.assert_allclose(np.array(best["T_object_scan"]) @ best["matrix"], np.eye(4), atol=1e-9)


def test_names_are_text_and_never_markup():
    hostile = "<script>alert('x')</script>"
    for piece in (
        mode.notice(hostile),
        mode.trouble(hostile),
        mode.table([(hostile, hostile)]),
        mode.state_panel({"a": hostile}),
    ):
        assert "<script" not in piece
        assert "&lt;script" in piece


def test_a_cloud_without_a_file_is_saved_first():
    cloud = embedded_cloud("furniture: armchair (1)", 16)
    assert mode.file_of(replace(cloud, name="scan.ply")) == ("scan.ply", "")
    assert mode.file_of(replace(cloud, name="scan.ply", path="scans/scan.ply")) == ("scans/scan.ply", "")
    name, remark = mode.file_of(cloud)
    assert name == "furniture_armchair_1.ply"
    assert remark.startswith("# furniture: armchair (1): save its points as")
    assert "<script>" not in mode.code_panel("<script>")


def test_bars_show_sign_and_size():
    piece = mode.bars([0.5, -1.0, 0.0], part=2)
    assert piece.count("geocaps-bar") == 3
    assert "left:50.0%;width:25.0%" in piece
    assert "left:0.0%;width:50.0%" in piece
    assert "-1.000" in piece


# ── painting, tracking, scenes ────────────────────────────────────────────────────────────────────────────────────────


def test_labels_go_from_one_object_to_its_kind(model):
    clouds = [embedded_cloud(f"chair {k}", 16) for k in (1, 2)]
    painting = Painting(model, clouds[0], model.encode(clouds[0].points), clouds[1:])
    assert set(painting.others[0].labels.tolist()) == {0}
    low = [j for j in range(32) if clouds[0].points[painting.parts == j, 1].max(initial=-1) < -0.2]
    for part in low:
        painting.paint_part(part, 1)
    (top,) = np.flatnonzero(clouds[0].points[:, 1] == clouds[0].points[:, 1].max())[:1]
    painting.paint_spot(int(top), 0.3, 2)
    points, labels = painting.row()[1]
    assert points[labels == 1, 1].max() < 0.2, "legs"
    assert points[labels == 2, 1].min() > 0.2, "the top"
    record = json.loads(json_bytes(painting.record()))
    assert record["others"][0]["labels"] == labels.tolist()
    painting.clear()
    assert set(painting.others[0].labels.tolist()) == {0}


def test_who_is_of_a_kind():
    assert of_its_kind("chair 2", ()) == ["chair 1", "chair 3"]
    assert all(name.startswith("furniture: armchair (") for name in of_its_kind("furniture: armchair (1)", ()))
    assert of_its_kind("a.ply", ("b.ply", "a.ply", "c.ply", "chair 1")) == ["b.ply", "c.ply"]


@pytest.fixture(scope="module")
def tracked(model, tracked_files):
    frames = Frames(tracked_files / "frames")
    given = ToTrack.of_files(str(tracked_files / "frames"), str(tracked_files / "reference.ply"), None)
    told = []
    found = followed(given, model, told.append)
    assert told == list(range(len(frames)))
    return found


def test_poses_that_were_written_are_shown_as_they_were_found(model, tracked, tracked_files, tmp_path):
    with poses_file(tmp_path / "poses.jsonl") as poses:
        for one, name in zip(tracked.found, tracked.sequence.names, strict=True):
            poses.write(one, name)
    files = (tracked_files / "frames", tracked_files / "reference.ply", tmp_path / "poses.jsonl")
    given = ToTrack.of_files(*map(str, files))
    again = followed(given, model, pytest.fail)
    for one, other in zip(tracked.found, again.found, strict=True):
        np.testing.assert_allclose(one.pose.matrix(), other.pose.matrix(), atol=1e-9)
        assert (one.lost, one.reason) == (other.lost, other.reason)
    for number in range(len(again.found)):
        np.testing.assert_array_equal(again.colors(number), tracked.colors(number))
        assert np.abs(again.placed(again.found[number].pose.apply(again.reference))).max() < 2, "in sight"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot read .*poses.jsonl: No such file"),
        ("nonsense\n", "line 1 is not a pose"),
        ('{"frame": 0}\n', "line 1 is not a pose"),
        ("", "0 poses of an object in 0 parts; there are 8 frames"),
    ],
)
def test_poses_that_cannot_be_used_get_a_sentence(text, sentence, tmp_path):
    if text is not None:
        (tmp_path / "poses.jsonl").write_text(text)
    with pytest.raises(GeocapsError, match=sentence):
        read_poses(str(tmp_path / "poses.jsonl"), 8, 32)


def test_poses_need_their_object(tracked_files):
    with pytest.raises(InvalidInputError, match="name the object's file"):
        ToTrack.of_files(str(tracked_files / "frames"), None, "poses.jsonl")


def test_a_scan_stands_on_its_floor_and_is_seen_from_its_sensor(model):
    made = scene(9, points=8000)
    cloud = shown_cloud("scan", made.points, 16)
    assert len(cloud.scan) == 8000
    seen = SeenScene(cloud, parse_scene(cloud.scan, model=model))
    floor, objects = (seen.placed(made.points[(made.instance == FLOOR) == on]) for on in (True, False))
    assert np.ptp(floor[:, 1]) < 0.1
    assert objects[:, 1].mean() > floor[:, 1].mean()
    sensor = seen.placed(np.zeros((1, 3)))[0]
    assert sensor[2] > abs(sensor[0]), "in front"
    one = seen.parsed.objects[0]
    near = seen.close_up(one).apply(cloud.scan[one.points])
    assert np.linalg.norm(near, axis=1).max() == pytest.approx(0.85)
    assert len(json.loads(json_bytes(seen.record()))["objects"]) == len(seen.parsed.objects)
