"""Real processes, killed and stopped."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from geocaps.training.checkpoint import load_checkpoint, load_training_state
from tests.training import tiny

ROOT = Path(__file__).parents[2]
STEPS = 24


def start(out: Path, data: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.tiny", str(out), str(data), f"steps={STEPS}", *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(out: Path, stage: str, step: int, process: subprocess.Popen[str]) -> None:
    """Until the run has logged a step."""
    wanted = f'"stage": "{stage}", "step": {step},'
    for _ in range(6000):
        if (out / "metrics.jsonl").exists() and wanted in (out / "metrics.jsonl").read_text():
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    pytest.fail(f"{stage} {step} never came")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs."""
    out = tmp_path_factory.mktemp("whole") / "out"
    process = start(out, data)
    assert process.wait(120) == 0, process.communicate()[1]
    return out


def assert_same_end(out: Path, whole: Path) -> None:
    """Weights, optimiser and losses, bit for bit."""
    mine, theirs = load_checkpoint(out / "last").state_dict(), load_checkpoint(whole / "last").state_dict()
    for name, value in theirs.items():
        assert torch.equal(value, mine[name]), name
    a, b = (load_training_state(place / "last")["optimizer"]["state"] for place in (out, whole))
    assert all(torch.equal(a[i]["exp_avg_sq"], b[i]["exp_avg_sq"]) for i in b)
    for stage in ("parts", "object"):
        losses = [[(r["step"], r["loss"]) for r in tiny.records(place, "train", stage)] for place in (out, whole)]
        assert losses[0] == losses[1]
        assert len(losses[0]) == STEPS


def test_killed_twice_and_resumed_ends_the_same(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for stage, step, options in (("parts", 17, ()), ("object", 8, ("--resume",))):
        process = start(out, data, *options)
        wait_for(out, stage, step, process)
        process.kill()
        process.communicate()
    process = start(out, data, "--resume")
    assert process.wait(120) == 0, process.communicate()[1]
    process.communicate()
    assert_same_end(out, whole)


def test_ctrl_c_saves_and_says_how_to_resume(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(out, data)
    wait_for(out, "parts", 5, process)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert f"geocaps train --out {out} --resume" in errors
    assert "Traceback" not in errors
    stopped = int(errors.split("at step ")[1].split()[0])
    assert f'"step": {stopped},' in load_training_state(out / "last")["state"]
    process = start(out, data, "--resume")
    assert process.wait(120) == 0
    process.communicate()
    assert_same_end(out, whole)


def test_a_disk_that_fills_up_keeps_the_last_checkpoint(whole: Path, data: Path, tmp_path: Path) -> None:
    """The running process may suddenly write no large file any more, as when the disk is full."""
    out = tmp_path / "out"
    process = start(out, data)
    wait_for(out, "parts", 5, process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "cannot write the checkpoint" in errors
    assert "Traceback" not in errors
    load_checkpoint(out / "last")
    process = start(out, data, "--resume")
    assert process.wait(120) == 0
    process.communicate()
    assert_same_end(out, whole)
