"""Training of the compared systems: one loop for all of them, and runs that are kept."""

from __future__ import annotations

import copy
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from geocaps.atomic import make_folder
from geocaps.data import PointDataset
from geocaps.errors import CheckpointError, ConfigError
from geocaps.evaluation.report import write_file, write_json
from geocaps.training.batches import Batches, random_stream
from geocaps.training.config import Augmentation

_RUN, _WEIGHTS = "run.json", "weights.safetensors"
_TIMED = 10
_WARM_UP, _CLIP = 0.05, 1.0
_CURVE = 50
"""Losses are kept as means over this many steps."""

Say = Callable[[str], None]


class System(nn.Module, ABC):
    """A network with the loss that it is trained by."""

    augmentation: ClassVar[Augmentation]
    """What its training clouds undergo, besides a random rotation."""

    @abstractmethod
    def loss(
        self, clouds: Float[Tensor, "b 2 n 3"], turned: Float[Tensor, "b 3 3"], generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The loss of a batch: two samplings of each object in one frame, rotated from the stored one by ``turned``."""


Some = TypeVar("Some", bound=System)


@dataclass(frozen=True)
class Fitting:
    """How all systems are trained: ``minutes`` of processor time each, as measured in the first steps.

    ``steps``, if given, replaces the measurement, so that a run can be repeated exactly.
    """

    minutes: float = 8.0
    steps: int | None = None
    batch: int = 8
    points: int = 512
    rate: float = 1e-3
    seed: int = 0

    def batches(self, system: System, dataset: PointDataset) -> Batches:
        """The clouds of each step: two samplings of each object."""
        return Batches(
            dataset,
            points=self.points,
            samplings=2,
            batch=self.batch,
            pieces=1,
            augmentation=system.augmentation,
            key=(self.seed,),
        )


def fit(system: System, dataset: PointDataset, fitting: Fitting, steps: int, say: Say = lambda _: None) -> list[float]:
    """Trains by Adam, the rate rising and then falling along a cosine; returns the mean losses along the way."""
    batches = fitting.batches(system, dataset)
    optimizer = torch.optim.Adam(system.parameters(), lr=fitting.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, fitting.rate, total_steps=max(steps, 2), pct_start=_WARM_UP, cycle_momentum=False
    )
    losses: list[float] = []
    system.train()
    for step in range(steps):
        batch = batches.piece(step, 0)
        loss = system.loss(batch.points[:, :2], batch.turned, random_stream(fitting.seed, step))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(system.parameters(), _CLIP)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (step + 1) % (10 * _CURVE) == 0:
            say(f"step {step + 1} of {steps}: loss {_means(losses)[-1]:.4f}")
    system.eval()
    return _means(losses)


def _means(losses: list[float]) -> list[float]:
    blocks = [losses[at : at + _CURVE] for at in range(0, len(losses), _CURVE)]
    return [sum(block) / len(block) for block in blocks]


def affordable_steps(system: System, dataset: PointDataset, fitting: Fitting) -> int:
    """The number of steps that fit into the minutes, from the processor time of a few steps of a copy."""
    trial = copy.deepcopy(system)
    fit(trial, dataset, fitting, 2)
    started = time.process_time()
    fit(trial, dataset, fitting, _TIMED)
    return max(1, round(60 * fitting.minutes * _TIMED / (time.process_time() - started)))


def trained(
    make: Callable[[], Some], dataset: PointDataset, fitting: Fitting, folder: Path, say: Say = lambda _: None
) -> tuple[Some, dict[str, Any]]:
    """A trained system and the record of its run, which is kept in ``folder``: a finished run is not repeated."""
    torch.manual_seed(fitting.seed)
    system = make()
    asked = {"system": type(system).__name__, "data": dataset.fingerprint, **asdict(fitting)}
    if (folder / _RUN).exists():
        return system, _restored(system, folder, asked)
    make_folder(folder)
    steps = fitting.steps or affordable_steps(system, dataset, fitting)
    started = time.process_time()
    curve = fit(system, dataset, fitting, steps, say)
    record = {"asked": asked, "steps": steps, "minutes": (time.process_time() - started) / 60, "loss": curve}
    write_file(folder, _WEIGHTS, save({name: value.contiguous() for name, value in system.state_dict().items()}))
    write_json(folder, _RUN, record)  # last: it says that the run is finished
    return system, record


def _restored(system: System, folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Loads the weights of a finished run, and returns its record."""
    try:
        record = json.loads((folder / _RUN).read_text(encoding="utf-8"))
        weights = load((folder / _WEIGHTS).read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"the run in {folder} cannot be read: delete the folder to train again") from error
    if record["asked"] != asked:
        raise ConfigError(f"the run in {folder} has other settings or data: choose another folder for this one")
    system.load_state_dict(weights)
    system.eval()
    return record
