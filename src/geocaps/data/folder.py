"""Folders of meshes or clouds as data sets, with a subfolder per class, and packing them into one ``.npz``.

Packing can be resumed: the points of all finished files are kept in ``<output>.partial``, beside the output, and a new
run samples only the other files, and those that have changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Float32, Int16

from geocaps.atomic import WorkFolder, written_whole
from geocaps.data.base import MEMORY_LIMIT, NO_SPLIT, SPLIT_NAMES, UNLABELLED, PointDataset, fingerprint_of, hashed
from geocaps.data.files import SPLIT_WORDS
from geocaps.errors import DatasetError, DroppedPointsWarning, NotFiniteError, Skipped, UsageError
from geocaps.io import is_supported, load_points
from geocaps.io.limits import MAX_POINTS
from geocaps.io.save import check_target, write_member
from geocaps.workers import ENDED, Workers, reason_of

FORMAT = 3  # of unfinished work; raised when the same call would give other points
INT16_STEPS = 32767
SCALE = np.float32(1 / INT16_STEPS)


@dataclass(frozen=True)
class Item:
    """One object file. Its id is its path below the folder; folder names give its class and its split."""

    path: Path
    object_id: str
    class_name: str | None
    split: str | None
    size: int

    @property
    def seed(self) -> int:
        """The seed of its sampling, which depends on the id alone."""
        return int.from_bytes(hashlib.blake2b(self.object_id.encode(), digest_size=4).digest(), "little")


def list_items(folder: Path) -> list[Item]:
    """All readable files below the folder, by path, except hidden ones; links to folders are not followed.

    ``chair/a.off`` has the class chair; a folder named train, val or test in the path (``chair/train/a.off`` or
    ``train/chair/a.off``) is the split. A file directly in the folder has no class.
    """

    def refuse(error: OSError) -> None:
        raise DatasetError(f"{error.filename}: cannot be listed ({error.strerror})") from error

    found = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if name.startswith(".") or not is_supported(path) or not path.is_file():
                continue
            relative = PurePosixPath(path.relative_to(folder).as_posix())
            parents = relative.parts[:-1]
            class_name = next((part for part in parents if part.lower() not in SPLIT_WORDS), None)
            split = next((SPLIT_WORDS[part.lower()] for part in parents if part.lower() in SPLIT_WORDS), None)
            found.append(Item(path, str(relative), class_name, split, path.stat().st_size))
    return sorted(found, key=lambda item: item.object_id)


def _some_items(folder: Path) -> list[Item]:
    items = list_items(folder)
    if not items:
        raise DatasetError(f"{folder}: no meshes or point clouds found; expected files, in a subfolder for each class")
    return items


def _columns(items: list[Item]) -> dict[str, Any]:
    """Class names in alphabetical order, and the class, the id and the split of each file; -1 means none."""
    class_names = sorted({item.class_name for item in items if item.class_name is not None})
    numbers = {None: UNLABELLED} | {name: number for number, name in enumerate(class_names)}
    splits = [NO_SPLIT if item.split is None else SPLIT_NAMES.index(item.split) for item in items]
    return {
        "labels": np.array([numbers[item.class_name] for item in items], dtype=np.int64),
        "class_names": class_names,
        "object_ids": [item.object_id for item in items],
        "split_codes": np.array(splits, dtype=np.int64),
    }


class FolderDataset(PointDataset):
    """Objects in files, each read once (for a mesh, 4,096 points are sampled) and then cached, up to 1 GiB in all.

    Reading meshes is slow; ``geocaps data pack`` turns the folder into one file.
    """

    def __init__(self, folder: Path) -> None:
        items = _some_items(folder)
        fingerprint = fingerprint_of(*(f"{item.object_id}:{item.size}" for item in items))
        super().__init__(name=folder.resolve().name, fingerprint=fingerprint, **_columns(items))
        self._items = items
        self._kept: OrderedDict[str, Float32[np.ndarray, "n 3"]] = OrderedDict()
        self._kept_bytes = 0

    def points(self, index: int) -> Float32[np.ndarray, "n 3"]:
        item = self._items[index]
        if item.object_id not in self._kept:
            self._kept[item.object_id] = points = _read(item)
            self._kept_bytes += points.nbytes
            while self._kept_bytes > MEMORY_LIMIT and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= oldest.nbytes
        self._kept.move_to_end(item.object_id)
        return self._kept[item.object_id].copy()

    def digest(self, index: int) -> bytes:
        return bytes.fromhex(hashed(self._items[index].path, hashlib.blake2b(digest_size=16)))


def _read(item: Item) -> Float32[np.ndarray, "n 3"]:
    try:
        points = load_points(item.path, seed=item.seed).points
    except NotFiniteError as error:
        raise DatasetError(
            f"{error.what}: make a data set without them with  geocaps data pack FOLDER --out NAME.npz --drop-invalid"
        ) from error
    if points.dtype != np.float32:  # so far from the origin that float32 would lose the shape: centre it
        points = (points - points.mean(0)).astype(np.float32)
        if not np.isfinite(points).all():
            raise DatasetError(f"{item.path}: its coordinates are too large for float32; scale them down")
    return points


# ── packing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PackReport:
    """Result of ``pack``; ``resumed`` files were already done by an earlier run."""

    output: Path
    objects: int
    points: int
    resumed: int
    skipped: list[Skipped]
    dropped: int
    """Number of points (of meshes: vertices) left out because they were NaN or infinite."""


Sampled = tuple[Int16[np.ndarray, "n 3"], int]  # the points of a file, and the number of points left out


def pack(
    folder: Path,
    output: Path,
    *,
    points: int = 2048,
    seed: int = 0,
    workers: int | None = None,
    drop_invalid: bool = False,
    overwrite: bool = False,
    on_file: Callable[[int, int], None] | None = None,
) -> PackReport:
    """Samples all files below ``folder`` into the data set ``output``; see docs/data.md for its keys.

    Each object is centred, scaled to the unit sphere and stored as int16. ``on_file(done, of)`` is called with the
    progress. Files that cannot be read are skipped and reported, and so are those with NaN or infinite points, unless
    ``drop_invalid`` leaves these out. If no file can be packed, nothing is written.
    """
    _check_call(folder, output, points, seed, workers, overwrite)
    items = _some_items(folder)
    settings = [FORMAT, points, seed, str(folder.resolve()), drop_invalid]
    with _working(output, settings, restart=overwrite) as work:
        made_from = {item.object_id: [item.object_id, item.size, item.path.stat().st_mtime_ns] for item in items}
        todo = [item for item in items if not work.has(made_from[item.object_id])]
        resumed = len(items) - len(todo)
        processes: Workers[Item, Sampled | str] = Workers(_work, (points, seed, drop_invalid), on_death=lambda _: ENDED)
        for done, (item, outcome) in enumerate(processes.run(todo, workers), start=1):
            arrays = {"reason": outcome} if isinstance(outcome, str) else {"points": outcome[0], "dropped": outcome[1]}
            work.add(made_from[item.object_id], arrays)
            if on_file is not None:
                on_file(resumed + done, len(items))
        kept, skipped, dropped = [], [], []
        for item, piece in zip(items, work.pieces(made_from.values()), strict=True):
            if "reason" in piece:
                skipped.append(Skipped(item.object_id, str(piece["reason"]), str(item.path)))
            else:
                kept.append(item)
                dropped.append(int(piece["dropped"]))
        if not kept:
            work.remove()
            raise DatasetError(
                f"{folder}: none of its {len(items)} files could be packed, so nothing is written; "
                f"the first: {skipped[0].name}: {skipped[0].reason}"
            )
        with work.joined(output) as place:
            pieces = work.pieces(made_from[item.object_id] for item in kept)
            _write(place, kept, (piece["points"] for piece in pieces), points)
    if any(dropped):
        said = f"{sum(dropped):,} points of {sum(map(bool, dropped)):,} files are NaN or infinite; they are left out"
        warnings.warn(DroppedPointsWarning(said), stacklevel=2)
    return PackReport(output, len(kept), points, resumed, skipped, sum(dropped))


def sample_unit(path: Path, points: int, seed: int, *, drop_invalid: bool = False) -> Sampled:
    """Points of one file, centred and scaled to the unit sphere, in steps of ``SCALE``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedPointsWarning)  # the report sums them up
        loaded = load_points(path, points, seed=seed, drop_invalid=drop_invalid)
    cloud = np.asarray(loaded.points, dtype=np.float64)
    if len(cloud) < points:
        raise DatasetError(f"it has {len(cloud)} points, fewer than the {points} requested; give a smaller --points")
    centred = cloud - cloud.mean(0)
    radius = float(np.linalg.norm(centred, axis=1).max())
    if radius <= 1e-9 * max(1.0, float(np.abs(cloud).max())):
        raise DatasetError("all its points are in one place")
    return np.round(centred * (INT16_STEPS / radius)).astype(np.int16), loaded.dropped


def _check_call(folder: Path, output: Path, points: int, seed: int, workers: int | None, overwrite: bool) -> None:
    if not folder.is_dir():
        what = "is a file, but a folder was expected" if folder.exists() else "does not exist"
        raise DatasetError(f"{folder} {what}: name the folder of the files to pack")
    check_target(output, (".npz",), replaces=overwrite)
    for name, value, least in (("points", points, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}")
    if points > MAX_POINTS:
        raise UsageError(f"points must be at most {MAX_POINTS:,}, not {points:,}")


@contextmanager
def _working(output: Path, settings: list[Any], *, restart: bool) -> Iterator[WorkFolder]:
    """The folder of finished pieces; one with work of another call is refused or, to ``restart``, emptied."""
    partial = output.with_name(output.name + ".partial")
    note, text = partial / "settings.json", json.dumps(settings)
    try:
        if note.is_file() and note.read_text(encoding="utf-8") != text:
            if not restart:
                raise UsageError(
                    f"{partial} has unfinished work of another call (other points, seed or folder); "
                    "finish that call, delete the folder, or give --overwrite"
                )
            shutil.rmtree(partial)
        work = WorkFolder(partial, settings)
        with written_whole(note) as beside:
            beside.write_text(text, encoding="utf-8")
        yield work
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise DatasetError(
            f"cannot write {output} or {partial}: {reason}; what was there before is untouched"
        ) from error


def _work(item: Item, points: int, seed: int, drop_invalid: bool) -> Sampled | str:
    try:
        return sample_unit(item.path, points, (seed + item.seed) % 2**32, drop_invalid=drop_invalid)
    except Exception as error:  # one bad file among thousands must not end the run: it is listed with its reason
        return reason_of(error)


def _write(place: Path, items: list[Item], rows: Iterator[Int16[np.ndarray, "n 3"]], points: int) -> None:
    columns = _columns(items)
    columns["class_names"] = np.array(columns["class_names"], dtype=str)
    split_codes = columns.pop("split_codes")
    if (split_codes >= 0).any():
        columns |= {"split": split_codes.astype(np.int8), "split_names": SPLIT_NAMES}
    # Not compressed, so that points can be memory-mapped (and random int16 hardly compress).
    with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED) as archive:
        write_member(archive, "points", np.dtype("<i2"), (len(items), points, 3), rows)
        for key, column in {"scale": SCALE, **columns}.items():
            array = np.asarray(column)
            write_member(archive, key, array.dtype, array.shape, [array])
