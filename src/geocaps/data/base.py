"""The one interface of every data set, and the sets made of other sets (a selection, a concatenation)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from geocaps.errors import DatasetError

SPLIT_NAMES = ("train", "val", "test")
NO_SPLIT = -1
UNLABELLED = -1


class PointDataset(ABC):
    """An ordered set of objects, each a cloud of points in its own units.

    ``labels`` index ``class_names`` (-1: no label); ``split_codes`` index ``SPLIT_NAMES`` (-1: in no split).
    ``fingerprint`` changes with the content and not with the place where it is stored: a training that resumes
    compares it.
    """

    def __init__(
        self,
        *,
        name: str,
        class_names: Iterable[str],
        labels: Int[np.ndarray, "m"],
        object_ids: Iterable[str],
        split_codes: Int[np.ndarray, "m"],
        fingerprint: str,
    ) -> None:
        self.name = name
        self.class_names: tuple[str, ...] = tuple(class_names)
        self.labels: Int64[np.ndarray, "m"] = labels.astype(np.int64)
        self.labels.setflags(write=False)
        self.object_ids: Sequence[str] = tuple(object_ids)
        self.split_codes: Int64[np.ndarray, "m"] = split_codes.astype(np.int64)
        self.split_codes.setflags(write=False)
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} objects, {len(self.class_names)} classes)"

    @abstractmethod
    def points(self, index: int) -> Float[Tensor, "n 3"]:
        """All stored points of one object, float32 (of a procedural set: a fixed sampling)."""

    def part_labels(self, index: int) -> Int[Tensor, "n"] | None:
        """The part of each point of ``points(index)``, or None when the set has none."""
        return None

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        """Independent samplings of the object's surface.

        Disjoint subsets of the stored points when there are enough of them; else each view is drawn without
        replacement from all of them, and only an object with fewer than ``count`` points repeats some.
        """
        stored = self.points(index)
        if len(stored) == 0:
            raise DatasetError(
                f"{self.name}: the object {self.object_ids[index]!r} has no points to sample from; "
                "find such objects with  geocaps data info"
            )
        return stored[draw_indices(len(stored), count, views, generator)]

    def digest(self, index: int) -> bytes:
        """A hash of what is stored of one object: equal for copies of it."""
        return hashlib.blake2b(self.points(index).numpy().tobytes(), digest_size=16).digest()

    def subset(self, indices: Sequence[int] | Int[np.ndarray, "k"]) -> PointDataset:
        """The objects at these places, in this order; classes keep their numbers."""
        return Subset(self, np.asarray(indices, dtype=np.int64).reshape(-1))

    def of_classes(self, names: Iterable[str]) -> PointDataset:
        """The objects of these classes, in their order; classes keep their numbers."""
        wanted = [names] if isinstance(names, str) else list(names)
        unknown = [name for name in wanted if name not in self.class_names]
        if unknown:
            known = ", ".join(self.class_names) or "none: the set has no labels"
            raise DatasetError(f"{self.name} has no class {', '.join(map(repr, unknown))}; its classes are: {known}")
        codes = [self.class_names.index(name) for name in wanted]
        return self.subset(np.flatnonzero(np.isin(self.labels, codes)))

    def split(self, name: str) -> PointDataset:
        """The objects of the split ``train``, ``val`` or ``test``."""
        if name not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise DatasetError(f"{self.name} has no split {name!r}; its splits are: {known}")
        return self.subset(np.flatnonzero(self.split_codes == SPLIT_NAMES.index(name)))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have objects."""
        present = set(np.unique(self.split_codes).tolist())
        return tuple(name for code, name in enumerate(SPLIT_NAMES) if code in present)


class Subset(PointDataset):
    """Some objects of another set."""

    def __init__(self, whole: PointDataset, indices: Int64[np.ndarray, "k"]) -> None:
        if len(indices) and (indices.min() < 0 or indices.max() >= len(whole)):
            raise DatasetError(
                f"{whole.name} has {len(whole)} objects, so a subset takes places 0 to {len(whole) - 1}; "
                f"got {indices.min()} to {indices.max()}"
            )
        super().__init__(
            name=whole.name,
            class_names=whole.class_names,
            labels=whole.labels[indices],
            object_ids=[whole.object_ids[index] for index in indices],
            split_codes=whole.split_codes[indices],
            fingerprint=fingerprint_of(whole.fingerprint, indices.tobytes()),
        )
        self._whole = whole
        self._indices = indices

    def points(self, index: int) -> Float[Tensor, "n 3"]:
        return self._whole.points(int(self._indices[index]))

    def part_labels(self, index: int) -> Int[Tensor, "n"] | None:
        return self._whole.part_labels(int(self._indices[index]))

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        return self._whole.samplings(int(self._indices[index]), count, views, generator)

    def digest(self, index: int) -> bytes:
        return self._whole.digest(int(self._indices[index]))


class Concatenation(PointDataset):
    """Several sets, one after the other; classes of the same name become one class."""

    def __init__(self, sets: Sequence[PointDataset], name: str) -> None:
        class_names = tuple(dict.fromkeys(class_name for one in sets for class_name in one.class_names))
        super().__init__(
            name=name,
            class_names=class_names,
            labels=np.concatenate([_renumbered(one, class_names) for one in sets]),
            object_ids=[object_id for one in sets for object_id in one.object_ids],
            split_codes=np.concatenate([one.split_codes for one in sets]),
            fingerprint=fingerprint_of(*(one.fingerprint for one in sets)),
        )
        self._sets = tuple(sets)
        self._starts = np.cumsum([0, *(len(one) for one in sets)])

    def _locate(self, index: int) -> tuple[PointDataset, int]:
        place = range(len(self))[index]
        which = int(np.searchsorted(self._starts, place, side="right")) - 1
        return self._sets[which], place - int(self._starts[which])

    def points(self, index: int) -> Float[Tensor, "n 3"]:
        one, place = self._locate(index)
        return one.points(place)

    def part_labels(self, index: int) -> Int[Tensor, "n"] | None:
        one, place = self._locate(index)
        return one.part_labels(place)

    def samplings(
        self, index: int, count: int, views: int, generator: torch.Generator
    ) -> Float[Tensor, "views count 3"]:
        one, place = self._locate(index)
        return one.samplings(place, count, views, generator)

    def digest(self, index: int) -> bytes:
        one, place = self._locate(index)
        return one.digest(place)


def concat(datasets: Sequence[PointDataset]) -> PointDataset:
    """Several sets as one, in their order; classes of the same name become one class."""
    if not datasets:
        raise DatasetError("concat needs at least one data set, got none")
    return Concatenation(datasets, " + ".join(one.name for one in datasets))


def draw_indices(stored: int, count: int, views: int, generator: torch.Generator) -> Int64[Tensor, "views count"]:
    """Which of the stored points each view takes (see ``PointDataset.samplings``)."""
    if stored >= count * views:
        return torch.randperm(stored, generator=generator)[: count * views].reshape(views, count)
    rounds = -(-count // stored)
    return torch.stack(
        [torch.cat([torch.randperm(stored, generator=generator) for _ in range(rounds)])[:count] for _ in range(views)]
    )


def fingerprint_of(*contents: str | bytes) -> str:
    """A short stable id of these contents, in this order."""
    whole = hashlib.sha256()
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()[:32]


def _renumbered(one: PointDataset, class_names: tuple[str, ...]) -> Int64[np.ndarray, "m"]:
    numbers = np.array([class_names.index(name) for name in one.class_names], dtype=np.int64)
    known = (one.labels >= 0) & (one.labels < len(numbers))
    labels = np.where(one.labels == UNLABELLED, UNLABELLED, len(class_names))  # a label of no class stays one
    labels[known] = numbers[one.labels[known]]
    return labels
