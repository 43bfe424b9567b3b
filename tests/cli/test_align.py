"""``geocaps align`` as a user calls it: what it prints where, the file it writes, and its exit codes."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import trimesh

from geocaps import cli
from geocaps.data.synthetic import make_shape
from geocaps.geometry.se3 import Pose
from geocaps.io import load_points, save_points
from tests.basic_shapes import basic_shape
from tests.cli.command import command

call = command("align")

TRUTH = Pose(torch.tensor([1.0, -2.0, 3.0]).double(), torch.tensor([0.5, -0.5, 0.5, 0.5]).double())


@pytest.fixture
def chairs(tmp_path):
    points = make_shape("chair", 3).sample(800, torch.Generator().manual_seed(0)).points.double()
    return written(tmp_path, points)


def written(folder, points):
    a, b = folder / "a.ply", folder / "b.npy"
    save_points(a, points.numpy())
    save_points(b, TRUTH.apply(points).numpy())
    return str(a), str(b)


def test_for_people(capsys, chairs):
    code, out, err = call(capsys, *chairs)
    assert code == 0
    assert err == ""
    matrix = np.array([line.split() for line in out.splitlines()[1:5]], dtype=float)
    np.testing.assert_allclose(matrix, TRUTH.matrix().numpy(), atol=1e-6)
    pose = re.search(r"translation \((.*)\)  wxyz \((.*)\)", out)
    np.testing.assert_allclose(np.fromstring(pose[1], sep=","), TRUTH.translation, atol=1e-6)
    np.testing.assert_allclose(np.fromstring(pose[2], sep=","), TRUTH.wxyz, atol=1e-6)
    for word in ("residual", "overlap", "confidence"):
        assert word in out
    assert "AMBIGUOUS" not in out


def test_json_is_one_object(capsys, chairs):
    code, out, _ = call(capsys, *chairs, "--json")
    record = json.loads(out)
    assert code == 0
    np.testing.assert_allclose(record["matrix"], TRUTH.matrix().numpy(), atol=1e-6)
    np.testing.assert_allclose(record["wxyz"], TRUTH.wxyz, atol=1e-6)
    np.testing.assert_allclose(record["translation"], TRUTH.translation, atol=1e-6)
    assert record["scale"] == 1
    assert record["confidence"] > 0.9
    assert record["ambiguous"] is False
    assert record["uncertain"] is False
    assert record["alternatives"] == []


def test_out_holds_a_in_the_frame_of_b(capsys, chairs, tmp_path):
    out_file = tmp_path / "aligned.ply"
    code, out, _ = call(capsys, *chairs, "--out", out_file)
    assert code == 0
    assert str(out_file) in out
    np.testing.assert_allclose(load_points(out_file).points, load_points(chairs[1]).points, atol=1e-6)


@pytest.fixture
def bracket(tmp_path):
    """A mesh and a scan of it, moved."""
    mesh = trimesh.util.concatenate(
        [trimesh.creation.box((2, 1, 0.2)), trimesh.creation.box((0.2, 0.3, 1)).apply_translation((0.9, 0.3, 0.5))]
    )
    mesh.export(tmp_path / "bracket.ply")
    save_points(tmp_path / "scan.npy", TRUTH.apply(torch.from_numpy(mesh.sample(1500, seed=3))).numpy())
    return mesh, str(tmp_path / "bracket.ply"), str(tmp_path / "scan.npy")


@pytest.mark.parametrize("suffix", [".ply", ".obj", ".stl", ".glb"])
def test_a_mesh_stays_a_mesh(capsys, bracket, tmp_path, suffix):
    mesh, *files = bracket
    code, out, _ = call(capsys, *files, "--out", tmp_path / f"laid{suffix}", "--json")
    assert code == 0
    laid = load_points(tmp_path / f"laid{suffix}")
    expected = trimesh.transform_points(mesh.triangles.reshape(-1, 3), np.array(json.loads(out)["matrix"]))
    np.testing.assert_allclose(laid.vertices[laid.faces].reshape(-1, 3), expected, atol=1e-5)
    assert trimesh.load(tmp_path / f"laid{suffix}", force="mesh").volume == pytest.approx(mesh.volume, rel=1e-5)


def test_points_of_a_mesh_go_to_formats_without_faces(capsys, bracket, tmp_path):
    assert call(capsys, *bracket[1:], "--out", tmp_path / "laid.xyz")[0] == 0
    assert len(load_points(tmp_path / "laid.xyz").points) == 4096


def test_a_cloud_has_no_faces_to_write(capsys, chairs, tmp_path):
    for suffix in (".obj", ".stl"):
        code, out, err = call(capsys, *chairs, "--out", tmp_path / f"laid{suffix}")
        assert (code, out) == (2, "")
        assert "without faces" in err
        assert not (tmp_path / f"laid{suffix}").exists()


def test_symmetry_is_said_aloud(capsys, tmp_path):
    brick = basic_shape("brick").sample(800, torch.Generator().manual_seed(0)).points.double()
    files = written(tmp_path, brick)
    code, out, _ = call(capsys, *files)
    assert code == 0
    assert "AMBIGUOUS" in out
    assert "alternatives" in out
    record = json.loads(call(capsys, *files, "--json")[1])
    assert record["ambiguous"] is True
    assert len(record["alternatives"]) == 3


def test_little_overlap_is_said_aloud(capsys, chairs, tmp_path):
    save_points(tmp_path / "mm.npy", 1000 * load_points(chairs[1]).points)
    code, out, _ = call(capsys, chairs[0], tmp_path / "mm.npy")
    assert code == 0
    assert "LITTLE OVERLAP" in out
    assert "LOW CONFIDENCE" in out
    assert json.loads(call(capsys, chairs[0], tmp_path / "mm.npy", "--json")[1])["uncertain"]
    assert "--scale" in out
    assert "LITTLE OVERLAP" not in call(capsys, *chairs)[1]


def test_scale_and_no_refine(capsys, chairs, tmp_path):
    inches = tmp_path / "inches.npy"
    save_points(inches, load_points(chairs[1]).points / 0.0254)
    code, out, _ = call(capsys, chairs[0], inches, "--scale", "--no-refine", "--json")
    assert code == 0
    assert json.loads(out)["scale"] == pytest.approx(1 / 0.0254, rel=0.01)
    assert "scale        39.3" in call(capsys, chairs[0], inches, "--scale")[1]


def test_a_guess_and_a_picture(capsys, chairs, tmp_path):
    np.savetxt(tmp_path / "guess.txt", TRUTH.matrix().numpy())
    code, out, _ = call(capsys, *chairs, "--init", tmp_path / "guess.txt", "--png", tmp_path / "overlay.png", "--json")
    assert code == 0
    np.testing.assert_allclose(json.loads(out)["matrix"], TRUTH.matrix().numpy(), atol=1e-6)
    assert (tmp_path / "overlay.png").read_bytes().startswith(b"\x89PNG")
    for text, sentence in (("1 2 3\n", "four lines of four numbers"), ("here\n", "cannot read the initial guess")):
        (tmp_path / "bad.txt").write_text(text)
        code, out, err = call(capsys, *chairs, "--init", tmp_path / "bad.txt")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert sentence in err


def test_the_deviation_from_a_mesh_has_a_sign_and_a_legend(capsys, bracket, tmp_path):
    """A scan that lies 0.02 outside of the bracket on its large top face, and on the surface elsewhere."""
    mesh, reference, _ = bracket
    points, face = trimesh.sample.sample_surface(mesh, 3000, seed=1)
    top = (mesh.face_normals[face][:, 2] > 0.9) & (points[:, 2] < 0.15) & (np.abs(points[:, 0]) < 0.7)
    points[top, 2] += 0.02
    save_points(tmp_path / "dented.npy", points)
    paths = tmp_path / "colours.ply", tmp_path / "colours.png"
    args = (tmp_path / "dented.npy", reference, "--deviation", paths[0], "--png", paths[1])
    code, out, _ = call(capsys, *args, "--json")
    figures = json.loads(out)["deviation"]
    assert code == 0
    assert figures["signed"] is True
    assert figures["greatest"] == pytest.approx(0.02, abs=0.008)
    assert figures["mean"] > 0
    colours = trimesh.load(paths[0]).colors[:, :3].astype(int)
    assert (colours[top, 0] > colours[top, 2]).mean() > 0.95  # red: outside
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    cloud = call(capsys, reference, tmp_path / "dented.npy", "--deviation", tmp_path / "unsigned.ply")[1]
    assert "unsigned, because B has no faces" in cloud


def test_failures_are_one_sentence(capsys, chairs, tmp_path):
    save_points(tmp_path / "line.npy", np.linspace(0, 1, 30)[:, None] * np.ones((1, 3)))
    for args, sentence in (
        ((chairs[0], tmp_path / "missing.ply"), "missing.ply"),
        ((chairs[0], tmp_path / "line.npy"), "on one line"),
        (("", chairs[1]), "an empty name"),
    ):
        code, out, err = call(capsys, *args)
        assert code == 1
        assert out == ""
        assert err.count("\n") == 1
        assert sentence in err


def test_three_scans_become_one(capsys, chairs, tmp_path):
    points = load_points(chairs[0]).points
    save_points(tmp_path / "c.npy", points[:, [1, 2, 0]])
    code, out, _ = call(capsys, *chairs, tmp_path / "c.npy", "--out", tmp_path / "merged.ply", "--json")
    record = json.loads(out)
    assert code == 0
    np.testing.assert_allclose(record["clouds"][1]["matrix"], np.linalg.inv(TRUTH.matrix().numpy()), atol=1e-6)
    merged = load_points(tmp_path / "merged.ply").points.reshape(3, -1, 3)
    np.testing.assert_allclose(merged, np.broadcast_to(points, merged.shape), atol=1e-5)
    assert "merged.ply" in call(capsys, *chairs, tmp_path / "c.npy", "--out", tmp_path / "merged.ply")[1]
    assert call(capsys, *chairs, tmp_path / "c.npy", "--scale")[0] == 2


def test_a_wrong_call_exits_with_2(capsys, chairs):
    with pytest.raises(SystemExit) as exit_:
        cli.run(["align", chairs[0]])
    assert exit_.value.code == 2


def test_an_output_that_cannot_be_is_refused_before_the_work(capsys, chairs, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for out, sentence in (
        (tmp_path / "aligned.doc", "must end in"),
        (tmp_path / "nowhere" / "aligned.ply", "does not exist"),
        (chairs[0] + "/aligned.ply", "is not a folder"),
        (chairs[0], "it is an input"),
    ):
        code, printed, err = call(capsys, *chairs, "--out", out)
        assert (code, printed) == (2, "")
        assert err.count("\n") == 1
        assert sentence in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
