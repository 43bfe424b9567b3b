"""``geocaps parts`` as a user calls it."""

import json

import numpy as np
import pytest
import torch
import trimesh

from geocaps.data.synthetic import make_shape
from tests.cli.command import command

call = command("parts")

GREY = (153, 153, 153)


@pytest.fixture
def chair(tmp_path):
    np.save(tmp_path / "chair.npy", make_shape("chair", 3).sample(400, torch.Generator().manual_seed(0)).points.numpy())
    return tmp_path / "chair.npy"


def test_files_and_json(capsys, chair, tmp_path):
    targets = {"out": "parts.ply", "surfaces": "surfaces.glb", "png": "parts.png"}
    options = [item for name, file in targets.items() for item in (f"--{name}", tmp_path / file)]
    code, out, err = call(capsys, chair, *options, "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert {name: record[name] for name in targets} == {name: str(tmp_path / file) for name, file in targets.items()}
    assert record["points"] == sum(part["points"] for part in record["parts"]) + record["stray"] == 400
    cloud = trimesh.load(tmp_path / "parts.ply")
    assert len(cloud.vertices) == 400
    colors = {tuple(part["color"]) for part in record["parts"] if part["points"]}
    colors |= {GREY} if record["stray"] else set()
    assert {tuple(row) for row in cloud.colors[:, :3].tolist()} == colors
    meshes = trimesh.load_scene(tmp_path / "surfaces.glb").geometry
    assert len(meshes) == len(record["parts"])
    assert all(len(mesh.vertices) <= record["surface_points"] for mesh in meshes.values())
    for part in record["parts"]:
        assert len(part["feature"]) == record["feature_size"]
        assert np.linalg.norm(part["wxyz"]) == pytest.approx(1)
    assert (tmp_path / "parts.png").read_bytes().startswith(b"\x89PNG")


def test_strays_are_counted_and_grey(capsys, chair, tmp_path):
    strays = np.random.default_rng(0).uniform(-3, 3, (20, 3))
    np.savetxt(tmp_path / "scan.xyz", np.concatenate([np.load(chair), strays]))
    for options in ((), ("--canonical",)):
        target = tmp_path / "parts.ply"
        code, out, err = call(capsys, tmp_path / "scan.xyz", "--out", target, *options, "--json")
        assert (code, err) == (0, "")
        record = json.loads(out)
        counted = "canonical_points" if options else "points"
        assert record["canonical"] == bool(options)
        assert record["stray"] >= 15
        assert sum(part[counted] for part in record["parts"]) + record["stray"] == record["points"] == 420
        cloud = trimesh.load(target)
        labels = cloud.metadata["_ply_raw"]["vertex"]["data"]["label"].ravel()
        np.testing.assert_array_equal(
            np.bincount(labels[labels >= 0], minlength=len(record["parts"])),
            [part[counted] for part in record["parts"]],
        )
        assert {tuple(row) for row in cloud.colors[labels == -1, :3].tolist()} == {GREY}
        code, out, _ = call(capsys, tmp_path / "scan.xyz", "--png", tmp_path / "parts.png", *options)
        assert code == 0
        assert f"{record['stray']} stray" in out


def test_a_mesh_in_the_colours_of_the_objects_own_parts(capsys, tmp_path):
    trimesh.creation.box((2, 1, 0.4)).subdivide().export(tmp_path / "box.obj")
    code, _, err = call(capsys, tmp_path / "box.obj", "--out", tmp_path / "parts.glb", "--canonical")
    assert (code, err) == (0, "")
    assert sum(len(mesh.faces) for mesh in trimesh.load_scene(tmp_path / "parts.glb").geometry.values()) == 48


def test_for_people(capsys, chair, tmp_path):
    code, out, err = call(capsys, chair, "--out", tmp_path / "parts.glb")
    assert (code, err) == (0, "")
    assert "400 points in" in out
    assert f"wrote {tmp_path / 'parts.glb'}" in out


def test_failures_are_one_sentence_and_write_nothing(capsys, chair, tmp_path):
    cloud = tmp_path / "chair.xyz"
    np.savetxt(cloud, np.load(chair))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    same = tmp_path / "same.ply"
    for expected, args, sentence in (
        (1, (tmp_path / "missing.ply",), "missing.ply"),
        (1, (chair, "--weights", tmp_path / "nowhere"), "nowhere"),
        (2, (chair, "--out", tmp_path / "parts.npy"), "must end in"),
        (2, (chair, "--out", tmp_path / "parts.ply", "--surfaces", tmp_path / "parts.stl"), "must end in"),
        (2, (chair, "--png", tmp_path / "nowhere" / "parts.png"), "does not exist"),
        (2, (cloud, "--out", cloud), "it is an input"),
        (2, (chair, "--out", same, "--surfaces", same), "choose two different names"),
    ):
        code, out, err = call(capsys, *args)
        assert code == expected
        assert out == ""
        assert err.count("\n") == 1
        assert sentence in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_mesh_keeps_its_faces(capsys, tmp_path):
    trimesh.creation.box((2, 1, 0.4)).subdivide().export(tmp_path / "box.obj")
    code, out, err = call(capsys, tmp_path / "box.obj", "--out", tmp_path / "parts.ply", "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["faces"] == sum(part["faces"] for part in record["parts"]) == 48
    mesh = trimesh.load(tmp_path / "parts.ply")
    assert len(mesh.faces) == 48
    colors = {tuple(part["color"]) for part in record["parts"] if part["faces"]}
    assert {tuple(row) for row in mesh.visual.face_colors[:, :3].tolist()} == colors
    assert call(capsys, tmp_path / "box.obj", "--out", tmp_path / "parts.glb")[0] == 0
    np.savetxt(tmp_path / "cloud.xyz", mesh.sample(100))
    code, out, err = call(capsys, tmp_path / "cloud.xyz", "--out", tmp_path / "cloud_parts.obj")
    assert (code, out) == (2, "")
    assert "must end in" in err
