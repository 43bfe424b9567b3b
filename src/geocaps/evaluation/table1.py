"""Table 1 of the paper: settings A–E, all trained for the same time or number of steps, and evaluated.

The paper trains a 1024-wide second layer for half a day on a GPU. By default the choices that define the settings
(views, noise, voting steps, random start, quaternion poses) are applied to a small layer with a short schedule, both
from :func:`configuration`; ``paper_sizes`` keeps the paper's. The first layer is trained first
(:func:`first_layer_configuration`) or given; it is shared and kept fixed, as in the paper. The paper's figures are
accompanied by a diagnosis, because a mean angle cannot distinguish a constant vote from axes that are found with random
signs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.errors import CheckpointError
from geocaps.evaluation.answers import Encoded, decomposed_anew, encode_all, model_points, seen_by
from geocaps.evaluation.metrics import Summary, alignment_summary, sign_summary
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import MODEL as OWN_ROW
from geocaps.evaluation.protocols import Scope, Views, alignment_scope, measure_rows
from geocaps.evaluation.report import write_json
from geocaps.geometry.frames import principal_axes
from geocaps.geometry.se3 import Pose
from geocaps.model.checkpoint import load_named, load_training_state
from geocaps.model.config import PaperObjectConfig, PaperWeights, PartsConfig
from geocaps.model.object_paper import PaperObject
from geocaps.training import PaperObjective, StageConfig, TrainConfig, load_checkpoint, preset, train
from geocaps.training.batches import open_data, random_stream
from geocaps.training.loop import Draws
from geocaps.training.run import RunState, resumed

SETTINGS = {
    "A": "views=1",
    "B": "views=2, noise=45",
    "C": "views=4, noise=45",
    "D": "views=4, noise=[45:180]",
    "E": "views=4, noise=[45:180], 3 voting steps",
}
PAPER: dict[str, dict[str, float]] = {
    "A": {"rae_mean": 0.259, "top1": 0.286, "top10": 0.386, "nn1": 0.485},
    "B": {"rae_mean": 0.135, "top1": 0.598, "top10": 0.765, "nn1": 0.743},
    "C": {"rae_mean": 0.134, "top1": 0.620, "top10": 0.787, "nn1": 0.754},
    "D": {"rae_mean": 0.106, "top1": 0.701, "top10": 0.857, "nn1": 0.803},
    "E": {"rae_mean": 0.023, "top1": 0.943, "top10": 0.959, "nn1": 0.960},
}
"""The paper's figures under ``parts`` (trained on ShapeNet Core55, evaluated on ModelNet40)."""
PAPER_POINTS = {"E": {"rae_mean": 0.42, "best_of_ten": 0.16, "top1": 0.078, "top10": 0.179, "nn1": 0.44}}
"""Under ``points`` the paper has figures for its best model only."""
PROTOCOLS = ("parts", "points")
TRIALS = 10

OBJECTIVES = {"paper": PaperWeights(part=1.0, chamfer=0.01), "chamfer": PaperWeights(part=0.0, chamfer=10.0)}
"""Training objectives: equation 4 with the paper's λ or, our departure, the Chamfer distance alone."""


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def first_layer_configuration(paper_sizes: bool) -> TrainConfig:
    """The training configuration of the first layer that all settings share, all but its data.

    It is the paper's: 16 parts of 8 numbers, from random rotations. Without ``paper_sizes`` clouds have half as many
    points, two viewpoints agree in place of four, parts are decoded to 64 points, and the schedule takes ten minutes.
    """
    paper = replace(preset("paper"), stage="parts", tensorboard=False)
    if paper_sizes:
        return paper
    return replace(
        paper,
        model=replace(paper.model, points=1024, parts=replace(paper.model.parts, views=2, decoded=64)),
        parts=StageConfig(steps=1_500, batch=16, warmup=60, learning_rate=2e-3, schedule="cosine", clip=1.0),
        validations=10,
        validation_objects=64,
        save_every=250,
    )


def configuration(letter: str, first_layer: PartsConfig, objective: str, paper_sizes: bool) -> TrainConfig:
    """The training configuration of a setting, all but its data and duration.

    With ``paper_sizes`` it is the paper's. Otherwise the layer is an eighth as wide, and the schedule fits into a day
    on one core: the paper's rate until the votes have spread (at a higher one Q mostly collapses to a constant), then a
    higher one that decays. The noise of D and E grows while that rate is high. Each decomposition is used in 32 steps,
    from new viewpoints in each; reconstructions are compared with 256 points, and parts decoded to 9.
    """
    paper = preset(letter)
    weights = OBJECTIVES[objective]
    assert isinstance(paper.objective, PaperObjective)
    assert isinstance(paper.model.object, PaperObjectConfig)
    if paper_sizes:
        return replace(
            paper,
            model=replace(paper.model, parts=first_layer),
            objective=replace(paper.objective, weights=weights),
        )
    return replace(
        paper,
        model=replace(
            paper.model,
            points=1024,
            parts=first_layer,
            object=PaperObjectConfig(
                feature=256,
                width=128,
                blocks=2,
                decoder_width=128,
                decoder_blocks=2,
                views=paper.model.object.views,
                voting_steps=paper.model.object.voting_steps,
            ),
        ),
        object=StageConfig(
            steps=10_000,
            batch=32,
            hold=800,
            hold_rate=1e-4,
            warmup=200,
            learning_rate=7e-4,
            schedule="cosine",
            clip=1.0,
            best_by="rotation_parts",
        ),
        objective=PaperObjective(
            weights=weights,
            noise_from=paper.objective.noise_from,
            noise_to=paper.objective.noise_to,
            ramp_from=0.15,
            ramp_to=0.55,
            reuse=32,
            target_points=256,
            decoded_points=9,
            least_spread=0.0,  # a setting that collapses is a result
        ),
        validations=10,
        validation_objects=64,
        save_every=250,
        tensorboard=False,
    )


@dataclass(frozen=True)
class Row:
    """One setting: its model, its figures, and how long it was trained."""

    model: Model
    figures: dict[str, Summary]
    """By protocol: of one trial and, with ``_of_ten`` appended to the name, of the best of ten."""
    spread: float
    curve: list[dict[str, Any]]
    steps: int
    planned: int
    """The number of steps to which the schedule is fitted, all of which are taken unless ``until`` is given."""
    seconds: float


def table1(
    dataset: PointDataset,
    out: Path,
    *,
    budget: float,
    steps: int | None = None,
    until: int | None = None,
    settings: Sequence[str] = tuple(SETTINGS),
    objective: str = "paper",
    weights: str | None = None,
    train_data: str = "shapes",
    train_classes: str | None = None,
    paper_sizes: bool = False,
    points: int = 1024,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Row]:
    """Trains each setting for ``budget`` seconds in ``out/LETTER`` on the first layer of ``weights``, then measures it.

    Without ``weights`` a first layer is trained before, for as long, in ``out/parts``. With ``steps`` each setting
    takes that many steps instead, however long they take, and the first layer those of its own configuration. A
    finished run is not trained again, an unfinished one is resumed, and a run that was evaluated on the same views
    keeps its figures. With ``until`` every setting is measured after that many of its steps; later calls go on.
    """
    common: dict[str, Any] = {"data": train_data, "classes": train_classes, "seed": seed}
    if steps is None:
        common["budget"] = budget
    if weights is None:
        folder = out / "parts"
        finished(replace(first_layer_configuration(paper_sizes), out=str(folder), **common), say)
        weights = str(folder / "last")
    first_layer = load_named(weights).config.parts
    shared = SharedViews(dataset, points, seed)
    # At the paper's sizes they would not fit into memory; for equal times, the first setting alone would make them.
    draws: Draws | None = None if paper_sizes or steps is None else {}
    rows = {}
    for letter in settings:
        folder = out / letter
        config = replace(
            configuration(letter, first_layer, objective, paper_sizes),
            init=weights,
            stage="object",
            out=str(folder),
            **common,
        )
        if steps is not None:
            config = replace(config, object=config.object.fitted(steps))
        state = finished(config, say, draws, until)
        model = Model(load_checkpoint(folder / "last"))
        trained = {"training": replace(config, out="").to_dict(), "steps": state.step}
        found = figures_of(model, shared, folder, trained, say)
        rows[letter] = Row(
            model, found["figures"], found["spread"], curve(folder), state.step, state.steps, state.elapsed
        )
        parts = rows[letter].figures["parts"]
        say(f"setting {letter}: rotation error {parts['rae_mean']:.3f} after {state.step} steps")
    return rows


def finished(
    config: TrainConfig, say: Callable[[str], None], draws: Draws | None = None, until: int | None = None
) -> RunState:
    """Trains to the end, or ``until``, and returns the final state. A run that is as far is not trained again."""
    state = _state(Path(config.out))
    if state is not None and 0 < min(state.steps, until or state.steps) <= state.step:
        resumed(config, open_data(config)[0].fingerprint)
        say(f"{config.out}: finished before, after {state.step} steps")
        return state
    say(f"{config.out}: training")
    train(config, resume=state is not None, draws=draws, until=until)
    ended = _state(Path(config.out))
    assert ended is not None
    return ended


def _state(out: Path) -> RunState | None:
    """The state of the run in a folder; None if there is no run."""
    try:
        saved = load_training_state(out / "last")
    except CheckpointError:
        if (out / "last").exists():
            raise
        return None
    return RunState(**json.loads(saved["state"]))


CURVE = ("spread", "rotation_parts", "within_15", "within_15_modulo_signs", "top1_parts", "chamfer")


def curve(folder: Path) -> list[dict[str, Any]]:
    """The validation figures of a run, on its held-out objects."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: one[name] for name in ("step", *CURVE)} for one in records if one["kind"] == "validation"]


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SharedViews:
    """The views on which all settings are evaluated, decomposed once by their common first layer."""

    def __init__(self, dataset: PointDataset, points: int, seed: int) -> None:
        self.dataset, self.points, self.seed = dataset, points, seed
        pairs = Pairs(dataset, points, seed)
        self.pairs = tuple(pairs.pair(index, "points") for index in range(len(pairs)))
        self._encoded: tuple[Encoded, Encoded] | None = None

    @cached_property
    def scope(self) -> Scope:
        return alignment_scope(self.dataset)

    @property
    def aligned(self) -> list[int]:
        """The objects over which rotation errors are averaged."""
        return np.flatnonzero(self.scope.aligned).tolist()

    @property
    def made_with(self) -> dict[str, Any]:
        """What the figures depend on, apart from the model."""
        return {"data": self.dataset.fingerprint, "points": self.points, "seed": self.seed, "trials": TRIALS}

    def seen(self, model: Model) -> dict[str, Views]:
        """The views as seen by a setting's model. All have the same first layer, so parts are computed only once."""
        pairs = self.pairs
        if self._encoded is None:
            first, second = (
                decomposed_anew(model, encode_all(model, clouds), random_stream(self.seed, _PART_STARTS, view))
                for view, clouds in enumerate(([pair.first for pair in pairs], [pair.second for pair in pairs]))
            )
            self._encoded = first, second
        first, second = (
            seen_by(model, encoded, random_stream(self.seed, _STARTS, view))
            for view, encoded in enumerate(self._encoded)
        )
        return {
            "parts": Views("parts", self.seed, pairs, first, None),
            "points": Views("points", self.seed, pairs, first, second),
        }


_STARTS, _SPREAD, _PART_STARTS = 101, 102, 103


def figures_of(
    model: Model, shared: SharedViews, folder: Path, trained: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """A model's ``figures`` by protocol and the ``spread`` of its votes.

    They are read from the folder if the same training was evaluated on the same views before.
    """
    path = folder / "figures.json"
    made_with = json.loads(json.dumps(shared.made_with | trained))
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["made_with"] == made_with:
            say(f"{path}: evaluated before")
            return kept
    say(f"{folder}: evaluating")
    views = shared.seen(model)
    figures = {name: _measured(model, one, shared) for name, one in views.items()}
    found = {
        "made_with": made_with,
        "figures": figures,
        "spread": _spread(model, views["parts"].first.chosen(shared.aligned), shared.seed),
    }
    write_json(folder, path.name, found)
    return found


def _measured(model: Model, views: Views, shared: SharedViews) -> Summary:
    """One trial for all objects; the best of ten for the aligned ones only, as it concerns nothing but rotations."""
    scope, chosen = shared.scope, shared.aligned
    whole = measure_rows(model, views)[OWN_ROW]
    assert whole.left is not None
    some = Views(
        views.protocol,
        views.seed,
        tuple(views.pairs[index] for index in chosen),
        views.first.chosen(chosen),
        None if views.second is None else views.second.chosen(chosen),
    )
    best = measure_rows(model, some, TRIALS)[OWN_ROW]
    assert best.errors is not None
    assert best.left is not None
    clouds = torch.stack([pair.first.double() for pair in some.pairs])
    axes, _ = principal_axes(clouds, clouds.new_full(clouds.shape[:2], 1 / clouds.shape[1]))
    turned = some.first.pose.inverse() @ Pose.from_rotation(axes, torch.zeros(len(axes), 3, dtype=torch.float64))
    ten = alignment_summary(best.errors) | sign_summary(best.left, turned)
    return (
        whole.summary(shared.dataset, scope)
        | sign_summary(whole.left[torch.from_numpy(scope.aligned)], turned)
        | {f"{name}_of_ten": value for name, value in ten.items()}
    )


@torch.no_grad()
def _spread(model: Model, encoded: Encoded, seed: int) -> float:
    """Mean angle between the votes from two random viewpoints of an object, in degrees."""
    layer, generator = model.network.object, random_stream(seed, _SPREAD)
    assert isinstance(layer, PaperObject)
    angles = [layer.spread(model_points(model, seen), seen.parse.parts, generator) for seen in encoded.batches]
    return float(torch.cat(angles).mean())
