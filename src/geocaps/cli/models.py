"""``geocaps train``, ``eval``, ``demo`` and ``bench``: models trained, their accuracy measured, and their speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from geocaps.cli.output import UNSET, Count, Flag, Json, OutFolder, Text, Weights, print_json, show, show_table, tell
from geocaps.errors import ConfigError, UsageError, install_hint

if TYPE_CHECKING:
    from geocaps.data import PointDataset
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
        out: Folder of the run: OUT/last, OUT/best (with at least 16 held-out objects), metrics.jsonl, tensorboard.
        data: Data sets, separated by commas: shapes, furniture, or paths (default: shapes).
        preset: cpu (default) is ours; paper and A to E follow the paper's appendices and Table 1.
        stage: parts is the first layer, object the second on top of a frozen first; all (default) is both.
        resume: Continue the run in OUT; options that are not given keep their values.
        split: Split to train on where a source has splits (default: train).
        classes: Only these classes, separated by commas (default: all).
        init: Checkpoint to take the first layer from, for --stage object; shipped: the package's own.
        init_object: Start from the object layer of that checkpoint as well.
        budget: Wall-clock time such as 90m or 1h30m; step times are measured to choose the number of steps.
        steps: Steps in each trained stage; the schedule is stretched to fit.
        batch: Objects per step in each trained stage (default: the preset's, or fewer if the data have fewer).
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
    """The preset, or the configuration of the resumed run, with the options that were given."""
    from geocaps.training.config import preset
    from geocaps.training.run import saved_config, seconds

    per_stage = {name: given.pop(name) for name in ("steps", "batch", "learning_rate") if name in given}
    if "budget" in given and "steps" in per_stage:
        raise UsageError("--budget and --steps both set how long to train: give one of them")
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


DEFAULT_PROTOCOLS = ("parts", "points", "resampled", "noisy", "partial")
BENCH_POINTS = (1_000, 10_000, 100_000, 1_000_000)


def evaluate(
    weights: Weights = None,
    data: str = "shapes",
    protocol: Text = None,
    classes: Text = None,
    split: Text = None,
    points: int = 1024,
    trials: int = 1,
    baselines: Text = None,
    ablate_parts: Flag = False,
    seed: int = 0,
    json: Json = False,
    out: OutFolder = None,
    report: OutFolder = None,
    table1: Flag = False,
    budget: str = "5m",
    steps: Count = None,
    until: Count = None,
    settings: str = "A,B,C,D,E",
    objective: Literal["paper", "chamfer"] = "paper",
    train_data: str = "shapes",
    train_classes: Text = None,
    paper_sizes: Flag = False,
) -> None:
    """Evaluate a model: rotation error and retrieval between two clouds of each object, compared with chance.

    Example:  geocaps eval --data furniture --protocol resampled --baselines pca,pca_icp
              geocaps eval --data shapes --report evaluation/
              geocaps eval --table1 --budget 5m --out runs/table1

    Args:
        data: shapes, furniture, an .npz file, an HDF5 file or folder, or a folder of meshes and clouds.
        protocol: Protocols, separated by commas, each with its own kind of second cloud: parts, points, resampled,
            noisy, outliers, partial, partial50, scan; or all (default: parts, points, resampled, noisy, partial).
        classes: Only these classes, separated by commas.
        split: train, val, test or all (default: test where the set has one, else all).
        points: Points in each cloud.
        trials: If more than 1, each rotation is the best of that many candidates by Chamfer distance, and labelled so.
        baselines: Names separated by commas (align, pca, pca_flips, pca_icp, trimesh, open3d, open3d_fgr, kiss_matcher,
            pca_chamfer, d2, fpfh), or all, for those that are installed.
        ablate_parts: Add rows in which the object layer gets another object's parts, or only half of its own.
        seed: Seed of all random draws; the same seed gives the same figures.
        out: Folder for results.json, results.md and the figures; with --table1 also for the runs.
        report: Folder for report.html, a single page with all tables and figures.
        table1: Train the paper's settings A to E (or read finished runs) and print its Table 1 beside ours.
        budget: With --table1: training time of each setting, such as 5m or 1h, and of their common first layer, unless
            --weights names one.
        steps: With --table1: the number of steps of each setting, instead of a time.
        until: With --table1: measure each setting after that many of its steps; without it later, they go on.
        settings: With --table1: only these, separated by commas, so that several processes can share the work.
        objective: With --table1: paper trains on L_part + 0.01 Chamfer, chamfer on 10 Chamfer alone (ours).
        train_data: With --table1: the data set to train on.
        train_classes: With --table1: only these classes of it, separated by commas (default: all).
        paper_sizes: With --table1: the paper's own layer sizes (days on a CPU) instead of small ones.
    """
    from geocaps.atomic import make_folder
    from geocaps.model.checkpoint import SHIPPED

    dataset = _dataset(data, split, classes)
    name = SHIPPED if weights is None else str(weights)
    if table1:
        if report is not None or baselines is not None or trials != 1 or ablate_parts:
            raise UsageError(
                "--table1 trains its own models: it takes no --baselines, --trials, --ablate-parts or --report"
            )
        if out is None:
            raise UsageError("--table1 needs --out DIR, the folder for its runs")
        from geocaps.evaluation import figures
        from geocaps.evaluation.table1 import table1 as run_table1
        from geocaps.evaluation.table1_report import paper_table, write_table1

        make_folder(out)
        rows = run_table1(
            dataset,
            out,
            budget=_budget(budget, steps),
            steps=steps,
            until=until,
            settings=_letters(settings),
            objective=objective,
            weights=None if weights is None else name,
            train_data=train_data,
            train_classes=train_classes,
            paper_sizes=paper_sizes,
            points=points,
            seed=seed,
            say=tell,
        )
        picture = figures.settings({letter: row.model for letter, row in rows.items()}, dataset, points, seed)
        show(json, write_table1(rows, dataset, picture, out), [paper_table(rows, dataset)])
        return
    from geocaps.apps.encode import load
    from geocaps.evaluation.baselines import chosen_baselines
    from geocaps.evaluation.figures import draw_all
    from geocaps.evaluation.report import markdown, write_report, write_results
    from geocaps.evaluation.run import Settings
    from geocaps.evaluation.run import evaluate as run_evaluation

    names, left_out = ([], []) if baselines is None else chosen_baselines(baselines)
    if left_out:
        tell(f"not installed, so left out: {', '.join(left_out)} ({install_hint('baselines')})")
    run_settings = Settings(
        weights=name,
        protocols=_protocols(protocol),
        baselines=tuple(names),
        points=points,
        trials=trials,
        seed=seed,
        ablate_parts=ablate_parts,
    )
    for folder in (out, report):
        if folder is not None:
            make_folder(folder)
    result = run_evaluation(load(weights), dataset, run_settings, tell)
    if out is not None or report is not None:
        tell("drawing the figures")
        images = draw_all(result)
        if out is not None:
            tell(f"wrote {write_results(result, images, out)}")
        if report is not None:
            tell(f"wrote {write_report(result, images, report)}")
    show(json, result.to_dict(), [markdown(result)])


def _protocols(text: str | None) -> tuple[str, ...]:
    from geocaps.evaluation.pairs import PROTOCOLS

    if text == "all":
        return PROTOCOLS
    names = DEFAULT_PROTOCOLS if text is None else tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown:
        raise UsageError(f"there is no protocol {unknown[0]!r}: choose from {', '.join(PROTOCOLS)}, or all")
    return tuple(dict.fromkeys(names))


def _budget(text: str, steps: int | None) -> float:
    from geocaps.training.run import seconds

    if steps is not None and steps < 1:
        raise UsageError(f"--steps must be at least 1, not {steps}")
    try:
        return seconds(text)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _letters(settings: str) -> list[str]:
    from geocaps.evaluation.table1 import SETTINGS

    letters = [letter.strip() for letter in settings.split(",")]
    unknown = [letter for letter in letters if letter not in SETTINGS]
    if unknown:
        raise UsageError(f"there is no setting {unknown[0]!r}: choose from {','.join(SETTINGS)}")
    return letters


def _dataset(data: str, split: str | None, classes: str | None) -> PointDataset:
    from geocaps.data import load

    dataset = load(data)
    if split is None:
        split = "test" if "test" in dataset.splits else "all"
    if split != "all":
        dataset = dataset.split(split)
    if classes is not None:
        dataset = dataset.of_classes([name.strip() for name in classes.split(",")])
    return dataset


def demo(out: Path = Path("geocaps_demo"), weights: Weights = None, per_class: int = 2, json: Json = False) -> None:
    """Parse, align and retrieve embedded objects, some of them cropped; writes a picture and an HTML page.

    Example: geocaps demo --out geocaps_demo

    Args:
        out: Folder for demo.png and demo.html.
        per_class: Objects of each embedded class.
    """
    from geocaps.apps.encode import load
    from geocaps.evaluation.demo import run_demo

    if per_class < 1:
        raise UsageError(f"--per-class must be at least 1, not {per_class}")
    tell("parsing, aligning and finding the embedded shapes …")
    found = run_demo(load(weights), out, per_class=per_class)
    record = {name: getattr(found, name) for name in ("story", "objects", "seconds", "picture", "page")}
    lines = [*found.story, "", found.table.markdown(), "", f"{found.seconds:.0f} s"]
    show(json, {**record, "methods": found.rows}, lines)


def bench(json: Json = False, literal_batch: int = 2) -> None:
    """Measure speed and memory, compared with a literal implementation of the paper's formulas.

    Example: geocaps bench --json

    Args:
        literal_batch: Objects in the literal training step (about 1 GB of memory each); the product's step has 8.
    """
    from geocaps.apps.encode import untrained
    from geocaps.evaluation import bench as measure

    if literal_batch < 1:
        raise UsageError(f"--literal-batch must be at least 1, not {literal_batch}")
    tell("training step of layer 1 at N 2048, J 16, K 4, M 256: product …")
    fast_seconds, fast_bytes = measure.layer1_step("product", batch=8, repeats=3)
    tell(f"… and literal, with {literal_batch} objects, scaled …")
    slow_seconds, slow_bytes = measure.layer1_step("literal", batch=literal_batch, repeats=2)
    tell("encoding …")
    model = untrained("cpu")
    seconds_by_count = measure.encode_seconds(model, BENCH_POINTS)
    share = measure.gemm_share(model)
    result = {
        "layer1_step_ratio": slow_seconds / fast_seconds,
        "layer1_memory_ratio": slow_bytes / fast_bytes,
        "layer2_decoder_ratio": measure.layer2_decoder_ratio(),
        "encode_per_s_1": measure.encode_rate(model, 1),
        "encode_per_s_64": measure.encode_rate(model, 64),
        "encode_seconds": seconds_by_count,
        "gemm_share": share,
    }
    if json:
        print_json(result)
        return
    rows = [
        ("layer 1 training step, literal / product time", f"{result['layer1_step_ratio']:.1f} ×"),
        ("layer 1 training step, literal / product memory", f"{result['layer1_memory_ratio']:.1f} ×"),
        ("layer 2 part decoders, loop / batched time", f"{result['layer2_decoder_ratio']:.2f} ×"),
        ("objects encoded per second, one at a time", f"{result['encode_per_s_1']:.1f}"),
        ("objects encoded per second, batches of 64", f"{result['encode_per_s_64']:.1f}"),
        *(
            (f"encoding {n:,} points, with labels", f"{seconds * 1000:.0f} ms")
            for n, seconds in seconds_by_count.items()
        ),
        ("share of the machine's matrix-multiply rate", f"{100 * share:.0f} %"),
    ]
    show_table(("measurement", "value"), rows, title="geocaps bench (cpu preset)")
