"""``geocaps train``: both stages of the model, or one, on any data set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from geocaps.cli.output import UNSET, Count, Flag, Json, Text, show
from geocaps.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from geocaps.training import TrainConfig

_Preset = Optional[Literal["cpu", "paper", "A", "B", "C", "D", "E"]]  # noqa: UP045
_Stage = Optional[Literal["parts", "object", "all"]]  # noqa: UP045


def train(
    out: str,
    data: Text = None,
    preset: Annotated[_Preset, UNSET] = None,
    stage: Annotated[_Stage, UNSET] = None,
    resume: Flag = False,
    split: Text = None,
    classes: Text = None,
    init: Text = None,
    init_object: Annotated[Optional[bool], UNSET] = None,  # noqa: UP045
    budget: Text = None,
    steps: Count = None,
    batch: Count = None,
    learning_rate: Annotated[Optional[float], UNSET] = None,  # noqa: UP045
    seed: Count = None,
    device: Text = None,
    validation_objects: Count = None,
    tensorboard: Annotated[Optional[bool], UNSET] = None,  # noqa: UP045
    json: Json = False,
) -> None:
    """Train a model, in one process or several: torchrun --nproc_per_node 2 -m geocaps train ...

    Example: geocaps train --data my_meshes/ --budget 1h --out runs/mine

    Args:
        out: Folder of the run: OUT/last, OUT/best (with 16 held-out objects or more), metrics.jsonl, tensorboard.
        data: Sources joined by commas: shapes, furniture, or paths (default: shapes).
        preset: cpu (default) is ours; paper and A to E follow the paper's appendices and Table 1.
        stage: parts is the first layer, object the second on top of a frozen first; all (default) is both.
        resume: Continue the run in OUT; options that are not given stay as they were.
        split: Split to train on where a source has splits (default: train).
        classes: Only these classes, joined by commas (default: all).
        init: Checkpoint whose first layer is taken over, for --stage object; shipped: the package's own.
        init_object: Take over the object layer of that checkpoint as well, and train it further.
        budget: Wall-clock time such as 90m or 1h30m; the number of steps is chosen to fit, by measuring.
        steps: Steps of each trained stage; the schedule is stretched to fit.
        batch: Objects in a step of each trained stage (default: the preset's, or fewer if the data have fewer).
        learning_rate: Learning rate of each trained stage.
        seed: Seed of all random draws (default: 0).
        device: auto (default), cpu, cuda, cuda:1, mps.
        validation_objects: Held-out objects measured at each validation (default: 128).
        tensorboard: Write TensorBoard logs (default: yes).
    """
    given = {name: value for name, value in locals().items() if value is not None and name not in ("resume", "json")}
    from geocaps.training.loop import train as run_training

    if not out:
        raise UsageError("--out is empty: name the folder of the run")
    result = run_training(_config(resume, given), resume=resume, reduce_batch=batch is None)
    lines = [
        f"{name}: " + ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        for name, figures in result.figures.items()
    ]
    show(json, vars(result), lines)


def _config(resume: bool, given: dict[str, Any]) -> TrainConfig:
    """The preset, or the resumed run's own configuration, with the options that were given."""
    from geocaps.training.config import preset
    from geocaps.training.run import saved_config, seconds

    per_stage = {name: given.pop(name) for name in ("steps", "batch", "learning_rate") if name in given}
    if "budget" in given and "steps" in per_stage:
        raise UsageError("--budget and --steps both say how long to train: give one of them")
    steps = per_stage.pop("steps", None)
    try:
        if "budget" in given:
            given["budget"] = seconds(given["budget"])
        config = replace(saved_config(given["out"]), **given) if resume else preset(given.pop("preset", "cpu"), **given)
        for stage in config.stages:
            settings = config.stage_config(stage)
            settings = settings if steps is None else settings.fitted(steps)
            changed: dict[str, Any] = {stage: replace(settings, **per_stage)}
            config = replace(config, **changed)
        return config
    except ConfigError as error:
        raise UsageError(str(error)) from error
