"""``geocaps.align(a, b)``: where one cloud lies in another, whatever their poses, order, counts and units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float64

from geocaps.apps.align.search import MINIMUM_POINTS, Match, search
from geocaps.apps.clouds import Cloud, Placed, Source, as_cloud, require_extent
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import evenly, thinned
from geocaps.geometry.similarity import Similarity

if TYPE_CHECKING:
    from geocaps.apps.encode import Model

POLISH_POINTS = 4096
"""Points of each cloud that the polish uses; larger clouds are sampled down, evenly by distance from the centre."""
_TIE = 0.25
_LOW = 0.5
"""Confidence below which a result is called uncertain."""
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
    """From 0 to 1: the mean of ``overlap`` times the probability of this pose among all that were considered."""
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
        from geocaps.apps.notebook import alignment_html

        return alignment_html(self)

    @property
    def ambiguous(self) -> bool:
        """Whether another pose is nearly as good as this one, as for anything symmetric."""
        return any(other.confidence >= _TIE * self.confidence for other in self.alternatives)

    @property
    def uncertain(self) -> bool:
        """Whether the confidence is low: little of the clouds overlaps, or other poses are as good, or both."""
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
    model: Model | None = None,
    drop_invalid: bool = False,
) -> Alignment:
    """The pose ``T_b_a`` that lays cloud A on cloud B.

    Each matched pair of local frames of A and B is a whole hypothesis ``P_b ∘ P_a⁻¹``; the principal axes add four
    (and, given a ``model``, its object capsules theirs). All are scored by truncated distances in both directions, and
    the best are refined and scored again on ever more points. No weights are needed, nothing is random: the same clouds
    give the same bits, whatever the order of their points, and ``align(b, a)`` is the inverse.

    ``refine`` polishes the result by robust ICP on up to 4,096 points of each cloud. ``scale`` finds the scale too,
    starting from the ratio of the clouds' spreads: it needs clouds that both show most of the object.
    ``drop_invalid`` leaves out points that are NaN or infinite, which are refused otherwise.
    """
    first, second = _checked(a, "the first cloud", drop_invalid), _checked(b, "the second cloud", drop_invalid)
    # Done in one order of the two clouds, whichever way round they came: so that swapping them gives the inverse.
    if _key(second) < _key(first):
        found = _align(second, first, refine, scale, model).inverse()
    else:
        found = _align(first, second, refine, scale, model)
    return replace(found, dropped=(first.dropped, second.dropped))


@dataclass(frozen=True)
class _Prepared:
    """A cloud in canonical order, with the frame of its working units: ``x = unit · x_working + center``."""

    points: Float64[np.ndarray, "n 3"]
    center: Float64[np.ndarray, "3"]
    spread: float
    dropped: int


def _checked(source: Source, name: str, drop_invalid: bool) -> _Prepared:
    cloud = as_cloud(source, 0, name, drop_invalid=drop_invalid)
    if len(cloud.points) < MINIMUM_POINTS:
        raise InvalidInputError(
            f"{cloud.name} has {len(cloud.points)} points; at least {MINIMUM_POINTS} are needed to align it"
        )
    points = _sampled(cloud)
    require_extent(points, cloud.name)
    center = points.mean(axis=0)
    return _Prepared(points, center, float(np.sqrt(((points - center) ** 2).sum(axis=1).mean())), cloud.dropped)


def _sampled(cloud: Cloud) -> Float64[np.ndarray, "n 3"]:
    """At most as many points as are used, each place once, in an order that does not depend on the given one."""
    points = cloud.points[thinned(cloud.points, POLISH_POINTS)].astype(np.float64)
    _, first = np.unique(points, axis=0, return_index=True)
    return points[np.sort(first)]


def _key(cloud: _Prepared) -> tuple[int, float, bytes]:
    """Orders two clouds by what they are, not by which was named first."""
    return len(cloud.points), float(f"{cloud.spread:.6g}"), cloud.points.tobytes()


def _align(a: _Prepared, b: _Prepared, refine: bool, scale: bool, model: Model | None) -> Alignment:
    unit_b = b.spread if scale else max(a.spread, b.spread)
    unit_a = a.spread if scale else unit_b
    work_a, work_b = (a.points - a.center) / unit_a, (b.points - b.center) / unit_b
    extra = _from_model(model, a, b, (unit_a, unit_b)) if model is not None else None
    found = search(work_a, work_b, extra, refine, scale)
    factor = found.motions.scale * (unit_b / unit_a)
    turned = np.einsum("hij,j->hi", found.motions.rotation, a.center)
    translation = unit_b * found.motions.translation + b.center - factor[:, None] * turned
    poses = Similarity(found.motions.rotation, translation, factor)
    return _result(found, poses, unit_b, (_thumbnail(a), _thumbnail(b)))


def _thumbnail(cloud: _Prepared) -> Float64[np.ndarray, "k 3"]:
    return cloud.points[evenly(min(len(cloud.points), _SHOWN), len(cloud.points))]


def _result(found: Match, poses: Similarity, unit: float, shown: tuple[np.ndarray, np.ndarray]) -> Alignment:
    share = found.probability * float(np.mean(found.overlap))
    return Alignment(
        pose=poses[0],
        error=found.error * unit,
        overlap=found.overlap,
        confidence=float(share[0]),
        alternatives=[Alternative(poses[index], float(share[index])) for index in range(1, len(poses))],
        shown=shown,
    )


def _from_model(model: Model, a: _Prepared, b: _Prepared, units: tuple[float, float]) -> Similarity:
    """``pose_b ∘ pose_a⁻¹`` of the object capsules and their alternatives, in working units."""
    working = []
    for cloud, unit in zip((a, b), units, strict=True):
        encoding = model.encode(cloud.points)
        poses = [encoding.pose, *(other.pose for other in encoding.alternatives)]
        working.append([Similarity(pose.rotation, (pose.translation - cloud.center) / unit) for pose in poses])
    found = [of_b @ of_a.inverse() for of_b in working[1] for of_a in working[0]]
    return Similarity(np.stack([one.rotation for one in found]), np.stack([one.translation for one in found]))
