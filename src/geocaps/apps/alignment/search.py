"""From two clouds to the poses that explain them: many cheap hypotheses, then fewer on more points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from geocaps.apps.alignment import hypotheses
from geocaps.apps.alignment.icp import by_table, by_tree, refine
from geocaps.apps.alignment.motions import Motions, distinct, join
from geocaps.apps.alignment.scoring import cost, costs, explained, own_residuals, residuals, trimmed_rms
from geocaps.apps.alignment.views import View, local_frames, make_view
from geocaps.points.sampling import evenly

SEARCH_POINTS = 1024
"""Points of each cloud that the search uses."""
HYPOTHESES = 600
_PROBES = 64
_COARSE, _FINE = 48, 12
"""How many hypotheses are refined on a few points, and on more."""
_TIE_WIDTH = 0.15
_NAMED = 0.02


@dataclass(frozen=True)
class Match:
    """What was found, in working units, best first."""

    motions: Motions
    probability: Float[np.ndarray, "h"]
    error: float
    overlap: tuple[float, float]


def search(
    a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "m 3"], extra: Motions | None, polish: bool, scale: bool
) -> Match:
    """The best motion from A to B and those nearly as good; ``extra`` are hypotheses from elsewhere."""
    view_a, view_b = _search_view(a), _search_view(b)
    motions = _candidates(view_a, view_b, extra, scale)
    reach = max(0.15, 4 * max(view_a.spacing, view_b.spacing))
    side_a, side_b = by_tree(view_a), by_tree(view_b)
    forward, backward = (found.truncated(reach) for found in residuals(side_a, side_b, motions))
    score = cost(forward, backward, scale)
    own = [found.truncated(reach) for found in (own_residuals(view_a), own_residuals(view_b))]
    floor = float(cost(own[0], own[1], scale)[0])
    order = np.argsort(score, kind="stable")
    motions, score = motions[order], score[order]
    kept = distinct(motions, np.arange(len(motions)), _FINE, np.radians(15), 0.3)
    motions, score = motions[kept], score[kept]
    # Below the floor a better score tells how the points were drawn, not how the surfaces lie.
    level = max(float(score[0]), floor)
    weight = np.exp(-np.clip(score - level, 0, None) / (_TIE_WIDTH * level))
    probability = weight / weight.sum()
    named = probability >= _NAMED * probability[0]
    motions, probability = motions[named], probability[named]
    if polish:
        view_a = make_view(a) if len(a) > SEARCH_POINTS else view_a
        view_b = make_view(b) if len(b) > SEARCH_POINTS else view_b
        side_a, side_b = by_tree(view_a), by_tree(view_b)
        motions = refine(side_a, side_b, motions, np.full(6, reach), scale)
    forward, backward = residuals(side_a, side_b, motions[:1])
    own = [own_residuals(view_a), own_residuals(view_b)]
    overlap = explained(forward, own[1]), explained(backward, own[0])
    return Match(motions, probability, trimmed_rms(forward, backward), overlap)


def _search_view(points: Float[np.ndarray, "n 3"]) -> View:
    return make_view(points[evenly(min(len(points), SEARCH_POINTS), len(points))])


def _candidates(a: View, b: View, extra: Motions | None, scale: bool) -> Motions:
    found = [
        hypotheses.from_principal_axes(a.points[a.solid], b.points[b.solid]),
        hypotheses.from_frames(local_frames(a), local_frames(b), HYPOTHESES),
    ]
    motions = join(found if extra is None else [*found, extra])
    score = costs(by_table(a, a.probes[:_PROBES]), by_table(b, b.probes[:_PROBES]), motions, 0.4, scale)
    motions = motions[distinct(motions, np.argsort(score, kind="stable"), _COARSE, np.radians(15), 0.3)]
    few_a, few_b = by_table(a, a.probes), by_table(b, b.probes)
    motions = refine(few_a, few_b, motions, np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.2]), scale)
    score = costs(few_a, few_b, motions, 0.3, scale)
    motions = motions[distinct(motions, np.argsort(score, kind="stable"), _FINE, np.radians(10), 0.2)]
    quarter_a, quarter_b = (by_tree(v, evenly(max(len(v.points) // 4, 1), len(v.points))) for v in (a, b))
    return refine(quarter_a, quarter_b, motions, np.array([0.2, 0.2, 0.2]), scale)
