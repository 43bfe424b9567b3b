"""Output formats, joined from finished shards: Parquet (a row for each object) or NPZ (an array for each column).

Both are written shard by shard, so that memory does not grow with the number of objects, and hold no dates: the same
rows give the same bytes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geocaps.batch.shards import COLUMNS, RAGGED, TEXT, Row, StoredShard
from geocaps.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".npz")
_GROUP_ROWS = 1024
_GROUP_LABELS = 64 << 20

Shards = Callable[[], Iterable[StoredShard]]
"""Goes through the finished shards, from the first, as often as it is called."""


@dataclass(frozen=True)
class Provenance:
    """What all rows have in common."""

    geocaps_version: str
    weights_sha256: str


def check_format(out: Path) -> None:
    """Refuses, before any work is done, an output that could not be written at the end."""
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{out}: the output must end in {' or '.join(SUFFIXES)}")
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("writing Parquet", "parquet") from error


def write(place: Path, suffix: str, shards: Shards, provenance: Provenance) -> None:
    """All rows of the shards to one new file."""
    if suffix == ".parquet":
        _write_parquet(place, shards, provenance)
    else:
        _write_npz(place, shards, provenance)


# ── Parquet ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_parquet(place: Path, shards: Shards, provenance: Provenance) -> None:
    import pyarrow.parquet as pq

    writer = None
    try:
        for rows in _groups(row for shard in shards() for row in shard.rows()):
            table = _table(rows, provenance)
            writer = writer or pq.ParquetWriter(place, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=len(rows))
    finally:
        if writer is not None:
            writer.close()


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows by the row group: of bounded memory, and the same whatever shards they came from."""
    group: list[Row] = []
    labels = 0
    for row in rows:
        group.append(row)
        labels += len(row[RAGGED])
        if len(group) == _GROUP_ROWS or labels >= _GROUP_LABELS:
            yield group
            group, labels = [], 0
    if group:
        yield group


def _table(rows: list[Row], provenance: Provenance) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in COLUMNS:
        if name in TEXT:
            columns[name] = pa.array([str(row[name]) for row in rows], pa.string())
        elif name == RAGGED:
            ends = np.cumsum([0, *(len(row[name]) for row in rows)], dtype=np.int32)
            columns[name] = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate([r[name] for r in rows])))
        else:
            columns[name] = _fixed(np.stack([row[name] for row in rows]))
    for name, value in vars(provenance).items():
        columns[name] = pa.array([value] * len(rows), pa.string())
    return pa.table(columns)


def _fixed(values: np.ndarray) -> pa.Array:
    """``[rows, ...]`` as (nested) lists of fixed size, which readers give back as arrays."""
    import pyarrow as pa

    found = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found


# ── NPZ ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_npz(place: Path, shards: Shards, provenance: Provenance) -> None:
    """One array ``[objects, ...]`` a column; ``labels`` of all objects in a row, of object i from ``label_offsets[i]``.

    A pass over the shards for each column: an archive takes its arrays one after the other.
    """
    # Stored, not deflated: then arrays can be mapped, and numbers like these hardly shrink.
    with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED) as archive:
        for name in COLUMNS:
            _write_member(archive, name, lambda name=name: (s.column(name) for s in shards() if s.count))  # type: ignore[misc]
        counts = np.concatenate([shard.column("points") for shard in shards() if shard.count])
        whole = {"label_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)}
        whole |= {name: np.array(value) for name, value in vars(provenance).items()}
        for name, array in whole.items():
            _write_member(archive, name, lambda array=array: [array])  # type: ignore[misc]


def _write_member(archive: zipfile.ZipFile, name: str, pieces: Callable[[], Iterable[np.ndarray]]) -> None:
    first, length, width = None, 0, 1
    for piece in pieces():
        first = piece if first is None else first
        length += len(piece) if piece.ndim else 0
        width = max(width, piece.dtype.itemsize)
    assert first is not None
    # The width of a text column is that of its longest text.
    dtype = np.dtype(f"<U{width // 4}") if first.dtype.kind == "U" else first.dtype
    shape = (length, *first.shape[1:]) if first.ndim else ()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    # A ZipInfo without a date: the same rows give the same bytes.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for piece in pieces():
            member.write(np.ascontiguousarray(piece, dtype).tobytes())
