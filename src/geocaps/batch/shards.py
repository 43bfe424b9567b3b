"""Shards of encoded objects: the unit of work, of memory, and of what a kill can lose.

A row is a function of its file and the weights alone: each object is encoded by itself, on one thread, so that no
neighbour, engine or resumed run changes a bit of it. Finished shards lie in a folder beside the output, one file each,
named after what it was made from: a hash of the items, of the state of their files and of the weights. So a shard which
is there is the right one, whatever was changed since the run that was killed; everything else is made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch

from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import ENCODED, encoded_columns
from geocaps.atomic import written_whole
from geocaps.batch.sources import Item
from geocaps.errors import CheckpointError, DroppedPointsWarning, GeocapsError, Skipped
from geocaps.model.checkpoint import Weights, find_weights

Row = dict[str, Any]
"""Column → text, or an array of the same type and shape in every row (``labels`` alone has its own length)."""

TEXT = ("name", "path", "content_sha256")
RAGGED = "labels"
COLUMNS = ("name", "path", "member", "points", "dropped", *ENCODED, "content_sha256")
_MOST_BYTES = 64 << 20
"""A shard is closed when its files have this many bytes: what one worker holds stays small, but for a larger file."""


@dataclass(frozen=True)
class Shard:
    """Some objects' rows, and those that have none."""

    rows: tuple[Row, ...]
    failed: tuple[Skipped, ...]

    def __add__(self, other: Shard) -> Shard:
        return Shard(self.rows + other.rows, self.failed + other.failed)

    def to_bytes(self) -> bytes:
        """An NPZ archive: every column stacked, the labels one after the other with their counts."""
        columns: dict[str, np.ndarray] = {
            "failed": np.array(json.dumps([asdict(one) for one in self.failed])),
            "count": np.array(len(self.rows)),
        }
        if self.rows:
            columns |= {name: np.stack([row[name] for row in self.rows]) for name in COLUMNS if name != RAGGED}
            columns[RAGGED] = np.concatenate([row[RAGGED] for row in self.rows])
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **columns)
        return stream.getvalue()


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
    """Encodes each item by itself; one that cannot be becomes a failure with its reason."""
    model = _model(weights)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedPointsWarning)  # the column says how many
            outcomes = [_outcome(model, item) for item in items]
    finally:
        torch.set_num_threads(threads)
    return Shard(
        tuple(one for one in outcomes if isinstance(one, dict)),
        tuple(one for one in outcomes if isinstance(one, Skipped)),
    )


def skipped(item: Item, reason: str) -> Skipped:
    """Why an item has no row."""
    note = f" (nor is it a data set: {item.not_a_set})" if item.not_a_set else ""
    return Skipped(_text(item.name), _text(reason + note), _text(item.path))


@lru_cache(maxsize=1)
def _model(weights: Weights) -> Model:
    """The model, wherever this runs; refused where the folder holds other weights than those that were named."""
    here = find_weights(weights.folder).sha256
    if here != weights.sha256:
        raise CheckpointError(
            f"{weights.folder or 'the shipped weights'} changed or differ on this machine: SHA-256 {here[:12]} instead "
            f"of {weights.sha256[:12]}; every machine needs the same weights"
        )
    return load(weights.folder)


def _outcome(model: Model, item: Item) -> Row | Skipped:
    try:
        return _row(model, item)
    except (GeocapsError, OSError) as error:
        return skipped(item, str(error))
    except Exception as error:  # one bad file among thousands must not end the run: it is listed with its reason
        return skipped(item, f"{type(error).__name__}: {error}")


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
        "labels": labels.astype(np.min_scalar_type(model.config.parts.parts - 1)),
        "content_sha256": np.str_(content),
    }


def _text(value: str) -> str:
    """A file name may hold bytes that are no text: they are spelled out, as no table can hold them."""
    return value.encode("utf-8", "backslashreplace").decode()


class StoredShard:
    """A finished shard on disk; each column is read when it is asked for."""

    def __init__(self, archive: np.lib.npyio.NpzFile) -> None:
        self._archive = archive
        self.count = int(archive["count"])

    @property
    def failed(self) -> list[Skipped]:
        return [Skipped(**one) for one in json.loads(str(self._archive["failed"]))]

    def column(self, name: str) -> np.ndarray:
        """``[count, ...]``; of the labels, all of them one after the other. Only where there are rows."""
        return self._archive[name]

    def rows(self) -> Iterator[Row]:
        if self.count == 0:
            return
        columns = {name: self.column(name) for name in COLUMNS if name != RAGGED}
        pieces = np.split(self.column(RAGGED), np.cumsum(columns["points"])[:-1])
        for index, labels in enumerate(pieces):
            yield {name: column[index] for name, column in columns.items()} | {RAGGED: labels}


class WorkFolder:
    """``OUT.partial``: finished shards, each written beside and renamed, so that none is ever half there."""

    def __init__(self, path: Path, made_with: str) -> None:
        self.path = path
        self._made_with = made_with
        path.mkdir(exist_ok=True)

    def has(self, items: Sequence[Item]) -> bool:
        """Whether the shard of these items is there and sound: one that was damaged since is made again."""
        place = self._place(items)
        try:
            with ZipFile(place) as archive:
                return archive.testzip() is None
        except (OSError, BadZipFile):
            return False

    def add(self, items: Sequence[Item], shard: Shard) -> None:
        write_beside(self._place(items), shard.to_bytes())

    def stored(self, shards: Iterable[Sequence[Item]]) -> Iterator[StoredShard]:
        """The finished shards of these items, one at a time."""
        for items in shards:
            with np.load(self._place(items), allow_pickle=False) as archive:
                yield StoredShard(archive)

    def remove(self) -> None:
        """All that was put here; a file of someone else's keeps the folder."""
        for pattern in ("*.shard", ".*.part", "joined.new"):
            for place in self.path.glob(pattern):
                place.unlink()
        with suppress(OSError):
            self.path.rmdir()

    def _place(self, items: Sequence[Item]) -> Path:
        described = json.dumps([self._made_with, *(asdict(item) for item in items)])
        name = hashlib.sha256(described.encode()).hexdigest()[:32]
        return self.path / f"{name}.shard"


def write_beside(place: Path, content: bytes) -> None:
    """The whole file or none: written beside, brought to the disk, then renamed."""
    with written_whole(place) as beside, beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
