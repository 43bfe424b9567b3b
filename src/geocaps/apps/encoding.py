"""Results of encoding, in numpy: an ``Encoding`` for one object, ``Encodings`` for many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float, Float64, Int

from geocaps.apps.clouds import Cloud, to_user
from geocaps.apps.decoding import Parsed, Stored, Surface
from geocaps.errors import FileFormatError, InvalidInputError
from geocaps.geometry import similarity
from geocaps.geometry.se3 import concatenate
from geocaps.geometry.similarity import Similarity
from geocaps.model.capsules import Parse

_TIE = 0.25
"""A pose is ambiguous if another one is this probable, relative to the chosen one."""


@dataclass(frozen=True)
class Alternative:
    """Another possible pose of the object, in which it looks nearly the same if it is nearly as probable."""

    pose: Similarity
    probability: float


@dataclass(frozen=True)
class PartCapsules:
    """The parts of one object: the pose and the shape of each."""

    pose: Similarity
    """Pose of each part, in your coordinates."""
    feature: Float[np.ndarray, "j d"]
    """Shape of each part, independent of the pose of the object."""
    share: Float[np.ndarray, "j"]
    """Share of the cloud that is routed to each part; 0 for a part without points."""
    percept: Float[np.ndarray, "j e"]
    """What the whole object looks like from each part: a unit vector, 0 for a part without points. Two objects are
    compared by these, part by part. Models with the paper's object layer have none (``e`` is 0)."""

    def __len__(self) -> int:
        return len(self.feature)


def is_ambiguous(confidence: float, alternatives: Sequence[Alternative]) -> bool:
    """Whether one of the alternatives is nearly as probable as the chosen pose."""
    return any(other.probability >= _TIE * confidence for other in alternatives)


# ── one object, and many ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, repr=False, eq=False)
class Encoding:
    """One object: its canonical pose, its feature and its parts, in your own coordinates and units.

    All arrays are in numpy. Labels and surfaces, which take time, are computed on first use.
    """

    cloud: Cloud
    """The points that were encoded, and their name."""
    pose: Similarity
    """Canonical pose ``T_world_object``, from the object's canonical frame to yours (scale 1). Its origin is the centre
    of the whole object, even if the cloud is only a part of it."""
    radius: float
    """Radius of the whole object, in your units."""
    feature: Float[np.ndarray, "d"]
    """What the object is, independent of its pose and size."""
    parts: PartCapsules
    """Pose and feature of each part."""
    confidence: float
    """Confidence in the pose, from 0 to 1: its probability among the candidates, times the probability that the right
    one is among them, reduced for few points."""
    alternatives: tuple[Alternative, ...]
    """Other poses that are nearly as probable, most probable first: for instance the object's symmetries."""
    inside: Parsed | Stored
    """Source of labels and surfaces: the network's own values, or a file."""

    def __repr__(self) -> str:
        return (
            f"Encoding({self.cloud.name}, {len(self.cloud.points):,} points: {_capsules_text(self)}, "
            f"confidence {self.confidence:.2f})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import encoding_html

        return encoding_html(self)

    @cached_property
    def labels(self) -> Int[np.ndarray, "n"]:
        """Part of each input point, in the given order: the one whose surface explains it best; -1 for stray points."""
        return self.inside.labels if isinstance(self.inside, Stored) else self.inside.labels(self.cloud.points)

    @cached_property
    def canonical_labels(self) -> Int[np.ndarray, "n"]:
        """Part of each input point by the canonical decomposition; -1 for stray points.

        These are the parts that the object capsule decodes to, so that part j means the same in every sampling and in
        every object.
        """
        inside = self.inside
        return inside.canonical_labels if isinstance(inside, Stored) else inside.canonical_labels(self.cloud.points)

    @property
    def ambiguous(self) -> bool:
        """Whether another pose is nearly as probable as the chosen one, as for symmetric objects."""
        return is_ambiguous(self.confidence, self.alternatives)

    def canonical(self) -> Float64[np.ndarray, "n 3"]:
        """Input points in the canonical frame, in your units: rotated and moved, but not scaled."""
        return self.pose.observe(self.cloud.points)

    def reconstruct(self, layer: str = "object") -> Surface:
        """Surfaces decoded from the object capsule or, with ``layer="parts"``, from the part capsules."""
        if layer not in _LAYERS:
            raise InvalidInputError(f"layer must be 'object' or 'parts', not {layer!r}")
        return self.inside.surface(layer)

    def complete(self) -> Float64[np.ndarray, "m 3"]:
        """Points of the whole object, decoded from the object capsule, even where the cloud has none."""
        return self.reconstruct("object").points.reshape(-1, 3)

    @property
    def parse(self) -> Parse:
        """The network's own values ``[1, ...]``, as torch tensors in the model's frame."""
        return self._parsed().parse

    @property
    def viewpoints(self) -> Similarity:
        """The viewpoint of each part's percept, ``[j]``, in your coordinates.

        In the middle of the part's surface, oriented like the surfaces around it. The viewpoints of two parts with
        similar percepts, in two objects, give the pose of one object relative to the other.
        """
        places = self.parse.places
        if places is None:
            raise InvalidInputError("a model with the paper's object layer has no part viewpoints")
        return to_user(places[0], self.normalization)

    @property
    def normalization(self) -> Similarity:
        """From the model's frame to yours: ``x_yours = scale · x_model + translation``."""
        return self._parsed().normalization

    def part_of(self, points: Float[np.ndarray, "m 3"], *, canonical: bool = False) -> Int[np.ndarray, "m"]:
        """Part of each of some other points on the same object; with ``canonical``, by the canonical decomposition."""
        inside = self._parsed()
        return inside.canonical_part_of(points, self.cloud.points) if canonical else inside.part_of(points)

    def _parsed(self) -> Parsed:
        if isinstance(self.inside, Stored):
            raise InvalidInputError(
                f"the encoding of {self.cloud.name} was read from a file, without the network's own values: "
                "encode the cloud again"
            )
        return self.inside

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, including the points, to one ``.npz`` file."""
        from geocaps.io.save import check_target, writing

        path = Path(path)
        check_target(path, (".npz",))
        surfaces = {layer: self.reconstruct(layer) for layer in _LAYERS}
        others = [other.pose.matrix() for other in self.alternatives]
        values = {
            "format": np.array(_FORMAT),
            "name": np.array(self.cloud.name),
            "points": self.cloud.points,
            "labels": self.labels,
            "canonical_labels": self.canonical_labels,
            "pose": self.pose.matrix(),
            "radius": np.array(self.radius),
            "feature": self.feature,
            "confidence": np.array(self.confidence),
            "part_pose": self.parts.pose.matrix(),
            "part_feature": self.parts.feature,
            "part_share": self.parts.share,
            "part_percept": self.parts.percept,
            "alternative_pose": np.stack(others) if others else np.empty((0, 4, 4)),
            "alternative_probability": np.array([other.probability for other in self.alternatives]),
            "part_surfaces": surfaces["parts"].points,
            "object_surfaces": surfaces["object"].points,
            "triangles": surfaces["parts"].triangles,
        }
        with writing(path) as file:
            np.savez(file, allow_pickle=False, **values)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Encoding:
        """Reads a file written by :meth:`save`; this needs no model."""
        from geocaps.io.tables import read_arrays

        path = Path(path)
        if not path.is_file():
            raise InvalidInputError(f"{path} does not exist or is not a file: check the name and the folder")
        try:
            values = read_arrays(path)
            _check_stored(values)
            poses = {name: _rigid(values[name]) for name in ("pose", "part_pose", "alternative_pose")}
        except (ValueError, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise FileFormatError(f"cannot read {path} as a saved encoding: {reason}") from error
        surfaces = {layer: Surface(values[f"{name}_surfaces"], values["triangles"]) for layer, name in _LAYERS.items()}
        probabilities = values["alternative_probability"].tolist()
        return cls(
            cloud=Cloud(values["points"], str(values["name"])),
            pose=poses["pose"],
            radius=float(values["radius"]),
            feature=values["feature"],
            parts=PartCapsules(
                poses["part_pose"], values["part_feature"], values["part_share"], values["part_percept"]
            ),
            confidence=float(values["confidence"]),
            alternatives=tuple(Alternative(poses["alternative_pose"][k], p) for k, p in enumerate(probabilities)),
            inside=Stored(values["labels"], values["canonical_labels"], surfaces),
        )


class Encodings(Sequence[Encoding]):
    """Many objects, in the given order: a sequence of encodings, with arrays for all of them together."""

    def __init__(self, encodings: Iterable[Encoding]) -> None:
        self._encodings = tuple(encodings)

    def __len__(self) -> int:
        return len(self._encodings)

    @overload
    def __getitem__(self, index: int) -> Encoding: ...
    @overload
    def __getitem__(self, index: slice) -> Encodings: ...
    def __getitem__(self, index: int | slice) -> Encoding | Encodings:
        return Encodings(self._encodings[index]) if isinstance(index, slice) else self._encodings[index]

    def __repr__(self) -> str:
        if not self._encodings:
            return "Encodings(0 objects)"
        capsules = _capsules_text(self._encodings[0])
        return f"Encodings({len(self)} objects: {capsules} each, mean confidence {self.confidence.mean():.2f})"

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import encodings_html

        return encodings_html(self)

    @cached_property
    def pose(self) -> Similarity:
        """Canonical poses of all objects."""
        return similarity.stack([one.pose for one in self])

    @cached_property
    def feature(self) -> Float[np.ndarray, "b d"]:
        """Features of all objects, one row each."""
        return np.stack([one.feature for one in self])

    @cached_property
    def percept(self) -> Float[np.ndarray, "b j e"]:
        """Part percepts of all objects."""
        return np.stack([one.parts.percept for one in self])

    @cached_property
    def confidence(self) -> Float64[np.ndarray, "b"]:
        """Confidence in each object's pose."""
        return np.array([one.confidence for one in self])

    @cached_property
    def parse(self) -> Parse:
        """The network's own values of all objects, as torch tensors in the model's frame."""
        return concatenate([one.parse for one in self])

    @cached_property
    def normalization(self) -> Similarity:
        """From the model's frame to yours, for each object."""
        return similarity.stack([one.normalization for one in self])


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _capsules_text(one: Encoding) -> str:
    parts, size = one.parts.feature.shape
    return f"{parts} parts (features of {size}), feature of {len(one.feature)}"


_COLUMNS: dict[str, Callable[[Encoding], Any]] = {
    "translation": lambda one: one.pose.translation,
    "wxyz": lambda one: one.pose.wxyz,
    "radius": lambda one: np.float64(one.radius),
    "feature": lambda one: one.feature,
    "confidence": lambda one: np.float32(one.confidence),
    "part_translation": lambda one: one.parts.pose.translation,
    "part_wxyz": lambda one: one.parts.pose.wxyz,
    "part_feature": lambda one: one.parts.feature,
    "part_share": lambda one: one.parts.share,
    "part_percept": lambda one: one.parts.percept,
    "labels": lambda one: one.labels,
    "center": lambda one: one.normalization.translation,
    "scale": lambda one: one.normalization.scale,
}
ENCODED = tuple(_COLUMNS)
"""Columns of an encoding that rows of ``encode_files`` and exported graphs have in common."""


def encoded_columns(encoding: Encoding) -> dict[str, np.ndarray]:
    """The ``ENCODED`` columns of one cloud, in the user's units."""
    return {name: np.asarray(value(encoding)) for name, value in _COLUMNS.items()}


# ── encodings in files ────────────────────────────────────────────────────────────────────────────────────────────────

_FORMAT = 2
_LAYERS = {"parts": "part", "object": "object"}
"""The layers that can be decoded, and their names in files."""
_STORED: dict[str, tuple[int | str, ...]] = {
    "points": ("n", 3),
    "labels": ("n",),
    "canonical_labels": ("n",),
    "pose": (4, 4),
    "radius": (),
    "feature": ("d",),
    "confidence": (),
    "part_pose": ("j", 4, 4),
    "part_feature": ("j", "e"),
    "part_share": ("j",),
    "part_percept": ("j", "p"),
    "alternative_pose": ("k", 4, 4),
    "alternative_probability": ("k",),
    "part_surfaces": ("j", "m", 3),
    "object_surfaces": ("j", "m", 3),
    "triangles": ("t", 3),
}
"""Arrays of a saved encoding, with their shapes; equal letters are equal sizes."""


def _check_stored(values: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError for a file that :meth:`Encoding.save` cannot have written."""
    missing = {"format", "name", *_STORED} - set(values)
    if missing:
        raise ValueError(f"it has no array {min(missing)!r}: Encoding.save did not write it")
    if values["format"].shape or values["format"] != _FORMAT:
        raise ValueError("it was written by another version of geocaps: encode the cloud again")
    sizes: dict[int | str, int] = {3: 3, 4: 4}
    for name, shape in _STORED.items():
        array = values[name]
        fits = array.ndim == len(shape) and all(
            sizes.setdefault(key, size) == size for key, size in zip(shape, array.shape, strict=True)
        )
        kinds = "iu" if name in ("labels", "canonical_labels", "triangles") else "f"
        if not fits or array.dtype.kind not in kinds or not np.isfinite(array).all():
            raise ValueError(f"its array {name!r} ({array.dtype}, {list(array.shape)}) is not one of an encoding")
    for name, least, most in (
        ("labels", -1, sizes["j"]),
        ("canonical_labels", -1, sizes["j"]),
        ("triangles", 0, sizes["m"]),
    ):
        if ((values[name] < least) | (values[name] >= most)).any():
            raise ValueError(f"its array {name!r} has numbers that are not from {least} to {most - 1}")


def _rigid(matrix: np.ndarray) -> Similarity:
    Similarity.from_matrix(matrix)  # only checks that it is a pose: its result would be rounded again
    return Similarity(matrix[..., :3, :3], matrix[..., :3, 3])
