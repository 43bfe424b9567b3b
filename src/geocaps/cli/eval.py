"""``geocaps eval``: the protocols on any data set, baselines beside them, Table 1, figures and a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from geocaps.cli.output import UNSET, console, messages, print_json
from geocaps.errors import ConfigError, UsageError, install_hint

if TYPE_CHECKING:
    from geocaps.data import PointDataset
    from geocaps.evaluation.table1 import Row

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def evaluate(
    weights: Annotated[str | None, UNSET] = None,
    data: str = "shapes",
    protocol: Literal["parts", "points", "resampled", "noisy", "partial", "all"] = "all",
    classes: Annotated[str | None, UNSET] = None,
    split: Annotated[str | None, UNSET] = None,
    points: int = 1024,
    trials: int = 1,
    baselines: Annotated[str | None, UNSET] = None,
    seed: int = 0,
    json: Flag = False,
    out: Annotated[str | None, UNSET] = None,
    report: Annotated[str | None, UNSET] = None,
    table1: Flag = False,
    budget: str = "5m",
    steps: Annotated[int | None, UNSET] = None,
    settings: str = "A,B,C,D,E",
    train_data: str = "shapes",
    train_classes: Annotated[str | None, UNSET] = None,
    paper_sizes: Flag = False,
) -> None:
    """Measure a model: rotation error and retrieval between two views of each object, with the chance floors.

    Example:  geocaps eval --data furniture --protocol resampled --baselines pca,pca_icp
              geocaps eval --data shapes --report evaluation/
              geocaps eval --table1 --budget 5m --out runs/table1

    Args:
        weights: Checkpoint folder (default: the weights that ship with the package).
        data: shapes, furniture, an .npz, an HDF5 file or folder, a folder of meshes and clouds.
        protocol: What the second view is; all of them by default.
        classes: Only these classes, joined by commas.
        split: train, val, test or all (default: test where the set has one, else all).
        points: Points in a view.
        trials: More than 1: rotation by the best of so many candidates by Chamfer, labelled as such.
        baselines: Names joined by commas (align, pca, pca_flips, pca_icp, trimesh, open3d, open3d_fgr, kiss_matcher,
            pca_chamfer, d2, fpfh), or all that are installed.
        seed: Start of every random stream: the same seed gives the same figures.
        json: One JSON object on standard output.
        out: Folder for results.json, results.md and the figures; with --table1 also for the runs.
        report: Folder for report.html, one page with all tables and figures inside.
        table1: Train (or read) the paper's settings A to E and print its Table 1 beside ours.
        budget: With --table1: training time of each setting, such as 5m or 1h. The first layer is that of --weights.
        steps: With --table1: steps of each setting instead of a time, so that all take as many.
        settings: With --table1: only these, joined by commas; several processes can share the table so.
        train_data: With --table1: what the settings are trained on.
        train_classes: With --table1: only these classes of it, joined by commas (default: all).
        paper_sizes: With --table1: the paper's own layer sizes (days on a CPU) instead of those of the preset cpu.
    """
    from geocaps.model.checkpoint import SHIPPED

    dataset = _dataset(data, split, classes)
    if table1:
        if report is not None or baselines is not None or trials != 1:
            raise UsageError("--table1 trains its own models: it takes no --baselines, --trials or --report")
        if out is None:
            raise UsageError("--table1 needs --out DIR, the folder that keeps its runs")
        from geocaps.evaluation.report import make_folder
        from geocaps.evaluation.table1 import table1 as run_table1

        make_folder(Path(out))
        rows = run_table1(
            dataset,
            Path(out),
            budget=_budget(budget, steps),
            steps=steps,
            settings=_letters(settings),
            weights=weights or SHIPPED,
            train_data=train_data,
            train_classes=train_classes,
            paper_sizes=paper_sizes,
            points=points,
            seed=seed,
            say=_say,
        )
        _show_table1(rows, dataset, Path(out), points, seed, json)
        return
    from geocaps.apps.encode import load
    from geocaps.evaluation.baselines import chosen_baselines
    from geocaps.evaluation.figures import draw_all
    from geocaps.evaluation.pairs import PROTOCOLS
    from geocaps.evaluation.report import make_folder, markdown, write_report, write_results
    from geocaps.evaluation.run import Settings
    from geocaps.evaluation.run import evaluate as run_evaluation

    names, left_out = ([], []) if baselines is None else chosen_baselines(baselines)
    if left_out:
        _say(f"not installed, left out: {', '.join(left_out)} ({install_hint('baselines')})")
    run_settings = Settings(
        weights=weights or SHIPPED,
        protocols=PROTOCOLS if protocol == "all" else (protocol,),
        baselines=tuple(names),
        points=points,
        trials=trials,
        seed=seed,
    )
    for folder in (out, report):
        if folder is not None:
            make_folder(Path(folder))
    result = run_evaluation(load(weights), dataset, run_settings, _say)
    if out is not None or report is not None:
        _say("drawing the figures")
        images = draw_all(result)
        if out is not None:
            _say(f"wrote {write_results(result, images, Path(out))}")
        if report is not None:
            _say(f"wrote {write_report(result, images, Path(report))}")
    _show(result.to_dict(), json, lambda: markdown(result))


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


def _show_table1(rows: dict[str, Row], dataset: PointDataset, out: Path, points: int, seed: int, json: bool) -> None:
    from geocaps.evaluation import figures
    from geocaps.evaluation.table1 import paper_table, write_table1

    picture = figures.settings({letter: row.model for letter, row in rows.items()}, dataset, points, seed)
    result = write_table1(rows, dataset, picture, out)
    _show(result, json, paper_table(rows, dataset).markdown)


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


def _show(result: dict[str, Any], json: bool, text: Callable[[], str]) -> None:
    if json:
        print_json(result)
    else:
        console().print(text(), markup=False, soft_wrap=True)


def _say(sentence: str) -> None:
    messages().print(sentence, markup=False, soft_wrap=True)
