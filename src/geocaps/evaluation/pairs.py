"""Pairs of clouds: two samplings of each object, rotated and corrupted as a protocol prescribes."""

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
"""The protocols, and the distribution of the rotation between the two clouds of each."""
PROTOCOLS = tuple(ROTATION)

NOISE_STD, SCAN_STD = 0.01, 0.005
OUTLIER_SHARE = 0.05
STRAY_HALF_SIDE = 1.0
KEPT = {"partial": 0.7, "partial50": 0.5, "scan": 0.3}
"""The smallest share of a cloud that is kept (a crop keeps exactly this much)."""
_DENSER = ("partial50", "scan")
"""Protocols that draw twice as many points for the second cloud, if the data have them, and then keep the usual number
at most."""
_SAMPLING, _FIRST, _SECOND, _AXIS_ANGLE, _CORRUPTION, _MORE, _STRAY = range(1, 8)


@dataclass(frozen=True)
class Pair:
    """Two clouds of one object, the true rotation from the first to the second, and the position of the whole object.

    The centre (centroid) and the radius (distance of the farthest point from it) are those of the second cloud before
    it was corrupted, since they cannot be computed from what is left.
    """

    first: Float[Tensor, "n 3"]
    second: Float[Tensor, "m 3"]
    turn: Pose
    center: Float64[Tensor, "3"]
    radius: float


@dataclass(frozen=True)
class Pairs:
    """Pairs of clouds for the objects of a data set, each a function of (seed, object, protocol) alone.

    The pairs of an object do not depend on which other objects are evaluated, and the first cloud is the same in every
    protocol. Noise and crops are in units of an object centred and scaled into the unit sphere, whatever the units of
    the data.
    """

    dataset: PointDataset
    points: int
    seed: int

    def __len__(self) -> int:
        return len(self.dataset)

    def first(self, index: int) -> Float[Tensor, "n 3"]:
        """The first cloud: a sampling, rotated uniformly at random, as the paper's gallery is."""
        return _turned(self.pose(index), self._samplings(index)[0])

    def pose(self, index: int) -> Pose:
        """The rotation of the first cloud: ``T_cloud_object``."""
        return Pose.random(generator=self._stream(index, _FIRST), dtype=torch.float64)

    def pair(self, index: int, protocol: str) -> Pair:
        """Both clouds under a protocol; for ``parts``, which rotates only part capsules, the same as for ``points``."""
        first_pose = self.pose(index)
        first, clean = self._samplings(index, denser=protocol in _DENSER)
        if ROTATION[protocol] == "axis_angle":
            stream = self._stream(index, _AXIS_ANGLE)
            turn = Pose.perturbation(max_angle=math.pi, generator=stream, dtype=torch.float64)
            clean, second_pose = first, turn @ first_pose
        else:
            second_pose = Pose.random(generator=self._stream(index, _SECOND), dtype=torch.float64)
            turn = second_pose @ first_pose.inverse()
        second = _turned(second_pose, self._corrupted(index, protocol, clean)[: self.points])
        if protocol == "outliers":  # a cube that rotated with the object would give its pose away
            second = stray_points(second, OUTLIER_SHARE, STRAY_HALF_SIDE, self._stream(index, _STRAY))[0]
        center = clean.mean(dim=0)
        radius = float((clean - center).norm(dim=1).max())
        return Pair(_turned(first_pose, first), second, turn, second_pose.apply(center[None])[0], radius)

    def more(self, index: int, count: int) -> list[tuple[Float[Tensor, "n 3"], Pose]]:
        """Further samplings, each rotated uniformly at random, with their rotations ``T_cloud_object``."""
        stream = self._stream(index, _MORE)
        drawn = self.dataset.samplings(index, self.points, count, stream)
        samplings = self._scaled(index, drawn, drawn)
        poses = Pose.random(count, generator=stream, dtype=torch.float64)
        return [(_turned(poses[k], samplings[k]), poses[k]) for k in range(count)]

    def _samplings(self, index: int, denser: bool = False) -> tuple[Float64[Tensor, "n 3"], Float64[Tensor, "m 3"]]:
        """Two samplings. With ``denser`` a third is added to the second, if the data have points that are in neither.

        If too few points are stored, asking for three samplings would change the first two, or repeat points.
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
        """Samplings in the frame that puts ``framing`` into the unit sphere, so that they differ only by a rotation."""
        own = normalization(framing.flatten(0, 1).numpy(), self.dataset.object_ids[index])
        return (samplings.double() - torch.tensor(own.translation)) / float(own.scale)

    def _corrupted(self, index: int, protocol: str, points: Float64[Tensor, "n 3"]) -> Float64[Tensor, "m 3"]:
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
