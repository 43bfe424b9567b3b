"""What users add to an index - folders, files, arrays, data sets - as one stream of objects."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.apps.weights import sha256_of
from geocaps.data import PointDataset
from geocaps.data.base import UNLABELLED
from geocaps.data.folder import list_items
from geocaps.errors import InvalidInputError

Reader = Callable[[Source, int, str], Cloud]
"""``as_cloud``, with or without points that are NaN."""


@dataclass(frozen=True)
class Entry:
    """One object that may be added; nothing of it is read before ``digest`` or ``cloud`` is called."""

    name: str | None
    path: str | None
    class_name: str | None
    digest: Callable[[], str]
    """SHA-256 of the content: of a file its bytes, of an array its points."""
    cloud: Callable[[int], Cloud]
    """The checked cloud, given the fewest points it may have."""


def entries_of(
    source: Source | PointDataset,
    class_name: str | Sequence[str | None] | None,
    names: Sequence[str] | None,
    drop_invalid: bool,
) -> list[Entry]:
    """Every object of ``source``, called and classed as asked; without that, by its files and folders."""
    found = _expanded(source, partial(as_cloud, drop_invalid=drop_invalid))
    if class_name is not None:
        classes = [class_name] * len(found) if isinstance(class_name, str) else class_name
        found = [replace(one, class_name=label) for one, label in _paired(found, classes, "class_name")]
    if names is not None:
        found = [replace(one, name=name) for one, name in _paired(found, names, "names")]
    return found


def _paired(found: list[Entry], values: Sequence[str | None], what: str) -> list[tuple[Entry, str | None]]:
    if len(values) != len(found):
        raise InvalidInputError(f"{what} has {len(values)} entries for {len(found)} objects: give one for each")
    return list(zip(found, values, strict=True))


def _expanded(source: Source | PointDataset, read: Reader) -> list[Entry]:
    if isinstance(source, PointDataset):
        return [_of_dataset(source, index, read) for index in range(len(source))]
    if isinstance(source, (list, tuple)):
        return [entry for one in source for entry in _expanded(one, read)]
    if isinstance(source, (str, os.PathLike)):
        return _of_path(Path(source), read)
    if getattr(source, "ndim", 2) == 3:
        return [_of_array(one, read) for one in source]
    return [_of_array(source, read)]


def _of_path(path: Path, read: Reader) -> list[Entry]:
    if not path.exists():
        raise InvalidInputError(f"{path} does not exist: check the name and the folder")
    if not path.is_dir():
        return [_of_file(path, path.name, None, read)]
    items = list_items(path)
    if not items:
        raise InvalidInputError(f"{path} holds no meshes or point clouds: nothing could be added")
    return [_of_file(item.path, item.object_id, item.class_name, read) for item in items]


def _of_file(path: Path, name: str, class_name: str | None, read: Reader) -> Entry:
    return Entry(
        name=name,
        path=Path(os.path.abspath(path)).as_posix(),
        class_name=class_name,
        digest=lambda: _file_digest(path),
        cloud=lambda minimum: read(path, minimum, name),
    )


def _of_array(source: Source, read: Reader) -> Entry:
    return Entry(
        name=None,
        path=None,
        class_name=None,
        digest=lambda: _points_digest(read(source, 0, "the cloud")),
        cloud=lambda minimum: read(source, minimum, "the cloud"),
    )


def _of_dataset(dataset: PointDataset, index: int, read: Reader) -> Entry:
    label, name = dataset.labels[index], dataset.object_ids[index]
    return Entry(
        name=name,
        path=None,
        class_name=None if label == UNLABELLED else dataset.class_names[label],
        digest=lambda: _points_digest(read(dataset.points(index), 0, name)),
        cloud=lambda minimum: read(dataset.points(index), minimum, name),
    )


def _points_digest(cloud: Cloud) -> str:
    return hashlib.sha256(np.ascontiguousarray(cloud.points, dtype=np.float64).tobytes()).hexdigest()


def _file_digest(path: Path) -> str:
    # Opening a pipe or a device would wait for ever.
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a regular file: copy its content to one first")
    try:
        return sha256_of(path)
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
