"""``geocaps.canonical``: any pose in, one pose out; and how results look in a notebook."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

import geocaps
from geocaps.apps.canonical import Canonical, Job, canonical_each, picture
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError, Skipped
from geocaps.geometry.se3 import Pose


@pytest.fixture(scope="module")
def model():
    return geocaps.untrained("cpu")


def sample(name="chair", count=400):
    return make_shape(name, 3).sample(count, torch.Generator().manual_seed(0)).points.double().numpy()


def image_of(shown):
    """The inline picture of a notebook's HTML, as an array of colours."""
    data = base64.b64decode(shown.split("base64,")[1].split('"')[0])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


# ── canonical ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_moved_object_comes_to_the_same_pose_in_its_own_units(model):
    points = sample()
    pose = Pose.random(generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved = Pose(torch.tensor([1.0, 2.0, 3.0]).double(), pose.wxyz).apply(torch.from_numpy(points)).numpy()
    here, there = geocaps.canonical([points, moved], model)
    np.testing.assert_allclose(there.points, here.points, atol=1e-3)
    size = [np.linalg.norm(cloud - cloud.mean(axis=0)) for cloud in (here.points, points)]
    assert size[0] == pytest.approx(size[1])


def test_any_kind_of_source(model, tmp_path):
    points = sample()
    np.save(tmp_path / "chair.npy", points)
    (expected,) = geocaps.canonical(points, model)
    for source in (
        torch.from_numpy(points),
        [trimesh.PointCloud(points)],
        tmp_path / "chair.npy",
        str(tmp_path / "chair.npy"),
        np.stack([points, points]),
        model.encode(points),
        model.encode_many([points, points]),
        [points, tmp_path / "chair.npy", model.encode(points)],
        tmp_path,
    ):
        for one in geocaps.canonical(source, model):
            np.testing.assert_allclose(one.points, expected.points, atol=1e-6)  # a batch rounds its own way


def test_a_mesh_stays_a_mesh(model, tmp_path):
    box = trimesh.creation.box((2, 1, 0.4))
    (found,) = geocaps.canonical(box, model)
    found.save(tmp_path / "box.ply")
    back = trimesh.load_mesh(tmp_path / "box.ply")
    assert back.volume == pytest.approx(0.8)
    np.testing.assert_allclose(found.pose.apply(back.vertices).min(axis=0), (-1, -0.5, -0.2))


def test_bad_ones_are_skipped_with_a_reason_or_raise(model, tmp_path):
    (tmp_path / "bad.ply").write_text("nonsense")
    sources = {"bad": tmp_path / "bad.ply", "few": np.zeros((3, 3)), "good": sample()}
    bad, few, good = canonical_each([Job(name, source) for name, source in sources.items()], model)
    assert isinstance(bad, Skipped)
    assert "bad.ply" in bad.reason
    assert isinstance(few, Skipped)
    assert few.reason.startswith("few")
    assert isinstance(good, Canonical)
    with pytest.raises(InvalidInputError, match="object 0"):
        geocaps.canonical([np.zeros((3, 3))], model)
    with pytest.raises(InvalidInputError, match="object 0: encode takes one cloud"):
        geocaps.canonical([np.stack([sample(), sample()])], model)


def test_the_options_of_the_command(model, tmp_path):
    """A folder with classes, a mesh and an array; results under their own names, and one picture."""
    (tmp_path / "in" / "chair").mkdir(parents=True)
    np.save(tmp_path / "in" / "chair" / "one.npy", sample())
    trimesh.creation.box((2, 1, 0.4)).export(tmp_path / "box.stl")
    sources = [tmp_path / "in", str(tmp_path / "box.stl"), sample("mug")]
    found = geocaps.canonical(sources, model, out=tmp_path / "out", suffix=".glb", png=tmp_path / "all.png")
    assert [one.name for one in found] == [str(tmp_path / "in/chair/one.npy"), str(tmp_path / "box.stl"), "object 2"]
    written = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.glb"))
    assert written == ["box.glb", "chair/one.glb", "object_2.glb"]
    assert trimesh.load_mesh(tmp_path / "out" / "box.glb").volume == pytest.approx(0.8)
    assert Image.open(tmp_path / "all.png").size[0] > 100
    with pytest.raises(InvalidInputError, match=r"type \.doc cannot be written"):
        geocaps.canonical(sources, model, out=tmp_path / "out", suffix=".doc")
    with pytest.raises(InvalidInputError, match="would replace the input"):
        geocaps.canonical(tmp_path / "in", model, out=tmp_path / "in", suffix=".npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="no meshes or point clouds"):
        geocaps.canonical(tmp_path / "empty", model)
    with pytest.raises(InvalidInputError, match=r"must end in \.png"):
        geocaps.canonical(sources, model, png=tmp_path / "all.jpg")


def test_the_picture_grows_to_rows_of_eight_and_stops(model, monkeypatch):
    monkeypatch.setattr("geocaps.apps.canonical.MOST_DRAWN", 9)
    (one,) = geocaps.canonical(sample(count=60), model)
    sizes = [Image.open(io.BytesIO(picture([one.thumbnail()] * count))).size for count in (2, 8, 9, 20)]
    assert sizes[0][0] < sizes[1][0] == sizes[2][0]
    assert sizes[0][1] == sizes[1][1] < sizes[2][1]
    assert sizes[2] == sizes[3]
    with pytest.raises(InvalidInputError, match="no object"):
        picture([])


def test_the_axis_that_is_up_points_up_in_the_picture(model):
    """A long thing along z, as --up z leaves it: it is high in the picture if that axis is up, wide if another is."""
    rod = np.random.default_rng(0).normal(size=(400, 3)) * [0.05, 0.05, 1.0]
    one = replace(geocaps.canonical(rod, model)[0], pose=geocaps.Similarity.identity())
    heights = {}
    for up in ("x", "y", "z"):
        image = np.asarray(Image.open(io.BytesIO(picture([one], up))).convert("L"))
        rows, columns = np.nonzero(image[image.shape[0] // 2 + 30 :] < 150)
        heights[up] = np.ptp(rows) / np.ptp(columns)
    assert heights["z"] > 2 > heights["y"]
    assert heights["z"] > 2 > heights["x"]


# ── notebooks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_encodings_show_a_line_and_a_picture(model):
    one = model.encode(sample())
    assert "400 points: 32 parts" in repr(one)
    assert len(repr(one)) < 200
    assert (image_of(one._repr_html_()) < 250).any()


def test_a_batch_shows_a_thumbnail_for_each_up_to_twelve(model):
    widths = {}
    for count in (2, 4, 13):
        batch = model.encode_many([sample(count=100)] * count)
        assert f"{count} objects" in repr(batch)
        widths[count] = image_of(batch._repr_html_()).shape[1]
    assert widths[4] == pytest.approx(2 * widths[2], abs=2)
    assert widths[13] == pytest.approx(6 * widths[2], abs=2)


def test_alignments_and_canonical_poses_show_a_line_and_a_picture(model):
    points = sample()
    found = geocaps.align(points, points + 1)
    assert "translation (1, 1, 1)" in repr(found)
    assert "confidence" in repr(found)
    assert (image_of(found._repr_html_()) < 250).any()
    a, b = found.inverse().shown
    np.testing.assert_array_equal(b, found.shown[0])
    np.testing.assert_allclose(found.apply(b), a, atol=1e-9)
    (one,) = geocaps.canonical(points, model)
    assert repr(one) in one._repr_html_()
    assert (image_of(one._repr_html_()) < 250).any()


def test_names_are_escaped(model, tmp_path):
    np.save(tmp_path / "<script>.npy", sample())
    assert "<script>" not in model.encode(tmp_path / "<script>.npy")._repr_html_()
