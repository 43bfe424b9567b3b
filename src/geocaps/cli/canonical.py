"""``geocaps canonical``: objects brought to their canonical poses, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import UNSET, console, messages, print_json, progress_bar

if TYPE_CHECKING:
    from geocaps.apps.canonical import Canonical, Job, Thumbnail


def canonical(
    files: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILES", help_behavior_hint="(required)")],
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR"), UNSET] = None,
    suffix: str = ".ply",
    png: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), UNSET] = None,
    weights: Annotated[Path | None, UNSET] = None,
    drop_invalid: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Bring objects to their canonical poses, whatever way they came; writes files and one picture.

    Objects are moved rigidly, not scaled. Where an object looks nearly the same another way round, its pose is a choice
    among several: that is said, with the confidence. Files that cannot be read are listed and skipped.

    Example: geocaps canonical scans/ table.obj --out canonical --png side_by_side.png

    Args:
        files: Clouds, meshes, or folders of them.
        out: Folder for the objects in their canonical poses, under their own names; a mesh stays a mesh.
        suffix: Format of the files in --out: .ply, .obj, .stl, .glb, .xyz, .npy, .npz or .pcd.
        png: Where to write a picture: as given above, canonical below.
        weights: Checkpoint folder (default: the weights that ship with the package).
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output.
    """
    from geocaps.apps.canonical import MOST_DRAWN, canonical_each, find_jobs, picture
    from geocaps.apps.encode import load
    from geocaps.errors import InvalidInputError, Skipped
    from geocaps.geometry.sampling import evenly
    from geocaps.io.save import check_target
    from geocaps.io.scene import write_whole

    jobs = find_jobs(files, out, suffix)
    if png is not None:
        check_target(png, (".png",))
    objects: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    thumbnails: list[Thumbnail] = []
    drawn = set(evenly(min(len(jobs), MOST_DRAWN), len(jobs)).tolist() if png is not None else ())
    results = zip(jobs, canonical_each(_followed(jobs), load(weights), drop_invalid=drop_invalid), strict=True)
    for index, (job, found) in enumerate(results):
        if isinstance(found, Skipped):
            if len(jobs) == 1:
                raise InvalidInputError(found.reason)
            skipped.append(found)
            messages().print(f"skipped: {found.reason}", markup=False, soft_wrap=True)
            continue
        objects.append(_record(found, job.target))
        if index in drawn:
            thumbnails.append(found.thumbnail())
    if not objects:
        raise InvalidInputError(f"none of the {len(jobs)} files could be brought to a canonical pose")
    if png is not None and thumbnails:
        write_whole(png, picture(thumbnails))
    if json:
        print_json(
            {
                "objects": objects,
                "skipped": [{"file": one.name, "reason": one.reason} for one in skipped],
                "png": None if png is None else str(png),
            }
        )
    else:
        _show(objects, len(skipped), out, png)


def _followed(jobs: list[Job]) -> Iterator[Job]:
    """The jobs with a progress bar on standard error."""
    with progress_bar("canonical poses") as (progress, task):
        for done, job in enumerate(jobs):
            progress.update(task, completed=done, total=len(jobs))
            yield job


def _record(found: Canonical, target: Path | None) -> dict[str, Any]:
    return {
        "file": found.name,
        "points": len(found.given),
        "dropped": found.dropped,
        "translation": found.pose.translation.tolist(),
        "wxyz": found.pose.wxyz.tolist(),
        "confidence": found.confidence,
        "ambiguous": found.ambiguous,
        "alternatives": [
            {
                "translation": other.pose.translation.tolist(),
                "wxyz": other.pose.wxyz.tolist(),
                "probability": other.probability,
            }
            for other in found.alternatives
        ],
        "out": None if target is None else str(target),
    }


def _show(objects: list[dict[str, Any]], skipped: int, out: Path | None, png: Path | None) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("object", "points", "confidence", "alternatives", "T_world_object: wxyz")
    for one in objects:
        others = " ".join(f"{other['probability']:.2f}" for other in one["alternatives"])
        doubt = f"AMBIGUOUS {others}" if one["ambiguous"] else others
        wxyz = ", ".join(f"{value:.3f}" for value in one["wxyz"])
        table.add_row(Text(one["file"]), f"{one['points']:,}", f"{one['confidence']:.2f}", doubt, wxyz)
    screen = console()
    screen.print(table)
    lines = [f"{len(objects)} objects" + (f", {skipped} skipped (see above)" if skipped else "")]
    lines += [f"wrote {where}" for where in (out, png) if where is not None]
    screen.print("\n".join(lines), markup=False, soft_wrap=True)
