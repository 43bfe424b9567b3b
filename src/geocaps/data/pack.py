"""Packing: a folder of meshes and clouds sampled into one ``.npz``, in parallel, and resumable after any kill.

Work in progress lies beside the output in ``<output>.partial``: the sampled rows in one file and a journal with one
line for each finished file. A row is written before its line, so whatever the journal names is there; on a new run only
files that it does not name, or that have changed since, are sampled.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from jaxtyping import Int16

from geocaps.atomic import written_whole
from geocaps.data.base import SPLIT_NAMES
from geocaps.data.folder import Item, class_names_of, labels_of, list_items, split_codes_of
from geocaps.errors import DatasetError, DroppedPointsWarning, GeocapsError, UsageError
from geocaps.io import load_points
from geocaps.io.limits import MAX_POINTS
from geocaps.io.save import check_target
from geocaps.workers import Workers

FORMAT = 2
INT16_STEPS = 32767
SCALE = np.float32(1 / INT16_STEPS)
_ENDED = "reading it ended the process (out of memory, or a fault in the reader)"


@dataclass(frozen=True)
class Skipped:
    """A file that could not be packed, and why."""

    object_id: str
    reason: str


@dataclass(frozen=True)
class PackReport:
    """What ``pack`` did: ``resumed`` files were found finished by an earlier run."""

    output: Path
    objects: int
    points: int
    resumed: int
    skipped: list[Skipped]
    dropped: int
    """Points (of meshes: vertices) that were NaN or infinite, and were left out."""


@dataclass(frozen=True)
class Entry:
    """A line of the journal: a finished file, and its row or the reason why it has none."""

    object_id: str
    size: int
    modified: int
    row: int | None
    checksum: int
    reason: str
    dropped: int


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
    """Sample every file below ``folder`` into the data set ``output``; see docs/data.md for its keys.

    Each object is centred and scaled to the unit sphere and stored as int16. ``on_file(done, of)`` is told of
    progress. Files that cannot be read are skipped and reported, and so are those with points that are NaN or infinite
    unless ``drop_invalid`` leaves these out. Without a single good file nothing is written.
    """
    _check_call(folder, output, points, seed, workers, overwrite)
    items = list_items(folder)
    if not items:
        raise DatasetError(
            f"{folder}: no meshes or point clouds found; expected files, in one sub-folder for each class"
        )
    settings: dict[str, Any] = {"format": FORMAT, "points": points, "seed": seed, "folder": str(folder.resolve())}
    settings["drop_invalid"] = drop_invalid
    partial = output.with_name(output.name + ".partial")
    with _writing(output, partial), Journal(partial, settings, restart=overwrite) as journal:
        todo = [item for item in items if not journal.has(item)]
        resumed = len(items) - len(todo)
        processes: Workers[Item, Sampled | str] = Workers(
            _work, (points, seed, drop_invalid), on_death=lambda _: _ENDED
        )
        for done, (item, outcome) in enumerate(processes.run(todo, workers), start=1):
            journal.add(item, outcome)
            if on_file is not None:
                on_file(resumed + done, len(items))
        entries = [journal.entries[item.object_id] for item in items]
        skipped = [Skipped(entry.object_id, entry.reason) for entry in entries if entry.row is None]
        kept = [(item, entry) for item, entry in zip(items, entries, strict=True) if entry.row is not None]
        if not kept:
            journal.remove()
            raise DatasetError(
                f"{folder}: none of its {len(items)} files could be packed, so nothing is written; "
                f"the first: {skipped[0].object_id}: {skipped[0].reason}"
            )
        _write(output, [item for item, _ in kept], journal.rows([entry for _, entry in kept]), points)
    journal.remove()
    counts = [entry.dropped for _, entry in kept if entry.dropped]
    if counts:
        said = f"{sum(counts):,} points of {len(counts):,} files are NaN or infinite; they are left out"
        warnings.warn(DroppedPointsWarning(said), stacklevel=2)
    return PackReport(output, len(kept), points, resumed, skipped, sum(counts))


Sampled = tuple[Int16[np.ndarray, "n 3"], int]
"""The points of a file, and how many of its points were left out."""


def sample_unit(path: Path, points: int, seed: int, *, drop_invalid: bool = False) -> Sampled:
    """Points of one file, centred, scaled to the unit sphere, in steps of ``SCALE``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedPointsWarning)  # the report has them all together
        loaded = load_points(path, points, seed=seed, drop_invalid=drop_invalid)
    cloud = np.asarray(loaded.points, dtype=np.float64)
    if len(cloud) < points:
        raise DatasetError(f"it has {len(cloud)} points, fewer than the {points} asked for; give a smaller --points")
    centred = cloud - cloud.mean(0)
    radius = float(np.linalg.norm(centred, axis=1).max())
    if radius <= 1e-9 * max(1.0, float(np.abs(cloud).max())):
        raise DatasetError("all its points are at one place")
    return np.round(centred * (INT16_STEPS / radius)).astype(np.int16), loaded.dropped


class Journal:
    """The finished part of a packing, on disk (see the module's docstring)."""

    def __init__(self, folder: Path, settings: dict[str, Any], *, restart: bool) -> None:
        self._folder = folder
        self._row_bytes = settings["points"] * 3 * 2
        self.entries: dict[str, Entry] = {}
        if folder.exists() and not self._read(settings):
            if not restart:
                raise UsageError(
                    f"{folder} holds unfinished work of another call (other points, seed or folder); "
                    "finish that call, delete the folder, or give --overwrite"
                )
            shutil.rmtree(folder)
            self.entries = {}
        folder.mkdir(exist_ok=True)
        self._rows = (folder / "rows.bin").open("ab")
        self._next_row = 1 + max((entry.row for entry in self.entries.values() if entry.row is not None), default=-1)
        os.truncate(folder / "rows.bin", self._next_row * self._row_bytes)
        self._lines = self._rewritten(settings)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rows.close()
        self._lines.close()

    def has(self, item: Item) -> bool:
        entry = self.entries.get(item.object_id)
        return entry is not None and (entry.size, entry.modified) == (item.size, _modified(item))

    def add(self, item: Item, outcome: Sampled | str) -> None:
        row, checksum, reason, dropped = None, 0, "", 0
        if isinstance(outcome, str):
            reason = outcome
        else:
            data, dropped = outcome[0].tobytes(), outcome[1]
            self._rows.write(data)
            self._rows.flush()
            row, checksum = self._next_row, zlib.crc32(data)
            self._next_row += 1
        entry = Entry(item.object_id, item.size, _modified(item), row, checksum, reason, dropped)
        self.entries[item.object_id] = entry
        self._lines.write(json.dumps(vars(entry)) + "\n")
        self._lines.flush()

    def rows(self, entries: list[Entry]) -> Iterator[bytes]:
        """The sampled points of these entries, in their order."""
        with (self._folder / "rows.bin").open("rb") as file:
            for entry in entries:
                data = self._row(file, entry)
                if zlib.crc32(data) != entry.checksum:
                    raise DatasetError(f"{self._folder} was changed by something else; delete it and pack again")
                yield data

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    def _row(self, file: IO[bytes], entry: Entry) -> bytes:
        file.seek((entry.row or 0) * self._row_bytes)
        return file.read(self._row_bytes)

    def _read(self, settings: dict[str, Any]) -> bool:
        """Take over the sound lines of an earlier run; False when that run had other settings."""
        journal, rows = self._folder / "journal.jsonl", self._folder / "rows.bin"
        if not (journal.is_file() and rows.is_file()):
            return True  # killed before the first file was done
        lines = journal.read_text(encoding="utf-8").split("\n")[:-1]  # a last line without its end was cut off
        with rows.open("rb") as file:
            try:
                if json.loads(lines[0]) != settings:
                    return False
                for line in lines[1:]:
                    entry = Entry(**json.loads(line))
                    if entry.row is None or zlib.crc32(self._row(file, entry)) == entry.checksum:
                        self.entries[entry.object_id] = entry
            except (ValueError, TypeError, IndexError) as error:
                raise DatasetError(f"{journal} is damaged ({error}); delete {self._folder} and pack again") from error
        return True

    def _rewritten(self, settings: dict[str, Any]) -> IO[str]:
        path = self._folder / "journal.jsonl"
        lines = [json.dumps(settings), *(json.dumps(vars(entry)) for entry in self.entries.values())]
        with written_whole(path) as beside:
            beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path.open("a", encoding="utf-8")


def _check_call(folder: Path, output: Path, points: int, seed: int, workers: int | None, overwrite: bool) -> None:
    if not folder.is_dir():
        what = "is a file, and a folder was expected" if folder.exists() else "does not exist"
        raise DatasetError(f"{folder} {what}: name the folder of the files to pack")
    check_target(output, (".npz",))
    if output.exists() and not overwrite:
        raise UsageError(f"{output} exists already; choose another name or give --overwrite")
    for name, value, least in (("points", points, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}")
    if points > MAX_POINTS:
        raise UsageError(f"points must be at most {MAX_POINTS:,}, not {points:,}")


@contextmanager
def _writing(output: Path, partial: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DatasetError(
            f"cannot write {output} or {partial}: {error.strerror or error}; what was there before is untouched"
        ) from error


def _modified(item: Item) -> int:
    return item.path.stat().st_mtime_ns


def _work(item: Item, points: int, seed: int, drop_invalid: bool) -> Sampled | str:
    try:
        return sample_unit(item.path, points, (seed + item.seed) % 2**32, drop_invalid=drop_invalid)
    except (GeocapsError, OSError) as error:
        return str(error)
    except Exception as error:  # one bad file among thousands must not end the run: it is listed with its reason
        return f"{type(error).__name__}: {error}"


def _write(output: Path, items: list[Item], rows: Iterator[bytes], points: int) -> None:
    class_names = class_names_of(items)
    split_codes = split_codes_of(items)
    columns: dict[str, np.ndarray] = {
        "scale": SCALE,
        "labels": labels_of(items, class_names),
        "class_names": np.array(class_names, dtype=str),
        "object_ids": np.array([item.object_id for item in items], dtype=str),
    }
    if (split_codes >= 0).any():
        columns |= {"split": split_codes.astype(np.int8), "split_names": np.array(SPLIT_NAMES)}
    # ZipInfo carries no date, so the same folder gives the same bytes. Stored, not deflated:
    # then the points can be mapped (and random int16 hardly shrink).
    with written_whole(output) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(zipfile.ZipInfo("points.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<i2", "fortran_order": False, "shape": (len(items), points, 3)}
            )
            for row in rows:
                member.write(row)
        for key, column in columns.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w") as member:
                np.lib.format.write_array(member, np.asarray(column), allow_pickle=False)
