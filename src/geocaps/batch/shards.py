"""Objects to encode, the shards in which they are encoded, and the engines that do it.

A shard is the unit of work, of memory, and of the loss in a crash. A row depends on its file and the weights alone:
each object is encoded separately, on one thread, so that other objects, the engine or resuming change no bit of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geocaps import data as datasets
from geocaps.apps.clouds import Source
from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import ENCODED, encoded_columns
from geocaps.data.base import hashed
from geocaps.data.folder import list_items
from geocaps.errors import (
    CheckpointError,
    DatasetError,
    DroppedPointsWarning,
    EncodingError,
    InvalidInputError,
    MissingExtraError,
    Skipped,
)
from geocaps.model.checkpoint import Weights, find_weights
from geocaps.workers import ENDED, Workers, reason_of

Row = dict[str, Any]
"""Column → text, or an array with the same type and shape in every row (except for the length of ``labels``)."""

TEXT = ("name", "path", "content_sha256")
RAGGED = "labels"
COLUMNS = ("name", "path", "member", "points", "dropped", *ENCODED, "content_sha256")
_MOST_BYTES = 64 << 20
"""A shard is complete when its files have this many bytes, which limits the memory of a worker."""
_DATA_SET_SUFFIXES = (".npz", ".h5", ".hdf5")
_ALONE = -1  # the member number of a file that is one object
_RETRIES = 5  # a shard whose worker dies is given to another one; after this many, the shard is at fault


@dataclass(frozen=True)
class Item:
    """One object: a file, or a member of a data set."""

    path: str  # as the user named it
    name: str  # path below the folder that the user named; `set.npz#id` for a member of a data set
    member: int
    place: str  # what opens it from any working directory: an absolute path, or the name of an embedded data set
    version: str  # changes with the content: size and time of a file
    size: int  # approximate size of its results, in bytes
    not_a_set: str = ""  # why a file that might be a data set is treated as a single cloud
    drop_invalid: bool = False  # whether NaN and infinite points are left out rather than refused

    def read(self) -> tuple[Source, str]:
        """The input of ``Model.encode``, and the SHA-256 of the content."""
        if self.member == _ALONE:
            return self.place, file_sha256(Path(self.place), self.path)
        points = _data_set(self.place, self.version).points(self.member)
        return points, hashlib.sha256(points.tobytes()).hexdigest()


def find_items(sources: Iterable[str | os.PathLike[str]], leave_out: Sequence[Path] = ()) -> list[Item]:
    """All objects of the sources, each once, in a fixed order.

    A folder stands for all readable files below it, in the order of their paths, except hidden ones and those in
    ``leave_out`` (the output may be in the folder). A source that does not exist is an item too: it fails when it is
    read, and is reported with the others.
    """
    hidden = {os.path.abspath(path) for path in leave_out}
    found: dict[tuple[str, int], Item] = {}
    for source in sources:
        for item in _of_source(os.fspath(source)):
            if not any(item.place == place or item.place.startswith(place + os.sep) for place in hidden):
                found.setdefault((item.place, item.member), item)
    return list(found.values())


def file_sha256(path: Path, name: str = "") -> str:
    """The SHA-256 of a file; ``name`` is its name in messages."""
    # Opening a pipe or a device would block forever.
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{name or path} is not a regular file: copy its content to one first")
    try:
        return hashed(path, hashlib.sha256())
    except OSError as error:
        raise InvalidInputError(f"cannot read {name or path}: {error.strerror or error}") from error


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
            # A file that cannot be opened at all is reported once, when it is read.
            not_a_set = str(error) if error.__cause__ is None else ""
    yield Item(path, name, _ALONE, place, version, stat.st_size, not_a_set)


def _members(whole: datasets.PointDataset, path: str, name: str, place: str, version: str, size: int) -> Iterator[Item]:
    each = size // max(1, len(whole))
    for member, object_id in enumerate(whole.object_ids):
        yield Item(path, f"{name}#{object_id}", member, place, version, each)


@lru_cache(maxsize=1)
def _data_set(place: str, version: str) -> datasets.PointDataset:
    """A data set, opened once for its many members, and again if its version changes."""
    return datasets.load(place)


# ── shards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Shard:
    """The rows of some objects, and those that failed."""

    rows: tuple[Row, ...]
    failed: tuple[Skipped, ...]

    def __add__(self, other: Shard) -> Shard:
        return Shard(self.rows + other.rows, self.failed + other.failed)

    def arrays(self) -> dict[str, np.ndarray]:
        """The shard as stored: every column stacked, the labels concatenated."""
        found = {
            "failed": np.array(json.dumps([asdict(one) for one in self.failed])),
            "count": np.array(len(self.rows)),
        }
        if self.rows:
            found |= {name: np.stack([row[name] for row in self.rows]) for name in COLUMNS if name != RAGGED}
            found[RAGGED] = np.concatenate([row[RAGGED] for row in self.rows])
        return found


class StoredShard:
    """A finished shard on disk; columns are read on access."""

    def __init__(self, archive: np.lib.npyio.NpzFile) -> None:
        self._archive = archive
        self.count = int(archive["count"])

    @property
    def failed(self) -> list[Skipped]:
        return [Skipped(**one) for one in json.loads(str(self._archive["failed"]))]

    def column(self, name: str) -> np.ndarray:
        """``[count, ...]``; all labels, concatenated. Only if there are rows."""
        return self._archive[name]

    def rows(self) -> Iterator[Row]:
        if self.count == 0:
            return
        columns = {name: self.column(name) for name in COLUMNS if name != RAGGED}
        pieces = np.split(self.column(RAGGED), np.cumsum(columns["points"])[:-1])
        for index, labels in enumerate(pieces):
            yield {name: column[index] for name, column in columns.items()} | {RAGGED: labels}


def cut(items: Sequence[Item], most: int) -> list[tuple[Item, ...]]:
    """Items in shards of at most ``most``."""
    shards: list[list[Item]] = []
    size = 0
    for item in items:
        if not shards or len(shards[-1]) == most or size + item.size > _MOST_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item.size
    return [tuple(shard) for shard in shards]


def encode_items(items: Sequence[Item], weights: Weights) -> Shard:
    """Encodes the items one by one; an item that fails is listed with the reason."""
    model = _model(weights)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows, failed = [], []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedPointsWarning)  # the column has the number
            for item in items:
                try:
                    rows.append(_row(model, item))
                except Exception as error:  # one bad file among thousands must not end the run
                    failed.append(skipped(item, reason_of(error)))
    finally:
        torch.set_num_threads(threads)
    return Shard(tuple(rows), tuple(failed))


def skipped(item: Item, reason: str) -> Skipped:
    """An item without a row, with the reason."""
    note = f" (nor is it a data set: {item.not_a_set})" if item.not_a_set else ""
    return Skipped(_text(item.name), _text(reason + note), _text(item.path))


@lru_cache(maxsize=1)
def _model(weights: Weights) -> Model:
    """The model, on any machine; raises if the folder there has other weights."""
    here = find_weights(weights.folder).sha256
    if here != weights.sha256:
        raise CheckpointError(
            f"{weights.folder or 'the shipped weights'} changed or differ on this machine: SHA-256 {here[:12]} instead "
            f"of {weights.sha256[:12]}; every machine needs the same weights"
        )
    return load(weights.folder)


def _row(model: Model, item: Item) -> Row:
    source, content = item.read()
    encoding = model.encode(source, drop_invalid=item.drop_invalid)
    found = encoded_columns(encoding)
    labels = found["labels"]
    return {
        "name": np.str_(_text(item.name)),
        "path": np.str_(_text(item.path)),
        "member": np.int64(item.member),
        "points": np.int64(len(labels)),
        "dropped": np.int64(encoding.cloud.dropped),
        **found,
        "labels": labels.astype(np.min_scalar_type(-model.config.parts.parts)),
        "content_sha256": np.str_(content),
    }


def _text(value: str) -> str:
    """A file name as text: bytes that are not UTF-8 are escaped, since tables cannot hold them."""
    return value.encode("utf-8", "backslashreplace").decode()


# ── engines ───────────────────────────────────────────────────────────────────────────────────────────────────────────

Items = tuple[Item, ...]


def run_local(shards: Sequence[Items], weights: Weights, workers: int | None) -> Iterator[tuple[Items, Shard]]:
    """Every shard with its rows, in order of completion.

    A file that crashes its process (out of memory, a bug in a library) fails alone, without the run.
    """
    if len(shards) == 1:
        yield shards[0], encode_items(shards[0], weights)
        return

    def halved(items: Items) -> Shard:
        """A shard that crashes its process, in two halves, until the file that does it is found."""
        if len(items) == 1:
            return Shard((), (skipped(items[0], ENDED),))
        half = len(items) // 2
        return processes.alone(items[:half]) + processes.alone(items[half:])

    processes = Workers(encode_items, (weights,), on_death=halved)
    yield from processes.run(shards, workers)


def run_ray(shards: Sequence[Items], weights: Weights, workers: int | None) -> Iterator[tuple[Items, Shard]]:
    """Every shard with its rows, in order of completion.

    The files must have the same paths on every machine, and the weights must be the same (they are compared by
    checksum). Only this process writes, so the output needs no shared disk.

    It runs on the Ray that is already connected, or on the cluster at ``RAY_ADDRESS``, or else on a Ray started here
    for this run with ``workers`` processes.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("the engine 'ray'", "ray") from error

    # As bytes, because Ray would turn Python objects into columns.
    tasks = [{"index": index, "items": pickle.dumps(items)} for index, items in enumerate(shards)]
    with _connected(workers), _quiet():
        # One block per shard, so that shards are given out one by one, to workers that are free.
        data = ray.data.from_items(tasks, override_num_blocks=len(tasks))
        results = data.map(partial(_encode, weights), num_cpus=1, max_retries=_RETRIES)
        try:
            for result in results.iter_rows():
                yield shards[result["index"]], pickle.loads(result["shard"])
        except ray.exceptions.RayError as error:
            raise EncodingError(
                f"Ray gave up ({_reason(error)}); finished work is kept: re-run to resume, "
                "or use the engine 'local', which finds a file that crashes its reader"
            ) from error


def _encode(weights: Weights, task: dict[str, Any]) -> dict[str, Any]:
    """One shard, in a Ray worker."""
    shard = encode_items(pickle.loads(task["items"]), weights)
    return {"index": task["index"], "shard": pickle.dumps(shard)}


@contextmanager
def _connected(workers: int | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless asked for
    on_cluster = "RAY_ADDRESS" in os.environ
    own: dict[str, Any] = {} if on_cluster else {"num_cpus": workers, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Switches off the progress bars and the log of Ray Data, as we show our own."""
    from ray.data import DataContext

    context, log = DataContext.get_current(), logging.getLogger("ray.data")
    bars, level = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Ray 2.64 will want another spelling of max_retries, which older ones do not know.
            warnings.filterwarnings("ignore", message=".*ray_remote_args.*")
            yield
    finally:
        context.enable_progress_bars = bars
        log.setLevel(level)


def _reason(error: Exception) -> str:
    """The line with the error, from a traceback of another machine and Ray's advice around it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ([line for line in lines if "Error: " in line] or lines)[-1].strip()[:500]
