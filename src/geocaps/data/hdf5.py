"""Data sets in HDF5: the ModelNet40 ``ply_hdf5_2048`` layout and the layouts of ShapeNet Core55 in public use.

Known layouts of one file: ``data`` + ``label`` (ModelNet40, ShapeNet v2); a group or an array per split
(``train/data``, ``train_data``, ``train``); a group per class with an array per split (``02691156/train``). All are
read by one rule: every array ``[objects, points, 3]`` that is not a normal or a colour holds points; words of its path
say its split, a label array beside it or its group says its class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geocaps.data.arrays import MEMORY_LIMIT, Columns, checked_dataset, spilled
from geocaps.data.base import SPLIT_NAMES, Concatenation, PointDataset, fingerprint_of
from geocaps.errors import DatasetError
from geocaps.io.tables import why_not_hdf5

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".h5", ".hdf5")
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
POINT_WORDS = {"data", "points", "point", "pointcloud", "pointclouds", "pc", "pcs", "xyz", "clouds"}
NOT_POINTS = {"normal", "normals", "color", "colors", "colour", "colours", "rgb"}
LABEL_WORDS = ("label", "labels")
PART_WORDS = ("pid", "seg", "part_labels")
CLASS_FILES = ("shape_names.txt", "all_object_categories.txt")


def read_hdf5(path: Path, *, strict: bool = True) -> PointDataset:
    """One HDF5 file; its class names come from a ``shape_names.txt`` beside it, when there is one."""
    names = _class_names_beside(path.parent)
    return _joined(path, _read_file(path, split_of(path.stem), names, strict))


def read_hdf5_folder(folder: Path, *, strict: bool = True) -> PointDataset:
    """A folder with list files (``train_files.txt``, ``test_files.txt`` ...), or with HDF5 files named after splits."""
    names = _class_names_beside(folder)
    sets: list[PointDataset] = []
    for path, split in _files_of(folder):
        sets.extend(_read_file(path, split, names, strict))
    return _joined(folder, sets)


def is_hdf5_folder(folder: Path) -> bool:
    """Whether the folder itself (not its sub-folders) holds HDF5 files."""
    return any(entry.suffix.lower() in SUFFIXES and entry.is_file() for entry in folder.iterdir())


def split_of(text: str) -> str | None:
    """The split that a name speaks of: ``ply_data_train0`` is ``train``."""
    words = re.findall(r"[a-z]+", text.lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), None)


def _files_of(folder: Path) -> list[tuple[Path, str | None]]:
    lists = sorted([*folder.glob("*_files.txt"), *folder.glob("*_file_list.txt")])
    files: list[tuple[Path, str | None]] = []
    for split in (*SPLIT_NAMES, None):
        for listing in lists:
            if split_of(listing.stem) == split:
                files.extend((path, split) for path in _listed(listing))
    if not lists:
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        files = [(path, split_of(path.stem)) for path in found]
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
    for name in CLASS_FILES:
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

    with _reading(path), h5py.File(path, "r") as file:
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
        and not NOT_POINTS & set(_words(item.name))
    )


def _read_points(
    path: Path, item: h5py.Dataset, split: str | None, class_names: np.ndarray | None, strict: bool
) -> PointDataset:
    count = item.shape[0]
    split = split_of(item.name) or split
    leaf = item.name.rsplit("/", 1)[-1]
    labels = _sibling(item, LABEL_WORDS)
    parts = _sibling(item, PART_WORDS)
    scale = _sibling(item, ("scale",))
    group_class = _class_in_path(item.name)
    labels_array: np.ndarray | None = None if labels is None else labels[...]
    if labels is None and group_class is not None:
        class_names, labels_array = np.array([group_class], dtype=str), np.zeros(count, dtype=np.int64)
    points = _read_array(path, item)
    prefix = f"{path.stem}{item.name}" if leaf not in POINT_WORDS else f"{path.stem}{item.name[: -len(leaf) - 1]}"
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
    stems = [part for part in leaf.split("_") if part.lower() not in POINT_WORDS]
    for word in words:
        for name in ("_".join([*stems, word]), "_".join([word, *stems])):
            other = item.parent.get(name)
            if isinstance(other, h5py.Dataset):
                return other
    return None


def _class_in_path(name: str) -> str | None:
    parts = [part for part in name.strip("/").split("/") if split_of(part) is None]
    return "/".join(part for part in parts if not POINT_WORDS & set(_words(part))) or None


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


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DatasetError:
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, MemoryError, AttributeError) as error:
        raise DatasetError(
            f"{path}: cannot be read as HDF5 ({why_not_hdf5(path, error)}); make or download it again"
        ) from error
