"""From two clouds to the poses that explain them: many cheap hypotheses, then fewer on more points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.align import hypotheses
from geocaps.apps.align.icp import Side, by_table, by_tree, refine
from geocaps.apps.align.motions import distinct
from geocaps.apps.align.prepare import View, local_frames, make_view
from geocaps.apps.align.score import (
    costs,
    explained,
    final_costs,
    final_floor,
    floor,
    own_residuals,
    residuals,
    trimmed_rms,
)
from geocaps.geometry.sampling import evenly
from geocaps.geometry.similarity import Similarity, concatenate

MINIMUM_POINTS = 4
SEARCH_POINTS = 1024
"""Points of each cloud that the search uses."""
HYPOTHESES = 600
"""Pairs of local frames that are scored."""
_PROBES = 64
"""Points of each cloud that they are scored on."""
_COARSE, _HALFWAY, _FINE = 48, 24, 12
"""How many hypotheses are refined on few points, how many of them to the end, and how many on more points."""
_RATIO, _FLOORS = 2.1, 2.5
"""A refined hypothesis goes on while its score is within this ratio of the best, or of so many floors: of two copies of
a symmetric cloud only one pose is perfect, and the others are as good as those of two samplings."""
_COARSE_REACHES = np.array([0.6, 0.5]), np.array([0.4, 0.3, 0.2, 0.2])
_FINE_REACHES = np.array([0.2, 0.2, 0.2])
_OTHER_POSE = np.radians(15), 0.3
"""Poses that differ by less than this angle and shift are one."""
_REACH, _SPACINGS = 0.15, 4.0
"""Distance from which a point counts as unexplained: of the spread, and at least so many spacings of the points."""
_POLISH_STEPS, _POLISH_EVERY = 4, 2
_TIE_WIDTH, _NAMED = 0.07, 0.02
"""A pose whose score is worse by the first share is e times less probable; below the second it is not named."""
_POLISH_WIDTH = 0.15
"""The same for what is polished: scores still change by it."""


@dataclass(frozen=True)
class Match:
    """What was found, in working units, best first."""

    motions: Similarity
    probability: Float[np.ndarray, "h"]
    error: float
    overlap: tuple[float, float]


def search(
    a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "m 3"], extra: Similarity | None, polish: bool, scale: bool
) -> Match:
    """The best motion from A to B and those nearly as good; ``extra`` are hypotheses from elsewhere."""
    view_a, view_b = _search_view(a), _search_view(b)
    reach = max(_REACH, _SPACINGS * max(view_a.spacing, view_b.spacing))
    half_a, half_b = (by_tree(view, _spread_out(view, 2), reach) for view in (view_a, view_b))
    width = _POLISH_WIDTH if polish else _TIE_WIDTH
    motions, weight = _weighed(half_a, half_b, _candidates(view_a, view_b, extra, scale), reach, scale, width)
    if polish:
        view_a = make_view(a) if len(a) > SEARCH_POINTS else view_a
        view_b = make_view(b) if len(b) > SEARCH_POINTS else view_b
        whole_a, whole_b = by_tree(view_a, reach=reach), by_tree(view_b, reach=reach)
        motions = refine(whole_a, whole_b, motions, np.full(_POLISH_STEPS, reach), scale, every=_POLISH_EVERY)
        motions, weight = _weighed(whole_a, whole_b, motions, reach, scale, _TIE_WIDTH)
    forward, backward = residuals(by_tree(view_a), by_tree(view_b), motions[:1])
    overlap = explained(forward, own_residuals(view_b)), explained(backward, own_residuals(view_a))
    return Match(motions, weight / weight.sum(), trimmed_rms(forward, backward), overlap)


def _weighed(
    a: Side, b: Side, motions: Similarity, reach: float, scale: bool, width: float
) -> tuple[Similarity, Float[np.ndarray, "h"]]:
    """The motions that explain the clouds nearly as well as the best, best first, with weights from 1 down."""
    score = final_costs(a, b, motions, reach, scale)
    kept = distinct(motions, np.argsort(score, kind="stable"), _FINE, *_OTHER_POSE)
    motions, score = motions[kept], score[kept]
    # Below the floor a better score tells how the points were drawn, not how the surfaces lie.
    level = max(float(score[0]), final_floor(a.view, b.view, reach, scale))
    weight = np.exp(-np.clip(score - level, 0, None) / (width * level))
    named = weight >= _NAMED
    return motions[named], weight[named]


def _search_view(points: Float[np.ndarray, "n 3"]) -> View:
    return make_view(points[evenly(min(len(points), SEARCH_POINTS), len(points))])


def _spread_out(view: View, every: int) -> Int[np.ndarray, "m"]:
    """One point in so many, from all distances from the centre."""
    return evenly(max(len(view.points) // every, MINIMUM_POINTS), len(view.points))


def _candidates(a: View, b: View, extra: Similarity | None, scale: bool) -> Similarity:
    """The dozen motions that hundreds of hypotheses lead to, refined on a quarter of the points."""
    found = [
        hypotheses.from_principal_axes(a.points[a.solid], b.points[b.solid]),
        hypotheses.from_frames(local_frames(a), local_frames(b), HYPOTHESES),
    ]
    motions = concatenate(found if extra is None else [*found, extra])
    score = costs(by_table(a, a.probes[:_PROBES]), by_table(b, b.probes[:_PROBES]), motions, 0.4, scale)
    motions = motions[distinct(motions, np.argsort(score, kind="stable"), _COARSE, *_OTHER_POSE)]
    few_a, few_b = by_table(a, a.probes), by_table(b, b.probes)
    motions = refine(few_a, few_b, motions, _COARSE_REACHES[0], scale)
    motions = motions[_near_best(few_a, few_b, motions, 0.4, scale)[:_HALFWAY]]
    motions = refine(few_a, few_b, motions, _COARSE_REACHES[1], scale)
    order = _near_best(few_a, few_b, motions, 0.3, scale)
    motions = motions[distinct(motions, order, _FINE, np.radians(10), 0.2)]
    quarter_a, quarter_b = (by_tree(view, _spread_out(view, 4), float(_FINE_REACHES.max())) for view in (a, b))
    return refine(quarter_a, quarter_b, motions, _FINE_REACHES, scale)


def _near_best(a: Side, b: Side, motions: Similarity, reach: float, scale: bool) -> Int[np.ndarray, "k"]:
    """Indices of the motions that may still turn out to be the best, best first."""
    score = costs(a, b, motions, reach, scale)
    order = np.argsort(score, kind="stable")
    level = max(score[order[0]], _FLOORS * floor(a.view, b.view, reach, scale))
    return order[score[order] <= _RATIO * level]
