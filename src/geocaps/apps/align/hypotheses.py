"""Hypotheses of where A lies in B: where they come from, and how well each explains both clouds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from geocaps.apps.align.icp import Side, ahead, back, dot
from geocaps.apps.align.prepare import Frames, NearestTable, Prepared
from geocaps.geometry.similarity import Similarity


# Proper changes of sign of (tangent, bitangent, normal): the frames' own signs are arbitrary.
def _signed_permutations() -> Iterator[np.ndarray]:
    for order, signs in itertools.product(itertools.permutations(range(3)), itertools.product((1.0, -1.0), repeat=3)):
        yield np.eye(3)[list(order)] * signs


SIGNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=np.float64)
# All proper signed permutations of three axes; and which side of a box (low, high; or middle) counts along each.
_TURNS = np.array([turn for turn in _signed_permutations() if np.linalg.det(turn) > 0])
_SIDES = np.array([*itertools.product(range(2), repeat=3), (2, 2, 2)])
_CROWD, _ASIDE, _AXIS_STEPS = 3, 0.4, 3
_BLOCK = 64
_OUTSIDE = 0.01  # share of the points outside a side of the box
# Of the distance to the partner's plane in a square distance; the rest is along it, where sampling alone moves it.
_PLANE_SHARE = 0.9
# The same for the final choice, and the distance, in reaches, within which more of it counts quickly.
_EVIDENCE_PLANE_SHARE, _EVIDENCE_WIDTH = 0.97, 0.2
_EVIDENCE_REACH = 0.7  # of the reach of a partner: what is farther is no evidence for a pose
_LESSER_SHARE, _NOISE = 0.25, 4.0
_COARSE_UNSEEN = 0.3
_UNSEEN = 0.3  # what an unexplained point costs where the other cloud has ended; elsewhere it costs 1
# Floors that count as a perfect score: of two copies of a symmetric cloud only one pose is perfect, and the others are
# as good as those of two samplings.
_FLOORS = 2.5


# ── where they come from: every matched pair of local frames is a whole pose ``P_b ∘ P_a⁻¹`` ──────────────────────────


def from_frames(a: Frames, b: Frames, limit: int) -> Similarity:
    """The ``limit`` pairs of frames, with signs, whose neighbourhoods look most alike."""
    size = ((a.size[:, None] - b.size) ** 2).sum(axis=-1)
    unlike = size[..., None] + _signed_square(a.offset, b.offset) + _signed_square(a.skew, b.skew)
    order = np.argsort(unlike, axis=None, kind="stable")[:limit]
    of_a, of_b, sign = np.unravel_index(order, unlike.shape)
    rotation = (b.rotation[of_b] * SIGNS[sign][:, None]) @ a.rotation[of_a].transpose(0, 2, 1)
    return Similarity(rotation, b.origin[of_b] - np.einsum("hij,hj->hi", rotation, a.origin[of_a]))


def from_principal_axes(a: np.ndarray, b: np.ndarray) -> Similarity:
    """The four proper ways to lay the principal axes of A on those of B."""
    axes_a, axes_b = _principal_axes(a), _principal_axes(b)
    rotation = (axes_b * SIGNS[:, None]) @ axes_a.T
    return Similarity(rotation, b.mean(axis=0) - rotation @ a.mean(axis=0))


def from_faces(a: Prepared, b: Prepared) -> Similarity:
    """The 24 ways to lay the normals' axes on each other, with a corner of the box, or the centroids, together.

    What is cut off a cloud turns its principal axes and moves its centroid; the axes that its faces stand on stay, and
    so does, along each of them, one side of its box or the other.
    """
    axes_a, axes_b = _face_axes(a), _face_axes(b)
    rotation = axes_b @ _TURNS @ axes_a.T
    box_a, box_b = _box(a, axes_a), _box(b, axes_b)
    # Where a side of A's box comes to lie along the axes of B: low and high change places where an axis is reversed.
    turned = np.einsum("rij,sj->rsi", _TURNS, box_a)
    low, high, middle = turned[:, 0], turned[:, 1], turned[:, 2]
    ends = np.stack([np.minimum(low, high), np.maximum(low, high), middle], axis=1)
    shift = (box_b - ends)[:, _SIDES, np.arange(3)]
    count = len(_TURNS) * len(_SIDES)
    return Similarity(np.repeat(rotation, len(_SIDES), axis=0), (shift @ axes_b.T).reshape(count, 3))


def _face_axes(cloud: Prepared) -> Float[np.ndarray, "3 3"]:
    """Columns: three directions at right angles that the normals crowd around; not in any order."""
    normals, some = cloud.normals[:, cloud.solid], cloud.normals[:, cloud.probes]
    crowd = _crowded(some.T @ normals[:, ::_CROWD]).sum(axis=1)
    first = some[:, crowd.argmax()]
    aside = np.abs(first @ some) < _ASIDE
    second = some[:, (crowd * aside).argmax()] if aside.any() else np.eye(3)[np.abs(first).argmin()]
    second = second - (first @ second) * first
    second /= np.linalg.norm(second)
    axes = np.stack([first, second, np.cross(first, second)], axis=1)
    for _ in range(_AXIS_STEPS):
        # Each normal pulls the axis that it is nearest to, then the axes are made orthogonal again.
        along = axes.T @ normals
        pull = normals @ (np.sign(along) * _crowded(along)).T
        left, _, right = np.linalg.svd(pull)
        axes = left @ right
    return axes if np.linalg.det(axes) > 0 else -axes


def _crowded(along: np.ndarray) -> np.ndarray:
    """The eighth power: only what is nearly parallel counts."""
    fourth = (along * along) ** 2
    return fourth * fourth


def _box(cloud: Prepared, axes: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """Rows: low sides, high sides and means along the axes; a few points may lie outside."""
    along = cloud.points[cloud.solid] @ axes
    cut = int(_OUTSIDE * len(along))
    order = np.partition(along, (cut, len(along) - 1 - cut), axis=0)
    return np.stack([order[cut], order[-1 - cut], along.mean(axis=0)])


def _principal_axes(points: np.ndarray) -> np.ndarray:
    offset = points - points.mean(axis=0)
    axes = np.linalg.eigh(offset.T @ offset)[1]
    return np.stack([axes[:, 2], axes[:, 1], np.cross(axes[:, 2], axes[:, 1])], axis=-1)


def _signed_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``[k_a, k_b, 4]``: how far a is from b with each change of sign."""
    return ((a[:, None, None] - b[:, None] * SIGNS) ** 2).sum(axis=-1)


# ── how well each explains both clouds: truncated distances in both directions ────────────────────────────────────────


@dataclass(frozen=True)
class Residuals:
    """Square distances from each point to its partner, in units of B, and the partner's sparsity."""

    point: Float[np.ndarray, "h m"]
    plane: Float[np.ndarray, "h m"]
    sparsity: Float[np.ndarray, "h m"]

    def truncated(self, reach: float) -> Float[np.ndarray, "h m"]:
        """min(d², reach²) / reach²: noise counts little, a point without partner counts 1 and no more.

        Truncated, not trimmed: the few points that tell a flip from the truth keep their say.
        """
        return np.where(self.point < reach**2, self.blend() / reach**2, 1.0)

    def evidence(self, reach: float) -> Float[np.ndarray, "h m"]:
        """Truncated too, but growing like a logarithm: small systematic gaps speak as well as a few large ones.

        It is minus the log likelihood of noise with heavy tails. Sharper than :meth:`truncated`, it tells near poses
        apart once they are refined; before that it would mislead. Where the other cloud has few points, even the true
        pose leaves larger distances, and these must not speak for a pose that lays the dense sides on each other.
        ``reach`` is that within which partners were looked for.
        """
        limit = (_EVIDENCE_REACH * reach) ** 2
        blend = self.blend(_EVIDENCE_PLANE_SHARE) / (_EVIDENCE_WIDTH**2 * limit * self.sparsity)
        scaled = np.minimum(np.log1p(blend) / np.log1p(_EVIDENCE_WIDTH**-2), 1.0)
        return np.where(self.point < np.minimum(limit * self.sparsity, reach**2), scaled, 1.0)

    def of(self, motion: int) -> Residuals:
        return Residuals(self.point[motion, None], self.plane[motion, None], self.sparsity[motion, None])

    def blend(self, plane_share: float = _PLANE_SHARE) -> Float[np.ndarray, "h m"]:
        return plane_share * self.plane + (1 - plane_share) * self.point


def narrowed(
    a: Side,
    b: Side,
    motions: Similarity,
    reach: float,
    most: int,
    *,
    even: bool,
    apart: tuple[float, float] = (0.0, 0.0),
    ratio: float | None = None,
) -> Similarity:
    """One round of the search from coarse to fine: at most ``most`` motions, best first.

    They differ by the angle or the shift of ``apart``, and their scores are within ``ratio`` of the best one's.
    """
    forward, backward = (found.truncated(reach) for found in residuals(a, b, motions))
    if not even:
        _excuse_by_table(forward, ahead(motions, a.chosen), b.cloud.table)
        _excuse_by_table(backward, back(motions, b.chosen), a.cloud.table)
    score = _cost(forward, backward, even)
    order = np.argsort(score, kind="stable")
    if ratio is not None:
        own_a, own_b = (own_residuals(side.cloud).truncated(reach) for side in (a, b))
        level = max(score[order[0]], _FLOORS * float(_cost(own_a, own_b, even)[0]))
        order = order[score[order] <= ratio * level]
    return motions[distinct(motions, order, most, *apart)]


def final_costs(
    a: Side, b: Side, motions: Similarity, found: tuple[Residuals, Residuals], reach: float, even: bool
) -> Float[np.ndarray, "h"]:
    """By the evidence, where what lies beyond the convex hull of the other cloud may just not have been seen.

    A cloud that was cropped by planes shows all of the surface within its hull: a point without partner contradicts a
    pose there, and says little where the other cloud has ended. With a free scale nothing is excused, or A would shrink
    to a spot and most of B would lie beyond it.
    """
    forward, backward = (one.evidence(reach) for one in found)
    if not even:
        _excuse(forward, ahead(motions, a.chosen), b.cloud.hull)
        _excuse(backward, back(motions, b.chosen), a.cloud.hull)
    return _cost(forward, backward, even)


def final_floor(a: Prepared, b: Prepared, reach: float, even: bool) -> float:
    """What two samplings of one surface cost at best, by the evidence."""
    own_a, own_b = (own_residuals(cloud).evidence(reach) for cloud in (a, b))
    return float(_cost(own_a, own_b, even)[0])


def residuals(a: Side, b: Side, motions: Similarity) -> tuple[Residuals, Residuals]:
    """From A to B and from B to A."""
    one = np.ones(len(motions))
    return _residuals(b, ahead(motions, a.chosen), one), _residuals(a, back(motions, b.chosen), motions.scale)


def own_residuals(cloud: Prepared) -> Residuals:
    """From each point to the nearest other one of its own cloud: what a perfect alignment of two samplings gives."""
    point, plane = cloud.own
    return Residuals(point[None], plane[None], cloud.sparsity[None, cloud.neighbour])


def explained(found: Residuals, own: Residuals) -> float:
    """Share of points no farther from their partners than the other cloud's own points are from their neighbours."""
    return float((found.blend() <= _NOISE**2 * np.median(own.blend())).mean())


def trimmed_rms(forward: Float[np.ndarray, "m"], backward: Float[np.ndarray, "k"]) -> float:
    """Root of the mean square distance of the better explained direction, without the farthest tenth of its points."""
    kept = (np.sort(square)[: max(1, int(np.ceil(0.9 * len(square))))] for square in (forward, backward))
    return float(np.sqrt(min(square.mean() for square in kept)))


def _cost(forward: Float[np.ndarray, "h m"], backward: Float[np.ndarray, "h k"], even: bool) -> Float[np.ndarray, "h"]:
    """One number from the residuals of both directions, mostly that of the direction better explained.

    Where B is a part of A, all of B is explained and only some of A. With a free scale both count the same (``even``),
    or A would shrink to a spot that B explains.
    """
    first, second = forward.mean(axis=1), backward.mean(axis=1)
    return np.minimum(first, second) + (1.0 if even else _LESSER_SHARE) * np.maximum(first, second)


def _excuse(
    evidence: Float[np.ndarray, "h m"], points: Float[np.ndarray, "3 h m"], hull: Float[np.ndarray, "f 4"]
) -> None:
    lost = evidence >= 1
    beyond = (hull[:, :3] @ points[:, lost] > -hull[:, 3:]).any(axis=0)
    evidence[lost] = np.where(beyond, _UNSEEN, 1.0)


def _excuse_by_table(cost: Float[np.ndarray, "h m"], points: Float[np.ndarray, "3 h m"], table: NearestTable) -> None:
    lost = cost >= 1
    cost[lost] = np.where(table.beyond.take(table.cells(points[:, lost])), _COARSE_UNSEEN, 1.0)


def quickest(a: Side, b: Side, motions: Similarity, reach: float, most: int, apart: tuple[float, float]) -> Similarity:
    """As :func:`narrowed`, by distances from cell to cell: for many hypotheses, before any is refined."""
    cost_a, cost_b = _cell_costs(a.cloud.table, reach), _cell_costs(b.cloud.table, reach)
    score = np.empty(len(motions))
    for start in range(0, len(motions), _BLOCK):  # what stays in cache is quicker
        some = motions[start : start + _BLOCK]
        forward = cost_b.take(b.cloud.table.cells(ahead(some, a.chosen)))
        backward = cost_a.take(a.cloud.table.cells(back(some, b.chosen)))
        score[start : start + _BLOCK] = _cost(forward, backward, False)
    order = np.argsort(score, kind="stable")[: 4 * most]
    return motions[distinct(motions, order, most, *apart)]


def _cell_costs(table: NearestTable, reach: float) -> Float[np.ndarray, "x y z"]:
    lost = np.where(table.beyond, _COARSE_UNSEEN, 1.0)
    cost = np.where(table.distance < reach, (table.distance / reach) ** 2, lost).astype(np.float32)
    for axis in range(3):  # what lies outside the table counts to the outermost cells
        np.moveaxis(cost, axis, 0)[[0, -1]] = _COARSE_UNSEEN
    return cost


def _residuals(target: Side, points: Float[np.ndarray, "3 h m"], scale: Float[np.ndarray, "h"]) -> Residuals:
    partner = target.nearest(points)
    gap = (points - target.cloud.columns.take(partner, axis=1)) * scale[:, None].astype(points.dtype, copy=False)
    across = dot(gap, target.cloud.normals.take(partner, axis=1))
    return Residuals(dot(gap, gap), across * across, target.cloud.sparsity.take(partner))


def distinct(motions: Similarity, order: np.ndarray, limit: int, angle: float, shift: float) -> np.ndarray:
    """Indices, in the given order, of at most ``limit`` motions that differ from all before by an angle or a shift."""
    rotation, translation = motions.rotation.reshape(-1, 9), motions.translation

    def same(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        away = translation[first][:, None] - translation[second]
        turned = rotation[first] @ rotation[second].T
        return (turned > 1 + 2 * np.cos(angle)) & (np.einsum("hki,hki->hk", away, away) < shift**2)

    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), _BLOCK):
        some = np.asarray(order[start : start + _BLOCK], dtype=np.int64)
        some = some[~same(kept, some).any(axis=0)]
        alike, chosen = same(some, some), []
        left = np.ones(len(some), dtype=bool)
        for place in range(len(some)):
            if left[place]:
                chosen.append(place)
                left &= ~alike[place]
        kept = np.concatenate([kept, some[chosen]])
        if len(kept) >= limit:
            break
    return kept[:limit]
