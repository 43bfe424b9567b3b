"""One training step of the first layer: where its time goes, and against the same algorithm in plain eager torch.

The plain version is the same sparse algorithm with the same weights and the same random draws, written the usual way:
``torch.cdist`` for routing and Chamfer, every routed pair embedded with gradient, ``scatter_reduce`` for the pooling.
Both losses are printed: they are the same number. The two take turns, so that other work on the machine hits both.

The last lines are the same with and without ``keep_freed_memory`` (each in a process of its own: it cannot be undone).

Run:  OMP_NUM_THREADS=2 python benchmarks/training_step.py [--rounds 10] [--stage object]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partialmethod
from typing import Any

import torch
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model import look as looks
from geocaps.model import object as objects
from geocaps.model import parts
from geocaps.model.autoencoder import untrained
from geocaps.model.blocks import FoldingDecoder
from geocaps.model.parts import Routing, log_likelihood
from geocaps.training import preset
from geocaps.training.batches import Batches, open_data
from geocaps.training.config import STAGES
from geocaps.training.distributed import World
from geocaps.training.loop import SPACING, StepGradients
from geocaps.training.run import keep_freed_memory
from geocaps.training.stage import Stage, stage_of

BATCH, POINTS, VIEWS, DECODED = 16, 1024, 2, 64


# ── the same sparse algorithm, plain ──────────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def plain_route(points: Tensor, surfaces: Tensor, log_sigma: Tensor) -> Routing:
    j, m = surfaces.shape[1:3]
    square = torch.cdist(points, surfaces.flatten(1, 2)).square().unflatten(-1, (j, m)).amin(-1)
    return Routing.from_dense(torch.softmax(log_likelihood(square, log_sigma[:, None].expand_as(square)), dim=-1))


def plain_pool(routing: Routing, embed: nn.Module, points: Tensor, viewpoints: Pose) -> Tensor:
    b, j, k = viewpoints.shape
    slot = (routing.part[:, None] * k + torch.arange(k)).flatten()
    cloud = points.flatten(0, 1)[routing.point].repeat_interleave(k, dim=0)
    flat = viewpoints.map(lambda tensor: tensor.flatten(0, 2))[slot]
    local = flat.observe(cloud[:, None])[:, 0]
    values = embed(local) * routing.weight.repeat_interleave(k)[:, None]
    pooled = values.new_zeros(b * j * k, values.shape[1])
    return pooled.scatter_reduce(0, slot[:, None].expand_as(values), values, "amax").view(b, j, k, -1)


def plain_chamfer(x: Tensor, y: Tensor) -> Tensor:
    square = torch.cdist(x, y).square()
    return square.amin(2).mean(1) + square.amin(1).mean(1)


@contextmanager
def replaced(where: Any, **functions: Any) -> Iterator[None]:
    before = {name: getattr(where, name) for name in functions}
    for name, function in functions.items():
        setattr(where, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(where, name, function)


# ── timing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stopwatch:
    """Time spent in each kind of work; what is called from within another counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.stack: list[str] = []
        self.since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        if self.stack:
            self.seconds[self.stack[-1]] += now - self.since
        self.since = now

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        self.switch()
        self.stack.append(name)
        try:
            yield
        finally:
            self.switch()
            self.stack.pop()

    def wrap(self, name: str, function: Callable) -> Callable:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timing(name):
                return function(*args, **kwargs)

        return timed


def split(stage: str, rounds: int) -> dict[str, float]:
    """Mean seconds of each kind of work in a product step of the ``cpu`` preset, the whole loop's step."""
    watch = Stopwatch()
    loss, gradients = made(stage)
    optimizer = torch.optim.Adam(loss.trained(), lr=1e-4, weight_decay=1e-7)
    gradients(0, 1.0)
    with (
        replaced(objects, chamfer=watch.wrap("loss", objects.chamfer)),
        replaced(Batches, piece=watch.wrap("data", Batches.piece)),
        replaced(parts, chamfer=watch.wrap("loss", parts.chamfer)),
        replaced(Routing, max_pool=watch.wrap("pooling", Routing.max_pool)),
        replaced(parts, farthest_points=watch.wrap("starts", parts.farthest_points)),
        replaced(parts, local_frames=watch.wrap("starts", parts.local_frames)),
        replaced(looks, occupancy=watch.wrap("counting", looks.occupancy)),
        replaced(objects.Look, forward=watch.wrap("looks", objects.Look.forward)),
        replaced(FoldingDecoder, decode=watch.wrap("decoding", FoldingDecoder.decode)),
        replaced(Tensor, backward=watch.wrap("backward", Tensor.backward)),
        embeddings_timed(loss, watch),
    ):
        for step in range(SPACING, SPACING * (rounds + 1), SPACING):  # all draws but the newest are there
            with watch.timing("rest"):
                optimizer.zero_grad(set_to_none=True)
                gradients(step, 1.0)
                with watch.timing("optimiser"):
                    nn.utils.clip_grad_norm_(loss.trained(), 1.0)
                    optimizer.step()
    return {name: seconds / rounds for name, seconds in watch.seconds.items()}


@contextmanager
def embeddings_timed(loss: Stage, watch: Stopwatch) -> Iterator[None]:
    votes = (loss.model.parts.pose_vote, loss.model.parts.feature_vote)
    for vote in votes:
        vote.embed.forward = watch.wrap("embedding", vote.embed.forward)
    try:
        yield
    finally:
        for vote in votes:
            del vote.embed.forward


def made(stage: str) -> tuple[Stage, StepGradients]:
    config = preset("cpu", data="shapes")
    layer = replace(config.model.parts, views=VIEWS, decoded=DECODED)
    config = replace(config, model=replace(config.model, points=POINTS, parts=layer))
    loss = stage_of(stage, untrained(config.model, 0), config)
    reuse = config.reuse(stage)
    batches = Batches(
        open_data(config)[0],
        points=POINTS,
        samplings=loss.samplings,
        batch=config.stage_config(stage).batch // reuse,
        pieces=1,
        augmentation=config.augmentation(stage),
        key=(0, STAGES.index(stage)),
    )
    return loss, StepGradients(loss, loss, batches, World(0, 1, torch.device("cpu")), reuse=reuse)


def compare(rounds: int) -> dict[str, Any]:
    """Median seconds of forward and backward, product and plain in turn, and the loss of each (same draws)."""
    loss, gradients = made("parts")
    points = gradients.batches.piece(0, 0).points[:BATCH, 0]

    def step() -> tuple[float, float]:
        started = time.perf_counter()
        value = loss.model.parts.loss(points, torch.Generator().manual_seed(0)).mean()
        value.backward()
        seconds = time.perf_counter() - started
        loss.zero_grad(set_to_none=True)
        return seconds, float(value.detach())

    times: dict[str, list[float]] = {"product": [], "plain": []}
    found = {}
    for turn in range(rounds + 1):
        seconds, found["product"] = step()
        with (
            replaced(parts.PointsToParts, iterate=partialmethod(parts.PointsToParts.iterate, router=plain_route)),
            replaced(Routing, max_pool=plain_pool),
            replaced(parts, chamfer=plain_chamfer),
        ):
            plain_seconds, found["plain"] = step()
        if turn:
            times["product"].append(seconds)
            times["plain"].append(plain_seconds)
    return {"losses": found} | {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--stage", choices=STAGES, default="parts")
    parser.add_argument("--child", choices=("keep", "give-back"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child == "keep":
            keep_freed_memory()
        print(json.dumps(compare(options.rounds)))
        return

    found = {}
    for memory in ("keep", "give-back"):
        command = [sys.executable, __file__, "--rounds", str(options.rounds), "--child", memory]
        found[memory] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    keep_freed_memory()
    seconds = split(options.stage, options.rounds)
    whole = sum(seconds.values())
    print(f"one step of stage {options.stage}, {torch.get_num_threads()} threads: {1000 * whole:.0f} ms")
    for name, value in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"  {name:<14}{1000 * value:8.1f} ms {value / whole:7.1%}")
    print(f"\nfirst layer, forward and backward (B {BATCH}, N {POINTS}, K {VIEWS}, M {DECODED}), side by side")
    for memory, one in found.items():
        print(
            f"  freed memory: {memory:<10} product {1000 * one['product']:7.0f} ms   plain eager torch "
            f"{1000 * one['plain']:7.0f} ms   {one['plain'] / one['product']:.1f}x   "
            f"losses {one['losses']['product']:.6f} {one['losses']['plain']:.6f}"
        )


if __name__ == "__main__":
    main()
