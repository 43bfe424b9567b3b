"""Forward and backward of one step: the pieces of a batch, in one process or shared by several.

Each piece draws its noise from its own stream, so the averaged gradients do not depend on which process worked it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from geocaps.data import PointDataset
from geocaps.errors import ConfigError, UsageError
from geocaps.geometry.se3 import concatenate as concatenate_poses
from geocaps.model.capsules import Capsules
from geocaps.training.config import TrainConfig
from geocaps.training.data import Batches
from geocaps.training.distributed import World
from geocaps.training.schedule import random_stream
from geocaps.training.stages import StageLoss

SPACING = 8
"""Steps between two uses of the same draw, so that neighbouring steps share no object."""


@dataclass(frozen=True)
class _Draw:
    """Some objects of a batch: their samplings and, in the object stage, the decompositions of these."""

    points: Float[Tensor, "b v n 3"]
    parts: Capsules | None
    object_ids: tuple[str, ...]


class StepGradients:
    """Forward and backward of this process's pieces of one step; the time is split as it goes.

    With ``reuse`` a step takes its objects from so many draws, of which only the newest is made in that step: draw d
    is seen in the steps d, d - SPACING, d - 2·SPACING, …, each time beside others, and then never again. Which draws a
    step sees follows from the step alone, so there is nothing to save: a resumed run makes those it lacks.
    """

    def __init__(self, loss: StageLoss, averaged: nn.Module, batches: Batches, world: World, *, reuse: int = 1) -> None:
        self.loss, self.averaged, self.batches, self.world, self.reuse = loss, averaged, batches, world, reuse
        self.mine = range(world.rank, batches.pieces, world.size)
        self.object_ids: tuple[str, ...] = ()
        self._pool: dict[tuple[int, int], _Draw] = {}
        self._data_seconds = self._parts_seconds = 0.0

    def __call__(self, step: int, noise: float) -> dict[str, float]:
        """Leaves gradients averaged over all pieces; gives the terms' means and the shares of time."""
        sums: dict[str, Tensor] = {}
        started = time.perf_counter()
        self._data_seconds = self._parts_seconds = 0.0
        self.object_ids = ()
        for piece in self.mine:
            seen = self._drawn(step, piece)
            self.object_ids += seen.object_ids
            generator = random_stream(*self.batches.key, 2, step, piece)
            with self._averaging(piece == self.mine[-1]):
                terms = self.averaged(seen.points, seen.parts, noise, generator)
                (terms["loss"] / len(self.mine)).backward()
            for name, term in terms.items():
                sums[name] = sums.get(name, torch.zeros_like(term)) + term.detach() / len(self.mine)
        record = self.world.mean({name: float(term) for name, term in sums.items()})
        whole = time.perf_counter() - started
        record["data_share"] = self._data_seconds / whole
        if self.loss.stage == "object":
            record["parts_share"] = self._parts_seconds / whole
        return record

    def _drawn(self, step: int, piece: int) -> _Draw:
        """The objects of one piece: the oldest draw is used for the last time, the newest for the first."""
        draws = []
        for number in range(step, step + self.reuse * SPACING, SPACING):
            if (number, piece) not in self._pool:
                self._pool[number, piece] = self._fresh(number, piece)
            draws.append(self._pool[number, piece])
        del self._pool[step, piece]
        parts = [draw.parts for draw in draws if draw.parts is not None]
        return _Draw(
            torch.cat([draw.points for draw in draws]),
            concatenate(parts) if parts else None,
            tuple(name for draw in draws for name in draw.object_ids),
        )

    def _fresh(self, number: int, piece: int) -> _Draw:
        before = time.perf_counter()
        batch = self.batches.piece(number, piece)
        points = batch.points.to(self.world.device)
        between = time.perf_counter()
        parts = self.loss.part_capsules(points, random_stream(*self.batches.key, 3, number, piece))
        self._data_seconds += between - before
        self._parts_seconds += time.perf_counter() - between
        return _Draw(points, parts, batch.object_ids)

    def _averaging(self, last: bool) -> AbstractContextManager[None]:
        """Processes average once a step: with the last piece."""
        if isinstance(self.averaged, DistributedDataParallel) and not last:
            return self.averaged.no_sync()
        return nullcontext()

    def seconds(self, limit: float, tries: int = 4) -> float:
        """How long a step takes here and now: the mean of a few after a first one, none of which changes a weight.

        Of slow steps only one is timed: past ``limit`` seconds there is no second.
        """
        began = time.monotonic()
        self(0, 45.0)
        started, timed = time.monotonic(), 0
        while timed == 0 or (timed < tries and self.world.agreed(time.monotonic() - began < limit)):
            timed += 1
            self(timed * SPACING, 45.0)  # as in the long run: all draws but the newest are there
        taken = (time.monotonic() - started) / timed
        self.loss.zero_grad(set_to_none=True)
        self._pool.clear()
        return taken


def pieces_of(batch: int, accumulate: int, processes: int) -> int:
    """In how many pieces a batch is worked through: at least one for each process."""
    pieces = max(accumulate, processes)
    if pieces % processes or batch % pieces:
        raise ConfigError(
            f"a batch of {batch} in {pieces} pieces cannot be shared evenly by {processes} processes: "
            "choose a batch (--batch) that they divide"
        )
    return pieces


def fitted_batches(
    config: TrainConfig, dataset: PointDataset, processes: int, *, reduce: bool
) -> tuple[TrainConfig, list[str]]:
    """The training with batches that can be drawn from the data and shared by the processes, for all its stages.

    A batch that is too large is made the largest that fits, and a sentence says so; without ``reduce`` it is refused.
    """
    said = []
    for stage in config.stages:
        settings = config.stage_config(stage)
        reuse = config.objective.reuse if stage == "object" else 1
        if settings.batch // reuse > len(dataset):
            unit = math.lcm(settings.accumulate, max(settings.accumulate, processes))
            largest = len(dataset) // unit * unit * reuse
            too_large = f"a batch of {settings.batch} objects cannot be drawn from the {len(dataset)} of {dataset.name}"
            if not largest:
                raise ConfigError(f"{too_large}, nor can one that {unit} processes or pieces share: use fewer of them")
            if not reduce:
                raise UsageError(f"{too_large}: give --batch {largest} or less, or leave --batch out for one that fits")
            said.append(
                f"stage {stage}: a batch of {largest} objects, not {settings.batch}: the data have {len(dataset)}"
            )
            settings = replace(settings, batch=largest)
            changed: dict[str, Any] = {stage: settings}
            config = replace(config, **changed)
        pieces_of(settings.batch // reuse, settings.accumulate, processes)
    return config, said


def concatenate(capsules: Sequence[Capsules]) -> Capsules:
    """One batch of several."""
    return Capsules(concatenate_poses([one.pose for one in capsules]), torch.cat([one.feature for one in capsules]))
