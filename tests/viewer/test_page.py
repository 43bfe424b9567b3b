"""Files that the page saves, and the page to send: whole, self-contained, and safe whatever the object is called."""

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from geocaps.errors import InvalidInputError
from geocaps.io import load_points
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.page import export_page, json_bytes, page_data, page_of, ply_bytes, png_bytes
from geocaps.viewer.session import ObjectSession


def test_the_object_is_saved_as_it_is_turned(session, tmp_path):
    session.turn_to((0.0, 90.0, 0.0))
    (tmp_path / "object.ply").write_bytes(ply_bytes(session.now.points, session.now.labels))
    np.testing.assert_allclose(load_points(tmp_path / "object.ply").points, session.now.points, atol=1e-6)
    record = json.loads(json_bytes(session.now.record()))
    assert len(record["parts"]) == 32
    strays = int((session.now.labels == -1).sum())
    assert sum(part["points"] for part in record["parts"]) + strays == record["points"] == 2048
    assert record["pose"]["wxyz"] == session.now.encoding.pose.wxyz.tolist()
    assert record["labels"] == session.now.labels.tolist()


def test_a_picture_is_saved_on_white():
    seen = np.zeros((4, 6, 4), dtype=np.uint8)
    seen[0, 0] = (255, 0, 0, 255)
    image = np.asarray(Image.open(io.BytesIO(png_bytes(seen))))
    assert image.shape == (4, 6, 3)
    assert image[0, 0].tolist() == [255, 0, 0]
    assert image[1, 1].tolist() == [255, 255, 255]


def test_the_page_needs_nothing_from_outside(model, chair):
    page = page_of(model, chair)
    assert "http://" not in page
    assert "https://" not in page
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", page) == []
    assert "default-src 'none'" in page
    assert "@DATA@" not in page
    assert len(page) < 200_000


def test_the_page_holds_the_points_and_parts(model, chair, session):
    data = page_data(model, chair)
    points = np.frombuffer(base64.b64decode(data["points"]), "<i2").reshape(-1, 3) * data["step"]
    np.testing.assert_allclose(points, session.picture().points, atol=1e-4)
    labels = np.frombuffer(base64.b64decode(data["labels"]), np.uint8)
    np.testing.assert_array_equal(np.where(labels == 255, -1, labels.astype(int)), session.picture().labels)
    assert len(data["colors"]) == len(data["part_frames"]) == 32


def test_stray_points_are_grey(model, chair, tmp_path):
    points = np.concatenate([chair.points, np.random.default_rng(0).uniform(-4, 4, (50, 3))]).astype(np.float32)
    session = ObjectSession(model, ShownCloud("strewn", points, len(points)), torch.Generator())
    labels = session.picture().labels
    assert (labels[-50:] == -1).sum() > 40
    np.testing.assert_array_equal(session.picture(step=0).labels == -1, labels == -1)
    (tmp_path / "object.ply").write_bytes(ply_bytes(session.now.points, labels))
    cloud = trimesh.load(tmp_path / "object.ply")
    np.testing.assert_array_equal(cloud.metadata["_ply_raw"]["vertex"]["data"]["label"].ravel(), labels)
    assert np.unique(cloud.colors[labels == -1, :3], axis=0).tolist() == [[153, 153, 153]]
    data = page_data(model, ShownCloud("strewn", points, len(points)))
    assert data["stray"] == "rgb(153,153,153)"
    assert data["stray"] not in data["colors"]
    assert (np.frombuffer(base64.b64decode(data["labels"]), np.uint8) == 255).sum() == (labels == -1).sum()


def test_a_stray_point_cannot_be_clicked(session):
    picture = session.picture()
    away = np.array([[5.0, 5.0, 5.0]], dtype=np.float32)
    strewn = replace(
        picture,
        points=np.concatenate([picture.points, away]),
        normals=np.concatenate([picture.normals, away]),
        labels=np.append(picture.labels, -1),
    )
    assert strewn.part_under_ray(np.array([5.0, 5.0, 9.0]), np.array([0.0, 0.0, -1.0])) is None


def test_a_hostile_name_stays_text(model, chair):
    page = page_of(model, ShownCloud("</script><script>alert(1)</script>", chair.points, chair.total))
    assert "<script>alert" not in page
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1)
    assert json.loads(data)["name"] == "</script><script>alert(1)</script>"


def test_a_page_that_cannot_be_written_leaves_the_old_one(model, chair, tmp_path):
    with pytest.raises(InvalidInputError, match="does not exist"):
        export_page(tmp_path / "no" / "page.html", model, chair)
    with pytest.raises(InvalidInputError, match="must end in"):
        export_page(tmp_path / "page.png", model, chair)
    assert list(tmp_path.iterdir()) == []
    size = export_page(tmp_path / "page.html", model, chair)
    assert (tmp_path / "page.html").stat().st_size == size
