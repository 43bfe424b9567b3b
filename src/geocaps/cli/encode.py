"""``geocaps encode``: capsules of files and folders to one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from geocaps.cli.output import UNSET, console, print_json, progress_bar
from geocaps.errors import EncodingError, Skipped

if TYPE_CHECKING:
    from geocaps.batch.encode_files import EncodedFiles

_SHOWN = 20


def encode(
    sources: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="(required)")
    ],
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    weights: Annotated[str | None, tyro.conf.arg(metavar="FOLDER"), UNSET] = None,
    engine: Literal["local", "ray"] = "local",
    workers: Annotated[int | None, UNSET] = None,
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    drop_invalid: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Encode files, folders and data sets into capsules: one row for each object, in Parquet or NPZ.

    Columns: name, path, member, points, dropped; translation and wxyz (the canonical pose, in the units of the file),
    feature, confidence; part_translation, part_wxyz, part_feature; labels (the part of each point); center, scale (the
    normalisation); content_sha256, weights_sha256, geocaps_version.

    Memory does not grow with the folder. A run that was stopped goes on when called again. Files that cannot be read
    are skipped, shown, and listed in OUT.failed.json; the exit code is 1 only when that is all of them.

    Example: geocaps encode scans/ more/chair.obj --out capsules.parquet

    Args:
        sources: Files, folders (searched to any depth), data sets (.npz, .h5), or the embedded "shapes", "furniture".
        out: Where to write: a name that ends in .parquet or .npz.
        weights: A checkpoint folder; without one, the weights that ship with geocaps.
        engine: local: processes on this machine. ray: Ray Data, on the cluster of RAY_ADDRESS or started here.
        workers: Processes; as many as there are processors when not given.
        overwrite: Replace the output.
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output.
    """
    from geocaps.batch.encode_files import encode_files

    try:
        with progress_bar("encoding") as (progress, task):
            found = encode_files(
                sources,
                out,
                weights=weights,
                engine=engine,
                workers=workers,
                drop_invalid=drop_invalid,
                overwrite=overwrite,
                on_object=lambda done, of: progress.update(task, completed=done, total=of),
            )
    except EncodingError as error:
        if json:
            print_json({"out": None, "objects": 0, "failed": [asdict(one) for one in error.failed]})
        else:
            _show_failed(error.failed)
        raise
    if json:
        print_json({**asdict(found), "out": str(found.out)})
    else:
        _show(found)


def _show(found: EncodedFiles) -> None:
    again = f", {found.resumed} objects were done by an earlier run" if found.resumed else ""
    _say(f"{found.out}: {found.objects} objects{again}")
    if found.failed:
        _say(f"SKIPPED {len(found.failed)} that could not be encoded; all are listed in {found.out}.failed.json")
        _show_failed(found.failed)


def _show_failed(failed: Sequence[Skipped]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not failed:
        return
    table = Table("file", "why it was skipped")
    for one in failed[:_SHOWN]:
        table.add_row(Text(one.name), Text(one.reason))
    console().print(table)
    if len(failed) > _SHOWN:
        _say(f"and {len(failed) - _SHOWN} more")


def _say(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)
