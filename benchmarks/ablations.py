"""What each choice of our object layer adds: the same training with one thing changed at a time.

    python benchmarks/ablations.py --data shapenetpart.npz,modelnet40_train.npz --eval modelnet40_dev.npz \
        --out runs/ablations --steps 500

Every row trains the second layer on the same frozen first one (``--init``, by default that of the shipped weights), for
as many steps of as many objects, and is measured under the same protocols. Where a row needs the layer or the stage to
behave otherwise, it trains a subclass that is defined here, or a function is replaced; the product has no option for
it. A finished row is read, an unfinished one is resumed. Prints a Markdown table for each protocol and writes
``ablations.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor

from geocaps.apps.encode import Model
from geocaps.data import PointDataset, load
from geocaps.evaluation.answers import encode_all
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import MODEL, SINGLE_FEATURE, alignment_scope, measure_rows, views_of
from geocaps.evaluation.run import reconstruction
from geocaps.evaluation.table1 import finished
from geocaps.geometry.frames import farthest_points, principal_axes
from geocaps.model import autoencoder
from geocaps.model import object as object_layer
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Parse, Parts
from geocaps.model.checkpoint import SHIPPED, load_checkpoint
from geocaps.model.look import CUBE, Shown, Viewpoints
from geocaps.model.losses import gather_points
from geocaps.model.object import AgreeingObject, Led, Views
from geocaps.model.parts import PointsToParts
from geocaps.training import TrainConfig, preset, stage
from geocaps.training.stage import ObjectStage, in_own_frame

Figures = dict[str, Any]

# ── layers that behave otherwise ──────────────────────────────────────────────────────────────────────────────────────

FLIPS = {order: [at for at, (other, _) in enumerate(CUBE) if other == order] for order, _ in CUBE}
"""The four proper sign choices of each order of the axes, as places in ``CUBE``."""


class FourStarts(AgreeingObject):
    """The four proper sign choices of the axes, ordered by the surface's spread; others are ruled out."""

    ruled_out = -1e4

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.allowed = torch.zeros(0)
        self.score_head.register_forward_hook(self._ruled)

    def _ruled(self, _module: Any, _input: Any, out: Tensor) -> Tensor:
        return out + self.allowed[..., None] if out.shape[1] == len(CUBE) else out

    def lead(self, shown: Shown, starts: Viewpoints) -> Led:
        offset = starts.pose[:, 0].observe(shown.points)
        spread = (shown.weight[..., None] * offset.square()).sum(dim=1)
        order = spread.argsort(dim=1, descending=True).tolist()
        self.allowed = torch.full((len(order), len(CUBE)), self.ruled_out, device=spread.device)
        for row, axes in enumerate(order):
            self.allowed[row, FLIPS[tuple(axes)]] = 0.0
        return super().lead(shown, starts)


class ScoredOnce(AgreeingObject):
    """Viewpoints are led on as before, but the score of the start they came from chooses among them."""

    def lead(self, shown: Shown, starts: Viewpoints) -> Led:
        seen = super().lead(shown, starts)
        first = seen.log_first.topk(seen.log_last.shape[1], dim=1).values  # in the order in which they were led on
        return replace(seen, log_last=torch.log_softmax(first, dim=1))


class OneLook(AgreeingObject):
    """Scores and votes are read off the same look; the other one is there and never used."""

    def vote(self, shown: Shown, viewpoints: Viewpoints) -> Viewpoints:
        with replaced(self, "pose_look", self.score_look):
            return super().vote(shown, viewpoints)


class OwnCentre(AgreeingObject):
    """Votes only rotate: the centre and the size are those of the cloud itself."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        rotation = torch.ones(8)
        rotation[[0, 1, 2, 7]] = 0.0
        self.pose_head.register_forward_hook(lambda _module, _input, out: out * rotation)

    def perceive(self, layer: PointsToParts, parts: Parts) -> Parse:
        seen = super().perceive(layer, parts)
        return replace(seen, scale=torch.ones_like(seen.scale))


@torch.no_grad()
def shown_points(points: Tensor, parts: int) -> Shown:
    """Points as perfect parts would show them: the 16 nearest of each of some farthest points."""
    centers = gather_points(points, farthest_points(points, parts))
    nearest = torch.cdist(centers, points).topk(object_layer.SHOWN, largest=False).indices
    some = gather_points(points, nearest.flatten(1))
    return Shown(some, some.new_full(some.shape[:2], 1 / some.shape[1]))


class LooksAtPoints(AgreeingObject):
    """Looks at points of the ``cloud`` instead of the surfaces of its parts."""

    cloud: Tensor

    def shown(self, layer: PointsToParts, parts: Parts) -> Shown:
        return shown_points(self.cloud, parts.share.shape[-1])


class PointsStage(ObjectStage):
    """Views show their points."""

    def _views(self, points: Tensor, generator: torch.Generator) -> Views:
        assert isinstance(self.layer, LooksAtPoints)
        self.layer.cloud = in_own_frame(points[:, :-1]).flatten(0, 1)
        return super()._views(points, generator)


@contextmanager
def replaced(where: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


@contextmanager
def layer_is(layer: type[AgreeingObject]) -> Iterator[None]:
    """New and loaded models get this object layer; the weights are the same, so checkpoints fit all of them."""
    with replaced(autoencoder, "AgreeingObject", layer):
        yield


@contextmanager
def on_principal_axes() -> Iterator[None]:
    """Starts, and the frames of the whole object that they are to be led to, lie on principal axes."""
    with replaced(object_layer, "surface_axes", lambda points, weight, normals=0: principal_axes(points, weight)):
        yield


@contextmanager
def points_shown() -> Iterator[None]:
    """Clouds that are encoded or trained on show their points."""
    parse_parts = GeometricCapsuleAutoencoder.parse_parts

    def parse_cloud(model: GeometricCapsuleAutoencoder, parts: Parts, points: Tensor, *rest: Any) -> Parse:
        model.object.cloud = points.float()
        return parse_parts(model, parts, points, *rest)

    with (
        layer_is(LooksAtPoints),
        replaced(stage, "ObjectStage", PointsStage),
        replaced(GeometricCapsuleAutoencoder, "parse_parts", parse_cloud),
    ):
        yield


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

BASE, SINGLE = "all of it", "one global vector"
"""The row that the others differ from, and the same run when the object's one feature retrieves, not its percepts."""
VALIDATED = 16
"""Held-out objects of a training: nothing here looks at its validation."""
ON_POINTS = "trained and measured on points"
FINETUNED = 4
"""Weights trained on points go on with parts for this part of the steps."""


@dataclass(frozen=True)
class Row:
    """One training, and how the layer behaves in it."""

    config: TrainConfig
    behaving: Callable[[], Any] = lambda: layer_is(AgreeingObject)
    trained_by: str | None = None  # the row whose weights are measured; None for its own


def rows(shipped: TrainConfig, out: Path) -> dict[str, Row]:
    """The training of the shipped weights without common frames, and one change at a time.

    Finding common frames takes as long as the training of a row: they are a row of their own.
    """
    common = shipped
    shipped = replace(shipped, objective=replace(shipped.objective, common_from=1.0))
    unplaced = replace(shipped.objective, weights=replace(shipped.objective.weights, place=0.0))
    whole = replace(shipped.object_augmentation, crop_share=0.0, one_sided_share=0.0)
    finetuned = replace(
        shipped,
        init=str(folder(out, ON_POINTS) / "last"),
        init_object=True,
        object=shipped.object.fitted(shipped.object.steps // FINETUNED),
    )
    return {
        BASE: Row(shipped),
        "4 starts instead of 24": Row(shipped, lambda: layer_is(FourStarts)),
        "no second scoring": Row(shipped, lambda: layer_is(ScoredOnce)),
        "one look for scores and votes": Row(shipped, lambda: layer_is(OneLook)),
        "no centre and scale votes": Row(replace(shipped, objective=unplaced), lambda: layer_is(OwnCentre)),
        "principal axes instead of surface axes": Row(shipped, on_principal_axes),
        "no crops in training": Row(replace(shipped, object_augmentation=whole)),
        ON_POINTS: Row(shipped, points_shown),
        "trained on points, measured on parts": Row(shipped, trained_by=ON_POINTS),
        "the same, trained a quarter longer, on parts": Row(finetuned),
        "common frames, and similar objects in one batch": Row(common),
    }


@dataclass
class Options:
    out: Path
    """Folder of the runs and of ablations.json."""
    data: str = "shapes"
    """What is trained on, joined by commas."""
    eval: str = "shapes"
    """What is measured on: its test split where it has one."""
    init: str = SHIPPED
    """Checkpoint whose first layer every row has."""
    steps: int = 500
    batch: int = 32
    classes: str | None = None
    """Only these classes of --eval, joined by commas."""
    protocols: str = "resampled,partial"
    only: tuple[str, ...] = ()
    """Only these rows, so that several processes (each with its own --out) can share the work."""


def main(options: Options) -> None:
    dataset = load(options.eval)
    if "test" in dataset.splits:
        dataset = dataset.split("test")
    if options.classes is not None:
        dataset = dataset.of_classes(options.classes.split(","))
    shipped = preset(
        "cpu",
        data=options.data,
        stage="object",
        init=options.init,
        tensorboard=False,
        validations=1,
        validation_objects=VALIDATED,
    )
    names = rows(
        replace(shipped, object=replace(shipped.object.fitted(options.steps), batch=options.batch, accumulate=1)),
        options.out,
    )
    unknown = set(options.only) - set(names)
    if unknown:
        raise SystemExit(f"no row is called {min(unknown)!r}; there are: {'; '.join(names)}")
    path = options.out / "ablations.json"
    found: dict[str, Figures] = json.loads(path.read_text()) if path.exists() else {}
    for name, row in names.items():
        if name in found or (options.only and name not in options.only):
            continue
        if (row.trained_by or row.config.init_object) and ON_POINTS not in found:
            print(f"{name}: left out, it needs the row {ON_POINTS!r}")
            continue
        out = folder(options.out, row.trained_by or name)
        with row.behaving():
            minutes = None
            if row.trained_by is None:
                minutes = finished(replace(row.config, out=str(out)), print).elapsed / 60
            found[name] = measured(Model(load_checkpoint(out / "last")), dataset, options.protocols.split(","))
        found[name] |= {"minutes": minutes, "steps": row.config.object.steps}
        path.write_text(json.dumps(found, indent=1))
        print(f"{name}: measured", flush=True)
    for protocol in options.protocols.split(","):
        print(table(found, protocol))


def folder(out: Path, name: str) -> Path:
    return out / name.replace(" ", "_").replace(",", "")


def measured(model: Model, dataset: PointDataset, protocols: list[str]) -> Figures:
    scope, pairs = alignment_scope(dataset), Pairs(dataset, 1024, 0)
    first = encode_all(model, [pairs.first(index) for index in range(len(dataset))])
    figures: Figures = {"chamfer": reconstruction(model, first)["chamfer_two_layer"]}
    for protocol in protocols:
        found = measure_rows(model, views_of(model, pairs, first, protocol))
        own, single = (found[name].summary(dataset, scope) for name in (MODEL, SINGLE_FEATURE))
        figures[protocol] = {name: own[name] for name in ("rae_mean", "rae_median", "within_15", "center_mean", "top1")}
        figures[protocol]["top1_feature"] = single["top1"]
    return figures


def table(found: dict[str, Figures], protocol: str) -> str:
    titles = ("RAE mean", "median", "≤ 15°", "centre off", "top-1", "Chamfer × 10³, two layers", "minutes")
    lines = [["object layer", *titles], ["---", *["---:"] * len(titles)]]

    def line(name: str, row: Figures, top1: str) -> list[str]:
        one = row[protocol]
        errors = [f"{one[key]:.3f}" for key in ("rae_mean", "rae_median")]
        placed = [f"{100 * one['within_15']:.1f} %", f"{one['center_mean']:.3f}", f"{100 * one[top1]:.1f} %"]
        minutes = "–" if row["minutes"] is None else f"{row['minutes']:.1f}"
        return [name, *errors, *placed, f"{1e3 * row['chamfer']:.2f}", minutes]

    for name, row in found.items():
        lines.append(line(name, row, "top1"))
        if name == BASE:
            lines.append(line(SINGLE, row | {"minutes": None}, "top1_feature"))
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([f"**{protocol}**", "", *body, ""])


if __name__ == "__main__":
    main(tyro.cli(Options))
