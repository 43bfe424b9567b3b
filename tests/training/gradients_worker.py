"""The gradients of one step: ``torchrun ... -m tests.training.gradients_worker DATA FILE``, one file a process."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from geocaps.model.autoencoder import untrained
from geocaps.training.batches import Batches, open_data, pieces_of
from geocaps.training.config import STAGES, TrainConfig
from geocaps.training.distributed import World, join
from geocaps.training.loop import StepGradients
from geocaps.training.stage import stage_of
from tests.training import tiny

STEP = 3


def configs(data: str) -> dict[str, TrainConfig]:
    # The paper's start is random: its capsules are drawn from the piece's stream as well.
    made = {"agreement": tiny.config("unused", data), "paper": tiny.paper_config("unused", data)}
    return {
        name: replace(
            one, parts=replace(one.parts, batch=8, accumulate=2), object=replace(one.object, batch=8, accumulate=2)
        )
        for name, one in made.items()
    }


def gradients(config: TrainConfig, stage: str, world: World) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    model = untrained(config.model, 0)
    trained = stage_of(stage, model, config)
    settings = config.stage_config(stage)
    reuse = config.reuse(stage)
    batches = Batches(
        open_data(config)[0],
        points=config.model.points,
        samplings=trained.samplings,
        batch=settings.batch // reuse,
        pieces=pieces_of(settings.batch // reuse, settings.accumulate, world.size),
        augmentation=config.augmentation(stage),
        key=(config.seed, STAGES.index(stage)),
    )
    step = StepGradients(trained, world.wrap(trained), batches, world, reuse=reuse)
    step(STEP, 0.5)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return found, step.object_ids


def main(data: str, file: str) -> None:
    torch.set_num_threads(1)
    world = join("cpu")
    saved = {
        f"{name} {stage}": gradients(config, stage, world) for name, config in configs(data).items() for stage in STAGES
    }
    torch.save(saved, f"{file}.{world.rank}")
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
