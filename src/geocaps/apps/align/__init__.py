"""``geocaps.align(a, b)``: where one cloud lies in another, whatever their poses, order, counts and units.

From two clouds to the poses that explain them: many cheap hypotheses, then fewer on more points. In numpy, without
weights and without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int
from numpy.typing import ArrayLike

from geocaps.apps.align import hypotheses
from geocaps.apps.align.confidence import WIDTH, signs_of, trust, weights
from geocaps.apps.align.hypotheses import Residuals
from geocaps.apps.align.icp import Side, by_table, by_tree, refine
from geocaps.apps.align.prepare import Neighbours, Prepared, evened, local_frames, prepare
from geocaps.apps.clouds import Placed, Source, as_cloud, require_extent
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import evenly
from geocaps.geometry.similarity import Similarity, concatenate, stack

MINIMUM_POINTS = 4
# Points of each cloud that the search uses, and the polish; larger clouds are sampled down evenly.
_SEARCH_POINTS, _POLISH_POINTS = 1024, 4096
_HYPOTHESES, _SCORED = 300, 64  # pairs of local frames that are scored, and the points of each cloud they are scored on
# How many hypotheses are refined on few points, how many of them to the end, and how many on more points.
_COARSE, _HALFWAY, _FINE = 64, 32, 8
_RATIO = 3.0  # a refined hypothesis stays in the search while its score is within this ratio of the best
_COARSE_REACHES = np.array([0.6, 0.5]), np.array([0.4, 0.3, 0.2, 0.2])
_FINE_REACHES = np.array([0.2, 0.2, 0.2])
_GUESS_REACHES = np.array([0.6, 0.6, 0.5, 0.5, 0.4, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2, 0.2])  # from a guess on
_RIGID = 1e-3  # a guess may scale by so much and still be a rigid motion
_OTHER_POSE = np.radians(15), 0.3  # poses that differ by less than this angle and shift are one
# Distance from which a point counts as unexplained: of the spread, and at least so many spacings of the points.
_REACH, _SPACINGS = 0.15, 4.0
_POLISH_STEPS, _POLISH_EVERY = 4, 2
# A pose whose cost is higher by the first share is e times less probable before the polish, which still changes costs;
# below the second it is not named.
_POLISH_WIDTH, _NAMED = 0.15, 0.02
# Alternatives of this share of the confidence make a result ambiguous; below this confidence it is uncertain.
_TIE, _LOW = 0.25, 0.5
_SHOWN = 512


class Alternative(NamedTuple):
    """Another way to lay A on B, and how probable it is beside the chosen one."""

    pose: Similarity
    confidence: float

    @property
    def scale(self) -> float:
        return float(self.pose.scale)


@dataclass(frozen=True, repr=False)
class Alignment(Placed):
    """Where cloud A lies in the frame of cloud B: ``x_b = scale · R · x_a + t``, in the user's units."""

    pose: Similarity
    """``T_b_a``; its scale is 1 unless ``align`` was asked to find it."""
    error: float
    """Residual, in units of B: root mean square distance from the points of the better explained cloud to the nearest
    point of the other, without the farthest tenth. Two samplings of one surface never reach zero."""
    overlap: tuple[float, float]
    """Share of A that B explains, and of B that A explains, to within the clouds' own noise and sampling."""
    confidence: float
    """From 0 to 1: the chance that this pose is right (within a few degrees), as measured on pairs whose pose is known;
    it tells nothing of how much of the clouds overlaps."""
    alternatives: list[Alternative]
    """Other poses that explain the clouds nearly as well, most probable first: an object's symmetries."""
    shown: tuple[Float64[np.ndarray, "k 3"], Float64[np.ndarray, "l 3"]]
    """Some points of A and of B as they came, for a picture."""
    dropped: tuple[int, int] = (0, 0)
    """Points of A and of B that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        translation = ", ".join(f"{value:.6g}" for value in self.pose.translation.tolist())
        wxyz = ", ".join(f"{value:.6f}" for value in self.pose.wxyz.tolist())
        scale = "" if self.scale == 1 else f", scale {self.scale:.6g}"
        doubt = f", AMBIGUOUS: {len(self.alternatives)} alternatives" if self.ambiguous else ""
        return (
            f"Alignment(T_b_a: translation ({translation}), wxyz ({wxyz}){scale}; error {self.error:.4g}, overlap "
            f"{self.overlap[0]:.0%} of A and {self.overlap[1]:.0%} of B, confidence {self.confidence:.2f}{doubt})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import alignment_html

        return alignment_html(self)

    @property
    def ambiguous(self) -> bool:
        """Whether another pose is nearly as good as this one, as for anything symmetric."""
        return any(other.confidence >= _TIE * self.confidence for other in self.alternatives)

    @property
    def uncertain(self) -> bool:
        """Whether the confidence is low: the clouds fit badly, or in too small a part, or other poses are as good."""
        return self.confidence < _LOW

    def inverse(self) -> Alignment:
        """Where B lies in A."""
        return Alignment(
            pose=self.pose.inverse(),
            error=self.error / self.scale,
            overlap=(self.overlap[1], self.overlap[0]),
            confidence=self.confidence,
            alternatives=[Alternative(pose.inverse(), confidence) for pose, confidence in self.alternatives],
            shown=(self.shown[1], self.shown[0]),
            dropped=(self.dropped[1], self.dropped[0]),
        )


def align(
    a: Source,
    b: Source,
    *,
    refine: bool = True,
    scale: bool = False,
    init: Similarity | ArrayLike | None = None,
    drop_invalid: bool = False,
) -> Alignment:
    """The pose ``T_b_a`` that lays cloud A on cloud B.

    Each matched pair of local frames of A and B is a whole hypothesis ``P_b ∘ P_a⁻¹``; the axes that the faces stand
    on and the corners of their boxes add some, the principal axes four. All are scored by truncated distances in both
    directions, and the best are refined and scored again on ever more points. No weights are needed, nothing is random:
    the same clouds give the same bits, whatever the order of their points, and ``align(b, a)`` is the inverse. Where a
    scanner saw more closely, points are thinned out first.

    ``refine`` polishes the result by robust ICP on up to 4,096 points of each cloud. ``scale`` finds the scale too,
    starting from the ratio of the clouds' spreads: it needs clouds that both show most of the object.
    ``init`` is a guess of the pose, as a matrix or a :class:`Similarity`: nothing else is searched, only what it leads
    to. ``drop_invalid`` leaves out points that are NaN or infinite, which are refused otherwise.
    """
    guess = None if init is None else _guess(init, scale)
    first, second = _checked(a, "the first cloud", drop_invalid), _checked(b, "the second cloud", drop_invalid)
    # Done in one order of the two clouds, whichever way round they came: so that swapping them gives the inverse.
    if second.key() < first.key():
        found = _align(second, first, refine, scale, None if guess is None else guess.inverse()).inverse()
    else:
        found = _align(first, second, refine, scale, guess)
    return replace(found, dropped=(first.dropped, second.dropped))


@dataclass(frozen=True)
class _Checked:
    """A cloud in canonical order, with the frame of its working units: ``x = unit · x_working + center``."""

    points: Float64[np.ndarray, "n 3"]
    near: Neighbours
    center: Float64[np.ndarray, "3"]
    spread: float
    dropped: int

    def key(self) -> tuple[int, float, bytes]:
        """Orders two clouds by what they are, not by which was named first."""
        return len(self.points), float(f"{self.spread:.6g}"), self.points.tobytes()


def _checked(source: Source, name: str, drop_invalid: bool) -> _Checked:
    """At most as many points as are used, each place once, in an order that does not depend on the given one."""
    cloud = as_cloud(source, 0, name, drop_invalid=drop_invalid)
    if len(cloud.points) < MINIMUM_POINTS:
        raise InvalidInputError(
            f"{cloud.name} has {len(cloud.points)} points; at least {MINIMUM_POINTS} are needed to align it"
        )
    points, near = evened(cloud.points, _POLISH_POINTS)
    require_extent(points, cloud.name)
    center = points.mean(axis=0)
    return _Checked(points, near, center, float(np.sqrt(((points - center) ** 2).sum(axis=1).mean())), cloud.dropped)


def _guess(init: Similarity | ArrayLike, scale: bool) -> Similarity:
    guess = init if isinstance(init, Similarity) else Similarity.from_matrix(init)
    if guess.shape:
        raise InvalidInputError(f"the initial guess must be one pose, not a batch of {list(guess.shape)}")
    if not scale and abs(float(guess.scale) - 1) > _RIGID:
        raise InvalidInputError(
            f"the initial guess scales by {float(guess.scale):.4g}: ask for the scale too, or give a rigid motion"
        )
    return guess


def _align(a: _Checked, b: _Checked, refine: bool, scale: bool, guess: Similarity | None) -> Alignment:
    unit_b = b.spread if scale else max(a.spread, b.spread)
    unit_a = a.spread if scale else unit_b
    work_a, work_b = (a.points - a.center) / unit_a, (b.points - b.center) / unit_b
    start = None
    if guess is not None:
        start = Similarity(np.eye(3), b.center, unit_b).inverse() @ guess @ Similarity(np.eye(3), a.center, unit_a)
    near_a = Neighbours(a.near.index, a.near.distance / unit_a)
    near_b = Neighbours(b.near.index, b.near.distance / unit_b)
    motions, cost, floor, signs, error, overlap = search(work_a, work_b, (near_a, near_b), refine, scale, start)
    factor = motions.scale * (unit_b / unit_a)
    turned = np.einsum("hij,j->hi", motions.rotation, a.center)
    translation = unit_b * motions.translation + b.center - factor[:, None] * turned
    poses = Similarity(motions.rotation, translation, factor)
    weight = weights(cost, floor)
    share = trust(signs) * weight / weight.sum()
    shown = [one.points[evenly(min(len(one.points), _SHOWN), len(one.points))] for one in (a, b)]
    return Alignment(
        pose=poses[0],
        error=error * unit_b,
        overlap=overlap,
        confidence=float(share[0]),
        alternatives=[Alternative(poses[index], float(share[index])) for index in range(1, len(poses))],
        shown=(shown[0], shown[1]),
    )


# ── the search, in working units ──────────────────────────────────────────────────────────────────────────────────────


class Found(NamedTuple):
    """Motions from A to B, best first, and what is known of them."""

    motions: Similarity
    cost: Float[np.ndarray, "h"]
    floor: float  # what two samplings of one surface cost
    signs: Float[np.ndarray, "signs"]  # of the best motion
    error: float
    overlap: tuple[float, float]


def search(
    a: Float[np.ndarray, "n 3"],
    b: Float[np.ndarray, "m 3"],
    near: tuple[Neighbours, Neighbours],
    polish: bool,
    scale: bool,
    start: Similarity | None = None,
) -> Found:
    """Given a ``start``, it is the only hypothesis."""
    cloud_a, cloud_b = _searched(a, near[0]), _searched(b, near[1])
    reach = max(_REACH, _SPACINGS * max(cloud_a.spacing, cloud_b.spacing))
    half_a, half_b = (by_tree(one, _spread_out(one, 2), reach) for one in (cloud_a, cloud_b))
    if start is None:
        motions = _candidates(cloud_a, cloud_b, scale)
    else:
        led_a, led_b = (by_tree(one, _spread_out(one, 4), float(_GUESS_REACHES.max())) for one in (cloud_a, cloud_b))
        motions = refine(led_a, led_b, stack([start]), _GUESS_REACHES, scale)
    floor = hypotheses.final_floor(cloud_a, cloud_b, reach, scale)
    motions, cost, (forward, backward) = _weighed(
        half_a, half_b, motions, floor, reach, scale, _POLISH_WIDTH if polish else WIDTH
    )
    if polish:
        cloud_a = prepare(a, near[0]) if len(a) > _SEARCH_POINTS else cloud_a
        cloud_b = prepare(b, near[1]) if len(b) > _SEARCH_POINTS else cloud_b
        whole_a, whole_b = by_tree(cloud_a, reach=reach), by_tree(cloud_b, reach=reach)
        motions = refine(whole_a, whole_b, motions, np.full(_POLISH_STEPS, reach), scale, every=_POLISH_EVERY)
        floor = hypotheses.final_floor(cloud_a, cloud_b, reach, scale)
        motions, cost, (forward, backward) = _weighed(
            by_tree(cloud_a), by_tree(cloud_b), motions, floor, reach, scale, WIDTH
        )
    else:
        forward, backward = hypotheses.residuals(by_tree(cloud_a), by_tree(cloud_b), motions[:1])
    overlap = (
        hypotheses.explained(forward, hypotheses.own_residuals(cloud_b)),
        hypotheses.explained(backward, hypotheses.own_residuals(cloud_a)),
    )
    error = hypotheses.trimmed_rms(forward.point[0], backward.point[0])
    signs = signs_of(float(cost[0]), floor, overlap, error / max(cloud_a.spacing, cloud_b.spacing))
    return Found(motions, cost, floor, signs, error, overlap)


def _searched(points: Float[np.ndarray, "n 3"], near: Neighbours) -> Prepared:
    """What the search sees of a cloud: some of the points, if they are many."""
    if len(points) <= _SEARCH_POINTS:
        return prepare(points, near)
    return prepare(points[evenly(_SEARCH_POINTS, len(points))])


def _weighed(
    a: Side, b: Side, motions: Similarity, floor: float, reach: float, scale: bool, width: float
) -> tuple[Similarity, Float[np.ndarray, "h"], tuple[Residuals, Residuals]]:
    """The motions that explain the clouds nearly as well as the best, best first, their costs, and what is left."""
    forward, backward = hypotheses.residuals(a, b, motions)
    cost = hypotheses.final_costs(a, b, motions, (forward, backward), reach, scale)
    kept = hypotheses.distinct(motions, np.argsort(cost, kind="stable"), _FINE, *_OTHER_POSE)
    kept = kept[weights(cost[kept], floor, width) >= _NAMED]
    best = int(kept[0])
    return motions[kept], cost[kept], (forward.of(best), backward.of(best))


def _spread_out(cloud: Prepared, every: int) -> Int[np.ndarray, "m"]:
    """One point in ``every``, from all distances from the centre."""
    return evenly(max(len(cloud.points) // every, MINIMUM_POINTS), len(cloud.points))


def _candidates(a: Prepared, b: Prepared, scale: bool) -> Similarity:
    """The dozen motions that hundreds of hypotheses lead to, refined on a quarter of the points.

    From the first score on, what lies beyond the hull of the other cloud may just not have been seen: else the true
    pose of two cropped clouds would be given up for one that lays more of them on each other.
    """
    by_axes = hypotheses.from_principal_axes(a.points[a.solid], b.points[b.solid])
    by_frames = hypotheses.from_frames(local_frames(a), local_frames(b), _HYPOTHESES)
    motions = concatenate([by_axes, hypotheses.from_faces(a, b), by_frames])
    scored_a, scored_b = by_table(a, a.probes[:_SCORED]), by_table(b, b.probes[:_SCORED])
    few_a, few_b = by_table(a, a.probes), by_table(b, b.probes)
    quarter_a, quarter_b = (by_tree(one, _spread_out(one, 4), float(_FINE_REACHES.max())) for one in (a, b))
    if scale:
        motions = hypotheses.narrowed(scored_a, scored_b, motions, 0.4, _COARSE, even=scale, apart=_OTHER_POSE)
    else:
        motions = hypotheses.quickest(scored_a, scored_b, motions, 0.4, _COARSE, apart=_OTHER_POSE)
    motions = refine(few_a, few_b, motions, _COARSE_REACHES[0], scale)
    motions = hypotheses.narrowed(few_a, few_b, motions, 0.4, _HALFWAY, even=scale, ratio=_RATIO)
    motions = refine(few_a, few_b, motions, _COARSE_REACHES[1], scale)
    motions = hypotheses.narrowed(
        few_a, few_b, motions, 0.3, _FINE, even=scale, ratio=_RATIO, apart=(np.radians(10), 0.2)
    )
    return refine(quarter_a, quarter_b, motions, _FINE_REACHES, scale, every=len(_FINE_REACHES))
