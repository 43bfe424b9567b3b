"""``geocaps.transfer(labelled, targets)``: labels transferred from one or a few objects to others of their kind.

The descriptors of the 24 frames of a labelled object and a target give the rotation between the two. In matching
frames, the labelled object is stretched onto the target, axis by axis, and each point takes the label of the nearest
points.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64, Int
from scipy.spatial import cKDTree

from geocaps.apps.canonical import Job, each_saved, encoded, find_jobs, saved
from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import Encoding
from geocaps.errors import InvalidInputError, Skipped
from geocaps.geometry.sampling import at_most
from geocaps.io.save import check_target, save_cloud, write_whole
from geocaps.model.look import cube_products, turn_similarity

Labelled = tuple[Source, np.ndarray] | Source
"""A cloud with the labels of its points, or a file that has both."""

SUFFIXES = (".npz", ".pcd", ".ply", ".xyz")
_POINTS = 2048  # points of each object that are compared
_TURNS = 4  # number of rotations, the most similar of 24, that are tried
_FITTED = 6  # iterations of stretching one object onto the other
_KEPT = 0.8  # share of the nearest pairs that is used
_MOST_STRETCH = 1.6  # of an axis, against the mean of the three
_NEAREST = 8  # number of labelled points that vote for the label of a point
_LIKENESS = 12.0  # weight of similar objects, in nats for a difference of 1 in similarity
_FIT = 12.0  # weight of objects that fit, in nats for a mean distance of 1 radius
_DRAWN = 4096


@dataclass(frozen=True, repr=False)
class Transferred:
    """One object with labels from others. All arrays are in numpy."""

    name: str
    points: Float[np.ndarray, "n 3"]
    """Points as given (for a mesh: sampled from its surface)."""
    labels: Int[np.ndarray, "n"]
    """Label of each point: one of those given."""
    confidence: Float64[np.ndarray, "n"]
    """Confidence in each label, from 0 to 1: its share of the votes."""
    source: str
    """The labelled object with the largest weight."""
    similarity: float
    """Similarity of the two objects, at most 1."""
    dropped: int = 0
    """Points (of a mesh: vertices) that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        return (
            f"Transferred({self.name}: {len(self.points):,} points, {len(np.unique(self.labels))} labels from "
            f"{self.source}, mean confidence {self.confidence.mean():.2f})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import page

        return page(self, picture([self]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes points, labels and confidence as PLY, NPZ, XYZ or PCD, in one colour for each label."""
        check_target(Path(path), SUFFIXES)
        save_cloud(path, self.points, labels=self.labels, colors=_colors(self.labels), confidence=self.confidence)


def transfer(
    labelled: Labelled | Iterable[Labelled],
    targets: Source | Encoding | Iterable[Source | Encoding],
    model: Model | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    suffix: str = ".ply",
    drop_invalid: bool = False,
) -> list[Transferred]:
    """Labels targets (files, folders, clouds, meshes, encodings) like one or several labelled objects.

    A labelled object is a pair of a cloud and the labels of its points (whole numbers), or a file that has labels (a
    scalar ``label`` in PLY, an array ``labels`` in NPZ, a column in text). ``out`` is a folder for the results, which
    keep their names and get the type ``suffix``. Unreadable sources raise; :func:`transfer_each` skips them.
    """
    model = model or load()
    known = references(labelled, model, drop_invalid=drop_invalid)
    jobs = find_jobs(targets, None if out is None else Path(out), suffix)
    return [saved(labelled_by(known, encoded(job, model, drop_invalid)), job) for job in jobs]


def transfer_each(
    known: Sequence[Reference], jobs: Iterable[Job], model: Model, *, drop_invalid: bool = False
) -> Iterator[Transferred | Skipped]:
    """Results one at a time, each saved as its job says; an object that fails gives the reason."""
    return each_saved(jobs, lambda job: labelled_by(known, encoded(job, model, drop_invalid)))


def picture(found: Sequence[Transferred], references: Sequence[Reference] = ()) -> bytes:
    """A picture of the labelled objects and the results, with one colour for each label."""
    from geocaps.apps.drawing import Grid, draw_points

    shown = [(f"{Path(one.name).name} (given)", one.points, one.labels) for one in references]
    shown += [(Path(one.name).name, one.points, one.labels) for one in found]
    columns = min(5, len(shown))
    grid = Grid(-(-len(shown) // columns), columns)
    for place, (name, points, labels) in enumerate(shown):
        some = at_most(_DRAWN, len(points))
        draw_points(grid.panel(*divmod(place, columns), name), points[some], _colors(labels[some]) / 255)
    return grid.png()


# ── labelled objects ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reference:
    """A labelled object, encoded."""

    encoding: Encoding
    labels: Int[np.ndarray, "n"]

    @property
    def name(self) -> str:
        return self.encoding.cloud.name

    @property
    def points(self) -> Float[np.ndarray, "n 3"]:
        return self.encoding.cloud.points


def references(labelled: Labelled | Iterable[Labelled], model: Model, *, drop_invalid: bool = False) -> list[Reference]:
    """Labelled objects, checked and encoded; a folder stands for its files."""
    found = []
    for source, labels in _each_labelled(labelled):
        cloud = as_cloud(source, model.config.parts.parts, "the labelled object", drop_invalid=drop_invalid)
        checked = _checked_labels(cloud, labels)
        found.append(Reference(model.encode(cloud), checked))
        if found[-1].encoding.parse.frames is None:
            raise InvalidInputError("labels are transferred by models with our object layer; the paper's has no frames")
    if not found:
        raise InvalidInputError("no labelled object was given: give at least one")
    return found


def _each_labelled(labelled: Labelled | Iterable[Labelled]) -> Iterator[tuple[Source, np.ndarray | None]]:
    if isinstance(labelled, tuple) and len(labelled) == 2 and np.ndim(labelled[1]) == 1:
        yield labelled[0], np.asarray(labelled[1])
    elif isinstance(labelled, (str, os.PathLike)):
        for job in find_jobs(labelled, None, ".ply"):
            yield job.source, None
    elif isinstance(labelled, Cloud):
        yield labelled, None
    elif isinstance(labelled, (list, tuple)):
        for one in labelled:
            yield from _each_labelled(one)
    else:
        raise InvalidInputError(
            f"a labelled object is a file with labels or a pair (cloud, labels), not {type(labelled).__name__}"
        )


def _checked_labels(cloud: Cloud, given: np.ndarray | None) -> Int[np.ndarray, "n"]:
    labels = cloud.labels if given is None else given
    if labels is None:
        raise InvalidInputError(
            f"{cloud.name} has no labels: a scalar called label (PLY), an array called labels (NPZ), or a column of "
            "whole numbers behind the coordinates (XYZ, TXT)"
        )
    if labels.dtype.kind not in "iu" or labels.shape != (len(cloud.points),):
        raise InvalidInputError(
            f"the labels of {cloud.name} must be {len(cloud.points)} whole numbers, one for each point, "
            f"not {labels.dtype} of shape {list(labels.shape)}"
        )
    return labels


# ── one target ────────────────────────────────────────────────────────────────────────────────────────────────────────


def labelled_by(known: Sequence[Reference], target: Encoding) -> Transferred:
    """Labels for one object by the votes of others, weighted by similarity and by fit."""
    points = target.cloud.points
    fits = [_fitted(one, target) for one in known]
    weights = np.array([np.exp(_LIKENESS * fit.similarity - _FIT * fit.misfit) for fit in fits])
    names = np.unique(np.concatenate([one.labels for one in known]))
    votes = np.zeros((len(points), len(names)))
    for one, fit, weight in zip(known, fits, weights / weights.sum(), strict=True):
        place = np.searchsorted(names, one.labels)
        local = fit.observe(points)
        distance, index = cKDTree(fit.points).query(local, min(_NEAREST, len(fit.points)))
        near = 1 / (distance + 0.02)
        shares = near / near.sum(axis=1, keepdims=True)
        rows = np.repeat(np.arange(len(points)), shares.shape[1])
        np.add.at(votes, (rows, place[fit.chosen][index].ravel()), weight * shares.ravel())
    best = int(weights.argmax())
    return Transferred(
        name=target.cloud.name,
        points=points,
        labels=names[votes.argmax(axis=1)],
        confidence=votes.max(axis=1) / votes.sum(axis=1),
        source=known[best].name,
        similarity=float(fits[best].similarity),
        dropped=target.cloud.dropped,
    )


@dataclass(frozen=True)
class _Fit:
    """A labelled object stretched onto a target, in a frame of the target."""

    points: Float64[np.ndarray, "m 3"]  # some points of the labelled object
    chosen: Int[np.ndarray, "m"]  # which ones
    rotation: Float64[np.ndarray, "3 3"]  # the target's frame; columns are its axes
    center: Float64[np.ndarray, "3"]
    radius: float
    similarity: float
    misfit: float  # mean distance of the two, in radii

    def observe(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return (points - self.center) @ self.rotation / self.radius


def _fitted(one: Reference, target: Encoding) -> _Fit:
    """The best fit, among the rotations for which the two objects look most alike."""
    ours, theirs = one.encoding.parse.frames, target.parse.frames
    assert ours is not None
    assert theirs is not None
    similarity = turn_similarity(ours.descriptor[0], theirs.descriptor[0]).double().numpy()
    first = ours.pose.rotation_matrix()[0, 0].double().numpy()
    turned = theirs.pose.rotation_matrix()[0].double().numpy()[cube_products()[:, 0].numpy()]
    chosen = at_most(_POINTS, len(one.points))
    some = target.cloud.points[at_most(_POINTS, len(target.cloud.points))]
    radius, center = target.normalization.scale, _middle(some)
    labelled = (one.points[chosen] - _middle(one.points[chosen])) @ first / one.encoding.normalization.scale
    best: _Fit | None = None
    for turn in np.argsort(-similarity, kind="stable")[:_TURNS].tolist():
        rotation = turned[turn]
        local = (some - center) @ rotation / radius
        stretched, misfit = _stretched(labelled, local)
        fit = _Fit(stretched, chosen, rotation, center, float(radius), float(similarity[turn]), misfit)
        if best is None or _worth(fit) > _worth(best):
            best = fit
    assert best is not None
    return best


def _worth(fit: _Fit) -> float:
    return _LIKENESS * fit.similarity - _FIT * fit.misfit


def _middle(points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "3"]:
    return points.mean(axis=0, dtype=np.float64)


def _stretched(
    points: Float64[np.ndarray, "n 3"], target: Float64[np.ndarray, "m 3"]
) -> tuple[Float64[np.ndarray, "n 3"], float]:
    """Points stretched along the axes onto a target, and the mean distance that is left, both ways.

    Iterated least squares on the nearest pairs; the farthest pairs are ignored, as one object may have parts that the
    other lacks.
    """
    tree = cKDTree(target)
    for _ in range(_FITTED):
        forth, there = tree.query(points)
        back, here = cKDTree(points).query(target)
        near_forth, near_back = forth <= np.quantile(forth, _KEPT), back <= np.quantile(back, _KEPT)
        a = np.concatenate([points[near_forth], points[here[near_back]]])
        b = np.concatenate([target[there[near_forth]], target[near_back]])
        mean_a, mean_b = a.mean(axis=0), b.mean(axis=0)
        scale = ((a - mean_a) * (b - mean_b)).sum(axis=0) / np.maximum(((a - mean_a) ** 2).sum(axis=0), 1e-12)
        middle = max(float(np.median(scale)), 0.3)
        scale = np.clip(scale, middle / _MOST_STRETCH, middle * _MOST_STRETCH)
        points = (points - mean_a) * scale + mean_b
    forth, back = tree.query(points)[0], cKDTree(points).query(target)[0]
    return points, float(forth.mean() + back.mean()) / 2


def _colors(labels: Int[np.ndarray, "n"]) -> np.ndarray:
    from geocaps.apps.drawing import part_colors

    names, place = np.unique(labels, return_inverse=True)
    return np.rint(255 * part_colors(len(names)))[place].astype(np.uint8)


def save_png(path: str | os.PathLike[str], found: Sequence[Transferred], references: Sequence[Reference]) -> None:
    """Writes :func:`picture`."""
    check_target(Path(path), (".png",))
    write_whole(Path(path), picture(found, references))
