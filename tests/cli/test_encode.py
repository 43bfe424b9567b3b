"""``geocaps encode`` as a user calls it: what it prints where, the files it writes, and its exit codes."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch

import geocaps
from geocaps import cli
from geocaps.data.synthetic import make_shape
from geocaps.io import save_points
from tests.cli.command import command

call = command("encode")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("in")
    for seed in range(2):
        cloud = make_shape("mug", seed).sample(200, torch.Generator().manual_seed(seed)).points.numpy()
        save_points(place / f"{seed}.ply", cloud)
    (place / "bad [1].ply").write_text("no")
    return place


def test_for_people(capsys, folder, tmp_path):
    out_file = tmp_path / "out.npz"
    code, out, err = call(capsys, folder, "--out", out_file)
    assert (code, err) == (0, "")
    assert f"{out_file}: 2 objects" in out
    assert f"SKIPPED 1 that could not be encoded; full list: {out_file}.failed.json" in out
    assert "bad [1].ply" in out
    assert np.load(out_file)["name"].tolist() == ["0.ply", "1.ply"]


def test_json_is_one_object(capsys, folder, tmp_path):
    out_file = tmp_path / "out.parquet"
    code, out, _ = call(capsys, folder / "0.ply", folder / "bad [1].ply", "--out", out_file, "--json")
    record = json.loads(out)
    assert code == 0
    assert record["out"] == str(out_file)
    assert record["objects"] == 1
    assert record["resumed"] == 0
    assert [one["name"] for one in record["failed"]] == ["bad [1].ply"]
    assert len(record["weights_sha256"]) == 64
    assert out_file.stat().st_size > 1000


def test_all_failed_exits_with_1_and_still_lists_them(capsys, folder, tmp_path):
    code, out, err = call(capsys, folder / "bad [1].ply", "--out", tmp_path / "out.npz", "--json")
    assert code == 1
    assert [one["name"] for one in json.loads(out)["failed"]] == ["bad [1].ply"]
    assert err.count("\n") == 1
    assert "out.npz is not written" in err
    code, out, _ = call(capsys, folder / "bad [1].ply", "--out", tmp_path / "out.npz")
    assert code == 1
    assert "bad [1].ply" in out
    assert os.listdir(tmp_path) == ["out.npz.failed.json"]


def test_a_wrong_call_exits_with_2(capsys, folder, tmp_path):
    (tmp_path / "there.npz").write_bytes(b"kept")
    for out_file, sentence in ((tmp_path / "out.csv", ".npz or .parquet"), (tmp_path / "there.npz", "--overwrite")):
        code, out, err = call(capsys, folder, "--out", out_file)
        assert (code, out) == (2, "")
        assert sentence in err
    assert (tmp_path / "there.npz").read_bytes() == b"kept"
    code, _, err = call(capsys, "--out", tmp_path / "out.npz")
    assert code == 2
    assert "no sources, or an empty name, were given" in err
    with pytest.raises(SystemExit) as exit_:
        cli.run(["encode", str(folder)])
    assert exit_.value.code == 2


def test_other_weights(capsys, folder, tmp_path):
    shipped = os.path.join(os.path.dirname(geocaps.__file__), "weights", "default")
    args = (folder / "0.ply", "--weights", shipped)
    assert call(capsys, *args, "--out", tmp_path / "a.npz")[0] == 0
    assert call(capsys, folder / "0.ply", "--out", tmp_path / "b.npz", "--overwrite")[0] == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    code, _, err = call(capsys, folder, "--weights", tmp_path, "--out", tmp_path / "c.npz")
    assert code == 1
    assert "model.safetensors" in err
