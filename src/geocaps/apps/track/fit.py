"""How well a pose explains a frame, and where the frame leads it. In working units, for many poses at once.

A pose ``[h]`` brings the reference into the frame: its translation is where the reference's centre lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int
from scipy.spatial import cKDTree

from geocaps.apps.track.reference import Reference
from geocaps.geometry.similarity import Similarity

_POINT_SHARE = 0.05  # of the distance along the surface: it holds what planes leave free
_WIDTH = 0.2  # of the reach: distances within it count as noise
_UNSEEN = 0.35  # what a point costs that should be seen and is not: something may stand in front of it
_NEAR, _ON = 2.5, 0.75  # spacings within which a point is explained: to its partner, and to the partner's plane
REACH = 0.25
_PRIOR = 3.0  # points that the prediction counts as


@dataclass(frozen=True)
class View:
    """A frame: all its points, and those that look for partners."""

    points: Float64[np.ndarray, "n 3"]
    chosen: Float64[np.ndarray, "q 3"]
    tree: cKDTree
    viewer: Float64[np.ndarray, "3"] | None


@dataclass(frozen=True)
class Explained:
    """How poses explain a frame."""

    cost: Float64[np.ndarray, "h"]
    """From 0 to about 1; the less, the better."""
    frame: Float64[np.ndarray, "h"]
    """Share of the frame's points that lie on the reference."""
    expected: Float64[np.ndarray, "h"]
    """Share of what the viewer should see of the reference that the frame shows."""


def sides(reference: Reference, poses: Similarity, view: View) -> Int[np.ndarray, "h"]:
    """Which of the reference's views is nearest to what the viewer sees of it."""
    assert view.viewer is not None
    towards = np.einsum("hji,hj->hi", poses.rotation, view.viewer - poses.translation)
    return (towards @ reference.directions.T).argmax(axis=1)


def expected(
    reference: Reference, poses: Similarity, view: View, near: Bool[np.ndarray, "h p"]
) -> Bool[np.ndarray, "h p"]:
    """Which of the probes the viewer should see. An unknown viewer is where most of what is near can be seen from."""
    shown = reference.shown[:, reference.probes]
    if view.viewer is not None:
        return shown[sides(reference, poses, view)]
    worth = near.astype(np.float64) @ shown.T - _UNSEEN * (~near).astype(np.float64) @ shown.T
    return shown[worth.argmax(axis=1)]


def explain(reference: Reference, poses: Similarity, view: View, *, by_table: bool = False) -> Explained:
    """What the poses leave unexplained: of the frame and, mildly, of what should be seen of the reference."""
    cloud = reference.cloud
    local = (view.chosen - poses.translation[:, None]) @ poses.rotation
    if by_table:
        partner = cloud.table(np.ascontiguousarray(np.moveaxis(local, -1, 0)))
    else:
        partner = np.minimum(cloud.tree.query(local, distance_upper_bound=REACH)[1], len(cloud.points) - 1)
    gap = local - cloud.points[partner]
    square, plane = (gap**2).sum(axis=-1), (gap * cloud.normals.T[partner]).sum(axis=-1) ** 2
    on = (square < (_NEAR * cloud.spacing) ** 2) & (plane < (_ON * cloud.spacing) ** 2)
    forward = _evidence(square, plane)
    probes, normals = cloud.points[reference.probes], cloud.normals.T[reference.probes]
    moved = probes @ poses.rotation.swapaxes(1, 2) + poses.translation[:, None]
    partner = np.minimum(view.tree.query(moved, distance_upper_bound=REACH)[1], len(view.points) - 1)
    back = (view.points[partner] - moved) @ poses.rotation
    square, plane = (back**2).sum(axis=-1), (back * normals).sum(axis=-1) ** 2
    near = square < (2 * _NEAR * cloud.spacing) ** 2
    should = expected(reference, poses, view, near)
    count = np.maximum(should.sum(axis=1), 1)
    unseen = (_evidence(square, plane) * should).sum(axis=1) / count
    return Explained(forward.mean(axis=1) + _UNSEEN * unseen, on.mean(axis=1), (near & should).sum(axis=1) / count)


def _evidence(square: Float64[np.ndarray, "h m"], plane: Float64[np.ndarray, "h m"]) -> Float64[np.ndarray, "h m"]:
    """Minus the log likelihood of noise with heavy tails, from 0 to 1; what is out of reach counts 1."""
    width = _WIDTH * REACH
    blend = 0.95 * plane + 0.05 * square
    return np.where(square < REACH**2, np.log1p(blend / width**2) / np.log1p(_WIDTH**-2), 1.0)


def seen_points(reference: Reference, pose: Similarity, view: View) -> Bool[np.ndarray, "n"]:
    """Which of the reference's points the frame shows."""
    moved = reference.cloud.points @ pose.rotation.T + pose.translation
    reach = _NEAR * max(reference.cloud.spacing, _spacing(view))
    gap, _ = view.tree.query(moved, distance_upper_bound=reach)
    near = np.isfinite(gap)
    if view.viewer is None:
        return near
    return near & reference.shown[sides(reference, Similarity(pose.rotation[None], pose.translation[None]), view)[0]]


def _spacing(view: View) -> float:
    some = view.chosen
    return float(np.median(view.tree.query(some, k=2)[0][:, 1]))


def led(
    reference: Reference,
    poses: Similarity,
    view: View,
    reaches: Float[np.ndarray, "steps"],
    prior: Similarity | None = None,
) -> Similarity:
    """Poses led on by the frame, one Gauss-Newton step for each reach.

    Each point of the frame has a partner in the reference, and each probe that should be seen one in the frame.
    ``prior`` are poses ``[h]`` that count as a few points do.
    """
    cloud, probes = reference.cloud, reference.probes
    for step, reach in enumerate(reaches):
        local = (view.chosen - poses.translation[:, None]) @ poses.rotation
        # Partners are looked up at every second step: that takes most of the time.
        if step % 2 == 0:
            partner = np.minimum(cloud.tree.query(local, distance_upper_bound=reach)[1], len(cloud.points) - 1)
            moved = cloud.points[probes] @ poses.rotation.swapaxes(1, 2) + poses.translation[:, None]
            back = np.minimum(view.tree.query(moved, distance_upper_bound=reach)[1], len(view.points) - 1)
        behind = (view.points[back] - poses.translation[:, None]) @ poses.rotation
        near = ((behind - cloud.points[probes]) ** 2).sum(axis=-1) < (3 * _NEAR * cloud.spacing) ** 2
        should = expected(reference, poses, view, near)
        mine = np.concatenate([cloud.points[partner], np.broadcast_to(cloud.points[probes], behind.shape)], axis=1)
        gap = np.concatenate([local, behind], axis=1) - mine
        normal = np.concatenate(
            [cloud.normals.T[partner], np.broadcast_to(cloud.normals.T[probes], behind.shape)], axis=1
        )
        trust = np.concatenate([np.ones(partner.shape), should], axis=1)
        say = np.clip(1 - (gap**2).sum(axis=-1) / reach**2, 0, None) ** 2 * trust
        poses = _moved(poses, mine, gap, normal, say, prior)
    return poses


def _moved(
    poses: Similarity,
    mine: Float64[np.ndarray, "h m 3"],
    gap: Float64[np.ndarray, "h m 3"],
    normal: Float64[np.ndarray, "h m 3"],
    say: Float64[np.ndarray, "h m"],
    prior: Similarity | None,
) -> Similarity:
    """One step on Σ w ((n·g)² + share·|g|²), in the reference's frame, and towards the prior."""
    plane = np.concatenate([np.cross(mine, normal), normal, (gap * normal).sum(axis=-1)[..., None]], axis=-1)
    system = (plane * say[..., None]).swapaxes(1, 2) @ plane
    for axis in np.eye(3):
        rows = np.concatenate([np.cross(mine, axis), np.broadcast_to(axis, mine.shape), gap @ axis[:, None]], axis=-1)
        system += _POINT_SHARE * (rows * say[..., None]).swapaxes(1, 2) @ rows
    left, right = system[:, :6, :6] + 1e-6 * np.eye(6), system[:, :6, 6]
    if prior is not None:
        turn = Similarity(poses.rotation.swapaxes(1, 2) @ prior.rotation).rotvec
        shift = np.einsum("hji,hj->hi", poses.rotation, prior.translation - poses.translation)
        left = left + _PRIOR * np.eye(6)
        right = right + _PRIOR * np.concatenate([turn, shift], axis=1)
    change = np.linalg.solve(left, right[..., None])[..., 0]
    return poses @ Similarity.from_rotvec(change[:, :3], change[:, 3:])
