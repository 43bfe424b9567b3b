"""``geocaps align`` and ``canonical``: clouds aligned with each other, objects brought into canonical poses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import DropInvalid, Flag, Json, OutFile, OutFolder, Text, Weights
from geocaps.errors import InvalidInputError, UsageError

if TYPE_CHECKING:
    from geocaps.apps.align import Alignment
    from geocaps.apps.deviation import Deviation

_LITTLE = 0.5


def align(
    a: Annotated[str, Positional, arg(metavar="A")],
    b: Annotated[str, Positional, arg(metavar="B")],
    more: Annotated[tuple[str, ...], Positional, arg(metavar="C ...", help_behavior_hint="")] = (),
    refine: bool = True,
    scale: Flag = False,
    init: OutFile = None,
    out: OutFile = None,
    deviation: OutFile = None,
    png: OutFile = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Align cloud A with cloud B, whatever their orientations.

    Prints T_b_a (x_b = R x_a + t) as a 4 x 4 matrix and as translation and quaternion (wxyz), the residual, the
    confidence and, where other poses fit nearly as well, the alternatives.

    Three or more clouds are all brought into the frame of the first: every pair is aligned, and the poses are made
    consistent. A cloud that does not fit the others is named.

    Example: geocaps align scan.ply part.obj --out scan_on_part.ply
    Example: geocaps align front.ply left.ply back.ply --out merged.ply

    Args:
        a: Cloud or mesh to move: PLY, OBJ, STL, PCD, XYZ, NPY, LAS and more.
        b: Cloud or mesh that stays in place.
        more: Further scans; --out then holds all of them in the frame of A.
        refine: Refine the result by robust ICP.
        scale: Estimate the scale too, for clouds in different units that both show most of the object.
        init: Text file with an initial guess of T_b_a, a 4 x 4 matrix; only poses near it are considered.
        deviation: Output file for the points of A in the frame of B, coloured by their distance from B: red in front of
            its faces, blue behind them. If B has no faces, distances have no sign. PLY, GLB, XYZ, NPZ or PCD.
        png: Output file for a picture of A, B, and A aligned with B; with --deviation, of the coloured distances.
        out: Output file for A in the frame of B: PLY, OBJ, STL or GLB (a mesh stays a mesh), XYZ, NPY, NPZ or PCD.
    """
    from geocaps.apps.align import align as find
    from geocaps.apps.clouds import as_cloud
    from geocaps.io.save import CLOUD_SUFFIXES, MESH_SUFFIXES, Mesh, check_target, save_cloud, save_meshes, write_whole

    if more:
        if scale or init or deviation or png or not refine:
            raise UsageError("--scale, --no-refine, --init, --deviation and --png are for two clouds only")
        _align_many((a, b, *more), out, drop_invalid, json)
        return
    check_target(out, {*CLOUD_SUFFIXES, *MESH_SUFFIXES}, inputs=(a, b))
    check_target(deviation, {*CLOUD_SUFFIXES} - {".npy"}, inputs=(a, b))
    check_target(png, (".png",), inputs=(a, b))
    guess = None if init is None else _matrix(init)
    moving = as_cloud(a, 0, "A", drop_invalid=drop_invalid)
    if out is not None and moving.faces is None and out.suffix.lower() not in CLOUD_SUFFIXES:
        raise UsageError(
            f"cannot write {out}: {a} is a cloud without faces, so the name must end in {' or '.join(CLOUD_SUFFIXES)}"
        )
    staying = as_cloud(b, 0, "B", drop_invalid=drop_invalid)
    found = find(moving, staying, refine=refine, scale=scale, init=guess, drop_invalid=drop_invalid)
    if out is not None and moving.faces is not None and out.suffix.lower() in MESH_SUFFIXES:
        save_meshes(out, [Mesh(Path(moving.name).stem, found.apply(moving), moving.faces)])
    elif out is not None:
        save_cloud(out, found.apply(moving.points))
    away = None
    if deviation is not None:
        from geocaps.apps.deviation import deviation as deviation_of

        away = deviation_of(found.apply(moving.points), staying)
        save_cloud(deviation, away.points, colors=away.colors())
    if png is not None:
        from geocaps.apps.drawing import alignment_png  # matplotlib takes a second to import

        write_whole(png, alignment_png(found) if away is None else away.png())
    record = output.record(found, "matrix", "pose", "scale", "error", "confidence", "overlap", "uncertain", "ambiguous")
    record["alternatives"] = [output.record(one, "pose", "scale", "confidence") for one in found.alternatives]
    if away is not None:
        record["deviation"] = {"signed": away.signed, **away.figures(), "file": deviation}
    lines = [*_lines(found), *([] if away is None else _deviation_lines(away))]
    lines += [f"wrote        {path}" for path in (out, deviation, png) if path is not None]
    output.show(json, {**record, "dropped": found.dropped, "out": out, "png": png}, lines)


def _deviation_lines(away: Deviation) -> list[str]:
    figures = away.figures()
    side = "red in front of B's faces, blue behind them" if away.signed else "unsigned, because B has no faces"
    return [
        f"deviation    mean {figures['mean']:.4g}, RMS {figures['rms']:.4g}, 95 % within {figures['absolute_95']:.4g}, "
        f"from {figures['least']:.4g} to {figures['greatest']:.4g}  ({side})"
    ]


def _align_many(files: tuple[str, ...], out: Path | None, drop_invalid: bool, json: bool) -> None:
    from geocaps.apps.align.many import align_many
    from geocaps.io.save import CLOUD_SUFFIXES, check_target, save_cloud

    check_target(out, CLOUD_SUFFIXES, inputs=files)
    merged = align_many(files, drop_invalid=drop_invalid)
    if out is not None:
        save_cloud(out, merged.points())
    clouds, lines = [], []
    for place, name in enumerate(files):
        matrix, sure = merged.poses[place].matrix(), float(merged.confidence[place])
        clouds.append({"file": name, "matrix": matrix, "confidence": sure})
        lines += [f"{name}  (confidence {sure:.2f})  T_first_this ="]
        lines += ["  " + " ".join(f"{value:16.9g}" for value in row) for row in matrix]
    lines += [] if out is None else [f"wrote        {out}"]
    output.show(json, {"clouds": clouds, "out": out}, lines)


def _matrix(path: Path) -> Any:
    """The 4 x 4 matrix of a text file."""
    import numpy as np

    try:
        matrix = np.loadtxt(path, ndmin=2)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read the initial guess {path}: {str(error).splitlines()[0]}") from error
    if matrix.shape != (4, 4):
        raise InvalidInputError(f"the initial guess {path} must hold four lines of four numbers, not {matrix.shape}")
    return matrix


def _lines(found: Alignment) -> list[str]:
    def text(pose: Any) -> str:
        translation = ", ".join(f"{value:.9g}" for value in pose.translation.tolist())
        wxyz = ", ".join(f"{value:.9f}" for value in pose.wxyz.tolist())
        return f"translation ({translation})  wxyz ({wxyz})"

    lines = ["T_b_a =", *("  " + " ".join(f"{value:16.9g}" for value in row) for row in found.matrix)]
    lines += [f"pose         {text(found.pose)}"]
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
        lines += ["LITTLE OVERLAP: trust this only if one cloud is a part of the other; if units differ, try --scale."]
    if found.ambiguous:
        lines += ["AMBIGUOUS: other poses fit nearly as well, so this one is a choice among several."]
    if found.alternatives:
        lines += ["alternatives", *(f"  {one.confidence:.2f}  {text(one.pose)}" for one in found.alternatives)]
    return lines


def canonical(
    files: Annotated[list[str], Positional, arg(metavar="FILES", help_behavior_hint="(required)")],
    out: OutFolder = None,
    suffix: str = ".ply",
    png: OutFile = None,
    like: OutFile = None,
    up: Text = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Bring objects in arbitrary orientations into their canonical poses; writes files and one picture.

    Objects are moved rigidly, never scaled. An object that looks nearly the same in several poses gets one of them, and
    is marked as ambiguous. Files that cannot be read are reported and skipped.

    Example: geocaps canonical scans/ table.obj --out canonical --png side_by_side.png

    Args:
        files: Clouds, meshes, or folders of them.
        out: Folder for the objects in their canonical poses; files keep their names, and a mesh stays a mesh.
        suffix: Format of the files in --out: .ply, .obj, .stl, .glb, .xyz, .npy, .npz or .pcd.
        png: Output file for a picture: the objects as given above, in their canonical poses below.
        like: An example of the orientation wanted: objects of its kind are rotated to stand like it. The confidence is
            then the share of similar objects that agree.
        up: Axis that should point up: x, y or z. Objects are stood on a side that would support them, similar ones
            alike; the confidence is then that in the upward direction.
    """
    from geocaps.apps.canonical import MOST_DRAWN, canonical_each, find_jobs, picture, turning_by
    from geocaps.apps.encode import load
    from geocaps.geometry.sampling import at_most
    from geocaps.io.save import check_target, write_whole

    jobs = find_jobs(files, out, suffix)
    check_target(png, (".png",))
    drawn = set(at_most(MOST_DRAWN, len(jobs)).tolist() if png is not None else ())
    objects: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    thumbnails = []
    model = load(weights)
    turning = turning_by(None if like is None else model.encode(like, drop_invalid=drop_invalid), up)
    results = canonical_each(jobs, model, turning=turning, drop_invalid=drop_invalid)
    for index, found in output.worked("canonical poses", jobs, results, skipped):
        record = {"file": found.name, "points": len(found.given)}
        record |= output.record(found, "dropped", "pose", "confidence", "ambiguous", "oriented_by")
        others = [output.record(one, "pose", "probability") for one in found.alternatives]
        objects.append({**record, "alternatives": others, "out": jobs[index].target})
        if index in drawn:
            thumbnails.append(found.thumbnail())
    if not objects:
        raise InvalidInputError(f"none of the {len(jobs)} files could be brought to a canonical pose")
    if png is not None and thumbnails:
        write_whole(png, picture(thumbnails, up or "y"))
    if json:
        output.print_json({"objects": objects, "skipped": skipped, "png": png})
        return
    rows = []
    for one in objects:
        doubt = [
            *(["AMBIGUOUS"] if one["ambiguous"] else []),
            *(f"{o['probability']:.2f}" for o in one["alternatives"]),
        ]
        wxyz = ", ".join(f"{value:.3f}" for value in one["wxyz"])
        rows.append([one["file"], f"{one['points']:,}", f"{one['confidence']:.2f}", " ".join(doubt), wxyz])
    output.show_table(("object", "points", "confidence", "alternatives", "T_world_object: wxyz"), rows)
    output.say_written(objects, skipped, out, png)
