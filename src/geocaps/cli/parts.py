"""``geocaps parts``: an object cut into parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import DropInvalid, Json, OutFile, Weights, pose_record, print_json, say, show_table

if TYPE_CHECKING:
    from geocaps.apps.parts import Decomposition


def parts(
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    out: OutFile = None,
    surfaces: OutFile = None,
    png: OutFile = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Cut a cloud or mesh into parts, without labels; writes them as coloured points or faces, surfaces and a picture.

    Prints the parts: how many points each has, and its pose (position and orientation) in the file's units.

    Example: geocaps parts chair.obj --out chair_parts.ply --surfaces chair_surfaces.glb --png chair.png

    Args:
        file: Cloud or mesh: PLY, OBJ, STL, GLB, PCD, XYZ, NPY, LAS and more.
        out: Where to write the object in the colours of its parts: PLY, GLB, XYZ, NPZ or PCD; a mesh stays a mesh
            with coloured faces in PLY, OBJ and GLB.
        surfaces: Where to write the decoded surface of each part, coloured: GLB, OBJ or PLY.
        png: Where to write a picture of both.
    """
    from geocaps.apps.encode import load
    from geocaps.apps.parts import parts as find
    from geocaps.errors import UsageError
    from geocaps.io.save import CLOUD_SUFFIXES, COLORED_MESH_SUFFIXES, check_target

    for target, suffixes in (
        (out, sorted({*CLOUD_SUFFIXES, *COLORED_MESH_SUFFIXES} - {".npy"})),  # NPY holds points alone
        (surfaces, COLORED_MESH_SUFFIXES),
        (png, (".png",)),
    ):
        if target is not None:
            check_target(target, suffixes, inputs=(file,))
    if out is not None and surfaces is not None and out.resolve() == surfaces.resolve():
        raise UsageError(f"--out and --surfaces both name {out}: choose two names")
    found = find(file, load(weights), drop_invalid=drop_invalid)
    written = []
    for target, save in ((out, found.save), (surfaces, found.save_surfaces), (png, found.save_png)):
        if target is not None:
            save(target)
            written.append(f"wrote {target}")
    if json:
        print_json({**_record(found), "out": out, "surfaces": surfaces, "png": png})
        return
    show_table(("part", "points", "share", "translation", "wxyz"), _rows(found))
    say(f"{found.name}: {len(found.points):,} points in {len(found)} parts", *written)


def _record(found: Decomposition) -> dict[str, Any]:
    pose, feature = found.capsules.pose, found.capsules.feature
    return {
        "file": found.name,
        "points": len(found.points),
        "dropped": found.dropped,
        "faces": None if found.faces is None else len(found.faces),
        "feature_size": feature.shape[-1],
        "surface_points": found.surfaces.shape[1],
        "parts": [
            {
                "points": int(count),
                "faces": None if found.face_labels is None else int((found.face_labels == j).sum()),
                **pose_record(pose[j]),
                "feature": feature[j],
                "color": found.colors[j],
            }
            for j, count in enumerate(found.counts)
        ],
    }


def _rows(found: Decomposition) -> list[list[Any]]:
    from rich.text import Text

    rows: list[list[Any]] = []
    for j, count in enumerate(found.counts):
        mark = Text.assemble(("■", "#{:02x}{:02x}{:02x}".format(*found.colors[j])), f" {j}")
        translation = ", ".join(f"{value:.4g}" for value in found.capsules.pose.translation[j].tolist())
        wxyz = ", ".join(f"{value:.3f}" for value in found.capsules.pose.wxyz[j].tolist())
        rows.append([mark, f"{count:,}", f"{count / len(found.points):.0%}", translation, wxyz])
    return rows
