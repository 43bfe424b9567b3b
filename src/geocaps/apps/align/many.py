"""Several scans at once: aligned pair by pair, and their poses made consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float64

from geocaps.apps.align import Alignment, align
from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity, stack

_LEAST = 0.5  # confidence of a pair that a scan may hang on
_AGREE = np.radians(10), 0.1  # pairs that differ less from the tree, in angle and in spreads, are averaged too
_ROUNDS = 30


@dataclass(frozen=True)
class Merged:
    """Scans in one frame, that of the first."""

    clouds: tuple[Cloud, ...]
    poses: Similarity
    """``T_first_scan`` of each scan."""
    confidence: Float64[np.ndarray, "n"]
    """Of the pair by which each scan was joined to the others; 1 for the first."""
    pairs: dict[tuple[int, int], Alignment]
    """``T_j_i`` of all pairs ``(i, j)``, as they were found one by one."""

    def points(self) -> Float64[np.ndarray, "m 3"]:
        """All points in the frame of the first scan."""
        return np.concatenate([self.poses[i].apply(cloud.points) for i, cloud in enumerate(self.clouds)])


def align_many(sources: Sequence[Source], *, drop_invalid: bool = False) -> Merged:
    """The poses of several scans in the frame of the first, or a refusal that names the scan that does not fit.

    All pairs are aligned. The most confident ones join the scans to a tree; then each scan takes the mean of the poses
    that the pairs which agree with the tree give it, over and over, so that errors do not add up along a chain.
    """
    if len(sources) < 2:
        raise InvalidInputError(f"at least two scans are needed to align them, not {len(sources)}")
    clouds = [as_cloud(one, 0, f"scan {place}", drop_invalid=drop_invalid) for place, one in enumerate(sources, 1)]
    pairs = {(i, j): align(clouds[i], clouds[j]) for i, j in combinations(range(len(clouds)), 2)}
    poses, confidence = _tree(clouds, pairs)
    return Merged(tuple(clouds), stack(_averaged(clouds, pairs, poses)), confidence, pairs)


def _relative(pairs: dict[tuple[int, int], Alignment], to: int, of: int) -> Similarity:
    """``T_to_of``."""
    return pairs[of, to].pose if of < to else pairs[to, of].pose.inverse()


def _tree(
    clouds: list[Cloud], pairs: dict[tuple[int, int], Alignment]
) -> tuple[list[Similarity], Float64[np.ndarray, "n"]]:
    """Poses along the most confident pairs, from the first scan on."""
    poses: dict[int, Similarity] = {0: Similarity.identity()}
    confidence = np.ones(len(clouds))
    while len(poses) < len(clouds):
        left = [(one, other) for one in poses for other in range(len(clouds)) if other not in poses]
        at, new = max(left, key=lambda pair: pairs[min(pair), max(pair)].confidence)
        confidence[new] = pairs[min(at, new), max(at, new)].confidence
        if confidence[new] < _LEAST:
            raise InvalidInputError(
                f"{clouds[new].name} does not fit the other scans: its best alignment, with {clouds[at].name}, has a "
                f"confidence of {confidence[new]:.2f}, and {_LEAST} is needed; leave it out, or add a scan between them"
            )
        poses[new] = poses[at] @ _relative(pairs, at, new)
    return [poses[place] for place in range(len(clouds))], confidence


def _averaged(
    clouds: list[Cloud], pairs: dict[tuple[int, int], Alignment], poses: list[Similarity]
) -> list[Similarity]:
    spread = [float(np.sqrt(((one.points - one.points.mean(axis=0)) ** 2).sum(axis=1).mean())) for one in clouds]
    middle = [one.points.mean(axis=0, dtype=np.float64) for one in clouds]
    agreeing: list[tuple[int, int]] = []
    for i, j in pairs:
        found = poses[j] @ pairs[i, j].pose
        off = float(np.linalg.norm(found.apply(middle[i]) - poses[i].apply(middle[i])))
        if float(found.angle_to(poses[i])) < _AGREE[0] and off < _AGREE[1] * max(spread[i], spread[j]):
            agreeing.append((i, j))
    for _ in range(_ROUNDS):
        for new in range(1, len(poses)):
            others = [i + j - new for i, j in agreeing if new in (i, j)]
            weight = np.array([pairs[min(new, at), max(new, at)].confidence for at in others])
            said = stack([poses[at] @ _relative(pairs, at, new) for at in others])
            poses[new] = _mean(said, weight / weight.sum(), middle[new])
    return poses


def _mean(poses: Similarity, weight: Float64[np.ndarray, "k"], middle: Float64[np.ndarray, "3"]) -> Similarity:
    """The rotation nearest to the mean of the rotations, about the mean of where the middle comes to lie."""
    left, _, right = np.linalg.svd(np.einsum("k,kij->ij", weight, poses.rotation))
    rotation = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
    there = weight @ poses.apply(middle)
    return Similarity(rotation, there - rotation @ middle)
