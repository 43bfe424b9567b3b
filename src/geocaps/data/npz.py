"""Data sets in one ``.npz`` file (see docs/data.md for its keys), read without trusting it."""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from geocaps.data.arrays import MEMORY_LIMIT, ArrayDataset, Columns, checked_dataset, spilled
from geocaps.data.base import fingerprint_of
from geocaps.errors import DatasetError

POINT_KEYS = ("points", "data")  # "data" is the key of shapenet57448xyzonly.npz (3D Point Capsule Networks)
LOCAL_HEADER = struct.Struct("<4s22xHH")
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,  # a compression method this Python does not have
    RuntimeError,  # an encrypted member
    OverflowError,
    MemoryError,
)


@runtime_checkable
class Readable(Protocol):
    """A member of an archive, open for reading."""

    def read(self, size: int = ..., /) -> bytes: ...


def read_npz(path: Path, *, strict: bool = True) -> ArrayDataset:
    """Opens a data set file. Points stored without compression are mapped, not read."""
    with open_npz(path) as archive:
        point_key = next((key for key in POINT_KEYS if key in archive), None)
        if point_key is None:
            found = ", ".join(archive.keys()[:10]) or "none"
            raise DatasetError(f"{path}: a data set needs the key 'points' [objects, points, 3]; its keys are: {found}")
        columns = Columns(
            points=archive.array(point_key),
            scale=archive.optional("scale"),
            labels=archive.optional("labels"),
            class_names=archive.optional("class_names"),
            object_ids=archive.optional("object_ids"),
            split=archive.optional("split"),
            split_names=archive.optional("split_names"),
            part_labels=archive.optional("part_labels"),
        )
        return checked_dataset(str(path), path.stem, columns, archive.fingerprint(), strict=strict)


class NpzArchive:
    """The arrays of an ``.npz``: only plain ones, no larger than the file says, never pickled."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._members = {
            info.filename[: -len(".npy")]: info for info in archive.infolist() if info.filename.endswith(".npy")
        }

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def keys(self) -> list[str]:
        return list(self._members)

    def fingerprint(self) -> str:
        """From the sizes and checksums that the archive lists, so that nothing large is read."""
        return fingerprint_of(
            *(f"{key}:{info.file_size}:{info.CRC:08x}" for key, info in sorted(self._members.items()))
        )

    def optional(self, key: str) -> np.ndarray | None:
        return self.array(key) if key in self else None

    def array(self, key: str) -> np.ndarray:
        info = self._members[key]
        with self._archive.open(info) as member:
            shape, fortran, dtype = _read_header(member)
            start = member.tell()
            size = math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise DatasetError(
                    f"{self._path}: {key} holds Python objects, which are never loaded; store plain arrays"
                )
            if fortran and len(shape) > 1:
                raise DatasetError(
                    f"{self._path}: {key} is stored in Fortran order; save numpy.ascontiguousarray of it"
                )
            if info.file_size != start + size:
                raise DatasetError(
                    f"{self._path}: {key} {list(shape)} should take {size} bytes but {info.file_size - start} are "
                    "stored; the file is damaged, make it again"
                )
            if size == 0:
                return np.zeros(shape, dtype)
            if info.compress_type == zipfile.ZIP_STORED:
                return np.memmap(self._path, dtype, "r", self._data_offset(info) + start, shape)
            if size <= MEMORY_LIMIT:
                return np.frombuffer(member.read(size), dtype).reshape(shape)
            return spilled(shape, dtype, lambda array: _fill(array, member))

    def _data_offset(self, info: zipfile.ZipInfo) -> int:
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            signature, name_length, extra_length = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        offset = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
        if signature != b"PK\x03\x04" or offset + info.file_size > os.path.getsize(self._path):
            raise DatasetError(f"{self._path}: the archive is damaged, make it again")
        return offset


@contextmanager
def open_npz(path: Path) -> Iterator[NpzArchive]:
    """The arrays of a file; whatever is wrong with the file becomes one DatasetError that names it."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield NpzArchive(path, archive)
    except DatasetError:
        raise
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise DatasetError(
            f"{path}: cannot be read as an .npz data set ({reason}); make or download it again"
        ) from error


def damaged_members(path: Path) -> list[str]:
    """The keys whose bytes do not fit their checksum: reads the whole file (mapped points are not checked on use)."""
    damaged = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            try:
                with archive.open(info) as member:
                    while member.read(2**20):
                        pass
            except DAMAGE:
                damaged.append(info.filename.removesuffix(".npy"))
    return damaged


def _read_header(member: Readable) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(member)
    raise ValueError(f"array format {version} is not supported")


def _fill(array: np.memmap, member: Readable) -> None:
    target = array.reshape(-1).view(np.uint8)
    position = 0
    while block := member.read(2**24):
        target[position : position + len(block)] = np.frombuffer(block, np.uint8)
        position += len(block)
