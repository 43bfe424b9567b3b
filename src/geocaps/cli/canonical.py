"""``geocaps canonical``: objects brought to their canonical poses, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli import output
from geocaps.cli.output import DropInvalid, Json, OutFile, OutFolder, Weights

if TYPE_CHECKING:
    from geocaps.apps.canonical import Canonical


def canonical(
    files: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILES", help_behavior_hint="(required)")],
    out: OutFolder = None,
    suffix: str = ".ply",
    png: OutFile = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Bring objects in arbitrary orientations to their canonical poses; writes files and one picture.

    Objects are moved rigidly, not scaled. Where an object looks nearly the same in other poses, its pose is a choice
    among several: the output says so, with the confidence. Files that cannot be read are listed and skipped.

    Example: geocaps canonical scans/ table.obj --out canonical --png side_by_side.png

    Args:
        files: Clouds, meshes, or folders of them.
        out: Folder for the objects in their canonical poses, under their own names; a mesh stays a mesh.
        suffix: Format of the files in --out: .ply, .obj, .stl, .glb, .xyz, .npy, .npz or .pcd.
        png: Where to write a picture: as given above, canonical below.
    """
    from geocaps.apps.canonical import MOST_DRAWN, canonical_each, find_jobs, picture
    from geocaps.apps.encode import load
    from geocaps.errors import InvalidInputError, Skipped
    from geocaps.geometry.sampling import evenly
    from geocaps.io.save import check_target, write_whole

    jobs = find_jobs(files, out, suffix)
    if png is not None:
        check_target(png, (".png",))
    drawn = set(evenly(min(len(jobs), MOST_DRAWN), len(jobs)).tolist() if png is not None else ())
    objects, skipped, thumbnails = [], [], []
    with output.progress_bar("canonical poses") as advance:
        results = canonical_each(jobs, load(weights), drop_invalid=drop_invalid)
        for index, (job, found) in enumerate(zip(jobs, results, strict=True)):
            advance(index + 1, len(jobs))
            if isinstance(found, Skipped):
                if len(jobs) == 1:
                    raise InvalidInputError(found.reason)
                skipped.append({"file": found.name, "reason": found.reason})
                output.tell(f"skipped: {found.reason}")
                continue
            objects.append(_record(found, job.target))
            if index in drawn:
                thumbnails.append(found.thumbnail())
    if not objects:
        raise InvalidInputError(f"none of the {len(jobs)} files could be brought to a canonical pose")
    if png is not None and thumbnails:
        write_whole(png, picture(thumbnails))
    if json:
        output.print_json({"objects": objects, "skipped": skipped, "png": png})
        return
    output.show_table(("object", "points", "confidence", "alternatives", "T_world_object: wxyz"), map(_row, objects))
    output.say(
        f"{len(objects)} objects" + (f", {len(skipped)} skipped (see above)" if skipped else ""),
        *(f"wrote {where}" for where in (out, png) if where is not None),
    )


def _record(found: Canonical, target: Path | None) -> dict[str, Any]:
    return {
        "file": found.name,
        "points": len(found.given),
        "dropped": found.dropped,
        **output.pose_record(found.pose),
        "confidence": found.confidence,
        "ambiguous": found.ambiguous,
        "alternatives": [
            {**output.pose_record(other.pose), "probability": other.probability} for other in found.alternatives
        ],
        "out": target,
    }


def _row(one: dict[str, Any]) -> list[str]:
    others = " ".join(f"{other['probability']:.2f}" for other in one["alternatives"])
    doubt = f"AMBIGUOUS {others}" if one["ambiguous"] else others
    wxyz = ", ".join(f"{value:.3f}" for value in one["wxyz"])
    return [one["file"], f"{one['points']:,}", f"{one['confidence']:.2f}", doubt, wxyz]
