"""``geocaps.encode_files``: capsules of files, folders and data sets of any size, to one Parquet or NPZ file."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import geocaps
from geocaps.batch import formats
from geocaps.batch.engines import run_local, run_ray
from geocaps.batch.shards import WorkFolder, cut, write_beside
from geocaps.batch.sources import find_items
from geocaps.errors import DroppedPointsWarning, EncodingError, InvalidInputError, Skipped, UsageError
from geocaps.io.save import check_target
from geocaps.model.checkpoint import find_weights

Engine = Literal["local", "ray"]
_ENGINES = {"local": run_local, "ray": run_ray}
_FORMAT = 2
"""Raised when a row's columns change: shards of an older run are then made again."""


@dataclass(frozen=True)
class EncodedFiles:
    """What ``encode_files`` did."""

    out: Path
    objects: int
    """Rows in the output."""
    resumed: int
    """Objects that an earlier run, which was stopped, had done."""
    failed: tuple[Skipped, ...]
    """Objects that could not be encoded; ``OUT.failed.json`` lists them too."""
    weights_sha256: str
    dropped: int
    """Points that were NaN or infinite, and were left out; the column ``dropped`` has them object by object."""


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

    A row does not depend on the other rows, on the engine or on whether the run was resumed: the same bits each time.
    Work lies in ``OUT.partial`` until the end, so re-run a call that was stopped to resume it, and ``out`` is whole or
    not there. Objects that cannot be encoded are skipped and listed; if that is all of them, EncodingError is
    raised and nothing is written but the list. ``weights`` is a checkpoint folder; ``workers`` are processes (default:
    one a core); ``shard`` objects at most are lost by a kill; ``drop_invalid`` leaves out points that are NaN or
    infinite, which are refused otherwise; ``on_object(done, of)`` is called with the progress.
    """
    named = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    out = Path(out)
    if not all(map(os.fspath, named)) or not named:
        raise UsageError("no sources were given, or an empty name: name files, folders or data sets")
    _check_call(out, engine, workers, shard, overwrite)
    folder, sidecar = out.with_name(out.name + ".partial"), out.with_name(out.name + ".failed.json")
    items = [replace(one, drop_invalid=drop_invalid) for one in find_items(named, leave_out=(out, folder, sidecar))]
    if not items:
        raise InvalidInputError(f"no meshes, point clouds or data sets found in {', '.join(map(str, named))}")
    used = find_weights(weights)
    provenance = formats.Provenance(geocaps.__version__, used.sha256)
    shards = cut(items, shard)
    try:
        work = WorkFolder(folder, json.dumps([_FORMAT, *vars(provenance).values()]))
        todo = [one for one in shards if not work.has(one)]
        resumed = done = len(items) - sum(map(len, todo))
        for finished, rows in _ENGINES[engine](todo, used, workers) if todo else ():
            work.add(finished, rows)
            done += len(finished)
            if on_object is not None:
                on_object(done, len(items))
        failed = tuple(failure for stored in work.stored(shards) for failure in stored.failed)
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
        dropped = [int(count) for one in work.stored(shards) if one.count for count in one.column("dropped") if count]
        if dropped:
            warnings.warn(
                DroppedPointsWarning(
                    f"{sum(dropped):,} points of {len(dropped):,} objects are NaN or infinite; they are left out, "
                    "the column dropped says how many of each"
                ),
                stacklevel=2,
            )
        joined = folder / "joined.new"
        formats.write(joined, out.suffix.lower(), lambda: work.stored(shards), provenance)
        os.replace(joined, out)
        work.remove()
    except OSError as error:
        raise EncodingError(
            f"cannot write {out} or {folder}: {error.strerror or error}; what was there before is untouched"
        ) from error
    finally:
        with suppress(OSError):
            folder.rmdir()  # only where no work is in it
    return EncodedFiles(out, len(items) - len(failed), resumed, failed, used.sha256, sum(dropped))


def _check_call(out: Path, engine: str, workers: int | None, shard: int, overwrite: bool) -> None:
    formats.check_format(out)
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}; there are {', '.join(_ENGINES)}")
    for name, count in (("workers", workers), ("shard", shard)):
        if count is not None and count < 1:
            raise UsageError(f"{name} must be at least 1, not {count}")
    check_target(out, formats.SUFFIXES)
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists already; choose another name or give --overwrite")


def _write_list(sidecar: Path, failed: tuple[Skipped, ...]) -> None:
    """The objects that failed, beside the output; without any, the list of an earlier run goes."""
    if failed:
        text = json.dumps([asdict(one) for one in failed], indent=1, ensure_ascii=False)
        write_beside(sidecar, text.encode() + b"\n")
    else:
        sidecar.unlink(missing_ok=True)
