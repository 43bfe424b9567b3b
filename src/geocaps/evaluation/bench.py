"""Benchmark of this machine: our implementation against the literal formulas, and encoding rates.

Each kind of training step runs in its own process, to measure its own peak memory.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from geocaps.apps.encode import Model
from geocaps.data.synthetic import CLASS_NAMES, make_shape
from geocaps.errors import GeocapsError
from geocaps.evaluation.literal import part_decoders, parts_loss
from geocaps.model.blocks import ParallelDecoders
from geocaps.model.config import preset
from geocaps.model.parts import PointsToParts

Kind = Literal["literal", "product"]


def shapes(batch: int, points: int) -> torch.Tensor:
    """Embedded objects, from each class in turn."""
    generator = torch.Generator().manual_seed(0)
    chosen = [make_shape(CLASS_NAMES[index % len(CLASS_NAMES)], index) for index in range(min(batch, 24))]
    return torch.stack([chosen[index % len(chosen)].sample(points, generator).points for index in range(batch)])


def best_seconds(function: Callable[[], object], repeats: int) -> float:
    """The time of the fastest of some runs, which other processes disturbed least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class PeakMemory:
    """The rise of this process's resident memory above its present level."""

    def __init__(self) -> None:
        self._linux = Path("/proc/self/clear_refs").exists()
        if self._linux:
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before = self._status("VmRSS") if self._linux else self._rusage()

    def added(self) -> int:
        """Bytes added at the peak: at least one page, so that ratios are defined."""
        peak = self._status("VmHWM") if self._linux else self._rusage()
        return max(peak - self._before, 4096)

    @staticmethod
    def _status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])

    @staticmethod
    def _rusage() -> int:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _train_step(kind: Kind, batch: int, warm_steps: int, repeats: int, pipe: Any) -> None:
    """In a child process: some steps to settle the routing, then timed ones; sends seconds per step and peak memory.

    The routing of an untrained layer differs from that of a trained one. The warm-up, the same for both kinds, brings
    the layer to a state that is typical of training.
    """
    torch.manual_seed(0)
    config = replace(preset("paper").parts, start="frames")
    layer = PointsToParts(config)
    points = shapes(batch, 2048)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    small = shapes(2, 512)

    def step(loss: Callable[..., torch.Tensor], clouds: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(clouds, generator).mean().backward()
        optimizer.step()

    for _ in range(warm_steps):
        step(layer.loss, small)
    memory = PeakMemory()
    loss = layer.loss if kind == "product" else partial(parts_loss, layer)
    seconds = best_seconds(lambda: step(loss, points), repeats)
    pipe.send((seconds, memory.added()))


def layer1_step(kind: Kind, batch: int, repeats: int, warm_steps: int = 30) -> tuple[float, float]:
    """Seconds and bytes of a training step at (B, N 2048, J 16, K 4, M 256), both scaled to one object."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_train_step, args=(kind, batch, warm_steps, repeats, send))
    process.start()
    send.close()
    try:
        seconds, peak = receive.recv()
    except EOFError as error:
        raise GeocapsError(f"the {kind} training step ended without a result, perhaps for lack of memory") from error
    finally:
        process.join()
    return seconds / batch, peak / batch


def layer2_decoder_ratio() -> float:
    """Time of the J part decoders in a loop over that of one batched product, at the paper's sizes, for 8 objects."""
    torch.manual_seed(0)
    parts, layer = preset("paper").parts, preset("paper").object
    decoders = ParallelDecoders(
        parts.parts, layer.feature, layer.decoder_width, layer.decoder_blocks, parts.feature + 7
    )
    feature = torch.randn(8, layer.feature)
    with torch.no_grad():
        ratios = [
            best_seconds(lambda: part_decoders(decoders, feature), 10) / best_seconds(lambda: decoders(feature), 10)
            for _ in range(5)
        ]
    return statistics.median(ratios)


def encode_rate(model: Model, batch: int, points: int = 1024, repeats: int = 5) -> float:
    """Objects encoded per second, without reading files or computing labels."""
    clouds = shapes(batch, points).numpy()
    model.encode_many(clouds)
    return batch / best_seconds(lambda: model.encode_many(clouds), repeats)


def encode_seconds(model: Model, counts: tuple[int, ...]) -> dict[int, float]:
    """Seconds to encode one cloud of N points, including the part label of each point."""
    chair = make_shape("chair", 0)

    def seconds(count: int) -> float:
        cloud = chair.sample(count, torch.Generator().manual_seed(0)).points.numpy()
        return best_seconds(lambda: model.encode(cloud).labels, 2)

    return {count: seconds(count) for count in counts}


def gemm_share(model: Model) -> float:
    """Rate of arithmetic in encoding a batch, as a share of this machine's matrix-multiply rate."""
    size = 1024
    a, b = torch.randn(size, size), torch.randn(size, size)
    clouds = shapes(16, model.config.points)
    with FlopCounterMode(display=False) as counter:
        model.network.parse(clouds)
    flops = counter.get_total_flops()
    shares = []
    for _ in range(5):
        machine = 2 * size**3 / best_seconds(lambda: a @ b, 3)
        shares.append(flops / best_seconds(lambda: model.network.parse(clouds), 2) / machine)
    return statistics.median(shares)
