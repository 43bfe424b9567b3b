"""``geocaps align``: the pose that lays one cloud on another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import DropInvalid, Flag, Json, OutFile, pose_record, show
from geocaps.errors import UsageError

if TYPE_CHECKING:
    from geocaps.apps.align.align import Alignment
    from geocaps.apps.clouds import Cloud
    from geocaps.geometry.similarity import Similarity

_LITTLE = 0.5


def align(
    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")],
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")],
    refine: bool = True,
    scale: Flag = False,
    out: OutFile = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Find the pose that lays cloud A on cloud B, in arbitrary orientations.

    Prints T_b_a (x_b = R x_a + t) as a 4 x 4 matrix and as translation and quaternion (wxyz), the residual, the
    confidence and, for an object that looks nearly the same in other poses, the alternatives.

    Example: geocaps align scan.ply part.obj --out scan_on_part.ply

    Args:
        a: Cloud or mesh that is moved: PLY, OBJ, STL, PCD, XYZ, NPY, LAS and more.
        b: Cloud or mesh that stays.
        refine: Polish the result by robust ICP.
        scale: Find the scale too, for clouds in different units that both show most of the object.
        out: Where to write A in the frame of B: PLY, OBJ, STL or GLB (a mesh stays a mesh), XYZ, NPY, NPZ or PCD.
    """
    from geocaps.apps.align.align import align as find
    from geocaps.apps.clouds import as_cloud
    from geocaps.io.save import CLOUD_SUFFIXES, MESH_SUFFIXES, check_target

    if out is not None:
        check_target(out, {*CLOUD_SUFFIXES, *MESH_SUFFIXES}, inputs=(a, b))
    moving = as_cloud(a, 0, "A", drop_invalid=drop_invalid)
    if out is not None and moving.faces is None and out.suffix.lower() not in CLOUD_SUFFIXES:
        raise UsageError(
            f"cannot write {out}: {a} is a cloud without faces, so the name must end in {' or '.join(CLOUD_SUFFIXES)}"
        )
    found = find(moving, b, refine=refine, scale=scale, drop_invalid=drop_invalid)
    if out is not None:
        _save(out, found, moving)
    show(json, _record(found, out), _lines(found, out))


def _save(path: Path, found: Alignment, moving: Cloud) -> None:
    from geocaps.io.save import MESH_SUFFIXES, Mesh, save_cloud, save_meshes

    if moving.faces is not None and path.suffix.lower() in MESH_SUFFIXES:
        save_meshes(path, [Mesh(Path(moving.name).stem, found.apply(moving), moving.faces)])
    else:
        save_cloud(path, found.apply(moving.points))


def _record(found: Alignment, out: Path | None) -> dict[str, Any]:
    return {
        "matrix": found.matrix,
        **pose_record(found.pose),
        "scale": found.scale,
        "error": found.error,
        "confidence": found.confidence,
        "overlap": found.overlap,
        "uncertain": found.uncertain,
        "ambiguous": found.ambiguous,
        "alternatives": [
            {**pose_record(other.pose), "scale": other.scale, "confidence": other.confidence}
            for other in found.alternatives
        ],
        "dropped": found.dropped,
        "out": out,
    }


def _lines(found: Alignment, out: Path | None) -> list[str]:
    lines = ["T_b_a ="]
    lines += ["  " + " ".join(f"{value:16.9g}" for value in row) for row in found.matrix]
    lines += [f"pose         {_pose_text(found.pose)}"]
    if found.scale != 1:
        lines += [f"scale        {found.scale:.6g}  (the matrix holds it, translation and wxyz do not)"]
    lines += [
        f"residual     {found.error:.4g}  (trimmed RMS distance, units of B)",
        f"overlap      {found.overlap[0]:.0%} of A and {found.overlap[1]:.0%} of B are explained by the other",
        f"confidence   {found.confidence:.2f}",
    ]
    if found.uncertain:
        lines += ["LOW CONFIDENCE: check this result before you use it."]
    if min(found.overlap) < _LITTLE:
        lines += ["LITTLE OVERLAP: trust this only if one cloud is a part of the other; for other units try --scale."]
    if found.ambiguous:
        lines += ["AMBIGUOUS: the clouds look nearly the same in other poses, so this one is a choice among several."]
    if found.alternatives:
        lines += ["alternatives"]
    lines += [f"  {confidence:.2f}  {_pose_text(pose)}" for pose, confidence in found.alternatives]
    if out is not None:
        lines += [f"wrote        {out}"]
    return lines


def _pose_text(pose: Similarity) -> str:
    translation = ", ".join(f"{value:.9g}" for value in pose.translation.tolist())
    wxyz = ", ".join(f"{value:.9f}" for value in pose.wxyz.tolist())
    return f"translation ({translation})  wxyz ({wxyz})"
