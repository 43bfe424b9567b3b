"""``geocaps index`` as a user calls it: what it prints where, the picture it writes, and its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from geocaps import cli
from geocaps.data.synthetic import make_shape
from geocaps.geometry.se3 import Pose
from geocaps.io import load_points, save_points
from tests.cli.command import command

call = command("index")

TURN = Pose(torch.tensor([1.0, -2.0, 3.0]).double(), torch.tensor([0.5, -0.5, 0.5, 0.5]).double())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cli") / "objects"
    for name in ("chair", "lamp"):
        (place / name).mkdir(parents=True)
        for seed in range(2):
            points = make_shape(name, seed).sample(1024, torch.Generator().manual_seed(seed)).points
            save_points(place / name / f"{seed}.ply", points.numpy())
    (place / "broken.stl").write_bytes(b"solid nothing")
    save_points(place.parent / "query.npy", TURN.apply(torch.from_numpy(_chair(place)).double()).numpy())
    return place


@pytest.fixture(scope="module")
def index(folder):
    where = folder.parent / "shapes.lance"
    assert cli.run(["index", "add", str(where), str(folder)]) == 0
    return where


def _chair(folder):
    return load_points(folder / "chair" / "1.ply").points


def test_add_says_what_was_done_and_adds_nothing_twice(capsys, folder, index):
    code, out, err = call(capsys, "add", index, folder)
    assert (code, err) == (0, "")
    assert "0 added, 4 already there, 1 skipped" in out
    assert "broken.stl" in out
    code, out, _ = call(capsys, "add", index, folder / "chair" / "0.ply", folder / "lamp", "--json")
    record = json.loads(out)
    assert code == 0
    assert (record["objects"], record["added"], record["known"], record["skipped"]) == (4, 0, 3, [])


def test_search_for_people_and_as_json(capsys, folder, index, tmp_path):
    query = folder.parent / "query.npy"
    code, out, err = call(capsys, "search", index, query, "--k", 2, "--out", tmp_path / "hits.png")
    assert (code, err) == (0, "")
    assert out.startswith("2 hits for")
    assert "chair/1.ply" in out.splitlines()[2]
    assert str(tmp_path / "hits.png") in out
    assert (tmp_path / "hits.png").read_bytes().startswith(b"\x89PNG")

    record = json.loads(call(capsys, "search", index, query, "--json")[1])
    assert len(record["hits"]) == 4
    best = record["hits"][0]
    assert (best["name"], best["class"], best["path"]) == ("chair/1.ply", "chair", str(folder / "chair" / "1.ply"))
    assert best["scale"] == pytest.approx(1, rel=1e-3)
    matrix = np.array(best["matrix"])
    np.testing.assert_allclose(_chair(folder) @ matrix[:3, :3].T + matrix[:3, 3], load_points(query).points, atol=5e-3)
    assert best["error"] < 1e-3
    assert best["confidence"] > 0.9
    np.testing.assert_allclose(np.array(best["T_object_scan"]) @ matrix, np.eye(4), atol=1e-6)
    assert record["found"]

    lamps = json.loads(call(capsys, "search", index, query, "--class", "lamp", "--verify", 0, "--json")[1])["hits"]
    assert [hit["class"] for hit in lamps] == ["lamp", "lamp"]
    assert [hit["confidence"] for hit in lamps] == [None, None]
    zeros = json.loads(call(capsys, "search", index, query, "--path", "*/0.ply", "--json")[1])["hits"]
    assert {hit["name"] for hit in zeros} == {"chair/0.ply", "lamp/0.ply"}


def test_a_part_of_an_object_is_found_in_its_true_size(capsys, index, tmp_path):
    points = make_shape("chair", 1).sample(1024, torch.Generator().manual_seed(77)).points.double()
    crop = points[(points @ torch.tensor([1.0, 0.5, 0.2]).double()).argsort()[:700]]
    save_points(tmp_path / "crop.npy", TURN.apply(crop).numpy())
    record = json.loads(call(capsys, "search", index, tmp_path / "crop.npy", "--json")[1])
    best = record["hits"][0]
    assert (record["found"], best["name"], best["scale"]) == (True, "chair/1.ply", pytest.approx(1))
    assert best["overlap"][0] > 0.9
    matrix = np.array(best["T_object_scan"])
    found = TURN.apply(crop).numpy() @ matrix[:3, :3].T + matrix[:3, 3]
    assert np.linalg.norm(found - crop.numpy(), axis=1).mean() < 0.05


def test_info_and_remove(capsys, folder, tmp_path):
    where = tmp_path / "i.lance"
    call(capsys, "add", where, folder / "chair", "--class", "seat")
    code, out, _ = call(capsys, "info", where)
    assert code == 0
    assert "2 objects, 1 classes" in out
    record = json.loads(call(capsys, "info", where, "--json")[1])
    assert record["classes"] == {"seat": 2}
    assert record["approximate"] is False
    assert "1 removed, 1 left" in call(capsys, "remove", where, "--path", "*/0.ply")[1]
    record = json.loads(call(capsys, "remove", where, "--class", "seat", "--json")[1])
    assert (record["removed"], record["objects"]) == (1, 0)


def test_failures_are_one_sentence(capsys, folder, index, tmp_path):
    query = folder.parent / "query.npy"
    bad = tmp_path / "bad"
    bad.mkdir()
    for name in ("a.ply", "b.ply"):
        (bad / name).write_text(f"{name} is no cloud")
    for code, args, sentence in (
        (1, ("search", tmp_path / "missing.lance", query), "there is no index at"),
        (1, ("search", index, tmp_path / "missing.ply"), "missing.ply"),
        (2, ("search", index, query, "--out", tmp_path / "hits.jpg"), "must end in .png"),
        (2, ("add", index), "nothing to add to"),
        (1, ("add", index, bad / "a.ply"), "as PLY"),
        (1, ("add", index, bad), "none of the 2 objects could be added"),
        (1, ("info", folder), "holds no index"),
        (1, ("add", index, tmp_path / "nothing"), "does not exist"),
        (2, ("search", index, query, "--k", 0), "--k must be at least 1"),
        (2, ("remove", index), "nothing to remove: give --class"),
    ):
        found, out, err = call(capsys, *args)
        assert (found, out) == (code, "")
        assert err.count("\n") == 1
        assert sentence in err
    assert not (tmp_path / "missing.lance").exists()
