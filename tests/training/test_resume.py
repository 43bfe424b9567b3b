"""Real processes, killed and stopped."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geocaps.model.checkpoint import load_checkpoint, load_training_state
from tests.training import tiny

ROOT = Path(__file__).parents[2]
STEPS = 12


HELD = """
import sys
from geocaps.training.monitor import RunMonitor
from tests.training import tiny

logged = RunMonitor.step

def step(monitor, number, record, log):
    logged(monitor, number, record, log)
    if f"{monitor.stage} {number}" == sys.argv[1]:
        print("held", flush=True)
        sys.stdin.readline()

RunMonitor.step = step
sys.exit(tiny.main(*sys.argv[2:]))
"""


def start(out: Path, data: Path, *options: str, hold: str = "") -> subprocess.Popen[str]:
    """A training in a process of its own, which waits for a line on its standard input after the step ``hold``."""
    return subprocess.Popen(
        [sys.executable, "-c", HELD, hold, str(out), str(data), f"steps={STEPS}", *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held(out: Path, data: Path, hold: str, *options: str) -> subprocess.Popen[str]:
    """A training that has come to the step ``hold`` and does not go on."""
    process = start(out, data, *options, hold=hold)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n", process.communicate()[1]
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Lets it go on to its end; what it said."""
    return process.communicate("\n")[1]


def complete(out: Path, data: Path, *options: str) -> None:
    """In this process: another one that nothing happens to would tell no more."""
    threads = torch.get_num_threads()
    try:
        assert tiny.main(str(out), str(data), f"steps={STEPS}", *options) == 0
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs."""
    out = tmp_path_factory.mktemp("whole") / "out"
    complete(out, data)
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


@pytest.mark.slow
def test_killed_twice_and_resumed_ends_the_same(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for step, options in (("parts 8", ()), ("object 5", ("--resume",))):
        process = held(out, data, step, *options)
        process.kill()
        process.communicate()
    complete(out, data, "--resume")
    assert_same_end(out, whole)


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = held(out, data, "parts 5")
    process.send_signal(signal.SIGINT)
    errors = finish(process)
    assert process.returncode == 1
    assert "stopped as asked at step 5 of" in errors
    assert f"geocaps train --out {out} --resume" in errors
    assert "Traceback" not in errors
    assert '"step": 5,' in load_training_state(out / "last")["state"]
    complete(out, data, "--resume")
    assert_same_end(out, whole)


@pytest.mark.slow
def test_a_disk_that_fills_up_keeps_the_last_checkpoint(whole: Path, data: Path, tmp_path: Path) -> None:
    """The running process may suddenly write no large file any more, as when the disk is full."""
    out = tmp_path / "out"
    process = held(out, data, "parts 5")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    errors = finish(process)
    assert process.returncode == 1
    assert "cannot write the checkpoint" in errors
    assert "Traceback" not in errors
    assert '"step": 3,' in load_training_state(out / "last")["state"]
    load_checkpoint(out / "last")
    complete(out, data, "--resume")
    assert_same_end(out, whole)
