"""``geocaps complete`` as a user calls it."""

import json

import numpy as np
import pytest
import torch

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.io import load_points, save_points
from tests.cli.command import command

call = command("complete")


@pytest.fixture
def scan(tmp_path):
    """A chair without its left third, in millimetres on a map."""
    points = make_shape("chair", 3).sample(600, torch.Generator().manual_seed(0)).points.numpy().astype(np.float64)
    points = points[points[:, 0] > np.quantile(points[:, 0], 1 / 3)]
    save_points(tmp_path / "scan.ply", points * 1000 + [5e5, 5.4e6, 120])
    return tmp_path / "scan.ply"


def test_files_and_json(capsys, scan, tmp_path):
    target, picture = tmp_path / "whole.ply", tmp_path / "both.png"
    code, out, err = call(capsys, scan, "--out", target, "--png", picture, "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    encoding = geocaps.load().encode(scan)
    written = load_points(target).points
    np.testing.assert_allclose(written, encoding.complete(), atol=1e-6)
    assert record["name"] == str(scan)
    assert (record["given"], record["points"]) == (400, len(written))
    assert record["radius"] == encoding.radius
    assert record["center"] == encoding.pose.translation.tolist()
    assert record["confidence"] == encoding.confidence
    assert (record["out"], record["png"]) == (str(target), str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    # In the scan's own coordinates: the whole object is about where the scan is, and about as large.
    assert np.linalg.norm(written.mean(axis=0) - encoding.cloud.points.mean(axis=0)) < 2000
    assert 200 < record["radius"] < 4000


def test_for_people(capsys, scan, tmp_path):
    code, out, err = call(capsys, scan, "--out", tmp_path / "whole.xyz")
    assert (code, err) == (0, "")
    assert "400 points completed to" in out
    assert "radius" in out
    assert f"wrote        {tmp_path / 'whole.xyz'}" in out


def test_failures_are_one_sentence_and_write_nothing(capsys, scan, tmp_path):
    np.savetxt(tmp_path / "line.xyz", np.linspace(0, 1, 64)[:, None] * [1.0, 2, 3])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    whole = tmp_path / "whole.ply"
    for expected, args, sentence in (
        (1, (tmp_path / "missing.ply", "--out", whole), "missing.ply"),
        (1, (tmp_path / "line.xyz", "--out", whole), "lie on one line"),
        (1, (scan, "--out", whole, "--weights", tmp_path / "nowhere"), "nowhere"),
        (2, (scan, "--out", tmp_path / "whole.stl"), "must end in"),
        (2, (scan, "--out", whole, "--png", tmp_path / "both.jpg"), "must end in"),
        (2, (scan, "--out", scan), "it is an input"),
    ):
        code, out, err = call(capsys, *args)
        assert code == expected, err
        assert out == ""
        assert err.count("\n") == 1
        assert sentence in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
