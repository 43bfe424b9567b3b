"""Finding the object anew: where in a frame it is, from what its views look like, not from where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from geocaps.apps.align.hypotheses import distinct, from_frames
from geocaps.apps.align.prepare import local_frames, prepare
from geocaps.apps.track.fit import View, explain, led
from geocaps.apps.track.reference import Reference, described
from geocaps.errors import GeocapsError
from geocaps.geometry.similarity import Similarity, concatenate
from geocaps.model.look import cube_products, turn_similarity

if TYPE_CHECKING:
    from geocaps.apps.encode import Model

_BY_LOOK, _BY_FRAMES = 64, 400
_COARSE, _FINE = 32, 8
_APART = np.radians(15), 0.3
_TURN = np.cos(np.radians(45))  # a look that would put the viewer elsewhere than where it stands is none
_REACHES = np.array([0.5, 0.4, 0.3, 0.3]), np.array([0.25, 0.25, 0.2, 0.2])


def recognised(reference: Reference, view: View, model: Model, most: int) -> Similarity:
    """At most ``most`` poses that explain the frame, best first, however the object is turned."""
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
    """From the views of the reference that look most like the frame, frame by frame of their axes."""
    try:
        seen = described(model, [view.points])
    except GeocapsError:  # too few points for a look: the local frames are left
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
    """From local frames of the surface that look alike, as ``align`` has them."""
    center = view.points.mean(axis=0)
    near = from_frames(reference.frames, local_frames(prepare(view.points - center)), _BY_FRAMES)
    return Similarity(near.rotation, near.translation + center)
