"""``geocaps canonical`` as a user calls it: files, folders, bad ones, one picture."""

import json

import numpy as np
import pytest
import torch
import trimesh

from geocaps.data.synthetic import make_shape
from geocaps.geometry.se3 import Pose
from geocaps.io import load_points
from tests.cli.command import command

call = command("canonical")


@pytest.fixture
def folder(tmp_path):
    """Two clouds in class folders, a mesh at the top, a file that is no PLY."""
    place = tmp_path / "objects"
    for name in ("chair", "mug"):
        (place / name).mkdir(parents=True)
        points = make_shape(name, 3).sample(400, torch.Generator().manual_seed(0)).points.numpy()
        np.save(place / name / "one.npy", points)
    trimesh.creation.box((2, 1, 0.4)).export(place / "box.obj")
    (place / "bad.ply").write_text("nonsense")
    return place


def test_a_folder_with_a_bad_file(capsys, folder, tmp_path):
    out, png = tmp_path / "out", tmp_path / "side.png"
    code, text, err = call(capsys, folder, "--out", out, "--png", png, "--json")
    assert code == 0
    record = json.loads(text)
    assert [one["file"] for one in record["skipped"]] == [str(folder / "bad.ply")]
    assert "bad.ply" in record["skipped"][0]["reason"]
    assert "bad.ply" in err
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*.*")) == ["box.ply", "chair/one.ply", "mug/one.ply"]
    assert png.read_bytes().startswith(b"\x89PNG")
    for one in record["objects"]:
        pose = Pose(torch.tensor(one["translation"]).double(), torch.tensor(one["wxyz"]).double())
        given = load_points(one["file"])
        written = load_points(one["out"])
        if given.faces is None:
            np.testing.assert_allclose(written.points, pose.observe(torch.tensor(given.points).double()), atol=1e-6)
        else:
            moved = pose.observe(torch.tensor(given.vertices).double()).numpy()
            np.testing.assert_allclose(written.vertices[written.faces], moved[given.faces], atol=1e-6)


def test_symmetry_is_said_aloud(capsys, folder):
    code, out, _ = call(capsys, folder / "box.obj")
    assert code == 0
    assert "AMBIGUOUS" in out
    record = json.loads(call(capsys, folder / "box.obj", "--json")[1])["objects"][0]
    assert record["ambiguous"]
    assert record["alternatives"]
    assert record["out"] is None


def test_other_formats(capsys, folder, tmp_path):
    assert call(capsys, folder / "box.obj", "--out", tmp_path / "out", "--suffix", ".glb")[0] == 0
    assert load_points(tmp_path / "out" / "box.glb").faces is not None
    assert call(capsys, folder / "box.obj", "--out", tmp_path / "out", "--suffix", ".npy")[0] == 0
    assert load_points(tmp_path / "out" / "box.npy").points.shape == (4096, 3)


def test_wrong_calls_exit_with_2_and_touch_nothing(capsys, folder, tmp_path):
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    chair = folder / "chair" / "one.npy"
    for args, sentence in (
        ((chair, "--out", chair.parent, "--suffix", ".npy"), "would replace the input"),
        ((chair, folder / "mug" / "one.npy", "--out", tmp_path / "out"), "would both be written"),
        ((chair, "--out", tmp_path / "out", "--suffix", ".doc"), "files of type .doc cannot be written"),
        ((chair, "--out", tmp_path / "file"), "is a file"),
        ((), "no files were given"),
    ):
        code, out, err = call(capsys, *args)
        assert (code, out) == (2, "")
        assert sentence in err
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_readable_fails(capsys, folder, tmp_path):
    code, out, err = call(capsys, folder / "bad.ply", tmp_path / "missing.ply", "--json")
    assert (code, out) == (1, "")
    assert "missing.ply" in err
    assert "none of the 2 files" in err


def test_an_empty_folder_is_one_sentence(capsys, tmp_path):
    code, out, err = call(capsys, tmp_path)
    assert (code, out) == (1, "")
    assert err == f"geocaps: {tmp_path}: no meshes or point clouds are in this folder\n"


def test_one_file_that_cannot_be_read_is_one_sentence(capsys, tmp_path):
    code, out, err = call(capsys, tmp_path / "missing.ply")
    assert (code, out) == (1, "")
    assert err == f"geocaps: {tmp_path / 'missing.ply'} does not exist: check the name and the folder\n"


def test_a_folder_that_cannot_be_made_is_one_sentence(capsys, folder, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, out, err = call(capsys, folder / "box.obj", "--out", tmp_path / "file" / "below")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"cannot make the folder {tmp_path / 'file' / 'below'}" in err
    assert (tmp_path / "file").read_text() == "mine"
