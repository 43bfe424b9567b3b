"""Monitoring of a training: a progress bar or plain lines, ``metrics.jsonl``, and TensorBoard."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from geocaps.atomic import written_whole
from geocaps.errors import CheckpointError, install_hint

_LINE_EVERY = 20.0


class Monitor:
    """Says nothing and writes nothing: for every process but the one that writes."""

    def say(self, sentence: str) -> None: ...
    def begin(self, stage: str, step: int, steps: int | None) -> None: ...
    def step(self, step: int, record: dict[str, float], log: bool) -> None: ...
    def validation(self, step: int, figures: dict[str, float], clouds: Float[Tensor, "c o n 3"] | None) -> None: ...
    def close(self) -> None: ...


class RunMonitor(Monitor):
    """Writes into the run's folder and to standard error."""

    def __init__(self, out: Path, tensorboard: bool, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.metrics = out / "metrics.jsonl"
        self.out = out
        self.board: Any = None
        self.wants_board = tensorboard
        self.progress: Progress | None = None
        self.task = TaskID(0)
        self.stage, self.last_line = "", 0.0
        self.steps: int | None = None

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, soft_wrap=True)

    def begin(self, stage: str, step: int, steps: int | None) -> None:
        """A stage starts or continues at ``step``; ``steps`` is None until it is known how many fit into a budget."""
        self._stop_progress()
        self.stage, self.steps = stage, steps
        _forget_after(self.metrics, stage, step)
        if self.wants_board:
            self._open_board(step)
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.progress.add_task(stage, total=steps, completed=step, figures="")
            self.progress.start()

    def step(self, step: int, record: dict[str, float], log: bool) -> None:
        line = " ".join(f"{label} {record[name]:{form}}" for name, label, form in _SHOWN if name in record)
        if self.progress is not None:
            self.progress.update(self.task, completed=step, figures=line)
        elif step == self.steps or time.monotonic() - self.last_line > _LINE_EVERY:
            self.last_line = time.monotonic()
            left = "" if self.steps is None else f" left {_clock((self.steps - step) * record['seconds'])}"
            self.say(f"{self._count(step)} {line}{left}")
        if log or step == self.steps:
            self._write("train", step, record)

    def validation(self, step: int, figures: dict[str, float], clouds: Float[Tensor, "c o n 3"] | None) -> None:
        self._write("validation", step, figures)
        self.say(f"{self._count(step)} validation " + " ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        if self.board is not None and clouds is not None:
            self.board.add_figure(f"{self.stage}/reconstruction", _picture(clouds), step)

    def close(self) -> None:
        self._stop_progress()
        if self.board is not None:
            self.board.close()

    def _count(self, step: int) -> str:
        return f"{self.stage} {step}/{'?' if self.steps is None else self.steps}"

    def _write(self, kind: str, step: int, values: dict[str, float]) -> None:
        record = {"kind": kind, "stage": self.stage, "step": step, "time": round(time.time(), 3)}
        record |= {name: value if math.isfinite(value) else None for name, value in values.items()}
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.metrics}: {error.strerror or error}; the last checkpoint is untouched: "
                "free some space, then resume"
            ) from error
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(f"{self.stage}/{kind}/{name}", value, step)

    def _open_board(self, step: int) -> None:
        if self.board is not None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.wants_board = False
            self.say(f"TensorBoard logs are off: the package is not installed ({install_hint('tensorboard')})")
            return
        self.board = SummaryWriter(str(self.out / "tensorboard"), purge_step=step + 1 if step else None)

    def _stop_progress(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


_SHOWN = (
    ("loss", "loss", ".4g"),
    ("learning_rate", "rate", ".2e"),
    ("noise_degrees", "noise", ".0f"),
    ("objects_per_second", "objects/s", ".1f"),
    ("data_share", "data", ".0%"),
    ("parts_share", "parts", ".0%"),
)


def _clock(left: float) -> str:
    minutes, rest = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _forget_after(path: Path, stage: str, step: int) -> None:
    """Drops records after the resumed step, as an interrupted run had continued after its last checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # an incomplete line of an interrupted run
        if record["stage"] != stage or record["step"] <= step:
            kept.append(line + "\n")
    with written_whole(path) as beside:
        beside.write_text("".join(kept), encoding="utf-8")


def _picture(clouds: Float[Tensor, "c o n 3"]) -> Any:
    """One column per object: the input in the first row, the decoded points in the second."""
    from matplotlib.figure import Figure

    rows, columns = clouds.shape[:2]
    figure = Figure(figsize=(3 * columns, 3 * rows), layout="tight")
    for row in range(rows):
        for column in range(columns):
            axes: Any = figure.add_subplot(rows, columns, row * columns + column + 1, projection="3d")
            axes.scatter(*clouds[row, column].cpu().numpy().T, s=1)
            axes.set_aspect("equal")
            axes.set_axis_off()
    return figure
