"""``load``: from a name or a path to a data set."""

from __future__ import annotations

import os
from pathlib import Path

from geocaps.data.base import PointDataset
from geocaps.data.hdf5 import SUFFIXES as HDF5_SUFFIXES
from geocaps.data.hdf5 import is_hdf5_folder, read_hdf5, read_hdf5_folder
from geocaps.data.npz import read_npz
from geocaps.errors import DatasetError

EMBEDDED = ("shapes", "furniture")


def load(
    source: str | os.PathLike[str],
    *,
    split: str | None = None,
    per_class: int | None = None,
    seed: int | None = None,
) -> PointDataset:
    """Opens a data set.

    ``source`` is ``"shapes"`` (procedural; ``per_class`` of each class, default 50, drawn with ``seed``, default 0),
    ``"furniture"``, or the path of an ``.npz``, of an HDF5 file, of a folder of HDF5 files, or of a folder of meshes
    and clouds with a class per sub-folder. A folder that is itself called shapes is ``./shapes``.
    """
    if source != "shapes" and not (per_class is None and seed is None):
        raise DatasetError(f"per_class and seed are for the procedural set 'shapes', not for {os.fspath(source)!r}")
    if source == "shapes":
        from geocaps.data.embedded import PER_CLASS, ShapesDataset

        dataset: PointDataset = ShapesDataset(PER_CLASS if per_class is None else per_class, seed or 0)
    elif source == "furniture":
        from geocaps.data.embedded import furniture

        dataset = furniture()
    else:
        dataset = open_path(Path(source))
    return dataset if split is None else dataset.split(split)


def open_path(path: Path, *, strict: bool = True) -> PointDataset:
    """The data set at a path; ``strict=False`` tolerates labels of no class, for a survey to report."""
    if path.is_dir():
        if is_hdf5_folder(path):
            return read_hdf5_folder(path, strict=strict)
        from geocaps.data.folder import FolderDataset  # brings the mesh readers, slow to import

        return FolderDataset(path)
    if not path.exists():
        raise DatasetError(
            f"{path}: there is no such file or folder; give a path, or one of the embedded sets {', '.join(EMBEDDED)}"
        )
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return read_npz(path, strict=strict)
    if suffix in HDF5_SUFFIXES:
        return read_hdf5(path, strict=strict)
    raise DatasetError(
        f"{path}: a data set is an .npz, an HDF5 file ({', '.join(HDF5_SUFFIXES)}) or a folder; "
        "put single objects into a folder, one sub-folder for each class"
    )
