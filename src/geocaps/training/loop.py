"""The training loop, one flat loop for all stages.

Everything random follows from (seed, stage, step, piece), so a run that is killed and resumed, or distributed over
several processes, has the same batches and the same noise as one that is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from geocaps.errors import GeocapsError, TrainingError
from geocaps.model.checkpoint import save_checkpoint
from geocaps.training.batches import Batches, fitted_batches, open_data, pieces_of, random_stream
from geocaps.training.config import STAGES, StageConfig, TrainConfig
from geocaps.training.distributed import World, join
from geocaps.training.monitor import Monitor, RunMonitor
from geocaps.training.run import Kept, RunState, StopSignal, begun, card, keep_freed_memory, resumed, training_state
from geocaps.training.stage import Prepared, Stage, joined, pictured, stage_of
from geocaps.training.validation import Validation

PARTS_SHARE = 0.3
"""The first stage's share of a budget for both stages."""
LEAST_TO_CHOOSE = 16
"""The number of held-out objects below which no best checkpoint is chosen, because chance would decide."""
_VALIDATION_SHARE = 0.1
_TIMING_SHARE = 0.03
_DIVERGED = 10.0
"""A training has diverged if its smoothed loss is this many times the first one."""


@dataclass(frozen=True)
class TrainResult:
    """The checkpoints, and the last validation figures of each stage."""

    out: Path
    steps: int
    figures: dict[str, dict[str, float]]
    last: Path
    best: Path | None
    """The checkpoint with the best validation figure; None if too few objects were held out."""
    validation_objects: int


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    reduce_batch: bool = True,
    draws: Draws | None = None,
    until: int | None = None,
) -> TrainResult:
    """Trains the stages of ``config`` one after the other. Checkpoints: ``OUT/last``, ``OUT/best``, ``OUT/parts``.

    A batch that is larger than the data set is reduced, with a message; without ``reduce_batch`` it is an error.
    ``OUT/best`` is chosen on at least 16 held-out objects; with fewer there is none. ``draws``, kept by the caller, are
    shared by trainings of the paper's object layer that differ in nothing that these depend on. With ``until``, a
    training of one stage stops after that many of its steps, to be resumed later.
    """
    keep_freed_memory()
    is_new = not Path(config.out).exists()
    world = join(config.device)
    try:
        with ExitStack() as stack:
            return _train(config, resume, reduce_batch, draws, until, world, stack)
    finally:
        world.close()
        if is_new:
            with suppress(OSError):
                Path(config.out).rmdir()  # only if it is empty: the run never started


def _train(
    config: TrainConfig,
    resume: bool,
    reduce_batch: bool,
    draws: Draws | None,
    until: int | None,
    world: World,
    stack: ExitStack,
) -> TrainResult:
    clock = time.monotonic()
    out = Path(config.out)
    dataset, held_out = open_data(config)
    config, reduced = fitted_batches(config, dataset, world.size, reduce=reduce_batch)
    validation = Validation(held_out, config.validation_objects, config.model.points)
    if resume:
        model, state, kept = resumed(config, dataset.fingerprint)
    else:
        model = world.agreed(begun(config) if world.is_writer else None)
        state, kept = RunState(config.stages[0]), None
    clock -= state.elapsed
    model.to(world.device).train()
    monitor = RunMonitor(out, config.tensorboard) if world.is_writer else Monitor()
    stack.enter_context(closing(monitor))
    stop = stack.enter_context(StopSignal())
    held = len(validation.first)
    monitor.say(f"training on {len(dataset)} objects of {dataset.name}, validating on {held}, in {out}")
    for sentence in reduced:
        monitor.say(sentence)
    chooses = held >= LEAST_TO_CHOOSE
    if not chooses:
        monitor.say(
            f"no best checkpoint will be chosen: {held} held-out {'object is' if held == 1 else 'objects are'} too "
            f"few, {LEAST_TO_CHOOSE} are needed; the result is {out / 'last'}"
        )

    def save(name: str, keep: Kept | None = None) -> None:
        if world.is_writer:
            saved = None if keep is None else training_state(config, state, dataset.fingerprint, keep)
            save_checkpoint(out / name, model, card=card(config, dataset, state), training_state=saved)

    def validate(stage: Stage) -> None:
        """Validates and saves the best checkpoint, in the writer only; the others wait for it in the next step."""
        if world.is_writer:
            model.eval()
            with torch.no_grad():
                figures = stage.figures(validation, world.device)
                pictures = pictured(validation, stage, world.device)
            model.train()
            state.figures[state.stage] = figures
            monitor.validation(state.step, figures, pictures)
            figure = figures[config.stage_config(state.stage).best_by]
            if chooses and (state.best is None or figure < state.best):
                state.best = figure
                save("best")

    for name in config.stages[config.stages.index(state.stage) :]:
        if name != state.stage:
            state, kept = state.next_stage(name), None
        settings = config.stage_config(name)
        reuse = config.reuse(name)
        pieces = pieces_of(settings.batch // reuse, settings.accumulate, world.size)
        stage = stage_of(name, model, config)
        optimizer = torch.optim.Adam(stage.trained(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
        averaged = world.wrap(stage)
        batches = Batches(
            dataset,
            points=config.model.points,
            samplings=stage.samplings,
            batch=settings.batch // reuse,
            pieces=pieces,
            augmentation=config.augmentation(name),
            key=(config.seed, STAGES.index(name)),
        )
        step_gradients = StepGradients(stage, averaged, batches, world, reuse=reuse, kept=draws)

        if state.steps == 0:
            monitor.begin(name, 0, settings.steps if config.budget is None else None)
            state.steps, state.validate_every = settings.steps, max(1, settings.steps // config.validations)
            before = time.monotonic()
            validate(stage)
            validation_seconds = time.monotonic() - before
            if config.budget is not None:
                step_seconds = step_gradients.seconds(limit=_TIMING_SHARE * config.budget)
                share = PARTS_SHARE if name == "parts" and config.stage == "all" else 1.0
                left = share * config.budget - (time.monotonic() - clock)
                state.steps, state.validate_every = world.agreed(
                    fitted_steps(left, step_seconds, validation_seconds, config.validations)
                )
            state.elapsed = time.monotonic() - clock
            save("last", Kept(optimizer.state_dict(), stage.found()))
        elif kept is not None:
            optimizer.load_state_dict(kept.optimizer)
            stage.restore(kept.found)
            batches.group(stage.similar())
        settings = settings.fitted(state.steps)
        monitor.begin(name, state.step, state.steps)
        end = state.steps if until is None else min(state.steps, until)

        while state.step < end:
            started = time.perf_counter()
            rate = learning_rate(settings, state.step)
            share = state.step / state.steps
            if stage.survey_is_due(share):
                monitor.say(f"step {state.step}: looking for a frame that similar objects share")
                stage.survey(dataset, world)
                batches.group(stage.similar())
                step_gradients.forget()
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            with _explained(state, step_gradients, config):
                record = step_gradients(state.step, share)
            if (fault := stage.fault(state.step, record)) is not None:
                raise TrainingError(f"{fault}; what was logged until then is in {out / 'metrics.jsonl'}")
            norm = float(nn.utils.clip_grad_norm_(stage.trained(), settings.clip or math.inf))
            _require_sound(record["loss"], norm, state, step_gradients, config, world)
            optimizer.step()
            state.step += 1

            seconds = time.perf_counter() - started
            record |= {"learning_rate": rate, "gradient_norm": norm, "seconds": seconds}
            record["objects_per_second"] = settings.batch / seconds
            if (noise := stage.noise_degrees(share)) is not None:
                record["noise_degrees"] = noise
            state.elapsed = time.monotonic() - clock
            monitor.step(state.step, record, log=state.step % config.log_every == 0)
            if state.step % state.validate_every == 0 or state.step == end:
                with _explained(state, step_gradients, config):
                    validate(stage)
            stopping = world.any(stop.asked)
            if stopping or state.step % config.save_every == 0 or state.step == end:
                save("last", Kept(optimizer.state_dict(), stage.found()))
            if stopping and state.step < end:
                raise TrainingError(
                    f"stopped as asked at step {state.step} of {state.steps} of stage {name}; everything is in {out}: "
                    f"continue with  geocaps train --out {out} --resume"
                )
        if name == "parts" and state.step == state.steps:
            save("parts")
    last, best = out / "last", out / "best" if chooses else None
    monitor.say(f"done: {last}" + (f" and {best}" if best else ""))
    return TrainResult(out, state.step, state.figures, last, best, held)


def learning_rate(stage: StageConfig, step: int) -> float:
    """The rate: held at first, then a linear warm-up, then the paper's step decays, or half a cosine to a hundredth."""
    if step < stage.hold:
        return stage.hold_rate
    begun = stage.hold + stage.warmup
    if step < begun:
        low = stage.hold_rate if stage.hold else 0.0
        return low + (stage.learning_rate - low) * (step - stage.hold + 1) / stage.warmup
    if stage.schedule == "decay":
        return stage.learning_rate * stage.decay_factor ** sum(step >= at for at in stage.decay_at)
    progress = (step - begun) / max(1, stage.steps - begun)
    return stage.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def fitted_steps(left: float, step_seconds: float, validation_seconds: float, validations: int) -> tuple[int, int]:
    """Steps, and steps between validations, that fit into the time left, at most a tenth of it for validation."""
    validations = max(1, min(validations, int(_VALIDATION_SHARE * left / max(validation_seconds, 1e-9))))
    steps = max(1, int((left - validations * validation_seconds) / step_seconds))
    return steps, max(1, steps // validations)


def _where(state: RunState, gradients: StepGradients, config: TrainConfig) -> str:
    return (
        f"at step {state.step} of stage {state.stage}; the batch held {', '.join(gradients.object_ids)}; the last good "
        f"checkpoint is {Path(config.out) / 'last'}: check these objects with  geocaps data info , or train again "
        "with a smaller --learning-rate"
    )


@contextmanager
def _explained(state: RunState, gradients: StepGradients, config: TrainConfig) -> Iterator[None]:
    """Explains errors from diverged weights before there is a loss: a point that is not finite has no nearest one."""
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
    """Stops before any weight changes if the loss or a gradient is not finite, or if the loss diverges."""
    where = _where(state, gradients, config)
    if world.any(not (math.isfinite(loss) and math.isfinite(norm))):
        raise TrainingError(f"the loss is {loss} and its gradient's norm {norm} {where}")
    state.start_loss = loss if state.start_loss is None else state.start_loss
    state.smooth_loss = loss if state.smooth_loss is None else 0.9 * state.smooth_loss + 0.1 * loss
    if world.any(state.smooth_loss > _DIVERGED * state.start_loss):
        raise TrainingError(f"the loss grew from {state.start_loss:.4g} to {state.smooth_loss:.4g} {where}")


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SPACING = 8
"""Number of steps between two uses of the same draw, so that neighbouring steps share no objects."""


@dataclass(frozen=True)
class _Draw:
    """Some objects of a batch, as prepared by the stage."""

    seen: Prepared
    object_ids: tuple[str, ...]


Draws = dict[tuple[int, int], _Draw]
"""Draws by their number and piece. They follow from the data, the seed, the sizes of batches and the first layer."""


class StepGradients:
    """Forward and backward passes for this process's pieces of one step, with times for each phase.

    With ``reuse``, a step takes its objects from that many draws, of which only the newest is made in that step: draw d
    is used in the steps d, d - SPACING, d - 2·SPACING, …, each time with other draws, and then never again. The draws
    of a step follow from the step alone, so there is nothing to save: a resumed run makes the missing ones. All draws
    stay in ``kept``, if it is given, and those that are there already are not made again.
    """

    def __init__(
        self,
        stage: Stage,
        averaged: nn.Module,
        batches: Batches,
        world: World,
        *,
        reuse: int = 1,
        kept: Draws | None = None,
    ) -> None:
        self.stage, self.averaged, self.batches, self.world, self.reuse = stage, averaged, batches, world, reuse
        self.kept = kept
        self.mine = range(world.rank, batches.pieces, world.size)
        self.object_ids: tuple[str, ...] = ()
        self._pool: Draws = {}
        self._data_seconds = self._parts_seconds = 0.0

    def __call__(self, step: int, share: float) -> dict[str, float]:
        """Computes gradients averaged over all pieces; returns the means of the terms and the shares of time."""
        sums: dict[str, Tensor] = {}
        started = time.perf_counter()
        self._data_seconds = self._parts_seconds = 0.0
        self.object_ids = ()
        for piece in self.mine:
            drawn = self._drawn(step, piece)
            self.object_ids += drawn.object_ids
            generator = random_stream(*self.batches.key, 2, step, piece)
            with self._averaging(piece == self.mine[-1]):
                terms = self.averaged(drawn.seen, share, generator)
                (terms["loss"] / len(self.mine)).backward()
            for name, term in terms.items():
                sums[name] = sums.get(name, torch.zeros_like(term)) + term.detach() / len(self.mine)
        record = self.world.mean({name: float(term) for name, term in sums.items()})
        whole = time.perf_counter() - started
        record["data_share"] = self._data_seconds / whole
        if self.stage.name == "object":
            record["parts_share"] = self._parts_seconds / whole
        return record

    def _drawn(self, step: int, piece: int) -> _Draw:
        """The objects of one piece, from the oldest draw (used for the last time) to the newest (for the first)."""
        draws = []
        for number in range(step, step + self.reuse * SPACING, SPACING):
            if (number, piece) not in self._pool:
                self._pool[number, piece] = self._fresh(number, piece)
            draws.append(self._pool[number, piece])
        del self._pool[step, piece]
        return _Draw(
            joined([draw.seen for draw in draws]),
            tuple(name for draw in draws for name in draw.object_ids),
        )

    def _fresh(self, number: int, piece: int) -> _Draw:
        if self.kept is not None and (number, piece) in self.kept:
            return self.kept[number, piece]
        before = time.perf_counter()
        batch = self.batches.piece(number, piece)
        points = batch.points.to(self.world.device)
        between = time.perf_counter()
        batch = replace(batch, points=points)
        seen = self.stage.prepare(batch, random_stream(*self.batches.key, 3, number, piece))
        self._data_seconds += between - before
        self._parts_seconds += time.perf_counter() - between
        draw = _Draw(seen, batch.object_ids)
        if self.kept is not None:
            self.kept[number, piece] = draw
        return draw

    def forget(self) -> None:
        """Drops all draws, as they are out of date."""
        self._pool.clear()

    def _averaging(self, last: bool) -> AbstractContextManager[None]:
        """Averages over processes once per step, with the last piece."""
        if isinstance(self.averaged, DistributedDataParallel) and not last:
            return self.averaged.no_sync()
        return nullcontext()

    def seconds(self, limit: float, tries: int = 2) -> float:
        """The time of a step: the mean of a few after a first one, none of which changes weights.

        If steps are slow, only one is timed: after ``limit`` seconds there is no second.
        """
        began = time.monotonic()
        self(0, 0.0)
        started, timed = time.monotonic(), 0
        while timed == 0 or (timed < tries and self.world.agreed(time.monotonic() - began < limit)):
            timed += 1
            self(timed * SPACING, 0.0)  # as later on: all draws but the newest exist already
        self.stage.zero_grad(set_to_none=True)
        self.forget()
        return (time.monotonic() - started) / timed
