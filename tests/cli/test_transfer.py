"""``geocaps transfer`` as a user calls it."""

import json

import numpy as np
import pytest
import torch

from geocaps.data.synthetic import make_shape
from geocaps.io import load_points, save_points
from tests.cli.command import command

call = command("transfer")


@pytest.fixture
def place(tmp_path):
    """One mug with labels, two without, and a file that cannot be read."""
    (tmp_path / "mugs").mkdir()
    for seed in (1, 2, 3):
        sample = make_shape("mug", seed).sample(600, torch.Generator().manual_seed(seed))
        if seed == 1:
            save_points(tmp_path / "labelled.ply", sample.points.numpy(), labels=sample.part_labels.numpy())
        else:
            save_points(tmp_path / "mugs" / f"{seed}.ply", sample.points.numpy()[:, [1, 2, 0]])
    (tmp_path / "mugs" / "bad.ply").write_text("no")
    return tmp_path


def test_files_and_json(capsys, place):
    out, png = place / "out", place / "all.png"
    code, text, err = call(capsys, place / "labelled.ply", place / "mugs", "--out", out, "--png", png, "--json")
    assert code == 0, err
    assert "bad.ply" in err
    record = json.loads(text)
    assert [one["file"] for one in record["objects"]] == [str(place / "mugs" / f"{seed}.ply") for seed in (2, 3)]
    assert [one["file"] for one in record["skipped"]] == [str(place / "mugs" / "bad.ply")]
    for one in record["objects"]:
        written = load_points(one["out"])
        names, counts = np.unique(written.labels, return_counts=True)
        assert one["labels"] == {str(name): count for name, count in zip(names, counts.tolist(), strict=True)}
        assert sum(one["labels"].values()) == one["points"] == 600
        assert 0 < one["confidence"] <= 1
        assert one["source"] == str(place / "labelled.ply")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_for_people(capsys, place):
    code, out, err = call(capsys, place / "labelled.ply", place / "mugs" / "2.ply")
    assert (code, err) == (0, "")
    assert "1 objects" in out
    assert "600" in out


def test_failures_are_one_sentence_and_write_nothing(capsys, place):
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    target = place / "mugs" / "2.ply"
    for expected, args, sentence in (
        (1, (target, place / "labelled.ply"), "has no labels"),
        (1, (place / "missing.ply", target), "missing.ply"),
        (1, (place / "labelled.ply", place / "mugs" / "bad.ply"), "bad.ply"),
        (2, (place / "labelled.ply", target, "--out", place / "out", "--suffix", ".stl"), "cannot hold labels"),
        (2, (place / "labelled.ply", target, "--png", place / "all.jpg"), "must end in"),
    ):
        code, out, err = call(capsys, *args)
        assert code == expected, err
        assert out == ""
        assert err.count("\n") == 1
        assert sentence in err
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
