"""The whole evaluation of one model on one data set, as one value that tables, figures and JSON are made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from geocaps.apps.encode import Model
from geocaps.data import PointDataset
from geocaps.errors import UsageError
from geocaps.evaluation import canonical
from geocaps.evaluation.baselines import BASELINES, measure_baseline
from geocaps.evaluation.canonical import Figures
from geocaps.evaluation.encoding import Encoded, encode_all
from geocaps.evaluation.protocols import Measured, Scope, alignment_scope, chance, measure
from geocaps.evaluation.views import CROP_KEEP, PROTOCOLS, Views
from geocaps.model.checkpoint import SHIPPED

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What is measured, and how. ``weights`` is only a name for the tables."""

    weights: str = SHIPPED
    protocols: tuple[str, ...] = PROTOCOLS
    baselines: tuple[str, ...] = ()
    points: int = 1024
    trials: int = 1
    seed: int = 0

    @property
    def selection(self) -> str:
        """How the rotation is chosen: part of every label, so that best-of-n is never read as one answer."""
        return "one trial" if self.trials == 1 else f"best of {self.trials} by Chamfer"


@dataclass(frozen=True)
class Evaluation:
    """Everything measured."""

    settings: Settings
    model: Model
    dataset: PointDataset
    views: Views
    scope: Scope
    first: Encoded
    protocols: dict[str, Measured]
    baselines: dict[str, dict[str, Measured]]
    reconstruction: Figures
    stability: Figures
    consistency: Figures
    parts: Figures | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        summary = {name: measured.summary(self.dataset, self.scope) for name, measured in self.protocols.items()}
        return {
            "data": {"name": self.dataset.name, "objects": len(self.dataset), "fingerprint": self.dataset.fingerprint},
            "weights": self.settings.weights,
            "points": self.settings.points,
            "seed": self.settings.seed,
            "trials": self.settings.trials,
            "selection": self.settings.selection,
            "aligned_classes": list(self.scope.classes),
            "protocols": {
                name: row | {"chance": chance(name, self.dataset, self.settings.trials)}
                for name, row in summary.items()
            },
            "baselines": {
                name: {protocol: one.summary(self.dataset, self.scope) for protocol, one in rows.items()}
                for name, rows in self.baselines.items()
            },
            "reconstruction": self.reconstruction,
            "canonicalisation": {"stability": self.stability, "consistency": self.consistency},
            "parts": self.parts,
            "notes": self.notes,
            "seconds": self.seconds,
        }

    @property
    def notes(self) -> list[str]:
        notes = list(self.scope.notes)
        if self.parts is None:
            notes.append("the set has no part labels: parts are not compared")
        if self.consistency["degrees"] is None:
            notes.append("no asymmetric class has two objects: there is no consistency")
        if self.settings.baselines and "parts" in self.settings.protocols:
            notes.append(
                "under the protocol parts only part poses turn, so the baselines, which see points, have no row"
            )
        if self.settings.trials > 1:
            notes.append(
                f"rotation errors of the model are the best of {self.settings.trials} candidates by Chamfer distance "
                "after alignment (fewer where the model has fewer starts); retrieval and baselines are not chosen"
            )
        return notes


def evaluate(model: Model, dataset: PointDataset, settings: Settings, say: Say = lambda _: None) -> Evaluation:
    """Measures a model (and baselines, on the same views) on a data set. The same settings give the same figures."""
    _check(model, settings)
    started = time.perf_counter()
    scope = alignment_scope(dataset)
    views = Views(dataset, settings.points, settings.seed)
    say(f"encoding the first views of {len(dataset)} objects")
    first = encode_all(model, [views.first(index) for index in range(len(dataset))])
    protocols = {}
    for protocol in settings.protocols:
        say(f"protocol {protocol}")
        protocols[protocol] = measure(model, views, first, protocol, settings.trials)
    say("reconstruction, stability, consistency, parts")
    reconstruction = canonical.reconstruction(first)
    stability = canonical.stability(model, views, scope.aligned)
    consistency = canonical.consistency(dataset, views, first, scope.aligned)
    parts = canonical.part_labels(model, dataset, settings.seed)
    baselines: dict[str, dict[str, Measured]] = {}
    for name in settings.baselines:
        baselines[name] = {}
        for protocol in _with_points(settings.protocols):
            say(f"baseline {name}, protocol {protocol}")
            baselines[name][protocol] = measure_baseline(BASELINES[name], views, protocol, scope.aligned)
    return Evaluation(
        settings=settings,
        model=model,
        dataset=dataset,
        views=views,
        scope=scope,
        first=first,
        protocols=protocols,
        baselines=baselines,
        reconstruction=reconstruction,
        stability=stability,
        consistency=consistency,
        parts=parts,
        seconds=time.perf_counter() - started,
    )


def _with_points(protocols: Sequence[str]) -> list[str]:
    return [protocol for protocol in protocols if protocol != "parts"]


def _check(model: Model, settings: Settings) -> None:
    if settings.trials < 1:
        raise UsageError(f"--trials must be at least 1, not {settings.trials}")
    if settings.seed < 0:
        raise UsageError(f"--seed must not be negative, not {settings.seed}")
    parts = model.config.parts.parts
    if round(CROP_KEEP * settings.points) < parts:
        raise UsageError(
            f"--points {settings.points} leaves fewer points than the model's {parts} parts in a cropped view: "
            f"give at least {int(parts / CROP_KEEP) + 1}"
        )
