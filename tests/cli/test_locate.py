"""``geocaps locate`` as a user calls it."""

import json

import numpy as np
import pytest
import torch

from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape
from geocaps.io import load_points, save_points
from tests.cli.command import command

call = command("locate")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locate")
    mug, guitar = make_shape("mug", 3), make_shape("guitar", 5)
    made = compose([mug, make_shape("car", 1)], torch.Generator().manual_seed(4), points=12000, sizes={id(mug): 0.9})
    save_points(folder / "scan.pcd", made.points)
    save_points(folder / "mug.ply", made.members[0].model(20000))
    save_points(folder / "guitar.ply", guitar.sample(20000, torch.Generator().manual_seed(0)).points.numpy())
    return folder, made


def test_json_and_files(capsys, place, tmp_path):
    folder, made = place
    out = tmp_path / "finds.json"
    code, text, err = call(capsys, folder / "mug.ply", folder / "scan.pcd", "--out", out, "--json", "--viewer", 0, 0, 0)
    assert code == 0, err
    record = json.loads(text)
    assert record["out"] == str(out)
    assert json.loads(out.read_text())["finds"] == record["finds"]
    (find,) = record["finds"]
    assert np.allclose(find["translation"], made.members[0].pose.translation, atol=0.1)
    assert set(find) == {"matrix", "translation", "wxyz", "confidence", "explained", "visible"}


def test_placed_instances(capsys, place, tmp_path):
    folder, made = place
    code, text, err = call(capsys, folder / "mug.ply", folder / "scan.pcd", "--out", tmp_path / "placed.ply")
    assert code == 0, err
    assert "1 found" in text
    assert "placed.ply" in text
    placed = load_points(tmp_path / "placed.ply").points
    assert np.allclose(placed.mean(axis=0), made.members[0].pose.translation, atol=0.15)


def test_none_is_an_answer(capsys, place, tmp_path):
    folder, _ = place
    code, text, err = call(capsys, folder / "guitar.ply", folder / "scan.pcd", "--out", tmp_path / "placed.ply")
    assert (code, text, err) == (0, "none found\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_cloud_cannot_be_written_as_a_mesh(capsys, place, tmp_path):
    folder, _ = place
    code, out, err = call(capsys, folder / "mug.ply", folder / "scan.pcd", "--out", tmp_path / "placed.stl")
    assert (code, out) == (2, "")
    assert "cloud without faces" in err
