"""The training loop: one flat loop for both stages, the stage is data.

Everything random follows from (seed, stage, step, piece), so a run that is killed and resumed, or spread over several
processes, goes through the same batches and the same noise as one that is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from geocaps.errors import GeocapsError, TrainingError
from geocaps.model.checkpoint import save_checkpoint
from geocaps.training.config import STAGES, TrainConfig
from geocaps.training.data import Batches, open_data
from geocaps.training.distributed import World, join
from geocaps.training.gradients import StepGradients, fitted_batches, pieces_of
from geocaps.training.memory import keep_freed_memory
from geocaps.training.monitor import Monitor, RunMonitor, Silence
from geocaps.training.run import RunState, StopSignal, begun, card, resumed, training_state
from geocaps.training.schedule import learning_rate, noise_degrees
from geocaps.training.stages import StageLoss
from geocaps.training.validation import Validation

PARTS_SHARE = 0.3
"""Of a budget for both stages, what the first one gets."""
LEAST_TO_CHOOSE = 16
"""Held-out objects below which validation figures do not choose a checkpoint: they would choose by chance."""
_VALIDATION_SHARE = 0.1
_TIMING_SHARE = 0.03
_DIVERGED = 10.0
"""A smoothed loss so many times the first one is a training that went wrong."""


@dataclass(frozen=True)
class TrainResult:
    """Where the checkpoints are, and the last validation figures of each stage."""

    out: Path
    steps: int
    figures: dict[str, dict[str, float]]
    last: Path
    best: Path | None
    """The checkpoint with the best validation figure; None where too few objects were held out to tell."""
    validation_objects: int


def train(config: TrainConfig, *, resume: bool = False, reduce_batch: bool = True) -> TrainResult:
    """Trains the stages of ``config`` one after the other. Checkpoints: ``OUT/last``, ``OUT/best``, ``OUT/parts``.

    A batch that is larger than the data is reduced to what there is, which is said; without ``reduce_batch`` it is
    refused. ``OUT/best`` is chosen on 16 held-out objects or more; with fewer there is none.
    """
    keep_freed_memory()
    is_new = not Path(config.out).exists()
    world = join(config.device)
    try:
        with ExitStack() as stack:
            return _train(config, resume, reduce_batch, world, stack)
    finally:
        world.close()
        if is_new:
            with suppress(OSError):
                Path(config.out).rmdir()  # only where nothing is in it: the run never began


def _train(config: TrainConfig, resume: bool, reduce_batch: bool, world: World, stack: ExitStack) -> TrainResult:
    clock = time.monotonic()
    out = Path(config.out)
    dataset, held_out = open_data(config)
    config, reduced = fitted_batches(config, dataset, world.size, reduce=reduce_batch)
    validation = Validation(held_out, config.validation_objects, config.model.points)
    if resume:
        model, state, optimizer_state = resumed(config, dataset.fingerprint)
    else:
        model = world.agreed(begun(config) if world.is_writer else None)
        state, optimizer_state = RunState(config.stages[0]), None
    clock -= state.elapsed
    model.to(world.device).train()
    monitor: Monitor = RunMonitor(out, config.tensorboard) if world.is_writer else Silence()
    stack.enter_context(closing(monitor))
    stop = stack.enter_context(StopSignal())
    held = len(validation.first)
    monitor.say(f"training on {len(dataset)} objects of {dataset.name}, validating on {held}, in {out}")
    for sentence in reduced:
        monitor.say(sentence)
    chooses = held >= LEAST_TO_CHOOSE
    if not chooses:
        monitor.say(
            f"no best checkpoint will be chosen: {held} held-out {'object is' if held == 1 else 'objects are'} too few "
            f"to tell, {LEAST_TO_CHOOSE} are needed; the result is {out / 'last'}"
        )

    def save(name: str, optimizer: torch.optim.Optimizer | None = None) -> None:
        if world.is_writer:
            saved = None
            if optimizer is not None:
                saved = training_state(config, state, dataset.fingerprint, optimizer.state_dict())
            save_checkpoint(out / name, model, card=card(config, dataset, state), training_state=saved)

    def validate() -> None:
        """Measures, and keeps the best; only the writer does, the others wait for it in the next step."""
        if world.is_writer:
            figures = validation.figures(model, state.stage, world.device)
            state.figures[state.stage] = figures
            monitor.validation(state.step, figures, validation.pictures(model, state.stage, world.device))
            figure = figures[config.stage_config(state.stage).best_by]
            if chooses and (state.best is None or figure < state.best):
                state.best = figure
                save("best")

    for stage in config.stages[config.stages.index(state.stage) :]:
        if stage != state.stage:
            state, optimizer_state = state.next_stage(stage), None
        settings = config.stage_config(stage)
        reuse = config.objective.reuse if stage == "object" else 1
        pieces = pieces_of(settings.batch // reuse, settings.accumulate, world.size)
        loss = StageLoss(model, stage, config.objective)
        optimizer = torch.optim.Adam(loss.trained(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
        averaged = world.wrap(loss)
        batches = Batches(
            dataset,
            points=config.model.points,
            views=loss.views,
            batch=settings.batch // reuse,
            pieces=pieces,
            augmentation=config.augmentation(stage),
            key=(config.seed, STAGES.index(stage)),
        )
        step_gradients = StepGradients(loss, averaged, batches, world, reuse=reuse)

        if state.steps == 0:
            monitor.begin(stage, 0, settings.steps if config.budget is None else None)
            state.steps, state.validate_every = settings.steps, max(1, settings.steps // config.validations)
            before = time.monotonic()
            validate()
            validation_seconds = time.monotonic() - before
            if config.budget is not None:
                step_seconds = step_gradients.seconds(limit=_TIMING_SHARE * config.budget)
                share = PARTS_SHARE if stage == "parts" and config.stage == "all" else 1.0
                left = share * config.budget - (time.monotonic() - clock)
                state.steps, state.validate_every = world.agreed(
                    fitted_steps(left, step_seconds, validation_seconds, config.validations)
                )
            state.elapsed = time.monotonic() - clock
            save("last", optimizer)
        elif optimizer_state is not None:
            optimizer.load_state_dict(optimizer_state)
        settings = settings.fitted(state.steps)
        monitor.begin(stage, state.step, state.steps)

        while state.step < state.steps:
            started = time.perf_counter()
            rate = learning_rate(settings, state.step)
            noise = noise_degrees(config.objective, state.step, state.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            with _explained(state, step_gradients, config):
                record = step_gradients(state.step, noise)
            norm = float(nn.utils.clip_grad_norm_(loss.trained(), settings.clip or math.inf))
            _require_sound(record["loss"], norm, state, step_gradients, config, world)
            optimizer.step()
            state.step += 1

            seconds = time.perf_counter() - started
            record |= {"learning_rate": rate, "gradient_norm": norm, "seconds": seconds}
            record["objects_per_second"] = settings.batch / seconds
            if stage == "object":
                record["noise_degrees"] = noise
            state.elapsed = time.monotonic() - clock
            monitor.step(state.step, record, log=state.step % config.log_every == 0)
            if state.step % state.validate_every == 0 or state.step == state.steps:
                with _explained(state, step_gradients, config):
                    validate()
            stopping = world.any(stop.asked)
            if stopping or state.step % config.save_every == 0 or state.step == state.steps:
                save("last", optimizer)
            if stopping and state.step < state.steps:
                raise TrainingError(
                    f"stopped as asked at step {state.step} of {state.steps} of stage {stage}; everything is in {out}: "
                    f"continue with  geocaps train --out {out} --resume"
                )
        if stage == "parts":
            save("parts")
    last, best = out / "last", out / "best" if chooses else None
    monitor.say(f"done: {last}" + (f" and {best}" if best else ""))
    return TrainResult(out, state.steps, state.figures, last, best, held)


def fitted_steps(left: float, step_seconds: float, validation_seconds: float, validations: int) -> tuple[int, int]:
    """Steps, and steps between validations, that fit into the time left; validation gets a tenth of it at most."""
    validations = max(1, min(validations, int(_VALIDATION_SHARE * left / max(validation_seconds, 1e-9))))
    steps = max(1, int((left - validations * validation_seconds) / step_seconds))
    return steps, max(1, steps // validations)


def _where(state: RunState, gradients: StepGradients, config: TrainConfig) -> str:
    return (
        f"at step {state.step} of stage {state.stage}; the batch held {', '.join(gradients.object_ids)}; the last good "
        f"checkpoint is {Path(config.out) / 'last'}: look at these objects with  geocaps data info , or train anew "
        "with a smaller --learning-rate"
    )


@contextmanager
def _explained(state: RunState, gradients: StepGradients, config: TrainConfig) -> Iterator[None]:
    """Weights that have run away can fail before there is a loss: no nearest point of one that is not finite."""
    try:
        yield
    except GeocapsError:
        raise
    except ValueError as error:
        raise TrainingError(
            f"the model's numbers are no longer finite ({error}) {_where(state, gradients, config)}"
        ) from error


def _require_sound(
    loss: float, norm: float, state: RunState, gradients: StepGradients, config: TrainConfig, world: World
) -> None:
    """Stops before a weight is touched when the loss or a gradient is not finite, or the loss runs away."""
    where = _where(state, gradients, config)
    if world.any(not (math.isfinite(loss) and math.isfinite(norm))):
        raise TrainingError(f"the loss is {loss} and its gradient's norm {norm} {where}")
    state.start_loss = loss if state.start_loss is None else state.start_loss
    state.smooth_loss = loss if state.smooth_loss is None else 0.9 * state.smooth_loss + 0.1 * loss
    if world.any(state.smooth_loss > _DIVERGED * state.start_loss):
        raise TrainingError(f"the loss grew from {state.start_loss:.4g} to {state.smooth_loss:.4g} {where}")
