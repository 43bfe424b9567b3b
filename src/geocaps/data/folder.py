"""A folder of meshes or clouds as a data set: a class per sub-folder, read on first use."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.data.base import MEMORY_LIMIT, NO_SPLIT, SPLIT_NAMES, UNLABELLED, PointDataset, fingerprint_of
from geocaps.data.files import SPLIT_WORDS
from geocaps.errors import DatasetError, NotFiniteError
from geocaps.io import is_supported, load_points


@dataclass(frozen=True)
class Item:
    """One object file: its path below the folder is its id; folder names say its class and its split."""

    path: Path
    object_id: str
    class_name: str | None
    split: str | None
    size: int

    @property
    def seed(self) -> int:
        """The seed of its sampling: the same wherever the folder lies and whatever else is in it."""
        return int.from_bytes(hashlib.blake2b(self.object_id.encode(), digest_size=4).digest(), "little")


def list_items(folder: Path) -> list[Item]:
    """Every readable file below the folder, in the order of their paths. Hidden files and links are left out.

    ``chair/a.off`` is of the class chair; a folder named train, val or test on the way (``chair/train/a.off`` or
    ``train/chair/a.off``) is the split. A file at the top has no class.
    """
    return sorted(_walk(folder), key=lambda item: item.object_id)


class FolderDataset(PointDataset):
    """Objects in files. Each is read once (a mesh: 4,096 points drawn from it) and then kept, up to 1 GiB in all.

    Reading meshes is slow: ``geocaps data pack`` makes one file of the folder.
    """

    def __init__(self, folder: Path) -> None:
        items = list_items(folder)
        if not items:
            raise DatasetError(
                f"{folder}: no meshes or point clouds found; expected files, in one sub-folder for each class"
            )
        class_names = class_names_of(items)
        super().__init__(
            name=folder.resolve().name,
            class_names=class_names,
            labels=labels_of(items, class_names),
            object_ids=[item.object_id for item in items],
            split_codes=split_codes_of(items),
            fingerprint=fingerprint_of(*(f"{item.object_id}:{item.size}" for item in items)),
        )
        self._items = items
        self._kept: OrderedDict[str, Float[Tensor, "n 3"]] = OrderedDict()
        self._kept_bytes = 0

    def points(self, index: int) -> Float[Tensor, "n 3"]:
        item = self._items[index]
        if item.object_id not in self._kept:
            self._keep(item.object_id, _read(item))
        self._kept.move_to_end(item.object_id)
        return self._kept[item.object_id].clone()

    def digest(self, index: int) -> bytes:
        whole = hashlib.blake2b(digest_size=16)
        with self._items[index].path.open("rb") as file:
            while block := file.read(2**20):
                whole.update(block)
        return whole.digest()

    def _keep(self, object_id: str, points: Float[Tensor, "n 3"]) -> None:
        self._kept[object_id] = points
        self._kept_bytes += points.nbytes
        while self._kept_bytes > MEMORY_LIMIT and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.nbytes


def class_names_of(items: list[Item]) -> tuple[str, ...]:
    """The classes of the files, in alphabetical order."""
    return tuple(sorted({item.class_name for item in items if item.class_name is not None}))


def labels_of(items: list[Item], class_names: tuple[str, ...]) -> np.ndarray:
    """The class of each file as a number, -1 for a file at the top."""
    numbers = {name: number for number, name in enumerate(class_names)}
    return np.array([numbers.get(item.class_name or "", UNLABELLED) for item in items], dtype=np.int64)


def split_codes_of(items: list[Item]) -> np.ndarray:
    """The split of each file as a number, -1 for none."""
    return np.array(
        [NO_SPLIT if item.split is None else SPLIT_NAMES.index(item.split) for item in items], dtype=np.int64
    )


def _read(item: Item) -> Float[Tensor, "n 3"]:
    try:
        points = load_points(item.path, seed=item.seed).points
    except NotFiniteError as error:
        raise DatasetError(
            f"{error.what}: make a data set without them with  geocaps data pack FOLDER --out NAME.npz --drop-invalid"
        ) from error
    if points.dtype != np.float32:  # so far from the origin that float32 would lose the shape: keep that, not the place
        points = (points - points.mean(0)).astype(np.float32)
        if not np.isfinite(points).all():
            raise DatasetError(f"{item.path}: its coordinates are too large for float32; scale them down")
    return torch.from_numpy(points)


def _walk(folder: Path) -> Iterator[Item]:
    def refuse(error: OSError) -> None:
        raise DatasetError(f"{error.filename}: cannot be listed ({error.strerror})") from error

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if name.startswith(".") or not is_supported(path) or not path.is_file():
                continue
            relative = PurePosixPath(path.relative_to(folder).as_posix())
            parents = relative.parts[:-1]
            yield Item(
                path=path,
                object_id=str(relative),
                class_name=next((part for part in parents if part.lower() not in SPLIT_WORDS), None),
                split=next((SPLIT_WORDS[part.lower()] for part in parents if part.lower() in SPLIT_WORDS), None),
                size=path.stat().st_size,
            )
