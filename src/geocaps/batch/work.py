"""Work in progress, beside the output: one file for each finished shard, named after what it was made from.

The name is a hash of the items, of the state of their files and of the weights, so that a shard which is there is the
right one, whatever was changed since the run that was killed; everything else is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from geocaps.atomic import written_whole
from geocaps.batch.items import Item
from geocaps.batch.shards import Shard, StoredShard

_MOST_BYTES = 64 << 20
"""A shard is closed when its files have this many bytes: what one worker holds stays small, but for a larger file."""


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
        write_beside(self._place(items), [shard.to_bytes()])

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


def write_beside(place: Path, blocks: Iterable[bytes]) -> None:
    """The whole file or none: written beside, brought to the disk, then renamed."""
    with written_whole(place) as beside, beside.open("wb") as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
