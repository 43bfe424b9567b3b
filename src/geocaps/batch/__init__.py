"""``geocaps.encode_files``: capsules of files, folders and data sets of any size, in one Parquet or NPZ file.

Both formats (Parquet: a row for each object, NPZ: an array for each column) are joined from finished shards one by one,
so that memory does not grow with the number of objects. They contain no dates, so the same rows give the same bytes.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import geocaps
from geocaps.atomic import WorkFolder, written_whole
from geocaps.batch.shards import COLUMNS, RAGGED, TEXT, Item, Row, StoredShard, cut, find_items, run_local, run_ray
from geocaps.errors import (
    DroppedPointsWarning,
    EncodingError,
    InvalidInputError,
    MissingExtraError,
    Skipped,
    UsageError,
)
from geocaps.io.save import check_target, write_member
from geocaps.model.checkpoint import find_weights

if TYPE_CHECKING:
    import pyarrow as pa

Engine = Literal["local", "ray"]
Provenance = dict[str, str]  # columns that are the same in every row
Shards = Callable[[], Iterator[StoredShard]]
"""Iterates over the finished shards; each call starts again at the first."""

SUFFIXES = (".parquet", ".npz")
_ENGINES = {"local": run_local, "ray": run_ray}
_GROUP_ROWS = 1024
_GROUP_LABELS = 64 << 20
_FORMAT = 2  # raised when the columns change, so that shards of older runs are made again


@dataclass(frozen=True)
class EncodedFiles:
    """Result of ``encode_files``."""

    out: Path
    objects: int
    """Rows in the output."""
    resumed: int
    """Objects that were already done by an earlier run."""
    failed: tuple[Skipped, ...]
    """Objects that could not be encoded; ``OUT.failed.json`` lists them too."""
    weights_sha256: str
    dropped: int
    """Number of points left out because they were NaN or infinite; the column ``dropped`` has it for each object."""


def encode_files(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    shard: int = 32,
    drop_invalid: bool = False,
    overwrite: bool = False,
    on_object: Callable[[int, int], None] | None = None,
) -> EncodedFiles:
    """Encodes every object of ``sources`` (files, folders, data sets, "shapes", "furniture") to ``out``.

    A row does not depend on other rows, on the engine or on whether the run was resumed, to the last bit. Unfinished
    work is in ``OUT.partial``, so repeat an interrupted call to resume it; ``out`` is complete or does not exist.
    Objects that cannot be encoded are skipped and listed; if none can, EncodingError is raised and only the list is
    written. ``weights`` is a checkpoint folder; ``workers`` is the number of processes (default: one per core); a kill
    loses at most ``shard`` objects; ``drop_invalid`` leaves out NaN and infinite points, which are refused otherwise;
    ``on_object(done, of)`` is called with the progress.
    """
    named = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    out = Path(out)
    if not all(map(os.fspath, named)) or not named:
        raise UsageError("no sources, or an empty name, were given: name files, folders or data sets")
    _check_call(out, engine, workers, shard, overwrite)
    folder, sidecar = out.with_name(out.name + ".partial"), out.with_name(out.name + ".failed.json")
    items = [replace(one, drop_invalid=drop_invalid) for one in find_items(named, leave_out=(out, folder, sidecar))]
    if not items:
        raise InvalidInputError(f"no meshes, point clouds or data sets found in {', '.join(map(str, named))}")
    used = find_weights(weights)
    provenance = {"geocaps_version": geocaps.__version__, "weights_sha256": used.sha256}
    shards = cut(items, shard)
    try:
        work = WorkFolder(folder, [_FORMAT, *provenance.values()])
        todo = [one for one in shards if not work.has(_made_from(one))]
        resumed = done = len(items) - sum(map(len, todo))
        for finished, rows in _ENGINES[engine](todo, used, workers) if todo else ():
            work.add(_made_from(finished), rows.arrays())
            done += len(finished)
            if on_object is not None:
                on_object(done, len(items))

        def stored() -> Iterator[StoredShard]:
            return map(StoredShard, work.pieces(map(_made_from, shards)))

        failed = tuple(failure for one in stored() for failure in one.failed)
        _write_list(sidecar, failed)
        if len(failed) == len(items):
            work.remove()
            name, reason = failed[0].name, failed[0].reason
            first = reason if name in reason else f"{name}: {reason}"
            raise EncodingError(
                f"{first}; {out} is not written"
                if len(items) == 1
                else f"none of the {len(items)} objects could be encoded, so {out} is not written; "
                f"the first: {first}; all are listed in {sidecar}",
                failed,
            )
        dropped = [int(count) for counts in _column(stored, "dropped") for count in counts if count]
        if dropped:
            said = f"{sum(dropped):,} points of {len(dropped):,} objects are NaN or infinite; they are left out, "
            warnings.warn(DroppedPointsWarning(said + "the column dropped says how many of each"), stacklevel=2)
        with work.joined(out) as place:
            (_write_parquet if out.suffix.lower() == ".parquet" else _write_npz)(place, stored, provenance)
    except OSError as error:
        raise EncodingError(
            f"cannot write {out} or {folder}: {error.strerror or error}; what was there before is untouched"
        ) from error
    finally:
        with suppress(OSError):
            folder.rmdir()  # only if it is empty
    return EncodedFiles(out, len(items) - len(failed), resumed, failed, used.sha256, sum(dropped))


def _check_call(out: Path, engine: str, workers: int | None, shard: int, overwrite: bool) -> None:
    check_target(out, SUFFIXES, replaces=overwrite)
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("writing Parquet", "parquet") from error
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}: choose from {', '.join(_ENGINES)}")
    for name, count in (("workers", workers), ("shard", shard)):
        if count is not None and count < 1:
            raise UsageError(f"{name} must be at least 1, not {count}")


def _made_from(items: Iterable[Item]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]


def _write_list(sidecar: Path, failed: tuple[Skipped, ...]) -> None:
    """Writes the list of failed objects beside the output or, if there are none, removes that of an earlier run."""
    if failed:
        text = json.dumps([asdict(one) for one in failed], indent=1, ensure_ascii=False)
        with written_whole(sidecar) as beside:
            beside.write_text(text + "\n", encoding="utf-8")
    else:
        sidecar.unlink(missing_ok=True)


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
    """Rows by row group: of limited size, and independent of the shards."""
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
    for name, value in provenance.items():
        columns[name] = pa.array([value] * len(rows), pa.string())
    return pa.table(columns)


def _fixed(values: np.ndarray) -> pa.Array:
    """``[rows, ...]`` as (nested) lists of fixed size, which readers return as arrays."""
    import pyarrow as pa

    found = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found


def _write_npz(place: Path, shards: Shards, provenance: Provenance) -> None:
    """One array ``[objects, ...]`` per column; ``labels`` are concatenated, from ``label_offsets[i]`` for object i.

    One pass over the shards per column, because an archive takes its arrays one after the other.
    """
    counts = np.concatenate(list(_column(shards, "points")))
    # Not compressed, so that arrays can be memory-mapped; numbers like these hardly compress.
    with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED) as archive:
        for name in COLUMNS:
            kinds = [(piece.dtype, piece.shape[1:]) for piece in _column(shards, name)]
            dtype = max((kind for kind, _ in kinds), key=lambda kind: kind.itemsize)  # of text, the longest
            length = int(counts.sum()) if name == RAGGED else len(counts)
            write_member(archive, name, dtype, (length, *kinds[0][1]), _column(shards, name))
        whole = {"label_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)}
        for name, array in (whole | {name: np.array(value) for name, value in provenance.items()}).items():
            write_member(archive, name, array.dtype, array.shape, [array])


def _column(shards: Shards, name: str) -> Iterator[np.ndarray]:
    return (shard.column(name) for shard in shards() if shard.count)
