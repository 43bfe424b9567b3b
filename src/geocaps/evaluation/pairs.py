"""Pairs of clouds: two samplings of each object, in the poses and with the damage that a protocol asks for."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from geocaps.apps.clouds import normalization
from geocaps.data import PointDataset
from geocaps.data.corruption import crop_half_space, gaussian_noise, outliers, stray_points, visible_from
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

ROTATION = {
    "parts": "axis_angle",
    "points": "axis_angle",
    "resampled": "uniform",
    "noisy": "uniform",
    "outliers": "uniform",
    "partial": "uniform",
    "partial50": "uniform",
    "scan": "uniform",
}
"""The protocols, and the law of the rotation between the two clouds of each."""
PROTOCOLS = tuple(ROTATION)

NOISE_STD, SCAN_STD = 0.01, 0.005
OUTLIER_SHARE = 0.05
STRAY_HALF_SIDE = 1.0
KEPT = {"partial": 0.7, "partial50": 0.5, "scan": 0.3}
"""The share of a cloud that is left at least (a crop leaves exactly this)."""
_DENSER = ("partial50", "scan")
"""Here twice the points are drawn for the second cloud, where the data have them, and no more than usual are kept."""
_SAMPLING, _FIRST, _SECOND, _AXIS_ANGLE, _CORRUPTION, _MORE, _STRAY = range(1, 8)


@dataclass(frozen=True)
class Pair:
    """Two clouds of one object, the true rotation from the first to the second, and where the whole object is.

    Centre and radius (the centroid, and how far the farthest point lies from it) are those of the second cloud before
    it was damaged: what is left of it does not tell them.
    """

    first: Float[Tensor, "n 3"]
    second: Float[Tensor, "m 3"]
    turn: Pose
    center: Float64[Tensor, "3"]
    radius: float


@dataclass(frozen=True)
class Pairs:
    """Pairs of clouds of the objects of a data set, each a function of (seed, object, protocol) alone.

    An object's pairs do not depend on which other objects are evaluated. The first cloud is the same in every protocol.
    Noise and crops are in units of an object centred and scaled into the unit sphere, whatever the units of the data.
    """

    dataset: PointDataset
    points: int
    seed: int

    def __len__(self) -> int:
        return len(self.dataset)

    def first(self, index: int) -> Float[Tensor, "n 3"]:
        """The first cloud: a sampling, rotated uniformly (the paper's gallery is randomly rotated too)."""
        return _turned(self.pose(index), self._samplings(index)[0])

    def pose(self, index: int) -> Pose:
        """The rotation of the first cloud: ``T_cloud_object``."""
        return Pose.random(generator=self._stream(index, _FIRST), dtype=torch.float64)

    def pair(self, index: int, protocol: str) -> Pair:
        """Both clouds under a protocol. Under ``parts``, where only parts are rotated, they are those of ``points``."""
        first_pose = self.pose(index)
        first, clean = self._samplings(index, denser=protocol in _DENSER)
        if ROTATION[protocol] == "axis_angle":
            stream = self._stream(index, _AXIS_ANGLE)
            turn = Pose.perturbation(max_angle=math.pi, generator=stream, dtype=torch.float64)
            clean, second_pose = first, turn @ first_pose
        else:
            second_pose = Pose.random(generator=self._stream(index, _SECOND), dtype=torch.float64)
            turn = second_pose @ first_pose.inverse()
        second = _turned(second_pose, self._damaged(index, protocol, clean)[: self.points])
        if protocol == "outliers":  # a cube that turned with the object would tell its pose
            second = stray_points(second, OUTLIER_SHARE, STRAY_HALF_SIDE, self._stream(index, _STRAY))[0]
        center = clean.mean(dim=0)
        radius = float((clean - center).norm(dim=1).max())
        return Pair(_turned(first_pose, first), second, turn, second_pose.apply(center[None])[0], radius)

    def more(self, index: int, count: int) -> list[tuple[Float[Tensor, "n 3"], Pose]]:
        """Further samplings, each rotated uniformly, with its rotation ``T_cloud_object``."""
        stream = self._stream(index, _MORE)
        drawn = self.dataset.samplings(index, self.points, count, stream)
        samplings = self._scaled(index, drawn, drawn)
        poses = Pose.random(count, generator=stream, dtype=torch.float64)
        return [(_turned(poses[k], samplings[k]), poses[k]) for k in range(count)]

    def _samplings(self, index: int, denser: bool = False) -> tuple[Float64[Tensor, "n 3"], Float64[Tensor, "m 3"]]:
        """Two samplings; the second is joined by a third one (``denser``) if the data have points that are in neither.

        If a set stores too few points, asking for three samplings gives others, or repeats points.
        """
        two = chosen = self._drawn(index, 2)
        if denser:
            three = self._drawn(index, 3)
            different = len(set(map(tuple, three.flatten(0, 1).tolist())))  # seven times as quick as torch.unique
            if torch.equal(three[:2], two) and different > 2 * self.points:
                chosen = three
        scaled = self._scaled(index, two, chosen)
        return scaled[0], scaled[1:].flatten(0, 1)

    def _drawn(self, index: int, views: int) -> Float[Tensor, "views n 3"]:
        return self.dataset.samplings(index, self.points, views, self._stream(index, _SAMPLING))

    def _scaled(
        self, index: int, framing: Float[Tensor, "l n 3"], samplings: Float[Tensor, "k n 3"]
    ) -> Float64[Tensor, "k n 3"]:
        """In the one frame that puts ``framing`` into the unit sphere, so that samplings differ by a rotation only."""
        own = normalization(framing.flatten(0, 1).numpy(), self.dataset.object_ids[index])
        return (samplings.double() - torch.tensor(own.translation)) / float(own.scale)

    def _damaged(self, index: int, protocol: str, points: Float64[Tensor, "n 3"]) -> Float64[Tensor, "m 3"]:
        stream = self._stream(index, _CORRUPTION)
        if protocol == "noisy":
            return outliers(gaussian_noise(points, NOISE_STD, stream), OUTLIER_SHARE, stream)[0]
        if protocol == "outliers":
            return gaussian_noise(points, NOISE_STD, stream)
        if protocol in ("partial", "partial50"):
            return crop_half_space(points, KEPT[protocol], stream)[0]
        if protocol == "scan":
            return gaussian_noise(visible_from(points, stream)[0], SCAN_STD, stream)
        return points

    def _stream(self, index: int, purpose: int) -> torch.Generator:
        return random_stream(self.seed, zlib.crc32(self.dataset.object_ids[index].encode()), purpose)


def _turned(pose: Pose, points: Float64[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    return pose.apply(points).float()
