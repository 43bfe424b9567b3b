"""Pictures as nodes of viser's scene. Nodes are made once and then changed, so that nothing flickers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from geocaps.apps.drawing import part_colors
from geocaps.geometry.se3 import Pose
from geocaps.viewer.picture import NEUTRAL, Picture
from geocaps.viewer.trace import VotingStep

if TYPE_CHECKING:
    from viser import ClientHandle

INPUT_AT = np.array([-1.2, 0.0, 0.0])
CANONICAL_AT = np.array([1.2, 0.0, 0.0])
ABOVE = np.array([0.0, 1.15, 0.0])
"""From the middle of an object to where its title stands."""
LAYERS = {
    "points": ("input points", True),
    "colors": ("part colours", True),
    "surfaces": ("part surfaces", False),
    "part_frames": ("part frames", False),
    "object_frame": ("canonical frame", True),
    "from_parts": ("decoded from parts", False),
    "from_object": ("decoded from object", False),
}
"""The switches: name, what the page calls it, whether it is on at first."""
_POINT = 0.018
_VIEWPOINTS_AT = 1.25


class Canvas:
    """The scene of one browser: ``nodes`` are what was sent to it, by name.

    Every node stands under a group that is shown or hidden as a whole.
    """

    def __init__(self, client: ClientHandle) -> None:
        self._scene = client.scene
        self.nodes: dict[str, Any] = {}

    def group(self, name: str, visible: bool) -> None:
        if name in self.nodes:
            self.nodes[name].visible = visible
        else:
            self.nodes[name] = self._scene.add_frame(name, show_axes=False, visible=visible)

    def points(
        self, name: str, points: Float[np.ndarray, "n 3"], colors: np.ndarray, at: np.ndarray, visible: bool = True
    ) -> None:
        paint = np.broadcast_to(np.rint(np.asarray(colors) * 255).astype(np.uint8), points.shape)
        node = self.nodes.get(name)
        if node is None:
            self.nodes[name] = self._scene.add_point_cloud(
                name, points.astype(np.float32), paint, point_size=_POINT, point_shape="circle",
                precision="float32", position=at, visible=visible,
            )  # fmt: skip
            return
        node.points, node.colors, node.position, node.visible = points.astype(np.float32), paint, at, visible

    def surfaces(self, name: str, picture: Picture, at: np.ndarray, visible: bool) -> None:
        for part, color in enumerate(part_colors(len(picture.surfaces))):
            own = f"{name}/{part}"
            node = self.nodes.get(own)
            if node is None:
                self.nodes[own] = self._scene.add_mesh_simple(
                    own, picture.surfaces[part], picture.triangles, color=tuple(color), side="double",
                    flat_shading=True, cast_shadow=False, receive_shadow=False, position=at, visible=visible,
                )  # fmt: skip
                continue
            node.vertices, node.position, node.visible = picture.surfaces[part].astype(np.float32), at, visible

    def axes(self, name: str, poses: Pose, at: np.ndarray, size: float, visible: bool) -> None:
        """Frames ``[k]``; their number may change."""
        wxyz, places = poses.wxyz.numpy(), poses.translation.numpy() + at.astype(np.float32)
        node = self.nodes.get(name)
        if node is not None and node.batched_wxyzs.shape == wxyz.shape:
            node.batched_wxyzs, node.batched_positions, node.visible = wxyz, places, visible
            return
        self.nodes[name] = self._scene.add_batched_axes(
            name, wxyz, places, axes_length=size, axes_radius=size / 30, visible=visible
        )

    def label(self, name: str, text: str, at: np.ndarray) -> None:
        node = self.nodes.get(name)
        if node is None:
            self.nodes[name] = self._scene.add_label(name, text, position=at)
        else:
            node.text, node.position = text, at

    def remove(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            node.remove()


def draw_object(canvas: Canvas, group: str, picture: Picture, at: np.ndarray, shown: dict[str, bool]) -> None:
    """One picture, with the layers that are switched on."""
    paint = picture.colors() if shown["colors"] else NEUTRAL
    per_part = np.repeat(part_colors(len(picture.surfaces)), picture.surfaces.shape[1], axis=0)
    canvas.points(f"{group}/points", picture.points, paint, at, shown["points"])
    canvas.points(f"{group}/from_parts", picture.surfaces.reshape(-1, 3), per_part, at, shown["from_parts"])
    canvas.points(f"{group}/from_object", picture.object_surfaces.reshape(-1, 3), per_part, at, shown["from_object"])
    canvas.surfaces(f"{group}/surfaces", picture, at, shown["surfaces"])
    canvas.axes(f"{group}/part_frames", picture.part_poses, at, 0.14, shown["part_frames"])
    canvas.axes(f"{group}/object_frame", picture.object_pose[None], at, 0.6, shown["object_frame"])


def viewpoint_frames(step: VotingStep) -> Pose:
    """Viewpoints as frames on a sphere around the object, each out along its own z axis: there they can be told apart,
    and viewpoints that agree meet in one place."""
    out = step.viewpoints.rotation_matrix()[..., 2] * _VIEWPOINTS_AT
    return Pose(step.viewpoints.translation + out, step.viewpoints.wxyz)
