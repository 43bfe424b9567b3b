"""The page to send: whole, self-contained, and safe whatever the object is called."""

import base64
import json
import re

import numpy as np
import pytest

from geocaps.errors import InvalidInputError
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.export import export_page, page_data, page_of


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
    np.testing.assert_array_equal(labels, session.picture().labels)
    assert len(data["colors"]) == len(data["part_frames"]) == 16


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
