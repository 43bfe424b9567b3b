"""``geocaps train``: both stages of the model, or one, on any data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from geocaps.cli.output import UNSET, console, print_json
from geocaps.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from geocaps.training import TrainConfig


def train(
    out: str,
    data: Annotated[str | None, UNSET] = None,
    preset: Annotated[Literal["cpu", "paper", "A", "B", "C", "D", "E"] | None, UNSET] = None,
    stage: Annotated[Literal["parts", "object", "all"] | None, UNSET] = None,
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    split: Annotated[str | None, UNSET] = None,
    classes: Annotated[str | None, UNSET] = None,
    init: Annotated[str | None, UNSET] = None,
    budget: Annotated[str | None, UNSET] = None,
    steps: Annotated[int | None, UNSET] = None,
    batch: Annotated[int | None, UNSET] = None,
    learning_rate: Annotated[float | None, UNSET] = None,
    seed: Annotated[int | None, UNSET] = None,
    device: Annotated[str | None, UNSET] = None,
    validation_objects: Annotated[int | None, UNSET] = None,
    tensorboard: Annotated[bool | None, UNSET] = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a model. Several processes: torchrun --nproc_per_node 2 -m geocaps train ...

    Example: geocaps train --data my_meshes/ --budget 1h --out runs/mine

    Args:
        out: Folder of the run: OUT/last, OUT/best (with 16 held-out objects or more), metrics.jsonl, tensorboard.
        data: Sources joined by commas: shapes, furniture, or paths (default: shapes).
        preset: cpu (default) is ours; paper and A to E follow the paper's appendices and Table 1.
        stage: parts is the first layer, object the second on a frozen first; all (default) is both.
        resume: Continue the run in OUT; options that are not given stay as they were.
        split: Split to train on where a source has splits (default: train).
        classes: Only these classes, joined by commas (default: all).
        init: Checkpoint whose first layer is taken over, for --stage object; shipped is the package's own.
        budget: Wall-clock time such as 90m or 1h30m; the number of steps is measured to fit.
        steps: Steps of each stage trained; the schedule is stretched to it.
        batch: Objects in a step, of each stage trained (default: the preset's, or fewer where the data have fewer).
        learning_rate: Of each stage trained.
        seed: Start of every random stream (default: 0).
        device: auto (default), cpu, cuda, cuda:1, mps.
        validation_objects: Held-out objects measured at each validation (default: 128).
        tensorboard: Write TensorBoard logs (default: yes).
        json: One JSON object with the final figures on standard output.
    """
    from geocaps.training.loop import train as run_training

    if not out:
        raise UsageError("--out is empty: name the folder of the run")
    given = {
        "data": data,
        "preset": preset,
        "stage": stage,
        "split": split,
        "classes": classes,
        "init": init,
        "seed": seed,
        "device": device,
        "validation_objects": validation_objects,
        "tensorboard": tensorboard,
        "out": out,
    }
    config = _config(
        out,
        resume,
        {name: value for name, value in given.items() if value is not None},
        budget=budget,
        changes={
            name: value
            for name, value in {"steps": steps, "batch": batch, "learning_rate": learning_rate}.items()
            if value is not None
        },
    )
    result = run_training(config, resume=resume, reduce_batch=batch is None)
    if json:
        print_json({name: str(one) if isinstance(one, Path) else one for name, one in vars(result).items()})
    else:
        for stage_name, figures in result.figures.items():
            figures_text = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            console().print(f"{stage_name}: {figures_text}", markup=False, soft_wrap=True)


def _config(out: str, resume: bool, given: dict[str, Any], budget: str | None, changes: dict[str, Any]) -> TrainConfig:
    """The preset, or the resumed run's own configuration, with what was said on the command line."""
    from geocaps.training.config import preset
    from geocaps.training.run import saved_config, seconds

    if budget is not None and "steps" in changes:
        raise UsageError("--budget and --steps both say how long to train: give one of them")
    try:
        if budget is not None:
            given["budget"] = seconds(budget)
        config = replace(saved_config(out), **given) if resume else preset(given.pop("preset", "cpu"), **given)
        for stage in config.stages:
            settings = config.stage_config(stage)
            settings = settings.fitted(changes["steps"]) if "steps" in changes else settings
            rest = {name: value for name, value in changes.items() if name != "steps"}
            changed: dict[str, Any] = {stage: replace(settings, **rest)}
            config = replace(config, **changed)
        return config
    except ConfigError as error:
        raise UsageError(str(error)) from error
