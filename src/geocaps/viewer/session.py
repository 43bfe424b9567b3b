"""One object in one browser session: its rotation, its capsules, the steps to them, and edits. Needs no browser."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy.spatial.transform import Rotation
from torch import Tensor

from geocaps import datasets
from geocaps.apps.encode import Model, in_own_frame
from geocaps.apps.encoding import Encoding
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.blocks import grid_triangles
from geocaps.model.capsules import Capsules, Parse, Parts, vote_pose
from geocaps.model.look import Viewpoints
from geocaps.model.object import LEADING, START_WIDTH, merged
from geocaps.model.object_paper import PaperObject, random_starts
from geocaps.model.parts import PointsToParts, route
from geocaps.viewer.clouds import ShownCloud, stances

Angles = tuple[float, float, float]
"""Degrees about x, then y, then z (fixed axes)."""
UPRIGHT: Angles = (0.0, 0.0, 0.0)
DIRECTIONS = 4  # principal directions of the object feature that can be edited
_PER_CLASS = 2
_REACH = 0.04  # largest distance between a click and the point that it selects, in radii of the object


# ── the algorithms step by step, by the model's own public methods ────────────────────────────────────────────────────


@dataclass(frozen=True)
class RoutingStep:
    """Part capsules ``[j]`` after some iterations of Algorithm 1, and the part that explains each point."""

    parts: Capsules
    labels: Int[Tensor, "n"]
    surfaces: Float[Tensor, "j m 3"]


@dataclass(frozen=True)
class VotingStep:
    """Viewpoints ``[s]`` after some votes of Algorithm 2."""

    viewpoints: Pose
    probability: Float[Tensor, "s"] | None
    """Probability of each start to be the canonical one; None if the model does not score starts."""

    def degrees_to(self, pose: Pose) -> Float[Tensor, "s"]:
        return torch.rad2deg(self.viewpoints.angle_to(pose))


@torch.no_grad()
def routing_steps(network: GeometricCapsuleAutoencoder, points: Float64[Tensor, "n 3"]) -> list[RoutingStep]:
    """Iterations 0 … T: the initial parts, then decode → route → encode. The last is the result of ``encode``."""
    layer = network.parts
    own, turn = in_own_frame(points[None])
    start = layer.initial(own)
    given, steps = points[None].to(start.feature), []
    for state in layer.iterate(own.to(start.feature), start):
        capsules = state.capsules.placed_at(turn[:, None])
        labels, surfaces = _explained(layer, given, capsules)
        steps.append(RoutingStep(capsules[0], labels[0], surfaces[0]))
    return steps


def _explained(
    layer: PointsToParts, points: Float[Tensor, "b n 3"], parts: Capsules
) -> tuple[Int[Tensor, "b n"], Float[Tensor, "b j m 3"]]:
    """The part whose surface explains each point, and the surfaces."""
    surfaces = layer.decode(parts)
    return route(points, surfaces, layer.decoder.log_sigma(parts.feature)).labels(), surfaces


@torch.no_grad()
def voting_steps(network: GeometricCapsuleAutoencoder, seen: Parse, random: int, seed: int) -> list[VotingStep]:
    """Votes 0 … T from several starts: those of the model or, if ``random`` > 0, that many random ones as in the paper.

    All starts are followed to the end here; ``encode`` drops the improbable ones before the first vote, so that their
    final probability is 0.
    """
    layer, generator = network.object, torch.Generator().manual_seed(seed)
    # Random starts need only the centre of the points, which is 0 in the model's frame.
    drawn = random_starts(torch.zeros_like(seen.object.pose.translation[:, None]), max(random, 1), generator)
    if isinstance(layer, PaperObject):
        poses = [drawn]
        for _ in range(layer.config.voting_steps):
            poses.append(vote_pose(poses[-1], lambda z: layer.pose_network(seen.parts, z), 1))
        return [VotingStep(pose[0], None) for pose in poses]
    shown = layer.shown(network.parts, Parts(seen.parts, seen.share))
    at = Viewpoints(drawn, torch.full_like(drawn.wxyz[..., 0], START_WIDTH)) if random else layer.starts(shown)
    first = layer.score(shown, at)[0][..., 0].softmax(dim=1)
    dropped = torch.ones_like(first, dtype=torch.bool)
    dropped = dropped.scatter(1, first.topk(min(LEADING, first.shape[1])).indices, False)
    steps = [VotingStep(at.pose[0], first[0])]
    for _ in range(layer.config.voting_steps):
        at = layer.vote(shown, at)
        steps.append(VotingStep(at.pose[0], first[0]))
    score = (first.log() + layer.score(shown, at)[0][..., 1]).masked_fill(dropped, -torch.inf)
    probability = merged(at.pose, score.softmax(dim=1))
    steps[-1] = VotingStep(at.pose[0], probability[0])
    if not random:  # as in ``encode``: the rest is the chance that none of them is right
        steps[-1] = VotingStep(at.pose[0], (probability * seen.probability.sum(dim=1, keepdim=True))[0])
    return steps


# ── pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Picture:
    """All that is drawn of an object, in one frame and in the model's units (radius 1)."""

    points: Float[np.ndarray, "n 3"]
    normals: Float[np.ndarray, "n 3"]  # of either sign; zero where there is no surface
    labels: Int[np.ndarray, "n"]  # -1 for stray points
    part_poses: Pose  # [j]
    object_pose: Pose  # []
    surfaces: Float[np.ndarray, "j m 3"]
    object_surfaces: Float[np.ndarray, "j m 3"]
    triangles: Int[np.ndarray, "t 3"]

    def canonical(self) -> Picture:
        """The same object in its canonical frame."""
        return self.turned(self.object_pose.inverse())

    def turned(self, turn: Pose) -> Picture:
        """The same, moved by a pose."""

        def moved(points: np.ndarray) -> np.ndarray:
            return turn.apply(torch.from_numpy(points).to(turn.wxyz)).numpy()

        return replace(
            self,
            points=moved(self.points),
            normals=self.normals @ turn.rotation_matrix().numpy().T,
            part_poses=turn @ self.part_poses,
            object_pose=turn @ self.object_pose,
            surfaces=moved(self.surfaces),
            object_surfaces=moved(self.object_surfaces),
        )

    def part_under_ray(
        self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]
    ) -> tuple[int, float] | None:
        """The part that a ray hits first, among points and decoded surfaces, and its distance; or None."""
        count, size = self.surfaces.shape[:2]
        places = np.concatenate([self.points[self.labels >= 0], self.surfaces.reshape(-1, 3)])
        parts = np.concatenate([self.labels[self.labels >= 0], np.repeat(np.arange(count), size)])
        hit = under_ray(places, origin, direction)
        return None if hit is None else (int(parts[hit[0]]), hit[1])


def under_ray(
    points: Float[np.ndarray, "n 3"], origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]
) -> tuple[int, float] | None:
    """The point that a ray hits first, and its distance; or None."""
    unit = direction / np.linalg.norm(direction)
    along = (points - origin) @ unit
    aside = np.linalg.norm(points - origin - along[:, None] * unit, axis=1)
    hit = (aside < _REACH) & (along > 0)
    if not hit.any():
        return None
    nearest = int(np.where(hit, along, np.inf).argmin())
    return nearest, float(along[nearest])


@dataclass(frozen=True)
class Principal:
    """The principal directions of features (unit vectors), and the standard deviation along each."""

    directions: Float[Tensor, "k d"]
    deviations: Float[Tensor, "k"]

    @classmethod
    def of_features(cls, features: Float[Tensor, "m d"], count: int) -> Principal:
        centred = (features - features.mean(dim=0)).double()
        _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
        deviations = singular[:count] / max(len(features) - 1, 1) ** 0.5
        return cls(directions[:count].to(features), deviations.to(features))

    @classmethod
    def of_embedded_objects(cls, model: Model) -> Principal:
        """From two objects of each embedded class."""
        shapes = datasets.load("shapes")
        per_class = len(shapes) // len(shapes.class_names)
        chosen = [k * per_class + i for k in range(len(shapes.class_names)) for i in range(_PER_CLASS)]
        # Half of the model's points are enough for directions, and take half the time.
        size = max(model.config.points // 2, model.config.parts.parts)
        clouds = np.stack([shapes.points(index)[:size] for index in chosen])
        return cls.of_features(model.encode_many(clouds).parse.object.feature, DIRECTIONS)

    def moved(self, feature: Float[Tensor, "d"], amounts: Float[Tensor, "k"]) -> Float[Tensor, "d"]:
        """The feature, moved by ``amounts`` standard deviations along the directions."""
        return feature + (amounts * self.deviations) @ self.directions


# ── the object and its edits ──────────────────────────────────────────────────────────────────────────────────────────


class Turned:
    """A cloud rotated about its centre by known angles, with its capsules."""

    def __init__(self, model: Model, cloud: ShownCloud, angles: Angles) -> None:
        self.model, self.cloud, self.angles = model, cloud, angles
        rotation = Rotation.from_euler("xyz", angles, degrees=True).as_matrix()
        center = cloud.center
        self.turn = Similarity(rotation, center - rotation @ center)
        moved = (cloud.points - center) @ rotation.T + center
        # Not rotated: exactly the numbers in the file.
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
        return ((self.points - own.translation) / own.scale).astype(np.float32)

    @cached_property
    def local_normals(self) -> Float[np.ndarray, "n 3"]:
        return (self.cloud.normals @ self.turn.rotation.T).astype(np.float32)

    @cached_property
    def model_points(self) -> Float[Tensor, "m 3"]:
        """The points that the model sees."""
        return self.model.prepare(self.encoding.cloud)[0]

    @cached_property
    def routing(self) -> list[RoutingStep]:
        return routing_steps(self.model.network, self.model_points)

    def voting(self, random: int, seed: int) -> list[VotingStep]:
        return voting_steps(self.model.network, self.encoding.parse, random, seed)

    def shown(self) -> ShownCloud:
        """The cloud as shown, for other modes: a rotated object is no longer the one in its file."""
        if self.angles == UPRIGHT:
            return self.cloud
        return ShownCloud(f"{self.cloud.name}, turned", self.points, self.cloud.total)

    def record(self) -> dict[str, Any]:
        """The capsules of the object in this rotation, in the user's coordinates."""
        encoding = self.encoding
        return {
            "name": self.cloud.name,
            "points": len(self.points),
            "points_in_file": self.cloud.total,
            "turn": pose_record(self.turn),
            "pose": pose_record(encoding.pose),
            "radius": encoding.radius,
            "confidence": encoding.confidence,
            "feature": encoding.feature.tolist(),
            "alternatives": [
                {**pose_record(one.pose), "probability": one.probability} for one in encoding.alternatives
            ],
            "parts": [
                {
                    **pose_record(encoding.parts.pose[j]),
                    "feature": encoding.parts.feature[j].tolist(),
                    "points": int((self.labels == j).sum()),
                }
                for j in range(len(encoding.parts))
            ],
            "labels": self.labels.tolist(),
        }


class ObjectSession:
    """The object mode of one browser: ``still`` is the object as opened, ``now`` the same object, rotated."""

    def __init__(self, model: Model, cloud: ShownCloud, generator: torch.Generator) -> None:
        self.model, self.generator = model, generator
        self.open(cloud)

    def open(self, cloud: ShownCloud) -> None:
        """Shows another cloud; if it cannot be encoded, the previous one stays."""
        self.still = self.now = Turned(self.model, cloud, UPRIGHT)
        (self.stance,) = stances([(self.still.encoding, cloud.upright)])
        self.part = 0
        self.reset_edits()

    def turn_to(self, angles: Angles) -> None:
        self.now = Turned(self.model, self.still.cloud, angles)

    def random_angles(self) -> Angles:
        """A random rotation, in whole degrees for the sliders."""
        rotation = Pose.random(generator=self.generator, dtype=torch.float64).rotation_matrix().numpy()
        x, y, z = np.rint(Rotation.from_matrix(rotation).as_euler("xyz", degrees=True)).tolist()
        return (x, y, z)

    def canonical_view(self, picture: Picture) -> Picture:
        """The object in its canonical frame, made upright by ``stance``, as a canonical frame does not define up.

        The same rotation is used for all orientations of the object, so that it hides no motion.
        """
        opened = self.still.object.pose.rotation_matrix()
        upright = torch.from_numpy(self.stance.rotation).to(opened) @ opened
        return picture.canonical().turned(Pose.from_rotation(upright, torch.zeros_like(upright[0])))

    @property
    def rotation_error(self) -> float:
        """Angle, in degrees, between the pose found and that of the object as opened, rotated by the known angles."""
        expected = self.now.turn @ self.still.encoding.pose
        return float(np.degrees(self.now.encoding.pose.angle_to(expected)))

    @property
    def canonical_motion(self) -> float:
        """Root mean square motion of the canonical points since the object was opened, in radii of the object."""
        scale = float(self.still.encoding.normalization.scale)
        moved = self.now.encoding.canonical() - self.still.encoding.canonical()
        return float(np.sqrt((moved**2).sum(axis=-1).mean())) / scale

    def reset_edits(self) -> None:
        self.part_changes: dict[int, Tensor] = {}
        self.object_amounts: Tensor | None = None

    def part_feature(self, part: int) -> Float[Tensor, "d"]:
        """A part's feature as found, plus its edit."""
        return self.now.parts.feature[part] + self.part_changes.get(part, torch.zeros(()))

    def set_part_feature(self, part: int, values: list[float]) -> None:
        self.part_changes[part] = torch.tensor(values) - self.now.parts.feature[part]

    def feature_reach(self) -> float:
        """Range of the sliders for part features: 1.5 times the largest value of this object."""
        return max(1.5 * float(self.still.parts.feature.abs().max()), 1e-3)

    @torch.no_grad()
    def picture(self, principal: Principal | None = None, step: int | None = None) -> Picture:
        """The rotated object, with its edits, or in the state after ``step`` routing iterations."""
        now, network = self.now, self.model.network
        parts, labels = now.parts, now.labels
        if step is not None and step < len(now.routing) - 1:
            parts = now.routing[step].parts
            points = torch.from_numpy(now.local_points)[None]
            labels = np.where(labels < 0, -1, _explained(network.parts, points, parts[None])[0][0].numpy())
        feature = parts.feature.clone()
        for part, change in self.part_changes.items():
            feature[part] += change
        surfaces = network.parts.decode(Capsules(parts.pose, feature)[None])[0]
        whole = now.encoding.parse
        if principal is not None and self.object_amounts is not None:
            feature = principal.moved(now.object.feature, self.object_amounts)
            whole = replace(whole, object=Capsules(whole.object.pose, feature[None]))
        return Picture(
            points=now.local_points,
            normals=now.local_normals,
            labels=labels,
            part_poses=parts.pose,
            object_pose=now.object.pose,
            surfaces=surfaces.numpy(),
            object_surfaces=network.reconstruct(whole)[0].numpy(),
            triangles=grid_triangles(round(surfaces.shape[1] ** 0.5)).numpy(),
        )


def pose_record(pose: Pose | Similarity) -> dict[str, Any]:
    return {"translation": pose.translation.tolist(), "wxyz": pose.wxyz.tolist(), "matrix": pose.matrix().tolist()}
