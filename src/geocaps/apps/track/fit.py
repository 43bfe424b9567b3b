"""Fits of poses to a frame: how well each explains it, where the frame leads it, and poses found anew.

All in working units, for many poses at once. A pose ``[h]`` brings the reference into the frame: its translation is
where the reference's centre lies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Float64, Int
from scipy.spatial import cKDTree

from geocaps.apps.align.hypotheses import distinct, from_frames
from geocaps.apps.align.prepare import local_frames, prepare
from geocaps.apps.track.reference import Reference, described
from geocaps.errors import GeocapsError
from geocaps.geometry.similarity import Similarity, concatenate
from geocaps.model.look import cube_products, turn_similarity

if TYPE_CHECKING:
    from geocaps.apps.encode import Model

_POINT_SHARE = 0.05  # weight of the distance along the surface, which planes leave free
_WIDTH = 0.2  # of the reach: smaller distances count as noise
_UNSEEN = 0.35  # cost of a point that should be visible but is not, as something may be in front of it
_NEAR, _ON = 2.5, 0.75  # spacings within which a point is explained: to its partner, and to the partner's plane
REACH = 0.25
_PRIOR = 3.0  # points that the prediction counts as


@dataclass(frozen=True)
class View:
    """A frame: all its points, and those for which partners are searched."""

    points: Float64[np.ndarray, "n 3"]
    chosen: Float64[np.ndarray, "q 3"]
    tree: cKDTree
    viewer: Float64[np.ndarray, "3"] | None


@dataclass(frozen=True)
class Explained:
    """The fit of poses to a frame."""

    cost: Float64[np.ndarray, "h"]
    """From 0 to about 1; the less, the better."""
    frame: Float64[np.ndarray, "h"]
    """Share of the frame's points that lie on the reference."""
    expected: Float64[np.ndarray, "h"]
    """Share of the points of the reference that the viewer should see that are in the frame."""


def sides(reference: Reference, poses: Similarity, view: View) -> Int[np.ndarray, "h"]:
    """The number of the reference's direction that is nearest to the viewer's."""
    assert view.viewer is not None
    towards = np.einsum("hji,hj->hi", poses.rotation, view.viewer - poses.translation)
    return (towards @ reference.directions.T).argmax(axis=1)


def expected(
    reference: Reference, poses: Similarity, view: View, near: Bool[np.ndarray, "h p"]
) -> Bool[np.ndarray, "h p"]:
    """Which probes the viewer should see. An unknown viewer is assumed where most of the near ones are visible."""
    shown = reference.shown[:, reference.probes]
    if view.viewer is not None:
        return shown[sides(reference, poses, view)]
    worth = near.astype(np.float64) @ shown.T - _UNSEEN * (~near).astype(np.float64) @ shown.T
    return shown[worth.argmax(axis=1)]


def explain(reference: Reference, poses: Similarity, view: View, *, by_table: bool = False) -> Explained:
    """The unexplained rest of the frame and, with less weight, of what should be visible of the reference."""
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
    """Minus the log likelihood of heavy-tailed noise, from 0 to 1; points out of reach count 1."""
    width = _WIDTH * REACH
    blend = 0.95 * plane + 0.05 * square
    return np.where(square < REACH**2, np.log1p(blend / width**2) / np.log1p(_WIDTH**-2), 1.0)


def seen_points(reference: Reference, pose: Similarity, view: View) -> Bool[np.ndarray, "n"]:
    """Which points of the reference are visible in the frame."""
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
    """Poses refined by the frame, with one Gauss-Newton step for each reach.

    Each point of the frame has a partner in the reference, and each probe that should be visible has one in the frame.
    ``prior`` are poses ``[h]`` with the weight of a few points.
    """
    cloud, probes = reference.cloud, reference.probes
    for step, reach in enumerate(reaches):
        local = (view.chosen - poses.translation[:, None]) @ poses.rotation
        # Partners are searched in every second step only, because that takes most of the time.
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
    """One step on Σ w ((n·g)² + share·|g|²) and towards the prior, in the reference's frame."""
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


# ── recognition: the object found by its appearance, independently of where it was ────────────────────────────────────

_BY_LOOK, _BY_FRAMES = 64, 400
_COARSE, _FINE = 32, 8
_APART = np.radians(15), 0.3
_TURN = np.cos(np.radians(45))  # a match must not place the viewer elsewhere
_REACHES = np.array([0.5, 0.4, 0.3, 0.3]), np.array([0.25, 0.25, 0.2, 0.2])


def recognised(reference: Reference, view: View, model: Model, most: int) -> Similarity:
    """At most ``most`` poses that explain the frame, best first, for any orientation of the object."""
    found = [by_frames(reference, view), by_look(reference, view, model)]
    poses = concatenate([one for one in found if one is not None])
    few, some = replace(reference, probes=reference.probes[::4]), replace(view, chosen=view.chosen[::4])
    cost = explain(few, poses, some, by_table=True).cost
    poses = poses[distinct(poses, np.argsort(cost, kind="stable"), _COARSE, *_APART)]
    fewer, part = replace(reference, probes=reference.probes[::2]), replace(view, chosen=view.chosen[::2])
    poses = led(fewer, poses, part, _REACHES[0])
    cost = explain(fewer, poses, part).cost
    poses = poses[distinct(poses, np.argsort(cost, kind="stable"), _FINE, *_APART)]
    poses = led(reference, poses, view, _REACHES[1])
    cost = explain(reference, poses, view).cost
    return poses[distinct(poses, np.argsort(cost, kind="stable"), most, *_APART)]


def by_look(reference: Reference, view: View, model: Model) -> Similarity | None:
    """Poses from the views of the reference that look most like the frame, by descriptors."""
    try:
        seen = described(model, [view.points])
    except GeocapsError:  # too few points for a look, so only local frames are used
        return None
    alike = turn_similarity(reference.described.descriptor, seen.descriptor.expand_as(reference.described.descriptor))
    turns = seen.rotation[0][cube_products()[:, 0].numpy()]
    rotation = turns[None] @ reference.described.rotation[:, :1].swapaxes(2, 3)
    shift = seen.center[0] - np.einsum("vgij,vj->vgi", rotation, reference.described.center)
    likeness = alike.double().numpy()
    if view.viewer is not None:
        towards = view.viewer - shift
        towards /= np.linalg.norm(towards, axis=-1, keepdims=True)
        facing = np.einsum("vgij,vj,vgi->vg", rotation, reference.directions, towards)
        likeness = np.where(facing > _TURN, likeness, -1.0)
    best = np.argsort(-likeness, axis=None, kind="stable")[:_BY_LOOK]
    return Similarity(rotation.reshape(-1, 3, 3)[best], shift.reshape(-1, 3)[best])


def by_frames(reference: Reference, view: View) -> Similarity:
    """Poses from similar local frames of the surface, as in ``align``."""
    center = view.points.mean(axis=0)
    near = from_frames(reference.frames, local_frames(prepare(view.points - center)), _BY_FRAMES)
    return Similarity(near.rotation, near.translation + center)
