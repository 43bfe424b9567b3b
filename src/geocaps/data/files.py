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

from geocaps.data.base import MEMORY_LIMIT, SPLIT_NAMES, PointDataset, checked_dataset, concat, fingerprint_of, spilled
from geocaps.errors import DatasetError
from geocaps.io.tables import Stream, npy_header, why_not_hdf5

if TYPE_CHECKING:
    import h5py

HDF5_SUFFIXES = (".h5", ".hdf5")
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

_POINT_KEYS = ("points", "data")  # "data" is the key of shapenet57448xyzonly.npz (3D Point Capsule Networks)
_OTHER_KEYS = ("scale", "labels", "class_names", "object_ids", "split", "split_names", "part_labels", "keyword_class")
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


def read_npz(path: Path, *, strict: bool = True) -> PointDataset:
    """Open a data set file. Points stored without compression are mapped, not read."""
    with _reading(path, "an .npz data set"), zipfile.ZipFile(path) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        members = {info.filename.removesuffix(".npy"): info for info in arrays}
        point_key = next((key for key in _POINT_KEYS if key in members), None)
        if point_key is None:
            found = ", ".join(list(members)[:10]) or "none"
            raise DatasetError(f"{path}: a data set needs the key 'points' [objects, points, 3]; its keys are: {found}")
        keys = [point_key, *(key for key in _OTHER_KEYS if key in members)]
        columns = {key: _npz_array(path, archive, key, members[key]) for key in keys}
        columns["points"] = columns[point_key]
        if "keyword_class" in columns and "labels" not in columns:  # of the embedded furniture: empty without a class
            keywords = columns["keyword_class"]
            columns["class_names"] = class_names = np.unique(keywords[keywords != ""])
            columns["labels"] = np.where(keywords == "", -1, np.searchsorted(class_names, keywords))
        # From the sizes and checksums that the archive lists, so that nothing large is read.
        listed = (f"{key}:{info.file_size}:{info.CRC:08x}" for key, info in sorted(members.items()))
        return checked_dataset(str(path), path.stem, columns, fingerprint_of(*listed), strict=strict)


def _npz_array(path: Path, archive: zipfile.ZipFile, key: str, info: zipfile.ZipInfo) -> np.ndarray:
    """An array of an ``.npz``: only a plain one, no larger than the file says, never pickled."""
    with archive.open(info) as member:
        shape, fortran, dtype = npy_header(member)
        start, size, wrong = member.tell(), math.prod(shape) * dtype.itemsize, ""
        if dtype.hasobject:
            wrong = "holds Python objects, which are never loaded; store plain arrays"
        elif fortran and len(shape) > 1:
            wrong = "is stored in Fortran order; save numpy.ascontiguousarray of it"
        elif info.file_size != start + size:
            stored = f"{size} bytes but {info.file_size - start} are stored"
            wrong = f"{list(shape)} should take {stored}; the file is damaged, make it again"
        if wrong:
            raise DatasetError(f"{path}: {key} {wrong}")
        if size == 0:
            return np.zeros(shape, dtype)
        if info.compress_type == zipfile.ZIP_STORED:
            return np.memmap(path, dtype, "r", _data_offset(path, info) + start, shape)
        if size <= MEMORY_LIMIT:
            return np.frombuffer(member.read(size), dtype).reshape(shape)
        return spilled(shape, dtype, lambda array: _fill(array, member))


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    with path.open("rb") as file:
        file.seek(info.header_offset)
        signature, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    offset = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    if signature != b"PK\x03\x04" or offset + info.file_size > os.path.getsize(path):
        raise DatasetError(f"{path}: the archive is damaged, make it again")
    return offset


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever is wrong with the file becomes one DatasetError that names it."""
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


def _fill(array: np.memmap, member: Stream) -> None:
    target = array.reshape(-1).view(np.uint8)
    position = 0
    while block := member.read(2**24):
        target[position : position + len(block)] = np.frombuffer(block, np.uint8)
        position += len(block)


# ── HDF5 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_hdf5(path: Path, *, strict: bool = True) -> PointDataset:
    """An HDF5 file, or a folder with list files (``train_files.txt`` ...) or with HDF5 files named after splits.

    Class names come from a ``shape_names.txt`` beside the files, when there is one.
    """
    files = _files_of(path) if path.is_dir() else [(path, _split_of(path.stem))]
    names = _class_names_beside(path if path.is_dir() else path.parent)
    sets = [one for file, split in files for one in _read_file(file, split, names, strict)]
    if not sets:
        raise DatasetError(
            f"{path}: no point clouds found; expected an array [objects, points, 3] named 'data', or one per split"
        )
    return concat(sets, path.stem)


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
    for line in filter(None, map(str.strip, _read_text(listing, "a list of files").split("\n"))):
        path = listing.parent / line.replace("\\", "/").rsplit("/", 1)[-1]
        if not path.is_file():
            raise DatasetError(f"{listing} names {line}, but there is no {path}; download the data set again")
        yield path


def _class_names_beside(folder: Path) -> np.ndarray | None:
    path = next((folder / name for name in _CLASS_FILES if (folder / name).is_file()), None)
    if path is None:
        return None
    lines = _read_text(path, "a list of class names").splitlines()
    return np.array([line.split("\t")[0].strip() for line in lines if line.strip()], dtype=str)


def _read_text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as {what} ({error})") from error


def _read_file(path: Path, split: str | None, class_names: np.ndarray | None, strict: bool) -> list[PointDataset]:
    import h5py  # slow to import

    def holds_points(item: h5py.HLObject) -> bool:
        if not isinstance(item, h5py.Dataset) or item.ndim != 3 or item.shape[2] != 3 or item.dtype.kind not in "fi":
            return False
        return not _NOT_POINTS & set(_words(item.name))

    with _reading(path, "HDF5"), h5py.File(path, "r") as file:
        found: list[h5py.Dataset] = []
        file.visititems(lambda _, item: found.append(item) if holds_points(item) else None)
        ordered = sorted(found, key=lambda one: one.name)
        return [_read_points(path, item, split, class_names, strict) for item in ordered]


def _read_points(
    path: Path, item: h5py.Dataset, split: str | None, class_names: np.ndarray | None, strict: bool
) -> PointDataset:
    count = item.shape[0]
    split = _split_of(item.name) or split
    leaf = item.name.rsplit("/", 1)[-1]
    stored, parts, scale = (_sibling(item, words) for words in (_LABEL_WORDS, _PART_WORDS, ("scale",)))
    group_class = _class_in_path(item.name)
    labels = None if stored is None else stored[...]
    if labels is None and group_class is not None:
        class_names, labels = np.array([group_class], dtype=str), np.zeros(count, dtype=np.int64)
    points = _read_array(path, item)
    prefix = f"{path.stem}{item.name}" if leaf not in _POINT_WORDS else f"{path.stem}{item.name[: -len(leaf) - 1]}"
    columns = {
        "points": points,
        "scale": None if scale is None else scale[...],
        "labels": labels,
        "class_names": None if labels is None else class_names,
        "object_ids": np.array([f"{prefix}/{index:06d}" for index in range(count)], dtype=str),
        "split": None if split is None else np.full(count, SPLIT_NAMES.index(split)),
        "part_labels": None if parts is None else _read_array(path, parts),
    }
    given = {key: column for key, column in columns.items() if column is not None}
    sample = np.linspace(0, max(count - 1, 0), num=min(count, 64)).astype(int)
    fingerprint = fingerprint_of(
        str(item.shape),
        str(item.dtype),
        b"" if labels is None else np.asarray(labels, dtype=np.int64).tobytes(),
        np.ascontiguousarray(points[sample]).tobytes(),
    )
    return checked_dataset(f"{path}:{item.name}", path.stem, given, fingerprint, strict=strict)


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
