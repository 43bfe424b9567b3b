"""The object that one browser looks at: its turn, its capsules and what the person changed. Knows no browser."""

from __future__ import annotations

import time
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial.transform import Rotation
from torch import Tensor

from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.model.blocks import grid_triangles
from geocaps.model.capsules import Capsules
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.picture import Picture
from geocaps.viewer.principal import Principal
from geocaps.viewer.trace import RoutingStep, VotingStep, routing_steps, voting_steps

Angles = tuple[float, float, float]
"""Degrees about x, then y, then z (fixed axes)."""
UPRIGHT: Angles = (0.0, 0.0, 0.0)


class Turned:
    """A cloud turned about its centre by known angles, with its capsules."""

    def __init__(self, model: Model, cloud: ShownCloud, angles: Angles) -> None:
        self.model, self.cloud, self.angles = model, cloud, angles
        rotation = Rotation.from_euler("xyz", angles, degrees=True).as_matrix()
        center = cloud.points.astype(np.float64).mean(axis=0)
        self.turn = Similarity(rotation, center - rotation @ center)
        moved = (cloud.points - center) @ rotation.T + center
        # Unturned, the very numbers of the file.
        self.points = cloud.points if angles == UPRIGHT else moved.astype(cloud.points.dtype)
        started = time.perf_counter()
        self.encoding: Encoding = model.encode(self.points)
        self.labels: np.ndarray = self.encoding.labels
        self.milliseconds = (time.perf_counter() - started) * 1000

    @property
    def parts(self) -> Capsules:
        """Part capsules ``[j]`` in the model's frame."""
        return self.encoding.parse.parts[0]

    @property
    def object(self) -> Capsules:
        return self.encoding.parse.object[0]

    @cached_property
    def local_points(self) -> Float[np.ndarray, "n 3"]:
        """All points, in the model's frame."""
        own = self.encoding.normalization
        return ((self.points - own.center[0].numpy()) / own.scale[0].item()).astype(np.float32)

    @cached_property
    def model_points(self) -> Float[Tensor, "m 3"]:
        """The points that the model sees."""
        return self.model.prepare(self.encoding.cloud)[0]

    @cached_property
    def routing(self) -> list[RoutingStep]:
        return routing_steps(self.model.network, self.model_points)

    def voting(self, random: int, seed: int) -> list[VotingStep]:
        return voting_steps(self.model.network, self.model_points, self.parts, random, seed)


class ObjectSession:
    """The object mode of one browser."""

    def __init__(self, model: Model, cloud: ShownCloud, generator: torch.Generator) -> None:
        self.model, self.generator = model, generator
        self.open(cloud)

    # ── the object and its turn ───────────────────────────────────────────────────────────────────────────────────

    def open(self, cloud: ShownCloud) -> None:
        """Show another cloud. When it cannot be encoded, what was shown before stays."""
        self.still = self.now = Turned(self.model, cloud, UPRIGHT)
        self.part = 0
        self.reset_edits()

    def turn_to(self, angles: Angles) -> None:
        self.now = Turned(self.model, self.still.cloud, angles)

    def random_angles(self) -> Angles:
        """A rotation uniform on SO(3), as whole degrees for the sliders."""
        rotation = Pose.random(generator=self.generator, dtype=torch.float64).rotation_matrix().numpy()
        x, y, z = np.rint(Rotation.from_matrix(rotation).as_euler("xyz", degrees=True)).tolist()
        return (x, y, z)

    @property
    def rotation_error(self) -> float:
        """Angle, in degrees, between the pose found and the unturned one turned by the known angles."""
        expected = self.now.turn @ self.still.encoding.pose
        return float(np.degrees(self.now.encoding.pose.angle_to(expected)))

    @property
    def canonical_motion(self) -> float:
        """Root mean square motion of the canonical points since the object was opened, in radii of the object."""
        scale = self.still.encoding.normalization.scale.item()
        moved = self.now.encoding.canonical() - self.still.encoding.canonical()
        return float(np.sqrt((moved**2).sum(axis=-1).mean())) / scale

    # ── what the person changes ───────────────────────────────────────────────────────────────────────────────────

    def reset_edits(self) -> None:
        self.part_changes: dict[int, Tensor] = {}
        self.object_amounts: Tensor | None = None

    def part_feature(self, part: int) -> Float[Tensor, "d"]:
        """A part's feature as found, with what was changed added."""
        feature = self.now.parts.feature[part]
        return feature + self.part_changes[part] if part in self.part_changes else feature

    def set_part_feature(self, part: int, values: list[float]) -> None:
        self.part_changes[part] = torch.tensor(values) - self.now.parts.feature[part]

    def feature_reach(self) -> float:
        """How far a slider of a part feature goes: half as far again as any value that this object has."""
        return max(1.5 * float(self.still.parts.feature.abs().max()), 1e-3)

    @torch.no_grad()
    def picture(self, principal: Principal | None = None, step: int | None = None) -> Picture:
        """The turned object as it is drawn: edits applied, or the state after ``step`` iterations of the routing."""
        now, network = self.now, self.model.network
        parts, labels = now.parts, now.labels
        if step is not None and step < len(now.routing) - 1:
            parts = now.routing[step].parts
            labels = self._labels_at(step)
        feature = torch.stack(
            [parts.feature[j] + self.part_changes.get(j, torch.zeros(())) for j in range(len(parts.feature))]
        )
        surfaces = network.parts.decode(Capsules(parts.pose, feature)[None])[0]
        whole = now.object
        if principal is not None and self.object_amounts is not None:
            whole = Capsules(whole.pose, principal.moved(whole.feature, self.object_amounts))
        decoded = network.reconstruct(whole[None])[0]
        return Picture(
            points=now.local_points,
            labels=labels,
            part_poses=parts.pose,
            object_pose=now.object.pose,
            surfaces=surfaces.numpy(),
            object_surfaces=decoded.numpy(),
            triangles=grid_triangles(round(surfaces.shape[1] ** 0.5)).numpy(),
        )

    def _labels_at(self, step: int) -> np.ndarray:
        """All shown points routed by the surfaces of an earlier iteration."""
        layer = self.model.network.parts
        points = torch.from_numpy(self.now.local_points)[None]
        return layer.route(points, self.now.routing[step].parts[None]).labels()[0].numpy()
