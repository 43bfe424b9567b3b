"""Verification of candidates by geometry: where the query lies on each, and how well its points lie there.

Every matched pair of part viewpoints is a whole pose, and so is a pair of object capsules. All of them are scored at
once by a few points of the query, in tables of near points; the best are refined by ICP, on ever more points. Scores
are one-sided: what a scan did not see does not count against an object. Lengths are in radii of the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Float64, Int

from geocaps.apps.align.hypotheses import SIGNS, distinct
from geocaps.apps.align.icp import step
from geocaps.apps.align.prepare import farthest
from geocaps.geometry.sampling import evenly
from geocaps.geometry.similarity import Similarity, concatenate, stack
from geocaps.index.hits import FOUND
from geocaps.index.rows import Row, Rows
from geocaps.index.targets import REACH, Target, Targets, evidence

_PAIRS = 128  # most alike pairs of parts, of each candidate, that give hypotheses
_HALF_TURNS = np.stack([np.diag(signs) for signs in SIGNS[1:]])
_PROBED, _PROBES = 512, 192  # farthest points of the query that stand for it, and how many they are chosen among
_FIRST, _SECOND, _THIRD = 32, 64, 96  # of these, how many are used while there are many hypotheses
# Poses of each candidate that are refined, of the most alike ones, and the best among which they are chosen.
_KEPT, _KEPT_ALIKE, _LOOKED_AT = 3, 8, 60
_APART = np.radians(12), 0.12  # poses that differ by less than this angle and shift are one
_LIKELY, _FINE, _LAST = 24, 10, 4  # candidates that go on, that are refined on many points, and on all of them
_WORSE = 1.7  # times the least cost: candidates that fit worse than this are not refined on many points
_ALIKE = 3  # the candidates whose parts are most alike go on in any case
_FINE_POINTS = 512
_COARSE_REACHES, _MIDDLE_REACHES = (0.3, 0.25, 0.2, 0.15), (0.15, 0.12, 0.1)
_FINE_REACHES, _LAST_REACHES = (0.1, 0.08, 0.08), (0.08, 0.06)
# What evidence counts as it is, beside how it compares with the object's own: by that alone rough objects would win, by
# evidence as it is smooth ones.
_PLAIN = 3.0
_UNSEEN = 0.1  # what the object's own unexplained points count: little, and they settle ties
# The evidence, over what the object's own points have against each other, at which right and wrong are as probable.
_TIE, _TIE_WIDTH, _FLOOR = 1.0, 0.08, 0.03
_SOON, _SURE = 25, 0.7  # candidates that are verified first, and the confidence at which no others are
_SMALLEST, _LARGEST = 0.3, 1.6  # radius of a scan about its own centre, in radii of the object
_REMEMBERED = 2048  # objects, of about 150 kB each


@dataclass(frozen=True)
class Query:
    """A cloud that is looked for, in the frame of its own sphere, where its radius is 1."""

    row: Row
    candidates: Similarity  # [s]: all poses that its object capsule may have


@dataclass(frozen=True)
class Verified:
    """One candidate, laid on the query."""

    candidate: int
    T_object_query: Similarity  # in the model's frames of both
    score: float  # the less, the better
    confidence: float
    overlap: tuple[float, float]  # share of the query on the object, and of the object near the query
    distance: float  # from the query's points to the object's surface: root mean square without the farthest tenth


class Verifier:
    """Objects that were candidates lately are kept as they are worked with: those that look alike come back."""

    def __init__(self) -> None:
        self._known: dict[str, Target] = {}

    def verify(self, query: Query, candidates: Rows, most: int) -> list[Verified]:
        """Of the first ``most`` candidates those that were refined on many points, best first.

        First as a scan, in the same units as the objects: the candidates that are most alike, and the others if none
        of those is surely right. If that explains nothing, as a whole cloud in units of its own: then both must lie on
        each other, and what is most alike is enough.
        """
        found: list[Verified] = []
        soon = min(_SOON, most)
        for start, end in ((0, soon), (soon, most)):
            found = sorted(found + self._scanned(query, candidates[start:end], start), key=lambda one: one.score)
            if found and found[0].confidence >= _SURE:
                return found
        if not found or found[0].confidence < FOUND:
            likely = candidates[:soon]
            whole = self._verified(query, likely, np.ones(len(likely)), whole=True)
            if not found or (whole and whole[0].confidence >= FOUND):
                return whole
        return found

    def _scanned(self, query: Query, rows: Sequence[Row], first: int) -> list[Verified]:
        """In the same units; ``first`` is the number of the first row among all candidates."""
        scale = np.array([float(query.row.normalization.scale / row.normalization.scale) for row in rows])
        fit = np.flatnonzero((scale > _SMALLEST) & (scale < _LARGEST)).tolist()
        found = self._verified(query, [rows[index] for index in fit], scale[fit], whole=False)
        return [replace(one, candidate=first + fit[one.candidate]) for one in found]

    def _verified(
        self, query: Query, candidates: Sequence[Row], scale: Float64[np.ndarray, "c"], whole: bool
    ) -> list[Verified]:
        if not candidates:
            return []
        objects = [self._object(row) for row in candidates]
        motions, of = _search(query, candidates, Targets.of(objects), scale)
        return _polished(query.row, objects, motions, of, whole)

    def _object(self, row: Row) -> Target:
        known = self._known.get(row.id)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            known = self._known[row.id] = Target(row.points, row.normals)
        return known


# ── from hypotheses to a few poses ────────────────────────────────────────────────────────────────────────────────────


def _search(
    query: Query, rows: Sequence[Row], targets: Targets, scale: Float64[np.ndarray, "c"]
) -> tuple[Similarity, Int[np.ndarray, "h"]]:
    """Poses of the query on the most likely candidates, best first, and which candidate each is of."""
    points = query.row.points[evenly(min(len(query.row.points), _PROBED), len(query.row.points))]
    columns = points[farthest(points, min(len(points), _PROBES))].T.astype(np.float32)
    few, some, more = (np.ascontiguousarray(columns[:, :count]) for count in (_FIRST, _SECOND, _THIRD))
    motions, of = _hypotheses(query, rows, scale)
    cost, alike = targets.costs(of, motions, few, 0.25, 0.5), np.flatnonzero(of < _ALIKE)
    more_of_these = alike[_best(motions[alike], of[alike], cost[alike], _KEPT_ALIKE)]
    kept = np.union1d(_best(motions, of, cost, _KEPT), more_of_these)
    motions, of = targets.refined(of[kept], motions[kept], some, _COARSE_REACHES), of[kept]
    cost = targets.costs(of, motions, more, 0.15, 0.9)
    first = _going_on(_best(motions, of, cost, 1), of, _LIKELY)
    likely = np.isin(of, of[first])
    turned = _half_turns(motions[first], rows, of[first])
    motions = concatenate([motions[likely], turned])
    of = np.concatenate([of[likely], np.tile(of[first], len(_HALF_TURNS))])
    motions = targets.refined(of, motions, more, _MIDDLE_REACHES)
    motions = targets.refined(of, motions, columns, _MIDDLE_REACHES[-1:])
    cost = targets.costs(of, motions, columns, REACH, 0.9)
    best, two = _best(motions, of, cost, 1), _best(motions, of, cost, 2)
    best = _going_on(best[(cost[best] < _WORSE * cost[best[0]]) | (of[best] < _ALIKE)], of, _FINE)
    # The best pose of each, and of the best candidates another one.
    kept = np.concatenate([best, two[np.isin(of[two], of[best[:_LAST]]) & ~np.isin(two, best)]])
    return motions[kept], of[kept]


def _hypotheses(
    query: Query, rows: Sequence[Row], scale: Float64[np.ndarray, "c"]
) -> tuple[Similarity, Int[np.ndarray, "h"]]:
    """Poses that lay a viewpoint of the query on one of a candidate that sees the same, with all signs of the axes;
    and those that lay the poses of its object capsule on the candidate's."""
    own = query.row.viewpoints
    theirs, mine, of = [], [], []
    for number, row in enumerate(rows):
        alike = query.row.percepts @ row.percepts.T
        best = np.argpartition(-alike, min(_PAIRS, alike.size) - 1, axis=None)[:_PAIRS]
        q, r = np.unravel_index(best, alike.shape)
        theirs += [(row.viewpoints.rotation[r], row.viewpoints.translation[r])]
        mine += [(own.rotation[q], own.translation[q])]
        of += [np.full(len(best), number)]
    pairs = np.concatenate(of)
    signs = np.repeat(SIGNS, len(pairs), axis=0)
    of_object, of_query = (
        [
            np.tile(np.concatenate(arrays), (len(SIGNS),) + (1,) * (arrays[0].ndim - 1))
            for arrays in zip(*both, strict=True)
        ]
        for both in (theirs, mine)
    )
    by_parts = _laid(
        of_object[0] * signs[:, None], of_object[1], of_query[0], of_query[1], scale[np.tile(pairs, len(SIGNS))]
    )
    whole = np.repeat(np.arange(len(rows)), len(query.candidates))
    poses = [row.pose for row in rows]
    by_object = _laid(
        np.stack([pose.rotation for pose in poses])[whole],
        np.stack([pose.translation for pose in poses])[whole],
        np.tile(query.candidates.rotation, (len(rows), 1, 1)),
        np.tile(query.candidates.translation, (len(rows), 1)),
        scale[whole],
    )
    return concatenate([by_parts, by_object]), np.concatenate([np.tile(pairs, len(SIGNS)), whole])


def _laid(
    of_object: Float64[np.ndarray, "h 3 3"],
    at_object: Float64[np.ndarray, "h 3"],
    of_query: Float64[np.ndarray, "h 3 3"],
    at_query: Float64[np.ndarray, "h 3"],
    scale: Float64[np.ndarray, "h"],
) -> Similarity:
    """``P_object ∘ P_query⁻¹``, with a scale."""
    rotation = of_object @ of_query.transpose(0, 2, 1)
    return Similarity(rotation, at_object - scale[:, None] * (rotation @ at_query[..., None])[..., 0], scale)


def _half_turns(motions: Similarity, rows: Sequence[Row], of: Int[np.ndarray, "h"]) -> Similarity:
    """Each pose, turned by 180° about the axes of the object's own pose: what ICP cannot get out of."""
    poses = [rows[number].pose for number in of]
    axes, center = np.stack([pose.rotation for pose in poses]), np.stack([pose.translation for pose in poses])
    turned = []
    for turn in _HALF_TURNS:
        rotation = axes @ turn @ axes.transpose(0, 2, 1)
        turned.append(Similarity(rotation, center - (rotation @ center[..., None])[..., 0]) @ motions)
    return concatenate(turned)


def _best(
    motions: Similarity, of: Int[np.ndarray, "h"], cost: Float[np.ndarray, "h"], most: int
) -> Int[np.ndarray, "k"]:
    """The ``most`` best poses of each candidate that differ, all of them in order of their cost."""
    order = np.lexsort((cost, of))
    bounds = np.flatnonzero(np.diff(of[order], prepend=-1, append=-1))
    if most == 1:
        found = order[bounds[:-1]]
    else:
        each = (order[start : min(end, start + _LOOKED_AT)] for start, end in pairwise(bounds))
        found = np.concatenate([one[distinct(motions[one], np.arange(len(one)), most, *_APART)] for one in each])
    return found[np.argsort(cost[found], kind="stable")]


def _going_on(best: Int[np.ndarray, "c"], of: Int[np.ndarray, "h"], most: int) -> Int[np.ndarray, "k"]:
    """Of the best poses, one of each candidate, the first so many, and those of the candidates that are most alike."""
    return best[(np.arange(len(best)) < most) | (of[best] < _ALIKE)]


# ── on many points: exact partners, and what is left ──────────────────────────────────────────────────────────────────


def _polished(
    scan: Row,
    objects: Sequence[Target],
    motions: Similarity,
    of: Int[np.ndarray, "h"],
    whole: bool,
) -> list[Verified]:
    """Every pose refined on many points, the best of them on all; one for each candidate, best first."""
    points, query = scan.points, Target(scan.points, scan.normals)

    def judged(motions: Similarity, of: Sequence[int], points: np.ndarray, reaches: Sequence[float]) -> list[Verified]:
        equal = np.ones(len(points))
        for reach in reaches:
            moved = motions.apply(points)
            near = [objects[number].partners(one) for number, one in zip(of, moved, strict=True)]
            fixed = np.stack([objects[number].points[one] for number, one in zip(of, near, strict=True)])
            normal = np.stack([objects[number].normals[one] for number, one in zip(of, near, strict=True)])
            pairs = np.moveaxis(moved, -1, 0), np.moveaxis(fixed, -1, 0), np.moveaxis(normal, -1, 0)
            motions = step(pairs, equal, motions, reach, whole)
        found = [_judged(n, motions[k], points, objects[n], query, whole) for k, n in enumerate(of)]
        return sorted(found, key=lambda one: one.score)

    some = points[evenly(min(len(points), _FINE_POINTS), len(points))]
    found = judged(motions, of.tolist(), some, _FINE_REACHES)
    best, rest = found[:_LAST], found[_LAST:]
    best = judged(stack([one.T_object_query for one in best]), [one.candidate for one in best], points, _LAST_REACHES)
    one_each = {one.candidate: one for one in reversed(best + rest)}
    return sorted(one_each.values(), key=(best + rest).index)


def _judged(
    number: int, motion: Similarity, points: Float[np.ndarray, "n 3"], target: Target, query: Target, whole: bool
) -> Verified:
    """A pose by the evidence of the query's points against the object, and a little of the object's against the query.

    The confidence compares with what the object's own points have against each other, where the query is: that is as
    well as another sampling of it can fit.
    """
    point, plane = target.residuals(motion.apply(points))
    back, back_plane = query.residuals(motion.observe(target.points), float(motion.scale))
    forward, backward = evidence(point, plane), evidence(back, back_plane)
    near = back < REACH**2
    usual = float(target.own_evidence[near].mean()) if near.any() else 0.0
    unexplained = float(forward.mean()) + (1.0 if whole else _UNSEEN) * float(backward.mean())
    misfit = (unexplained / 2 if whole else float(forward.mean())) / (_FLOOR + usual)
    kept = np.sort(plane)[: max(1, int(np.ceil(0.9 * len(plane))))]
    return Verified(
        candidate=number,
        T_object_query=motion,
        score=misfit + _PLAIN * unexplained,
        confidence=float(1 / (1 + np.exp(np.clip((misfit - _TIE) / _TIE_WIDTH, -50, 50)))),
        overlap=(float((forward < 0.5).mean()), float(near.mean())),
        distance=float(np.sqrt(kept.mean())),
    )
