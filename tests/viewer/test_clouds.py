"""What may come into the page, and what may not."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from geocaps.errors import FileFormatError, GeocapsError, InvalidInputError
from geocaps.io import save_points
from geocaps.viewer import clouds
from geocaps.viewer.clouds import (
    MAX_UPLOAD_BYTES,
    SHOWN_POINTS,
    by_name,
    check_upload,
    embedded_cloud,
    embedded_names,
    file_cloud,
    shown_cloud,
    uploaded_cloud,
)


def ply(tmp_path: Path, points: np.ndarray) -> bytes:
    save_points(tmp_path / "made.ply", points)
    return (tmp_path / "made.ply").read_bytes()


def test_every_embedded_object_is_in_the_list_once_and_can_be_opened():
    names = embedded_names()
    assert len(names) == len(set(names)) == 23 * 3 + 175
    for name in (names[0], "mug 2", names[-1]):
        assert embedded_cloud(name, 16).points.shape == (2048, 3)
    with pytest.raises(InvalidInputError, match="no embedded object 'unicorn 1'"):
        embedded_cloud("unicorn 1", 16)


def test_an_upload_is_read_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    points = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    cloud = uploaded_cloud("../../etc/my cloud.ply", ply(tmp_path, points), 16)
    assert cloud.name == "my cloud.ply"
    assert cloud.total == 100
    np.testing.assert_array_equal(cloud.points, points)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.ply", "temporary"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("broken.ply", b"ply\nnot really", "broken.ply"),
        ("empty.obj", b"", "empty.obj is empty"),
        ("script.py", b"print(1)", "script.py has '.py', which is not read: expected one of .csv"),
        ("nothing", b"1 2 3", "nothing has no suffix"),
        ("few.xyz", b"0 0 0\n1 1 1\n", "few.xyz has 2 points; at least 16"),
        ("<img src=x onerror=alert(1)>.ply", b"x", "_img src_x onerror_alert(1)_.ply"),
    ],
)
def test_a_bad_upload_gets_one_sentence_with_its_own_name(name, content, sentence):
    with pytest.raises(GeocapsError) as caught:
        uploaded_cloud(name, content, 16)
    assert sentence in str(caught.value)
    assert tempfile.gettempdir() not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_uploads_are_bounded(tmp_path, monkeypatch):
    check_upload("a.ply", MAX_UPLOAD_BYTES)
    with pytest.raises(InvalidInputError, match=r"a.ply has 33,554,433 bytes; the page takes 33,554,432"):
        check_upload("a.ply", MAX_UPLOAD_BYTES + 1)
    with pytest.raises(FileFormatError, match="is not read"):
        check_upload("a.exe", 1)
    monkeypatch.setattr(clouds, "MAX_UPLOAD_POINTS", 50)
    with pytest.raises(InvalidInputError, match=r"a.ply has 51 points; the page takes 50"):
        uploaded_cloud("a.ply", ply(tmp_path, np.random.default_rng(0).normal(size=(51, 3))), 16)


def test_a_large_cloud_is_thinned_the_same_way_when_turned(tmp_path):
    points = np.random.default_rng(0).normal(size=(10_000, 3))
    quarter = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])
    one, other = shown_cloud("a", points, 16), shown_cloud("b", points @ quarter.T, 16)
    assert one.total == 10_000
    assert len(one.points) == SHOWN_POINTS
    np.testing.assert_allclose(one.points @ quarter.T, other.points)
    np.save(tmp_path / "points.npy", points)
    np.testing.assert_allclose(file_cloud(tmp_path / "points.npy", 16).points, one.points, atol=1e-6)


def test_files_of_one_name_keep_apart():
    cloud = shown_cloud("scan.ply", np.random.default_rng(0).normal(size=(20, 3)), 16)
    named = by_name([cloud, cloud, cloud])
    assert list(named) == ["scan.ply", "scan.ply (2)", "scan.ply (3)"]
    assert [one.name for one in named.values()] == list(named)
