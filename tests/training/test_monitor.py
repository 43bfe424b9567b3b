from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from geocaps.errors import CheckpointError
from geocaps.training.monitor import RunMonitor

RECORD = {"loss": 0.5, "learning_rate": 1e-3, "noise_degrees": 45.0, "objects_per_second": 20.0, "seconds": 2.0}


def test_plain_lines_without_a_terminal(tmp_path: Path) -> None:
    text = io.StringIO()
    monitor = RunMonitor(tmp_path, tensorboard=False, console=Console(file=text, width=200))
    monitor.begin("object", 0, 100)
    monitor.step(1, RECORD, log=True)
    monitor.step(2, RECORD, log=False)
    monitor.close()
    assert text.getvalue() == "object 1/100 loss 0.5 rate 1.00e-03 noise 45 objects/s 20.0 left 0:03:18\n"
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] == 0.5


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    text = io.StringIO()
    monitor = RunMonitor(tmp_path, tensorboard=False, console=Console(file=text, force_terminal=True, width=150))
    monitor.begin("parts", 0, 10)
    monitor.step(10, RECORD, log=True)
    monitor.close()
    for shown in ("10/10", "loss 0.5", "rate 1.00e-03", "objects/s 20.0", "\x1b["):
        assert shown in text.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_total_that_is_not_known_yet_is_shown_so(tmp_path: Path, terminal: bool) -> None:
    text = io.StringIO()
    monitor = RunMonitor(
        tmp_path, False, console=Console(file=text, force_terminal=terminal, highlight=False, width=150)
    )
    monitor.begin("parts", 0, None)
    monitor.validation(0, {"chamfer": 0.5}, None)
    monitor.close()
    assert "parts 0/? validation chamfer 0.5" in text.getvalue()
    assert "None" not in text.getvalue()


def test_records_past_the_resumed_step_and_cut_lines_are_forgotten(tmp_path: Path) -> None:
    lines = [
        json.dumps({"kind": "train", "stage": s, "step": n}) for s, n in (("parts", 9), ("object", 1), ("object", 2))
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "tra')
    monitor = RunMonitor(tmp_path, tensorboard=False, console=Console(file=io.StringIO()))
    monitor.begin("object", 1, 100)
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == lines[:2]


def test_not_a_number_is_null(tmp_path: Path) -> None:
    monitor = RunMonitor(tmp_path, tensorboard=False, console=Console(file=io.StringIO()))
    monitor.begin("parts", 0, 1)
    monitor.validation(0, {"chamfer": float("nan")}, None)
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["chamfer"] is None


def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    monitor = RunMonitor(tmp_path / "gone", tensorboard=False, console=Console(file=io.StringIO()))
    with pytest.raises(CheckpointError, match=r"cannot write .*metrics.jsonl"):
        monitor.validation(0, {"chamfer": 1.0}, None)


def test_tensorboard_gets_scalars_and_pictures(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = RunMonitor(tmp_path, tensorboard=True, console=Console(file=io.StringIO()))
    monitor.begin("parts", 0, 10)
    monitor.step(1, RECORD, log=True)
    monitor.validation(1, {"chamfer": 0.25}, torch.rand(2, 2, 30, 3))
    monitor.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"parts/train/loss", "parts/validation/chamfer"} <= set(events.Tags()["scalars"])
    assert events.Tags()["images"] == ["parts/reconstruction"]


def test_without_tensorboard_it_says_so_once(tmp_path: Path) -> None:
    code = """
import sys; sys.modules["tensorboard"] = None
from pathlib import Path
from geocaps.training.monitor import RunMonitor
monitor = RunMonitor(Path(sys.argv[1]), tensorboard=True)
monitor.begin("parts", 0, 1); monitor.begin("object", 0, 1); monitor.close()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stderr.count("TensorBoard logs are off") == 1
    assert "pip install '.[tensorboard]'" in done.stderr
