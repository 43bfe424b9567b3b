"""What each choice of the ``cpu`` preset's object stage adds: the same short training with one thing changed.

    python benchmarks/ablations.py --init runs/default/parts --data shapenetpart.npz,modelnet40_train.npz \
        --eval modelnet40_dev.npz --out runs/ablations --steps 300

Every row trains the second layer on the same frozen first one, for as many steps of as many objects, and is measured
under the protocol ``resampled``. A finished row is read, an unfinished one is continued. Prints a Markdown table and
writes ``ablations.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from geocaps.apps.encode import Model
from geocaps.data import load
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope, encode_all, measure
from geocaps.evaluation.run import reconstruction
from geocaps.evaluation.table1 import finished
from geocaps.model.checkpoint import load_checkpoint
from geocaps.model.config import PaperObjectConfig, PaperWeights
from geocaps.training import PaperObjective, TrainConfig, preset

Row = dict[str, float | str]


def rows(base: TrainConfig) -> dict[str, TrainConfig]:
    """The preset itself, and one change at a time."""

    def model(**changes: object) -> TrainConfig:
        return replace(base, model=replace(base.model, object=replace(base.model.object, **changes)))

    def objective(**changes: object) -> TrainConfig:
        return replace(base, objective=replace(base.objective, **changes))

    def weights(**changes: float) -> TrainConfig:
        return objective(weights=replace(base.objective.weights, **changes))

    small = base.model.object
    paper = replace(
        base,
        model=replace(
            base.model,
            object=PaperObjectConfig(
                feature=small.feature,
                width=small.width,
                blocks=small.blocks,
                decoder_width=small.decoder_width,
                decoder_blocks=small.decoder_blocks,
            ),
        ),
        objective=PaperObjective(weights=PaperWeights(part=0.0, chamfer=10.0), target_points=256),
    )
    return {
        "cpu preset": base,
        "the paper's layer, Chamfer alone": paper,
        "no contrast": weights(contrast=0.0),
        "no pose agreement": weights(pose=0.0),
        "starts not perturbed": objective(noise_degrees=0.0),
        "all objects decomposed": objective(decomposed=1.0),
        "one vote": model(voting_steps=1),
        "three votes": model(voting_steps=3),
        "half the width": model(width=128),
    }


@dataclass
class Options:
    init: str
    data: str
    eval: str
    out: Path
    steps: int = 300
    batch: int = 32
    classes: str | None = None
    only: tuple[str, ...] = ()


def main(options: Options) -> None:
    dataset = load(options.eval)
    if options.classes is not None:
        dataset = dataset.of_classes(options.classes.split(","))
    scope, pairs = alignment_scope(dataset), Pairs(dataset, 1024, 0)
    clouds = [pairs.first(index) for index in range(len(dataset))]
    base = preset("cpu", data=options.data, stage="object", init=options.init, tensorboard=False, validations=1)
    base = replace(
        base,
        # A thirtieth of a hundred steps is no warm-up: some rows then never learn to tell objects apart.
        object=replace(base.object.fitted(options.steps), batch=options.batch, warmup=options.steps // 8),
        objective=replace(base.objective, decomposed=0.25),
    )
    path = options.out / "ablations.json"
    found: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    for name, config in rows(base).items():
        if name in found or (options.only and name not in options.only):
            continue
        out = options.out / name.replace(" ", "_").replace(",", "").replace("'", "")
        state = finished(replace(config, out=str(out)), print)
        model = Model(load_checkpoint(out / "last"))
        first = encode_all(model, clouds)
        figures = measure(model, pairs, first, "resampled", 1).summary(dataset, scope)
        found[name] = {
            "rae_mean": figures["rae_mean"],
            "rae_median": figures["rae_median"],
            "within_15": figures["within_15"],
            "top1": figures["top1"],
            "nn1": figures["nn1"],
            "chamfer": reconstruction(first)["chamfer_two_layer"],
            "minutes": state.elapsed / 60,
        }
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1))
        print(name, found[name], flush=True)
    print(table(found))


def table(found: dict[str, Row]) -> str:
    lines = [
        "| object stage | RAE mean | median | within 15° | top-1 | 1-NN class | Chamfer, two layers | minutes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in found.items():
        lines.append(
            f"| {name} | {row['rae_mean']:.3f} | {row['rae_median']:.3f} | {row['within_15']:.0%} | {row['top1']:.1%} "
            f"| {row['nn1']:.1%} | {row['chamfer']:.2e} | {row['minutes']:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(tyro.cli(Options))
