"""State of a run: its progress and settings, and the checks on resuming it."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

from geocaps.atomic import make_folder
from geocaps.data import PointDataset
from geocaps.errors import CheckpointError, ConfigError
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder, untrained
from geocaps.model.checkpoint import find_checkpoint, load_checkpoint, load_named, load_training_state
from geocaps.training.config import TrainConfig, differences

_MAY_CHANGE = ("out", "data", "device", "tensorboard", "log_every", "save_every")
"""Settings that may differ on resuming, because they change no numbers. Data are compared by fingerprint."""


@dataclass
class RunState:
    """Progress of a run. ``steps`` and ``validate_every`` are fixed when a stage begins, and kept on resuming."""

    stage: str
    step: int = 0
    steps: int = 0
    validate_every: int = 0
    start_loss: float | None = None
    smooth_loss: float | None = None
    best: float | None = None
    elapsed: float = 0.0
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def next_stage(self, stage: str) -> RunState:
        return RunState(stage, elapsed=self.elapsed, figures=self.figures)


@dataclass(frozen=True)
class Kept:
    """What a run needs to resume, in addition to the model: the optimiser's state, and the results of the survey."""

    optimizer: dict[str, Any]
    found: dict[str, torch.Tensor]


def training_state(config: TrainConfig, state: RunState, fingerprint: str, kept: Kept) -> dict[str, Any]:
    """The contents of ``training.pt``: only plain values and tensors."""
    return {
        "config": json.dumps(config.to_dict()),
        "fingerprint": fingerprint,
        "state": json.dumps(asdict(state)),
        "optimizer": kept.optimizer,
        "found": kept.found,
    }


def saved_config(out: str | Path) -> TrainConfig:
    """The configuration of the run in a folder."""
    try:
        find_checkpoint(Path(out) / "last")
    except CheckpointError as error:
        raise CheckpointError(f"there is no run to resume in {out}: {error}") from error
    return _config(Path(out) / "last", load_training_state(Path(out) / "last"))


def _config(place: Path, saved: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig.from_dict(json.loads(saved["config"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{place} has no readable training configuration: {error}") from error


def resumed(config: TrainConfig, fingerprint: str) -> tuple[GeometricCapsuleAutoencoder, RunState, Kept]:
    """Model, state and the rest of the run in ``config.out``, which must be the run that ``config`` describes."""
    last = Path(config.out) / "last"
    saved = load_training_state(last)
    changed = [one for one in differences(_config(last, saved), config) if one[0].split(".")[0] not in _MAY_CHANGE]
    if changed:
        name, old, new = changed[0]
        raise ConfigError(
            f"the run in {config.out} was started with {name} = {old!r}, not {new!r}: resume it unchanged, or "
            "start another one with another --out"
        )
    try:
        begun_with, state = saved["fingerprint"], RunState(**json.loads(saved["state"]))
        kept = Kept(saved["optimizer"], saved["found"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{last} has no readable training state: {error}") from error
    if begun_with != fingerprint:
        raise ConfigError(
            f"the run in {config.out} was started on data with the fingerprint {begun_with}, but {config.data} "
            f"has {fingerprint}: resume it on the same data, or start another one with another --out"
        )
    return load_checkpoint(last), state, kept


def begun(config: TrainConfig) -> GeometricCapsuleAutoencoder:
    """The initial model of a new run. A folder that contains a run is never overwritten."""
    last = Path(config.out) / "last"
    try:
        find_checkpoint(last)
    except CheckpointError:
        pass
    else:
        raise CheckpointError(f"{config.out} already contains a run: give --resume to continue it, or another --out")
    model = untrained(config.model, config.seed)
    if config.init is not None:
        first = load_named(config.init)
        here, there = asdict(config.model.parts), asdict(first.config.parts)
        differ = [name for name, value in here.items() if there[name] != value]
        if differ:
            name = differ[0]
            raise ConfigError(
                f"the first layer of {config.init} has {name} = {there[name]!r}, but this training's has "
                f"{here[name]!r}: choose the preset that it was trained with"
            )
        model.parts.load_state_dict(first.parts.state_dict())
        if config.init_object:
            if first.config.object != config.model.object:
                raise ConfigError(
                    f"the object layer of {config.init} differs from that of this training: choose the preset that it "
                    "was trained with, or leave out --init-object"
                )
            model.object.load_state_dict(first.object.state_dict())
    make_folder(Path(config.out))
    return model


def card(config: TrainConfig, dataset: PointDataset, state: RunState) -> str:
    """``card.md``: the data, the recipe and the measured figures."""
    lines = [
        "# A geocaps model",
        "",
        f"- data: {dataset.name}, {len(dataset)} objects, fingerprint `{dataset.fingerprint}`",
        f"- classes: {config.classes or 'all'}",
        f"- recipe: preset `{config.preset}`, seed {config.seed}",
        f"- stage {state.stage}, step {state.step} of {state.steps}",
        f"- training time: {state.elapsed:.0f} s",
        "",
        "| stage | figure on held-out objects | value |",
        "| --- | --- | --- |",
    ]
    for stage, figures in state.figures.items():
        lines += [f"| {stage} | {name} | {value:.5g} |" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


class StopSignal:
    """Ctrl-C (or SIGTERM) makes the loop stop after the current step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        before: Callable[..., Any] | int | None
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """Makes glibc's allocator keep freed memory, because mapping new pages costs more than the arithmetic on them.

    Returns False with another C library.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, _LARGE), (_M_TOP_PAD, 1 << 26))
    return all(mallopt(option, value) == 1 for option, value in settings)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``90m``, ``5400s``, ``1.5h`` or ``1h30m`` in seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"a budget is a time such as 90m, 5400s or 1h30m, not {text!r}")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total <= 0:
        raise ConfigError(f"a budget must be longer than 0, not {text!r}")
    return total
