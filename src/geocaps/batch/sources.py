"""Sources of objects: files, folders of files, and data sets of many objects, as a list of small values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from geocaps import data as datasets
from geocaps.apps.clouds import Source
from geocaps.data.folder import list_items
from geocaps.errors import DatasetError, InvalidInputError

_DATA_SET_SUFFIXES = (".npz", ".h5", ".hdf5")
_ALONE = -1
"""The member number of a file that is one object."""


@dataclass(frozen=True)
class Item:
    """One object: a file, or a member of a data set."""

    path: str
    """As the user named it."""
    name: str
    """Below the folder that the user named; ``set.npz#id`` for a member of a data set."""
    member: int
    place: str
    """What opens it from any working directory: an absolute path, or the name of an embedded data set."""
    version: str
    """Changes with the content: size and time of a file."""
    size: int
    """Bytes, about: what its results may take."""
    not_a_set: str = ""
    """Why a file that might be a data set is taken for a single cloud."""
    drop_invalid: bool = False
    """Whether points that are NaN or infinite are left out rather than refused."""

    def read(self) -> tuple[Source, str]:
        """What ``Model.encode`` takes, and the SHA-256 of the content."""
        if self.member == _ALONE:
            return self.place, file_sha256(Path(self.place), self.path)
        points = _data_set(self.place, self.version).points(self.member)
        return points, hashlib.sha256(points.numpy().tobytes()).hexdigest()


def find_items(sources: Iterable[str | os.PathLike[str]], leave_out: Sequence[Path] = ()) -> list[Item]:
    """Every object of the sources, each once, in a fixed order.

    A folder gives every readable file below it, in the order of their paths; hidden files are left out, and so is
    everything in ``leave_out`` (the output may lie in the folder). A source that does not exist is an item too: it
    fails when it is read, and is reported with the others.
    """
    hidden = {os.path.abspath(path) for path in leave_out}
    found: dict[tuple[str, int], Item] = {}
    for source in sources:
        for item in _of_source(os.fspath(source)):
            if not any(item.place == place or item.place.startswith(place + os.sep) for place in hidden):
                found.setdefault((item.place, item.member), item)
    return list(found.values())


def file_sha256(path: Path, name: str = "") -> str:
    """The SHA-256 of a file's bytes, read in blocks; ``name`` is what messages call the file."""
    # Opening a pipe or a device would wait for ever.
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{name or path} is not a regular file: copy its content to one first")
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                whole.update(block)
    except OSError as error:
        raise InvalidInputError(f"cannot read {name or path}: {error.strerror or error}") from error
    return whole.hexdigest()


def _of_source(source: str) -> Iterator[Item]:
    if source in datasets.EMBEDDED:
        whole = _data_set(source, "")
        yield from _members(whole, source, source, source, whole.fingerprint, 0)
    elif os.path.isdir(source):
        for file in list_items(Path(source)):
            yield from _of_file(str(file.path), file.object_id)
    else:
        yield from _of_file(source, os.path.basename(source))


def _of_file(path: str, name: str) -> Iterator[Item]:
    place = os.path.abspath(path)
    try:
        stat = os.stat(path)
    except OSError:
        yield Item(path, name, _ALONE, place, "missing", 0)
        return
    version = f"{stat.st_size}:{stat.st_mtime_ns}"
    not_a_set = ""
    if path.lower().endswith(_DATA_SET_SUFFIXES):
        try:
            yield from _members(_data_set(place, version), path, name, place, version, stat.st_size)
            return
        except DatasetError as error:
            # Bytes that do not open at all are said once, when the file is read.
            not_a_set = str(error) if error.__cause__ is None else ""
    yield Item(path, name, _ALONE, place, version, stat.st_size, not_a_set)


def _members(whole: datasets.PointDataset, path: str, name: str, place: str, version: str, size: int) -> Iterator[Item]:
    each = size // max(1, len(whole))
    for member, object_id in enumerate(whole.object_ids):
        yield Item(path, f"{name}#{object_id}", member, place, version, each)


@lru_cache(maxsize=1)
def _data_set(place: str, version: str) -> datasets.PointDataset:
    """Opened once for its many members; the version makes a changed file open again."""
    return datasets.load(place)
