"""What an index keeps of an object, and how it is made of a cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64

from geocaps.apps.clouds import Cloud
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.geometry.normalize import Normalization
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose

KEPT_POINTS = 512
"""Points of an object that are kept, for aligning and drawing it."""
QUANTUM = 1 / 32767
"""Kept points lie in the unit ball and are stored as 16-bit multiples of this."""


@dataclass(frozen=True)
class Row:
    """One object of an index."""

    id: str  # SHA-256 of its content
    name: str
    path: str | None
    class_name: str | None
    feature: Float32[np.ndarray, "d"]
    pose: Pose  # the object capsule's, in the user's coordinates
    normalization: Normalization
    points: Float[np.ndarray, "n 3"]  # in the model's frame


@dataclass(frozen=True)
class Label:
    """How an object is called in an index."""

    id: str
    name: str
    path: str | None
    class_name: str | None


def make_rows(model: Model, labels: Sequence[Label], clouds: Sequence[Cloud]) -> list[Row]:
    encodings = model.encode_many([cloud.points for cloud in clouds])
    return [make_row(model, label, one) for label, one in zip(labels, encodings, strict=True)]


def make_row(model: Model, label: Label, encoding: Encoding) -> Row:
    own = encoding.normalization
    return Row(
        id=label.id,
        name=label.name,
        path=label.path,
        class_name=label.class_name,
        feature=encoding.feature,
        pose=own.pose_to_user(encoding.parse.object.pose)[0],
        normalization=Normalization(own.center[0], own.scale[0]),
        points=kept_points(model, encoding.cloud),
    )


def kept_points(model: Model, cloud: Cloud) -> Float64[np.ndarray, "n 3"]:
    """The points that stand for a cloud, in the model's frame: the same ones whatever way it is turned."""
    points = model.prepare(cloud)[0].numpy()
    return points[evenly(min(len(points), KEPT_POINTS), len(points))]


def user_points(row: Row) -> Float64[np.ndarray, "n 3"]:
    """The kept points in the object's own coordinates."""
    return row.normalization.points_to_user(torch.from_numpy(row.points)).numpy()
