"""Everything that is drawn of one object, in one frame: plain arrays in the model's units (radius 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int

from geocaps.apps.drawing import part_colors
from geocaps.geometry.se3 import Pose

NEUTRAL = np.array([0.27, 0.47, 0.67])
_REACH = 0.04
"""How far from a point, in radii of the object, a click still means it."""


@dataclass(frozen=True)
class Picture:
    """Points and their parts, part frames and surfaces, the object's frame and what its capsule decodes to."""

    points: Float[np.ndarray, "n 3"]
    labels: Int[np.ndarray, "n"]
    part_poses: Pose  # [j]
    object_pose: Pose  # []
    surfaces: Float[np.ndarray, "j m 3"]
    object_surfaces: Float[np.ndarray, "j m 3"]
    triangles: Int[np.ndarray, "t 3"]

    def observed_from(self, viewpoint: Pose) -> Picture:
        """The same object as seen from a viewpoint: from ``object_pose``, the canonical picture."""

        def seen(points: np.ndarray) -> np.ndarray:
            return viewpoint.observe(torch.from_numpy(points).to(viewpoint.wxyz)).numpy()

        return replace(
            self,
            points=seen(self.points),
            part_poses=self.part_poses.relative_to(viewpoint),
            object_pose=self.object_pose.relative_to(viewpoint),
            surfaces=seen(self.surfaces),
            object_surfaces=seen(self.object_surfaces),
        )

    def canonical(self) -> Picture:
        return self.observed_from(self.object_pose)

    def colors(self) -> Float[np.ndarray, "n 3"]:
        return part_colors(len(self.surfaces))[self.labels]


def part_under_ray(
    picture: Picture, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]
) -> tuple[int, float] | None:
    """The part that a ray meets first among the points and the decoded surfaces, and how far away; or nothing."""
    decoded = picture.surfaces.reshape(-1, 3)
    places = np.concatenate([picture.points, decoded])
    parts = np.concatenate([picture.labels, np.repeat(np.arange(len(picture.surfaces)), picture.surfaces.shape[1])])
    unit = direction / np.linalg.norm(direction)
    along = (places - origin) @ unit
    aside = np.linalg.norm(places - origin - along[:, None] * unit, axis=1)
    hit = (aside < _REACH) & (along > 0)
    if not hit.any():
        return None
    nearest = int(np.where(hit, along, np.inf).argmin())
    return int(parts[nearest]), float(along[nearest])
