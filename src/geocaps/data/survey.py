"""What is in a data set, and what is wrong with it."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from geocaps.data.base import UNLABELLED, PointDataset
from geocaps.data.loading import EMBEDDED, load, open_path
from geocaps.data.npz import damaged_members
from geocaps.errors import GeocapsError

EXAMPLES = 10
UNITS_RATIO = 1000.0


@dataclass
class Problem:
    """One kind of problem: how many objects (or classes) have it, and the first few."""

    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(example)


@dataclass(frozen=True)
class Survey:
    """The summary of a data set. Ranges are (smallest, median, largest) over its sound objects, None without any."""

    name: str
    objects: int
    fingerprint: str
    classes: dict[str, int]
    unlabelled: int
    splits: dict[str, int]
    point_counts: tuple[int, int, int] | None
    radii: tuple[float, float, float] | None
    lowest: tuple[float, float, float] | None
    highest: tuple[float, float, float] | None
    problems: list[Problem]


def survey(
    source: str | os.PathLike[str] | PointDataset,
    *,
    split: str | None = None,
    on_object: Callable[[int, int], None] | None = None,
) -> Survey:
    """Reads every object once. ``on_object(done, of)`` is told of progress."""
    problems: defaultdict[str, Problem] = defaultdict(lambda: Problem(""))

    def found(kind: str, example: str) -> None:
        problem = problems[kind]
        problem.kind = kind
        problem.add(example)

    dataset = _opened(source, split)
    if not isinstance(source, PointDataset) and str(source) not in EMBEDDED and Path(source).suffix.lower() == ".npz":
        for key in damaged_members(Path(source)):
            found("damaged data (checksum)", key)
    counts, radii, lows, highs = [], [], [], []
    copies: dict[bytes, str] = {}
    for index, object_id in enumerate(dataset.object_ids):
        if on_object is not None:
            on_object(index, len(dataset))
        try:
            points = dataset.points(index).numpy()
        except GeocapsError as error:
            found("unreadable", f"{object_id}: {error}")
            continue
        fault = fault_of(points)
        if fault is not None:
            found(fault, object_id)
            continue
        digest = dataset.digest(index)
        if digest in copies:
            found("duplicated object", f"{object_id} = {copies[digest]}")
        copies.setdefault(digest, object_id)
        low, high = points.min(0), points.max(0)
        counts.append(len(points))
        lows.append(low)
        highs.append(high)
        radii.append(float(np.linalg.norm((high - low).astype(np.float64)) / 2))
    _check_radii(radii, found)
    _check_names(dataset, found)
    return Survey(
        name=dataset.name,
        objects=len(dataset),
        fingerprint=dataset.fingerprint,
        classes={name: int((dataset.labels == code).sum()) for code, name in enumerate(dataset.class_names)},
        unlabelled=int((dataset.labels == UNLABELLED).sum()),
        splits={name: len(dataset.split(name)) for name in dataset.splits},
        point_counts=(min(counts), int(np.median(counts)), max(counts)) if counts else None,
        radii=(min(radii), float(np.median(radii)), max(radii)) if radii else None,
        lowest=_corner(np.min(lows, axis=0)) if lows else None,
        highest=_corner(np.max(highs, axis=0)) if highs else None,
        problems=list(problems.values()),
    )


def _opened(source: str | os.PathLike[str] | PointDataset, split: str | None) -> PointDataset:
    if isinstance(source, PointDataset) or source in EMBEDDED:
        dataset = source if isinstance(source, PointDataset) else load(source)
    else:
        dataset = open_path(Path(source), strict=False)
    return dataset if split is None else dataset.split(split)


def fault_of(points: np.ndarray) -> str | None:
    """What makes a cloud useless, or None."""
    if len(points) == 0:
        return "empty cloud"
    if not np.isfinite(points).all():
        return "points that are not finite"
    if (points == points[0]).all():
        return "constant cloud (all points at one place)"
    return None


def _check_radii(radii: list[float], found: Callable[[str, str], None]) -> None:
    sound = [radius for radius in radii if radius > 0]
    if sound and max(sound) > UNITS_RATIO * min(sound):
        found("sizes differ a thousandfold (mixed units?)", f"half diagonals {min(sound):.3g} to {max(sound):.3g}")


def _check_names(dataset: PointDataset, found: Callable[[str, str], None]) -> None:
    for object_id, count in Counter(dataset.object_ids).items():
        if count > 1:
            found("object id used twice", f"{object_id} x {count}")
    outside = (dataset.labels < UNLABELLED) | (dataset.labels >= len(dataset.class_names))
    for index in np.flatnonzero(outside).tolist():
        found("label out of range", f"{dataset.object_ids[index]}: {dataset.labels[index]}")
    present = set(dataset.labels.tolist())
    for code, name in enumerate(dataset.class_names):
        if code not in present:
            found("class without objects", name)


def _corner(values: np.ndarray) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z
