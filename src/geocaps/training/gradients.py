"""Forward and backward of one step: the pieces of a batch, in one process or shared by several.

Each piece draws its noise from its own stream, so the averaged gradients do not depend on which process worked it.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from geocaps.errors import ConfigError
from geocaps.training.data import Batches
from geocaps.training.distributed import World
from geocaps.training.schedule import random_stream
from geocaps.training.stages import StageLoss


class StepGradients:
    """Forward and backward of this process's pieces of one step; the time is split as it goes."""

    def __init__(self, loss: StageLoss, averaged: nn.Module, batches: Batches, world: World) -> None:
        self.loss, self.averaged, self.batches, self.world = loss, averaged, batches, world
        self.mine = range(world.rank, batches.pieces, world.size)
        self.object_ids: tuple[str, ...] = ()

    def __call__(self, step: int, noise: float) -> dict[str, float]:
        """Leaves gradients averaged over all pieces; gives the terms' means and the shares of time."""
        sums: dict[str, Tensor] = {}
        started, data_seconds, parts_seconds = time.perf_counter(), 0.0, 0.0
        self.object_ids = ()
        for piece in self.mine:
            before = time.perf_counter()
            batch = self.batches.piece(step, piece)
            points = batch.points.to(self.world.device)
            self.object_ids += batch.object_ids
            data_seconds += time.perf_counter() - before
            before = time.perf_counter()
            generator = random_stream(*self.batches.key, 2, step, piece)
            parts = self.loss.part_capsules(points, generator)
            parts_seconds += time.perf_counter() - before
            with self._averaging(piece == self.mine[-1]):
                terms = self.averaged(points, parts, noise, generator)
                (terms["loss"] / len(self.mine)).backward()
            for name, term in terms.items():
                sums[name] = sums.get(name, torch.zeros_like(term)) + term.detach() / len(self.mine)
        record = self.world.mean({name: float(term) for name, term in sums.items()})
        whole = time.perf_counter() - started
        record["data_share"] = data_seconds / whole
        if self.loss.stage == "object":
            record["parts_share"] = parts_seconds / whole
        return record

    def _averaging(self, last: bool) -> AbstractContextManager[None]:
        """Processes average once a step: with the last piece."""
        if isinstance(self.averaged, DistributedDataParallel) and not last:
            return self.averaged.no_sync()
        return nullcontext()

    def seconds(self, tries: int = 4) -> float:
        """How long a step takes here and now: the mean of a few after a first one, none of which changes a weight."""
        self(0, 45.0)
        started = time.monotonic()
        for step in range(1, tries + 1):
            self(step, 45.0)
        self.loss.zero_grad(set_to_none=True)
        return (time.monotonic() - started) / tries


def pieces_of(batch: int, accumulate: int, processes: int) -> int:
    """In how many pieces a batch is worked through: at least one for each process."""
    pieces = max(accumulate, processes)
    if pieces % processes or batch % pieces:
        raise ConfigError(
            f"a batch of {batch} in {pieces} pieces cannot be shared evenly by {processes} processes: "
            "choose a batch (--batch) that they divide"
        )
    return pieces
