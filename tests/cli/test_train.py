"""The command: one training as a user starts it, in a process of its own, and what can go wrong, in this one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trimesh

from geocaps.cli import run
from geocaps.training import load_checkpoint


@dataclass(frozen=True)
class Done:
    """As ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def geocaps(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """``geocaps train`` in this process: another one would take seconds to begin."""

    def called(*arguments: object) -> Done:
        capsys.readouterr()
        return Done(run(["train", *map(str, arguments)]), *capsys.readouterr())

    return called


def figures(out: Path, stage: str) -> list[float]:
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [one["chamfer"] for one in records if one["kind"] == "validation" and one["stage"] == stage]


@pytest.mark.slow
def test_a_short_training_beats_the_untrained_model(geocaps: Callable[..., Done], tmp_path: Path) -> None:
    out = tmp_path / "run"
    few = ("--data", "shapes", "--validation-objects", "16", "--batch", "4", "--steps", "20")
    command = [sys.executable, "-m", "geocaps", "train", *few, "--stage", "parts", "--out", str(out), "--json"]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    untrained, *_, trained = figures(out, "parts")
    assert result["figures"]["parts"]["chamfer"] == trained
    assert trained < 0.6 * untrained
    assert load_checkpoint(out / "best").config.points == 1024

    # The second stage on top of it, then the same run again.
    second = tmp_path / "second"
    call = ("--data", "shapes", "--validation-objects", 2, "--stage", "object", "--init", out / "best", "--steps", 2)
    call += ("--batch", 4, "--out", second)
    done = geocaps(*call)
    assert done.returncode == 0, done.stderr
    assert "object: chamfer" in done.stdout
    again = geocaps(*call)
    assert again.returncode == 1
    assert "already contains a run: give --resume to continue it" in again.stderr
    changed = geocaps("--out", second, "--resume", "--seed", 5)
    assert changed.returncode == 1
    assert "was started with seed = 0, not 5" in changed.stderr
    finished = geocaps("--out", second, "--resume")
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--budget", "soon"), 2, "a budget is a time such as 90m"),
        (("--budget", "5m", "--steps", 5), 2, "give one of them"),
        (("--stage", "object"), 2, "--init DIR"),
        (("--steps", 0), 2, "steps must be at least 1"),
        (("--data", "nowhere.npz"), 1, "there is no such file"),
        (("--stage", "object", "--init", "nowhere"), 1, "nowhere does not exist"),
        (("--device", "warp"), 1, "cannot be used here"),
        (("--resume",), 1, "there is no run to resume"),
        (("--learning-rate", "inf"), 2, "learning_rate must be positive and finite"),
        (("--seed", 10**20), 2, "seed must be from 0"),
    ],
)
def test_wrong_calls_are_one_sentence(
    geocaps: Callable[..., Done], arguments: tuple[object, ...], code: int, says: str, tmp_path: Path
) -> None:
    done = geocaps("--out", tmp_path / "run", *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_data_that_cannot_be_read_leaves_no_run(geocaps: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    for name in ("a.ply", "b.ply"):
        (tmp_path / "letters" / name).write_text("Dear reader")
    done = geocaps("--data", tmp_path / "letters", "--steps", 1, "--out", tmp_path / "run")
    assert done.returncode == 1
    assert "as PLY" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seventeen boxes, as a new user may have them."""
    folder = tmp_path_factory.mktemp("data") / "boxes"
    folder.mkdir()
    for index in range(17):
        trimesh.creation.box(extents=(1, 1 + index / 5, 2)).export(folder / f"{index:02d}.ply")
    return folder


def test_a_small_folder_is_trained_on_with_batches_that_fit(
    geocaps: Callable[..., Done], meshes: Path, tmp_path: Path
) -> None:
    done = geocaps("--data", meshes, "--steps", 1, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert "training on 16 objects of boxes, validating on 1" in done.stderr
    assert "stage object: a batch of 16 objects, not 64: the data have 16" in done.stderr
    assert "no best checkpoint will be chosen" in done.stderr
    result = json.loads(done.stdout)
    assert (result["best"], result["last"]) == (None, str(tmp_path / "run" / "last"))
    assert load_checkpoint(result["last"]).config.points == 1024
    assert not (tmp_path / "run" / "best").exists()


def test_a_batch_that_does_not_fit_is_refused_at_the_start_and_the_advice_works(
    geocaps: Callable[..., Done], meshes: Path, tmp_path: Path
) -> None:
    call = ("--data", meshes, "--steps", 1, "--stage", "parts", "--out", tmp_path / "run")
    refused = geocaps(*call, "--batch", 64)
    assert refused.returncode == 2
    assert "a batch of 64 objects cannot be drawn from the 16 of boxes" in refused.stderr
    assert not (tmp_path / "run").exists()
    (advised,) = re.findall(r"give --batch (\d+)", refused.stderr)
    taken = geocaps(*call, "--batch", advised)
    assert taken.returncode == 0, taken.stderr
    assert (tmp_path / "run" / "last").is_dir()
