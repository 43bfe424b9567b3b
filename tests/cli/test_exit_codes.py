"""The same mistake gets the same exit code in every command: 1 where the work fails on what it is given, 2 where the
call itself is wrong; said on standard error, with nothing on standard output and nothing written."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from geocaps import cli
from geocaps.io import save_points

INPUTS = [
    "align {} good.ply",
    "align good.ply {}",
    "canonical {}",
    "locate {} good.ply",
    "scene {}",
    "locate good.ply {}",
    "complete {} --out new.ply",
    "parts {}",
    "transfer {} good.ply",
    "transfer labelled.ply {}",
    "track {} set --out new.jsonl",
    "encode {} --out new.npz",
    "info {}",
    "view {} --out new.html",
    "index add new.lance {}",
    "data info {}",
    "data pack {} --out new.npz",
    "eval --data {}",
    "train --data {} --out new",
]
WEIGHTS = [
    "canonical good.ply --weights {}",
    "scene good.ply --weights {}",
    "complete good.ply --out new.ply --weights {}",
    "parts good.ply --weights {}",
    "transfer labelled.ply good.ply --weights {}",
    "track good.ply set --weights {}",
    "encode good.ply --out new.npz --weights {}",
    "export --out new.onnx --weights {}",
    "index add new.lance good.ply --weights {}",
    "index search new.lance good.ply --weights {}",
    "eval --data shapes --weights {}",
    "demo --out new --weights {}",
    "view good.ply --out new.html --weights {}",
    "view good.ply --export new.html --model {}",
    "info {}",
]
FILES = [
    ("align good.ply good.ply --out {}", ".ply"),
    ("canonical good.ply --png {}", ".png"),
    ("locate good.ply good.ply --out {}", ".json"),
    ("complete good.ply --out {}", ".ply"),
    ("complete good.ply --out new.ply --png {}", ".png"),
    ("parts good.ply --out {}", ".ply"),
    ("parts good.ply --surfaces {}", ".glb"),
    ("parts good.ply --png {}", ".png"),
    ("transfer labelled.ply good.ply --png {}", ".png"),
    ("track good.ply set --out {}", ".jsonl"),
    ("track good.ply set --png {}", ".png"),
    ("encode good.ply --out {}", ".npz"),
    ("export --out {}", ".onnx"),
    ("view good.ply --out {}", ".html"),
    ("index search new.lance good.ply --out {}", ".png"),
    ("data pack set --out {}", ".npz"),
]
FOLDERS = [
    "canonical good.ply --out {}",
    "scene good.ply --out {}",
    "transfer labelled.ply good.ply --out {}",
    "demo --out {}",
    "train --data set.npz --out {}",
    "eval --data shapes --report {}",
    "eval --table1 --budget 5s --out {}",
    "index add {} good.ply",
]
VALUES = [
    "align good.ply good.ply --no-such-option",
    "align good.ply",
    "canonical good.ply --out new --suffix .doc",
    "complete good.ply",
    "locate good.ply",
    "scene good.ply good.ply",
    "locate good.ply good.ply --viewer 1 2",
    "parts good.ply --out new.doc",
    "transfer labelled.ply",
    "transfer labelled.ply good.ply --out new --suffix .stl",
    "track good.ply good.ply set",
    "encode good.ply --out new.npz --workers 0",
    "info good.ply good.ply",
    "export --out new.onnx --points 0",
    "view good.ply --port 65536",
    "train --data set.npz --out new --batch 0",
    "train --data set.npz --out new --budget soon",
    "eval --data shapes --trials 0",
    "eval --data shapes --baselines none_such",
    "demo --out new --per-class 0",
    "bench --no-such-option",
    "index search new.lance good.ply --k 0",
    "index add new.lance",
    "index remove new.lance",
    "data pack set",
    "data pack set new.npz --out other.npz",
    "data pack set --out new.npz --points 0",
    "data download none_such",
    "none_such",
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with a good cloud, a bad one, a data set, and names that are taken."""
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(0).normal(size=(64, 3)) * [1, 0.5, 0.2]
    save_points("good.ply", points)
    save_points("labelled.ply", points, labels=np.arange(64) % 2)
    (tmp_path / "bad.ply").write_text("no")
    (tmp_path / "set").mkdir()
    save_points("set/one.ply", points)
    np.savez("set.npz", points=np.stack([points] * 4))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nothing").mkdir()
    return tmp_path


def check(capsys, place, line, code):
    before = sorted(place.rglob("*"))
    try:
        found = cli.run(shlex.split(line))
    except SystemExit as stop:  # tyro's own answer to a wrong call
        found = stop.code
    captured = capsys.readouterr()
    assert found == code, captured.err
    assert captured.err
    assert "Traceback" not in captured.err
    if not line.startswith(("encode", "index add")):  # they list what they left out, and keep it
        assert captured.out == ""
        assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("line", INPUTS)
@pytest.mark.parametrize("name", ["missing.ply", "bad.ply", "nothing"])
def test_what_cannot_be_read_is_1(capsys, place, line, name):
    check(capsys, place, line.format(name), 1)


@pytest.mark.parametrize("line", WEIGHTS)
@pytest.mark.parametrize("name", ["missing", "nothing", "file"])
def test_weights_that_are_none_are_1(capsys, place, line, name):
    check(capsys, place, line.format(name), 1)


@pytest.mark.parametrize(("line", "suffix"), FILES)
@pytest.mark.parametrize("kind", ["no folder", "a folder", "other suffix"])
def test_an_output_that_cannot_be_is_2(capsys, place, line, suffix, kind):
    (place / f"folder{suffix}").mkdir()
    name = {"no folder": f"missing/new{suffix}", "a folder": f"folder{suffix}", "other suffix": "new.doc"}[kind]
    check(capsys, place, line.format(name), 2)


@pytest.mark.parametrize("line", FOLDERS)
def test_an_output_folder_that_is_a_file_is_2(capsys, place, line):
    check(capsys, place, line.format("file"), 2)
    assert (place / "file").read_text() == "mine"


@pytest.mark.parametrize("line", VALUES)
def test_a_wrong_value_is_2(capsys, place, line):
    check(capsys, place, line, 2)


def test_every_command_is_tried():
    """But ``index info``, which takes nothing but an index."""
    lines = [*INPUTS, *WEIGHTS, *(line for line, _ in FILES), *FOLDERS, *VALUES]
    for name, command in cli.COMMANDS.items():
        for inner in command if isinstance(command, dict) else [""]:
            called = f"{name} {inner}".strip()
            assert called == "index info" or any(line.startswith(f"{called} ") for line in lines), called
