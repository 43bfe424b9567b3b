"""``geocaps parts``: an object cut into parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import UNSET, console, print_json

if TYPE_CHECKING:
    from geocaps.apps.parts import Decomposition


def parts(
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), UNSET] = None,
    surfaces: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), UNSET] = None,
    png: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), UNSET] = None,
    weights: Annotated[Path | None, UNSET] = None,
    drop_invalid: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Cut a cloud or mesh into parts, without labels; writes them as coloured points or faces, surfaces and a picture.

    Prints the parts: how many points each has, and its pose (where it is and how it is turned) in the file's units.

    Example: geocaps parts chair.obj --out chair_parts.ply --surfaces chair_surfaces.glb --png chair.png

    Args:
        file: Cloud or mesh: PLY, OBJ, STL, GLB, PCD, XYZ, NPY, LAS and more.
        out: Where to write the object in the colours of its parts: PLY, GLB, XYZ, NPZ or PCD; a mesh stays a mesh
            with coloured faces in PLY, OBJ and GLB.
        surfaces: Where to write the decoded surface of each part, coloured: GLB, OBJ or PLY.
        png: Where to write a picture of both.
        weights: Checkpoint folder (default: the weights that ship with the package).
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output.
    """
    from geocaps.apps.encode import load
    from geocaps.apps.parts import parts as find
    from geocaps.errors import UsageError
    from geocaps.io.save import check_target
    from geocaps.io.scene import CLOUD_SUFFIXES, COLORED_MESH_SUFFIXES

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
            written.append(str(target))
    if json:
        print_json(_record(found) | {"out": _text(out), "surfaces": _text(surfaces), "png": _text(png)})
    else:
        _show(found, written)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


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
                "translation": pose.translation[j].tolist(),
                "wxyz": pose.wxyz[j].tolist(),
                "feature": feature[j].tolist(),
                "color": found.colors[j],
            }
            for j, count in enumerate(found.counts)
        ],
    }


def _show(found: Decomposition, written: list[str]) -> None:
    from rich.table import Table

    table = Table("part", "points", "share", "translation", "wxyz", title=None)
    for j, count in enumerate(found.counts):
        color = "#{:02x}{:02x}{:02x}".format(*found.colors[j])
        translation = ", ".join(f"{value:.4g}" for value in found.capsules.pose.translation[j].tolist())
        wxyz = ", ".join(f"{value:.3f}" for value in found.capsules.pose.wxyz[j].tolist())
        table.add_row(f"[{color}]■[/] {j}", f"{count:,}", f"{count / len(found.points):.0%}", translation, wxyz)
    screen = console()
    screen.print(table)
    screen.print(f"{found.name}: {len(found.points):,} points in {len(found)} parts", markup=False, soft_wrap=True)
    for path in written:
        screen.print(f"wrote {path}", markup=False, soft_wrap=True)
