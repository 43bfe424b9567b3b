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
from geocaps.data.corruption import crop_half_space, gaussian_noise, outliers
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

ROTATION = {
    "parts": "axis_angle",
    "points": "axis_angle",
    "resampled": "uniform",
    "noisy": "uniform",
    "partial": "uniform",
}
"""The protocols, and the law of the rotation between the two clouds of each."""
PROTOCOLS = tuple(ROTATION)

NOISE_STD = 0.01
OUTLIER_SHARE = 0.05
CROP_KEEP = 0.7
_SAMPLING, _FIRST, _SECOND, _AXIS_ANGLE, _CORRUPTION, _MORE = range(1, 7)


@dataclass(frozen=True)
class Pair:
    """Two clouds of one object and the true rotation from the first to the second."""

    first: Float[Tensor, "n 3"]
    second: Float[Tensor, "m 3"]
    turn: Pose


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
        """Both clouds under a protocol. Under ``parts`` they are those of ``points``: there the parts are rotated."""
        first_pose = self.pose(index)
        samplings = self._samplings(index)
        if ROTATION[protocol] == "axis_angle":
            stream = self._stream(index, _AXIS_ANGLE)
            turn = Pose.perturbation(max_angle=math.pi, generator=stream, dtype=torch.float64)
            second, second_pose = samplings[0], turn @ first_pose
        else:
            second_pose = Pose.random(generator=self._stream(index, _SECOND), dtype=torch.float64)
            second, turn = self._corrupted(index, protocol, samplings[1]), second_pose @ first_pose.inverse()
        return Pair(_turned(first_pose, samplings[0]), _turned(second_pose, second), turn)

    def more(self, index: int, count: int) -> list[tuple[Float[Tensor, "n 3"], Pose]]:
        """Further samplings, each rotated uniformly, with its rotation ``T_cloud_object``."""
        stream = self._stream(index, _MORE)
        samplings = self._scaled(index, self.dataset.samplings(index, self.points, count, stream))
        poses = Pose.random(count, generator=stream, dtype=torch.float64)
        return [(_turned(poses[k], samplings[k]), poses[k]) for k in range(count)]

    def _samplings(self, index: int) -> Float64[Tensor, "2 n 3"]:
        return self._scaled(index, self.dataset.samplings(index, self.points, 2, self._stream(index, _SAMPLING)))

    def _scaled(self, index: int, samplings: Float[Tensor, "k n 3"]) -> Float64[Tensor, "k n 3"]:
        """Into the unit sphere, by one frame for all samplings: they then differ by a rotation only."""
        own = normalization(samplings.flatten(0, 1).numpy(), self.dataset.object_ids[index])
        return (samplings.double() - torch.tensor(own.translation)) / float(own.scale)

    def _corrupted(self, index: int, protocol: str, points: Float64[Tensor, "n 3"]) -> Float64[Tensor, "m 3"]:
        stream = self._stream(index, _CORRUPTION)
        if protocol == "noisy":
            return outliers(gaussian_noise(points, NOISE_STD, stream), OUTLIER_SHARE, stream)[0]
        if protocol == "partial":
            return crop_half_space(points, CROP_KEEP, stream)[0]
        return points

    def _stream(self, index: int, purpose: int) -> torch.Generator:
        return random_stream(self.seed, zlib.crc32(self.dataset.object_ids[index].encode()), purpose)


def evenly_chosen(count: int, available: int) -> list[int]:
    """At most ``count`` indices, spread evenly over what there is."""
    return evenly(min(count, available), available).tolist()


def _turned(pose: Pose, points: Float64[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    return pose.apply(points).float()
