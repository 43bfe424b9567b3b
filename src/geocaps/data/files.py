"""Data sets in one file, read without trusting it: ``.npz`` (docs/data.md has its keys) and HDF5.

Layouts of HDF5 in public use: ``data`` + ``label`` (ModelNet40's ``ply_hdf5_2048``, ShapeNet v2); a group or an array
per split (``train/data``, ``train_data``, ``train``); a group per class with an array per split (``02691156/train``).
All are read by one rule: every array ``[objects, points, 3]`` that is not a normal or a colour holds points; words of
its path say its split, a label array beside it or its group says its class.
"""

from __future__ import annotations

import lzma
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geocaps.data.base import (
    MEMORY_LIMIT,
    SPLIT_NAMES,
    ArrayDataset,
    Columns,
    Concatenation,
    PointDataset,
    checked_dataset,
    fingerprint_of,
    spilled,
)
from geocaps.errors import DatasetError
from geocaps.io.tables import Readable, npy_header, why_not_hdf5

if TYPE_CHECKING:
    import h5py

HDF5_SUFFIXES = (".h5", ".hdf5")
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

_POINT_KEYS = ("points", "data")  # "data" is the key of shapenet57448xyzonly.npz (3D Point Capsule Networks)
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, KeyError, TypeError,
    AttributeError, OverflowError, MemoryError,
    NotImplementedError,  # a compression method this Python does not have
    RuntimeError,  # an encrypted member
)  # fmt: skip
_POINT_WORDS = {"data", "points", "point", "pointcloud", "pointclouds", "pc", "pcs", "xyz", "clouds"}
_NOT_POINTS = {"normal", "normals", "color", "colors", "colour", "colours", "rgb"}
_LABEL_WORDS = ("label", "labels")
_PART_WORDS = ("pid", "seg", "part_labels")
_CLASS_FILES = ("shape_names.txt", "all_object_categories.txt")


def read_npz(path: Path, *, strict: bool = True) -> ArrayDataset:
    """Open a data set file. Points stored without compression are mapped, not read."""
    with open_npz(path) as archive:
        point_key = next((key for key in _POINT_KEYS if key in archive), None)
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
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        self._members = {info.filename.removesuffix(".npy"): info for info in arrays}

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
            shape, fortran, dtype = npy_header(member)
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
            signature, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        offset = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if signature != b"PK\x03\x04" or offset + info.file_size > os.path.getsize(self._path):
            raise DatasetError(f"{self._path}: the archive is damaged, make it again")
        return offset


@contextmanager
def open_npz(path: Path) -> Iterator[NpzArchive]:
    """The arrays of a file; whatever is wrong with the file becomes one DatasetError that names it."""
    with _reading(path, "an .npz data set"), zipfile.ZipFile(path) as archive:
        yield NpzArchive(path, archive)


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except DatasetError:
        raise
    except _DAMAGE as error:
        reason = why_not_hdf5(path, error) if kind == "HDF5" else str(error) or type(error).__name__
        raise DatasetError(f"{path}: cannot be read as {kind} ({reason}); make or download it again") from error


def damaged_members(path: Path) -> list[str]:
    """The keys whose bytes do not fit their checksum: reads the whole file (mapped points are not checked on use)."""
    damaged = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            try:
                with archive.open(info) as member:
                    while member.read(2**20):
                        pass
            except _DAMAGE:
                damaged.append(info.filename.removesuffix(".npy"))
    return damaged


def _fill(array: np.memmap, member: Readable) -> None:
    target = array.reshape(-1).view(np.uint8)
    position = 0
    while block := member.read(2**24):
        target[position : position + len(block)] = np.frombuffer(block, np.uint8)
        position += len(block)


# ── HDF5 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_hdf5(path: Path, *, strict: bool = True) -> PointDataset:
    """One HDF5 file; its class names come from a ``shape_names.txt`` beside it, when there is one."""
    names = _class_names_beside(path.parent)
    return _joined(path, _read_file(path, _split_of(path.stem), names, strict))


def read_hdf5_folder(folder: Path, *, strict: bool = True) -> PointDataset:
    """A folder with list files (``train_files.txt``, ``test_files.txt`` ...), or with HDF5 files named after splits."""
    names = _class_names_beside(folder)
    sets: list[PointDataset] = []
    for path, split in _files_of(folder):
        sets.extend(_read_file(path, split, names, strict))
    return _joined(folder, sets)


def is_hdf5_folder(folder: Path) -> bool:
    """Whether the folder itself (not its sub-folders) holds HDF5 files."""
    return any(entry.suffix.lower() in HDF5_SUFFIXES and entry.is_file() for entry in folder.iterdir())


def _split_of(text: str) -> str | None:
    """The split that a name mentions: ``ply_data_train0`` is ``train``."""
    words = re.findall(r"[a-z]+", text.lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), None)


def _files_of(folder: Path) -> list[tuple[Path, str | None]]:
    lists = sorted([*folder.glob("*_files.txt"), *folder.glob("*_file_list.txt")])
    files: list[tuple[Path, str | None]] = []
    for split in (*SPLIT_NAMES, None):
        for listing in lists:
            if _split_of(listing.stem) == split:
                files.extend((path, split) for path in _listed(listing))
    if not lists:
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in HDF5_SUFFIXES)
        files = [(path, _split_of(path.stem)) for path in found]
    # A file that two lists name (train and trainval, say) is read once.
    return list({path: (path, split) for path, split in reversed(files)}.values())[::-1]


def _listed(listing: Path) -> Iterator[Path]:
    """The lists name files with the folder they once lay in; they lie beside the list."""
    try:
        lines = listing.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{listing}: cannot be read as a list of files ({error})") from error
    for line in filter(None, map(str.strip, lines)):
        path = listing.parent / line.replace("\\", "/").rsplit("/", 1)[-1]
        if not path.is_file():
            raise DatasetError(f"{listing} names {line}, but there is no {path}; download the data set again")
        yield path


def _class_names_beside(folder: Path) -> np.ndarray | None:
    for name in _CLASS_FILES:
        path = folder / name
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DatasetError(f"{path}: cannot be read as a list of class names ({error})") from error
            return np.array([line.split("\t")[0].strip() for line in text.splitlines() if line.strip()], dtype=str)
    return None


def _joined(path: Path, sets: list[PointDataset]) -> PointDataset:
    if not sets:
        raise DatasetError(
            f"{path}: no point clouds found; expected an array [objects, points, 3] named 'data', or one per split"
        )
    return Concatenation(sets, path.stem)


def _read_file(path: Path, split: str | None, class_names: np.ndarray | None, strict: bool) -> list[PointDataset]:
    import h5py  # slow to import

    with _reading(path, "HDF5"), h5py.File(path, "r") as file:
        found: list[h5py.Dataset] = []
        file.visititems(lambda _, item: found.append(item) if _holds_points(item) else None)
        return [
            _read_points(path, item, split, class_names, strict) for item in sorted(found, key=lambda one: one.name)
        ]


def _holds_points(item: h5py.HLObject) -> bool:
    import h5py

    return (
        isinstance(item, h5py.Dataset)
        and item.ndim == 3
        and item.shape[2] == 3
        and item.dtype.kind in "fi"
        and not _NOT_POINTS & set(_words(item.name))
    )


def _read_points(
    path: Path, item: h5py.Dataset, split: str | None, class_names: np.ndarray | None, strict: bool
) -> PointDataset:
    count = item.shape[0]
    split = _split_of(item.name) or split
    leaf = item.name.rsplit("/", 1)[-1]
    labels = _sibling(item, _LABEL_WORDS)
    parts = _sibling(item, _PART_WORDS)
    scale = _sibling(item, ("scale",))
    group_class = _class_in_path(item.name)
    labels_array: np.ndarray | None = None if labels is None else labels[...]
    if labels is None and group_class is not None:
        class_names, labels_array = np.array([group_class], dtype=str), np.zeros(count, dtype=np.int64)
    points = _read_array(path, item)
    prefix = f"{path.stem}{item.name}" if leaf not in _POINT_WORDS else f"{path.stem}{item.name[: -len(leaf) - 1]}"
    columns = Columns(
        points=points,
        scale=None if scale is None else scale[...],
        labels=labels_array,
        class_names=class_names if labels_array is not None else None,
        object_ids=np.array([f"{prefix}/{index:06d}" for index in range(count)], dtype=str),
        split=None if split is None else np.full(count, SPLIT_NAMES.index(split)),
        part_labels=None if parts is None else _read_array(path, parts),
    )
    sample = np.linspace(0, max(count - 1, 0), num=min(count, 64)).astype(int)
    fingerprint = fingerprint_of(
        str(item.shape),
        str(item.dtype),
        b"" if labels_array is None else np.asarray(labels_array, dtype=np.int64).tobytes(),
        np.ascontiguousarray(points[sample]).tobytes(),
    )
    return checked_dataset(f"{path}:{item.name}", path.stem, columns, fingerprint, strict=strict)


def _sibling(item: h5py.Dataset, words: tuple[str, ...]) -> h5py.Dataset | None:
    """The array beside the points that has the same name but for the word: ``train_data`` and ``train_label``."""
    import h5py

    leaf = item.name.rsplit("/", 1)[-1]
    stems = [part for part in leaf.split("_") if part.lower() not in _POINT_WORDS]
    for word in words:
        for name in ("_".join([*stems, word]), "_".join([word, *stems])):
            other = item.parent.get(name)
            if isinstance(other, h5py.Dataset):
                return other
    return None


def _class_in_path(name: str) -> str | None:
    parts = [part for part in name.strip("/").split("/") if _split_of(part) is None]
    return "/".join(part for part in parts if not _POINT_WORDS & set(_words(part))) or None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", name.rsplit("/", 1)[-1].lower())


def _read_array(path: Path, item: h5py.Dataset) -> np.ndarray:
    """In memory when small; mapped when large and stored plainly; else unpacked to a temporary file."""
    if item.nbytes <= MEMORY_LIMIT:
        return item[...]
    offset = item.id.get_offset()
    if offset is not None:
        return np.memmap(path, item.dtype, "r", offset, item.shape)

    def fill(array: np.memmap) -> None:
        for start in range(0, len(item), 256):
            array[start : start + 256] = item[start : start + 256]

    return spilled(item.shape, item.dtype, fill)
