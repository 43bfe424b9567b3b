"""``geocaps info`` as a user calls it."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
import trimesh

import geocaps
from geocaps.io import save_points
from tests.cli.command import command

call = command("info")

SHIPPED = Path(geocaps.__file__).parent / "weights" / "default"


def test_without_a_word_the_environment_and_the_shipped_weights(capsys):
    code, out, err = call(capsys)
    sha256 = hashlib.sha256((SHIPPED / "model.safetensors").read_bytes()).hexdigest()
    assert (code, err) == (0, "")
    for word in (f"geocaps      {geocaps.__version__}", torch.__version__, "extra        las", sha256, "32 parts"):
        assert word in out
    assert (SHIPPED / "card.md").read_text().splitlines()[0] in out


def test_json_of_a_checkpoint_folder(capsys):
    code, out, _ = call(capsys, SHIPPED, "--json")
    record = json.loads(out)
    assert code == 0
    assert record["weights"]["bytes"] == (SHIPPED / "model.safetensors").stat().st_size
    assert record["weights"]["config"] == json.loads((SHIPPED / "config.json").read_text())["model"]
    assert record["weights"]["parameters"] == sum(t.numel() for t in geocaps.load().network.state_dict().values())
    assert record["environment"]["torch"] == torch.__version__
    assert record["environment"]["extras"]["las"]["laspy"] == metadata.version("laspy")


def test_an_extra_that_is_not_installed_says_how_to_get_it(capsys, monkeypatch):
    def nothing_but_geocaps(name):
        if name != "geocaps":
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", nothing_but_geocaps)
    assert "not installed (laspy):  pip install '.[las]'" in call(capsys)[1]


def test_a_cloud_a_mesh_and_a_data_set(capsys, tmp_path):
    corners = np.array([[0, 0, 0], [1, 2, 3], [-1, 0.5, 0]])
    save_points(tmp_path / "cloud.xyz", corners)
    trimesh.creation.box((2, 4, 6)).export(tmp_path / "box.stl")
    np.savez(tmp_path / "set.npz", points=np.stack([corners, corners + 1]))
    np.savez(tmp_path / "single.npz", points=corners)
    for name, expected in {
        "cloud.xyz": {"kind": "cloud", "format": "XYZ", "points": 3, "objects": 1, "highest": [1, 2, 3]},
        "box.stl": {"kind": "mesh", "faces": 12, "lowest": [-1, -2, -3], "highest": [1, 2, 3]},
        "set.npz": {"kind": "data set", "objects": 2, "points": 3, "lowest": [-1, 0, 0]},
        "single.npz": {"kind": "cloud", "objects": 1, "points": 3},
    }.items():
        code, out, _ = call(capsys, tmp_path / name, "--json")
        assert code == 0
        assert expected.items() <= json.loads(out)["file"].items()
        assert "bounds       (-1, " in call(capsys, tmp_path / name)[1]


def test_what_cannot_be_read_is_one_sentence(capsys, tmp_path):
    (tmp_path / "bad.ply").write_text("no")
    np.savez(tmp_path / "neither.npz", points=np.zeros((2, 5, 7)))
    for name, sentence in (
        ("bad.ply", "as PLY"),
        ("neither.npz", "nor is it a data set"),
        ("missing.ply", "does not exist"),
        ("", "config.json"),
    ):
        code, out, err = call(capsys, tmp_path / name)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert sentence in err


def test_a_file_that_does_not_open_is_said_once(capsys, tmp_path):
    for name in ("cut.npz", "cut.h5"):
        (tmp_path / name).write_text("no")
        code, _, err = call(capsys, tmp_path / name)
        assert code == 1
        assert err.count(name) == 1


def test_damaged_weights_are_not_described_as_sound(capsys, tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "w")
    weights = tmp_path / "w" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, out, err = call(capsys, tmp_path / "w")
    assert (code, out) == (1, "")
    assert f"{weights} is not a valid safetensors file" in err


def test_a_folder_of_clouds_is_sent_to_data_info(capsys, tmp_path):
    code, _, err = call(capsys, tmp_path)
    assert code == 1
    assert f"geocaps data info {tmp_path}" in err
