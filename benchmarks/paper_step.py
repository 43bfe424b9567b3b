"""One training step of the paper's object layer, setting by setting: as Table 1 was trained in 0.1.0, and now.

Both at the sizes of today's Table 1 (width 128, two blocks), on the same objects, with the same first layer: that of
``--weights``, such as runs/table1/parts/last, or the one that ships. The two take turns, so that other work on the
machine hits both; processor time of a whole step (gradients, clipping, Adam).

Run:  OMP_NUM_THREADS=1 python benchmarks/paper_step.py [--rounds 10] [--settings A,E] [--weights DIR]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from geocaps.evaluation.table1 import OBJECTIVES, SETTINGS, configuration
from geocaps.model.autoencoder import untrained
from geocaps.model.checkpoint import SHIPPED, load_named
from geocaps.training import PaperObjective, TrainConfig
from geocaps.training.batches import Batches, open_data
from geocaps.training.distributed import World
from geocaps.training.loop import SPACING, StepGradients
from geocaps.training.run import keep_freed_memory
from geocaps.training.stage import stage_of

BEFORE = {"reuse": 16, "target_points": 512, "decoded_points": None}
"""Of 0.1.0: steps that see a decomposition, points of the cloud and of each part that are compared."""


def stepper(config: TrainConfig, weights: str) -> Callable[[], float]:
    """A function that takes one step and gives its seconds; draws that only the first steps make are made."""
    model = untrained(config.model, 0)
    model.parts.load_state_dict(load_named(weights).parts.state_dict())
    stage = stage_of("object", model, config)
    reuse = config.reuse("object")
    batches = Batches(
        open_data(config)[0],
        points=config.model.points,
        samplings=stage.samplings,
        batch=config.object.batch // reuse,
        pieces=1,
        augmentation=config.object_augmentation,
        key=(0, 1),
    )
    gradients = StepGradients(stage, stage, batches, World(0, 1, torch.device("cpu")), reuse=reuse)
    optimizer = torch.optim.Adam(stage.trained(), lr=1e-4)
    taken = 0

    def step() -> float:
        nonlocal taken
        started = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        gradients(taken * SPACING, 0.5)  # all draws but the newest are there
        nn.utils.clip_grad_norm_(stage.trained(), 1.0)
        optimizer.step()
        taken += 1
        return time.process_time() - started

    step()
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--data", default="shapes")
    parser.add_argument("--weights", default=SHIPPED)
    options = parser.parse_args()
    keep_freed_memory()
    first_layer = load_named(options.weights).config.parts
    print(f"seconds a step, batch of 32, {torch.get_num_threads()} threads, median of {options.rounds}")
    for letter in options.settings.split(","):
        for name in OBJECTIVES:
            now = replace(
                configuration(letter, first_layer, name, paper_sizes=False),
                data=options.data,
            )
            assert isinstance(now.objective, PaperObjective)
            before = replace(now, objective=replace(now.objective, **BEFORE))
            steps = stepper(before, options.weights), stepper(now, options.weights)
            seconds = [[step() for step in steps] for _ in range(options.rounds)]
            old, new = (statistics.median(column) for column in zip(*seconds, strict=True))
            steps_a_second = f"before {1 / old:.1f}, now {1 / new:.1f} steps a second"
            print(
                f"{letter} {name:8} before {old:.3f}, now {new:.3f} s: {old / new:.1f}x ({steps_a_second})", flush=True
            )


if __name__ == "__main__":
    main()
