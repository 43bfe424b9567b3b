"""The sets that come with the package: procedural shapes without end, and 175 pieces of furniture (CC0)."""

from __future__ import annotations

import zlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.data.arrays import ArrayDataset, Columns, checked_dataset
from geocaps.data.base import PointDataset, fingerprint_of
from geocaps.data.npz import open_npz
from geocaps.data.synthetic import CLASS_NAMES, make_shape
from geocaps.errors import DatasetError

if TYPE_CHECKING:
    from geocaps.data.synthetic import Shape

PER_CLASS = 50
STORED_POINTS = 2048
CONTENT_VERSION = 1
"""Part of the fingerprint: raise it when the same class and seed no longer give the same shape."""


class ShapesDataset(PointDataset):
    """Procedural shapes, ``per_class`` of each class, the same for the same seed; every sampling is fresh.

    Of every ten shapes of a class the ninth is for validation and the tenth for test, so that a larger
    ``per_class`` only adds shapes.
    """

    def __init__(self, per_class: int, seed: int) -> None:
        if per_class < 1:
            raise DatasetError(f"shapes: per_class must be at least 1, got {per_class}")
        if seed < 0:
            raise DatasetError(f"shapes: seed must not be negative, got {seed}")
        labels, places = np.divmod(np.arange(per_class * len(CLASS_NAMES)), per_class)
        super().__init__(
            name="shapes",
            class_names=CLASS_NAMES,
            labels=labels,
            object_ids=[
                f"{CLASS_NAMES[label]}/{seed}/{place:06d}" for label, place in zip(labels, places, strict=True)
            ],
            split_codes=np.select([places % 10 == 8, places % 10 == 9], [1, 2], default=0),
            fingerprint=fingerprint_of("shapes", str(CONTENT_VERSION), *CLASS_NAMES, str(per_class), str(seed)),
        )
        self._places = places
        self._seed = seed

    def points(self, index: int) -> Float[Tensor, "n 3"]:
        shape, seed = self._shape(index)
        return torch.as_tensor(shape.sample(STORED_POINTS, torch.Generator().manual_seed(seed)).points)

    def part_labels(self, index: int) -> Int[Tensor, "n"] | None:
        shape, seed = self._shape(index)
        return torch.as_tensor(shape.sample(STORED_POINTS, torch.Generator().manual_seed(seed)).part_labels)

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        shape, _ = self._shape(index)
        return torch.stack([torch.as_tensor(shape.sample(count, generator).points) for _ in range(views)])

    def _shape(self, index: int) -> tuple[Shape, int]:
        class_name = CLASS_NAMES[self.labels[index]]
        entropy = [self._seed, zlib.crc32(class_name.encode()), int(self._places[index])]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return _made(class_name, seed), seed


def furniture() -> ArrayDataset:
    """Clouds of furniture models, 2,048 points each; about half have a class. Credits: data/CREDITS.md."""
    with (
        resources.as_file(resources.files("geocaps") / "data" / "furniture.npz") as path,
        open_npz(path) as archive,
    ):
        keywords = archive.array("keyword_class")
        class_names = np.unique(keywords[keywords != ""])
        columns = Columns(
            points=archive.array("points"),
            labels=np.where(keywords == "", -1, np.searchsorted(class_names, keywords)),
            class_names=class_names,
            object_ids=archive.array("object_ids"),
        )
        return checked_dataset("furniture", "furniture", columns, archive.fingerprint())


@lru_cache(maxsize=4096)
def _made(class_name: str, seed: int) -> Shape:
    return make_shape(class_name, seed)
