"""``geocaps scene`` as a user calls it."""

import json

import numpy as np
import pytest
import torch

from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape
from geocaps.io import load_points, save_points
from tests.cli.command import command

call = command("scene")


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    path = tmp_path_factory.mktemp("scene") / "scan.ply"
    shapes = [make_shape("car", 1), make_shape("toilet", 2)]
    save_points(path, compose(shapes, torch.Generator().manual_seed(7), points=5000).points)
    return path


@pytest.mark.slow
def test_files_and_json(capsys, scan, tmp_path):
    out = tmp_path / "scene"
    code, text, err = call(capsys, scan, "--out", out, "--json")
    assert code == 0, err
    record = json.loads(text)
    assert len(record["objects"]) == 2
    assert len(record["planes"]) == 1
    assert json.loads((out / "scene.json").read_text()) == record
    names = {path.name for path in out.iterdir()}
    assert names == {"scene.json", "labels.ply"} | {f"object_{i}{end}.ply" for i in (0, 1) for end in ("", "_whole")}
    labels = load_points(out / "labels.ply").labels
    assert labels is not None
    assert [int((labels == i).sum()) for i in (0, 1)] == [one["points"] for one in record["objects"]]


def test_a_plane_alone(capsys, tmp_path):
    flat = np.random.default_rng(0).uniform(-1, 1, (3000, 3)) * [1, 1, 0]
    save_points(tmp_path / "flat.ply", flat)
    assert call(capsys, tmp_path / "flat.ply") == (0, "0 objects, 1 supporting plane\n", "")


def test_a_folder_that_cannot_be(capsys, scan, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out, sentence in ((tmp_path / "file", "not a folder"), (tmp_path / "none" / "scene", "does not exist")):
        code, text, err = call(capsys, scan, "--out", out)
        assert (code, text) == (2, "")
        assert sentence in err
