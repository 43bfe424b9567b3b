"""Encoded objects in shards: the unit of work, of memory, and of what a kill can lose.

A row is a function of its file and the weights alone: each object is encoded by itself, on one thread, so that no
neighbour, engine or resumed run changes a bit of it.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from geocaps.apps.columns import ENCODED, encoded_columns
from geocaps.apps.encode import Model
from geocaps.apps.weights import Weights
from geocaps.batch.items import Item
from geocaps.errors import DroppedPointsWarning, GeocapsError

Row = dict[str, Any]
"""Column → text, or an array of the same type and shape in every row (``labels`` alone has its own length)."""

TEXT = ("name", "path", "content_sha256")
RAGGED = "labels"
COLUMNS = ("name", "path", "member", "points", "dropped", *ENCODED, "content_sha256")


@dataclass(frozen=True)
class Failure:
    """An object that could not be encoded, and why."""

    path: str
    name: str
    reason: str


@dataclass(frozen=True)
class Shard:
    """Some objects' rows, and those that have none."""

    rows: tuple[Row, ...]
    failed: tuple[Failure, ...]

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
        tuple(one for one in outcomes if isinstance(one, Failure)),
    )


def failure(item: Item, reason: str) -> Failure:
    """Why an item has no row."""
    note = f" (nor is it a data set: {item.not_a_set})" if item.not_a_set else ""
    return Failure(_text(item.path), _text(item.name), _text(reason + note))


@lru_cache(maxsize=1)
def _model(weights: Weights) -> Model:
    return weights.load()


def _outcome(model: Model, item: Item) -> Row | Failure:
    try:
        return _row(model, item)
    except (GeocapsError, OSError) as error:
        return failure(item, str(error))
    except Exception as error:  # one bad file among thousands must not end the run: it is listed with its reason
        return failure(item, f"{type(error).__name__}: {error}")


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
    def failed(self) -> list[Failure]:
        return [Failure(**one) for one in json.loads(str(self._archive["failed"]))]

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
