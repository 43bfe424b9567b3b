"""The tracked object, parsed once: its parts, and what is visible of it from each of 42 directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int

from geocaps.apps.align.prepare import Frames, Prepared, local_frames, prepare
from geocaps.apps.clouds import Cloud, Source, as_cloud, require_extent, to_user
from geocaps.apps.encoding import Encoding
from geocaps.data.corruption import visible_from
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import evenly, thinned
from geocaps.model.capsules import Frames as ViewFrames

if TYPE_CHECKING:
    from geocaps.apps.encode import Model

POINTS = 2048
_DISTANCE = 5.0  # of the viewer, in radii, as is usual for scanners; from nearer, the view is nearly the same
_LOOKED_AT = 512  # points of a view that are encoded
_PROBES = 256  # points that represent the surface when many poses are compared


@dataclass(frozen=True)
class Described:
    """Descriptors of clouds from the 24 frames on their axes, for recognition in any orientation."""

    descriptor: torch.Tensor  # [v, 24, d]
    rotation: Float64[np.ndarray, "v 24 3 3"]
    center: Float64[np.ndarray, "v 3"]


@dataclass(frozen=True)
class Reference:
    """The object in working units: its centre is the origin, and the mean square distance from there is 1."""

    center: Float64[np.ndarray, "3"]  # in the user's units, unlike all that follows
    unit: float
    size: float  # diameter
    cloud: Prepared
    labels: Int[np.ndarray, "n"]  # part of each point
    parts: int
    probes: Int[np.ndarray, "p"]
    directions: Float64[np.ndarray, "v 3"]  # from the centre towards each viewer
    shown: Bool[np.ndarray, "v n"]  # whether that viewer sees the point
    described: Described
    frames: Frames  # local ones, as ``align`` matches them

    def share_of_parts(self, which: Bool[np.ndarray, "n"]) -> Float64[np.ndarray, "j"]:
        """Share of each part's points that are among ``which``; 0 for a part without points."""
        count = np.bincount(self.labels, minlength=self.parts)
        return np.bincount(self.labels, which, minlength=self.parts) / np.maximum(count, 1)


def parsed(source: Source, model: Model, *, drop_invalid: bool = False) -> Reference:
    """The reference of a mesh or a cloud in any units."""
    cloud = as_cloud(source, model.config.parts.parts, "the reference", drop_invalid=drop_invalid)
    require_extent(cloud.points, cloud.name)
    encoding = model.encode(cloud)
    solid = np.flatnonzero(encoding.labels >= 0)
    chosen = solid[thinned(cloud.points[solid], POINTS)]
    points = cloud.points[chosen].astype(np.float64)
    center = points.mean(axis=0)
    unit = float(np.sqrt(((points - center) ** 2).sum(axis=1).mean()))
    local = (points - center) / unit
    directions = _directions()
    shown = np.zeros((len(directions), len(local)), dtype=bool)
    tensor = torch.from_numpy(local)
    for view, direction in enumerate(directions):
        shown[view, visible_from(tensor, torch.from_numpy(direction), _DISTANCE)[1].numpy()] = True
    least, needed = int(shown.sum(axis=1).min()), model.config.parts.parts
    if least < needed:
        raise InvalidInputError(
            f"{cloud.name} has too few points to be tracked: {least} of its {len(local)} are seen from one side, and "
            f"at least {needed} are needed"
        )
    ready = prepare(local)
    return Reference(
        center=center,
        unit=unit,
        size=2 * float(np.linalg.norm(local, axis=1).max()),
        cloud=ready,
        labels=encoding.labels[chosen],
        parts=len(encoding.parts),
        probes=np.arange(0, len(local), max(1, len(local) // _PROBES)),
        directions=directions,
        shown=shown,
        described=described(model, [local[mask] for mask in shown]),
        frames=local_frames(ready),
    )


def described(model: Model, clouds: list[np.ndarray]) -> Described:
    """The frames of clouds and what each sees; only models with our object layer have them."""
    # The same number of points in each, so that they are encoded together.
    count = min(_LOOKED_AT, *map(len, clouds)) if len(clouds) > 1 else min(_LOOKED_AT, len(clouds[0]))
    some = [cloud[evenly(count, len(cloud))] for cloud in clouds]
    found = model.encode_many([Cloud(cloud, "a view of the object") for cloud in some])
    return Described(
        torch.cat([_frames(one).descriptor for one in found]),
        np.stack([to_user(_frames(one).pose[0], one.normalization).rotation for one in found]),
        np.stack([to_user(_frames(one).pose[0], one.normalization).translation[0] for one in found]),
    )


def _frames(encoding: Encoding) -> ViewFrames:
    frames = encoding.parse.frames
    if frames is None:
        raise InvalidInputError("objects are tracked by models with our object layer; the paper's has no frames")
    return frames


def _directions() -> Float64[np.ndarray, "42 3"]:
    """Corners of an icosahedron and midpoints of its edges: every direction is within 20 degrees of one."""
    golden = (1 + 5**0.5) / 2
    corners = np.array([[0, a, b * golden] for a in (-1, 1) for b in (-1, 1)], dtype=np.float64)
    corners = np.concatenate([np.roll(corners, turn, axis=1) for turn in range(3)])
    corners /= np.linalg.norm(corners[0])
    first, second = np.triu_indices(len(corners), 1)
    near = (corners[first] * corners[second]).sum(axis=1) > 0.4
    middles = corners[first[near]] + corners[second[near]]
    return np.concatenate([corners, middles / np.linalg.norm(middles, axis=1, keepdims=True)])
