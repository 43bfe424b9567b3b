"""ICP in both directions at once, for many hypotheses at once: mostly point to plane, robust by Tukey's weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.align.prepare import Prepared
from geocaps.geometry.similarity import Similarity, concatenate

# Weight of point-to-point beside point-to-plane: it holds what planes leave free. More of it slows every step.
_POINT_SHARE = 0.01
_BLOCK = 32
_TINY = np.finfo(np.float64).tiny
_TURNING = np.cross(np.eye(3)[:, None], np.eye(3)).swapaxes(1, 2).reshape(3, 9)  # the matrices of e₁×, e₂× and e₃×


@dataclass(frozen=True)
class Side:
    """One cloud's part in a registration: the points that look for a partner, and how partners are found in it."""

    cloud: Prepared
    chosen: Float[np.ndarray, "3 m"]
    nearest: Callable[[np.ndarray], np.ndarray]  # from points [3, h, m] to the indices [h, m] of their partners


def by_table(cloud: Prepared, chosen: Int[np.ndarray, "m"]) -> Side:
    """Near partners at once, in single precision: for many hypotheses, none of which is final."""
    rough = replace(cloud, columns=cloud.columns.astype(np.float32), normals=cloud.normals.astype(np.float32))
    return Side(rough, rough.columns[:, chosen], rough.table)


def by_tree(cloud: Prepared, chosen: Int[np.ndarray, "m"] | None = None, reach: float = np.inf) -> Side:
    """Exact partners within ``reach``; whatever lies farther has some partner that is out of reach too."""

    def nearest(points: Float[np.ndarray, "3 h m"]) -> Int[np.ndarray, "h m"]:
        # A search that may stop early is much quicker where nothing is near. A missing partner has the index n.
        found = cloud.tree.query(np.moveaxis(points, 0, -1), distance_upper_bound=reach)[1]
        return np.minimum(found, len(cloud.points) - 1)

    return Side(cloud, cloud.columns if chosen is None else cloud.columns[:, chosen], nearest)


def refine(
    a: Side, b: Side, motions: Similarity, reaches: Float[np.ndarray, "steps"], scale: bool = False, every: int = 1
) -> Similarity:
    """One Gauss-Newton step for each reach (the distance from which a partner no longer counts).

    Partners are looked up again at every ``every``-th step: with trees that takes most of the time.
    """
    if len(motions) > _BLOCK:  # what stays in cache is quicker
        some = (motions[start : start + _BLOCK] for start in range(0, len(motions), _BLOCK))
        return concatenate([refine(a, b, one, reaches, scale, every) for one in some])
    trust, count = _trust(a, b), a.chosen.shape[1]
    shape = (3, len(motions), count + b.chosen.shape[1])
    # Partners in the frame of B, for both directions: points that move with A, points that stay, normals.
    moving, fixed, normal = (np.empty(shape, dtype=a.chosen.dtype) for _ in range(3))
    fixed[..., count:] = b.chosen[:, None]
    for number, reach in enumerate(reaches.tolist()):
        moved = ahead(motions, a.chosen)
        moving[..., :count] = moved
        if number % every == 0:
            partner_b, partner_a = b.nearest(moved), a.nearest(back(motions, b.chosen))
            fixed[..., :count] = b.cloud.columns.take(partner_b, axis=1)
            normal[..., :count] = b.cloud.normals.take(partner_b, axis=1)
            points_a, normals_a = a.cloud.columns.take(partner_a, axis=1), a.cloud.normals.take(partner_a, axis=1)
        moving[..., count:] = _turned(motions, points_a)
        moving[..., count:] *= motions.scale[:, None]
        moving[..., count:] += motions.translation.T[..., None]
        normal[..., count:] = _turned(motions, normals_a)
        motions = step((moving, fixed, normal), trust, motions, reach, scale)
    return motions


def _turned(motions: Similarity, vectors: Float[np.ndarray, "3 h m"]) -> Float[np.ndarray, "3 h m"]:
    return (motions.rotation.astype(vectors.dtype, copy=False) @ vectors.transpose(1, 0, 2)).transpose(1, 0, 2)


def _trust(a: Side, b: Side) -> Float[np.ndarray, "m"]:
    """Both directions weigh the same where the clouds are equally dense; planes of the denser one are the truer."""
    to_b, to_a = a.cloud.spacing**2, b.cloud.spacing**2
    of_a, of_b = a.chosen.shape[1], b.chosen.shape[1]
    weights = [np.full(of_a, to_b / max(of_a, 1)), np.full(of_b, to_a / max(of_b, 1))]
    return np.concatenate(weights) * ((of_a + of_b) / (to_a + to_b))


def step(
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray], trust: np.ndarray, motions: Similarity, reach: float, scale: bool
) -> Similarity:
    """Gauss-Newton on Σ w ((n·g)² + share·|g|²), g the gap after a small turn, shift (and growth) of what moves."""
    moving, fixed, normal = pairs
    gap = fixed - moving
    weight = np.maximum(1 - dot(gap, gap) / reach**2, 0)
    weight *= weight * trust.astype(gap.dtype, copy=False)
    growth = [dot(moving, normal)[None]] if scale else []
    one = np.ones((1, *weight.shape), dtype=gap.dtype)
    moments = _moments(weight, [_cross(moving, normal), normal, *growth, dot(gap, normal)[None], moving, gap, one])
    unknown = 7 if scale else 6
    by_point = moments[:, unknown + 1 :, unknown + 1 :].reshape(-1, 49) @ _BY_POINT
    by_point = by_point.reshape(-1, 7, 8)[:, :unknown]
    left = moments[:, :unknown, :unknown] + _POINT_SHARE * by_point[..., :unknown]
    right = moments[:, :unknown, unknown] + _POINT_SHARE * by_point[..., 7]
    # A floor far below any weight that counts: without partners there is no motion.
    left += 1e-9 * moving.shape[2] * np.eye(unknown)
    change = np.linalg.solve(left, right[..., None])[..., 0]
    grown = np.exp(np.clip(change[:, 6], -0.2, 0.2)) if scale else np.ones(len(motions))
    return Similarity(_rotation(change[:, :3]), change[:, 3:6], grown) @ motions


def _moments(
    weight: Float[np.ndarray, "h m"], rows: list[Float[np.ndarray, "_ h m"]]
) -> Float[np.ndarray, "h rows rows"]:
    """Σ w x xᵀ over the points, of all rows at once: of few rows, a product costs as much as of twice as many."""
    values = np.concatenate(rows)
    return ((values * weight).transpose(1, 0, 2) @ values.transpose(1, 2, 0)).astype(np.float64, copy=False)


def _of_points(moments: Float[np.ndarray, "h 7 7"]) -> Float[np.ndarray, "h 7 8"]:
    """Both sides of the point-to-point part, whose slopes have a closed form in the moments of (x, gap, 1).

    The right side is the last column. All of it is linear in the moments.
    """
    second, mixed, first = moments[:, :3, :3], moments[:, :3, 3:6], moments[:, :3, 6]
    spread = np.trace(second, axis1=1, axis2=2)
    left = np.zeros((len(moments), 7, 7))
    left[:, :3, :3] = spread[:, None, None] * np.eye(3) - second
    left[:, :3, 3:6] = _cross_matrix(first)
    left[:, 3:6, :3] = -left[:, :3, 3:6]
    left[:, 3:6, 3:6] = moments[:, 6:, 6:] * np.eye(3)
    left[:, 3:6, 6] = left[:, 6, 3:6] = first
    left[:, 6, 6] = spread
    right = np.empty((len(moments), 7))
    right[:, :3] = -mixed.reshape(-1, 9) @ _TURNING.T  # Σ w x × gap
    right[:, 3:6] = moments[:, 3:6, 6]
    right[:, 6] = np.trace(mixed, axis1=1, axis2=2)
    return np.concatenate([left, right[..., None]], axis=2)


# ── batches [h] of motions ────────────────────────────────────────────────────────────────────────────────────────────


def ahead(motions: Similarity, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
    """As ``motions.apply``, a row for each coordinate: numpy is several times faster on long rows than on triples."""
    matrix = (motions.scale[:, None, None] * motions.rotation).transpose(1, 0, 2).reshape(-1, 3)
    return _moved(matrix, columns, motions.translation.T[..., None])


def back(motions: Similarity, columns: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 h n"]:
    """As ``motions.observe``, a row for each coordinate."""
    inverse = (motions.rotation / motions.scale[:, None, None]).transpose(2, 0, 1)
    shift = np.einsum("chj,hj->ch", inverse, motions.translation)
    return _moved(inverse.reshape(-1, 3), columns, -shift[..., None])


def _moved(
    matrix: Float[np.ndarray, "r 3"], columns: Float[np.ndarray, "3 n"], shift: Float[np.ndarray, "3 h 1"]
) -> Float[np.ndarray, "3 h n"]:
    """In the precision of the points."""
    moved = (matrix.astype(columns.dtype, copy=False) @ columns).reshape(*shift.shape[:2], columns.shape[1])
    moved += shift
    return moved


def dot(a: Float[np.ndarray, "3 *batch"], b: Float[np.ndarray, "3 *batch"]) -> Float[np.ndarray, "*batch"]:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Float[np.ndarray, "3 *batch"], b: Float[np.ndarray, "3 *batch"]) -> Float[np.ndarray, "3 *batch"]:
    return np.stack([a[j] * b[k] - a[k] * b[j] for j, k in ((1, 2), (2, 0), (0, 1))])


def _cross_matrix(vector: Float[np.ndarray, "h 3"]) -> Float[np.ndarray, "h 3 3"]:
    """The matrix of ``x ↦ vector × x``."""
    return (vector @ _TURNING).reshape(-1, 3, 3)


def _rotation(vector: Float[np.ndarray, "h 3"]) -> Float[np.ndarray, "h 3 3"]:
    """Rodrigues' formula."""
    half = np.maximum(0.5 * np.sqrt(dot(vector.T, vector.T)), _TINY)[:, None, None]
    turn = _cross_matrix(vector)
    chord = np.sin(half) / half
    return np.eye(3) + chord * np.cos(half) * turn + 0.5 * chord**2 * (turn @ turn)


_BY_POINT = _of_points(np.eye(49).reshape(49, 7, 7)).reshape(49, 56)
"""What :func:`_of_points` makes of each moment: one product in place of a dozen small steps."""
