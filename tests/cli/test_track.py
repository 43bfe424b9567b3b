"""``geocaps track`` as a user calls it, and as it is killed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from geocaps.data.sequences import sequence
from geocaps.io import save_points
from tests.cli.command import command

call = command("track")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A reference, six frames and one that cannot be read."""
    folder = tmp_path_factory.mktemp("track")
    made = sequence(0, points=300)
    save_points(folder / "reference.ply", made.reference)
    (folder / "frames").mkdir()
    for index in range(6):
        save_points(folder / "frames" / f"{index + 7}.ply", made.frames[index])
    (folder / "frames" / "10.ply").write_text("no")
    np.save(folder / "frames.npy", np.stack([frame[:250] for frame in made.frames[:3]]))
    return folder


def test_files_and_json(capsys, place, tmp_path):
    out, png = tmp_path / "poses.jsonl", tmp_path / "tracked.png"
    code, text, err = call(capsys, place / "reference.ply", place / "frames", "--out", out, "--png", png, "--json")
    assert code == 0, err
    record = json.loads(text)
    assert (record["frames"], record["tracked"]) == (6, 5)
    assert [one["name"] for one in record["lost"]] == ["10.ply"]
    assert "10.ply" in err
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["name"] for one in lines] == [f"{index}.ply" for index in range(7, 13)]
    assert [one["lost"] for one in lines] == [False, False, False, True, False, False]
    assert png.read_bytes().startswith(b"\x89PNG")


def test_an_array_of_frames_without_a_reference(capsys, place, tmp_path):
    code, out, err = call(capsys, place / "frames.npy", "--out", tmp_path / "poses.txt", "--viewer-unknown")
    assert (code, err) == (0, "")
    assert "found in 3 of them" in out
    assert len((tmp_path / "poses.txt").read_text().splitlines()) == 4


def test_failures_are_one_sentence_and_write_nothing(capsys, place, tmp_path):
    reference, frames = place / "reference.ply", place / "frames"
    for expected, args, sentence in (
        (2, (reference, frames, "--out", tmp_path / "poses.pdf"), "must end in"),
        (2, (reference, frames, "--png", tmp_path / "all.jpg"), "must end in"),
        (2, (reference, frames, frames), "not 3 names"),
        (1, (tmp_path / "missing.ply", frames), "missing.ply"),
        (1, (reference, tmp_path / "missing"), "does not exist"),
        (1, (reference, reference), "single cloud"),
    ):
        code, out, err = call(capsys, *args)
        assert code == expected, err
        assert out == ""
        assert err.count("\n") == 1
        assert sentence in err
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_the_poses_so_far(place, tmp_path):
    """Killed when it says that the fourth frame is lost: the poses before it are in the file."""
    out = tmp_path / "poses.jsonl"
    command = [sys.executable, "-m", "geocaps", "track", place / "reference.ply", place / "frames", "--out", out]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert "10.ply" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) >= 4
    assert [one["name"] for one in lines[:4]] == ["7.ply", "8.ply", "9.ply", "10.ply"]
