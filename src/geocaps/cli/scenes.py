"""``geocaps locate``, ``scene``: known objects in cluttered scans, and all objects of a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import UNSET, DropInvalid, Json, OutFile, OutFolder, Text, Weights
from geocaps.errors import UsageError

Viewer = Annotated[Optional[tuple[float, float, float]], UNSET]  # noqa: UP045 - as in output


def locate(
    model: Annotated[str, Positional, arg(metavar="MODEL")],
    scan: Annotated[str, Positional, arg(metavar="SCAN")],
    out: OutFile = None,
    viewer: Viewer = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Find every instance of a known object in a cluttered scan, or say that there is none.

    Prints T_scan_model (x_scan = R x_model + t) of each, the confidence, and how much of what should be seen of the
    object is seen.

    Example: geocaps locate part.obj bin.pcd --out finds.json

    Args:
        model: The object: a mesh or a cloud of its whole surface, in the units of the scan.
        scan: The scan to look in.
        out: Where to write the finds: .json, or the instances in their poses as PLY, OBJ, STL or GLB (a mesh stays a
            mesh), XYZ, NPY, NPZ or PCD.
        viewer: Where the sensor stood, in the coordinates of the scan (default: the origin, if the scan can have been
            taken from there).
    """
    from geocaps.apps.clouds import as_cloud
    from geocaps.apps.locate import locate as find
    from geocaps.io.save import CLOUD_SUFFIXES, MESH_SUFFIXES, check_target, write_whole

    check_target(out, {".json", *CLOUD_SUFFIXES, *MESH_SUFFIXES}, inputs=(model, scan))
    known = as_cloud(model, 0, "the model", drop_invalid=drop_invalid)
    if out is not None and known.faces is None and out.suffix.lower() not in {".json", *CLOUD_SUFFIXES}:
        raise UsageError(
            f"cannot write {out}: {model} is a cloud without faces, so the name must end in .json or "
            f"{' or '.join(CLOUD_SUFFIXES)}"
        )
    finds = find(known, scan, viewer=viewer, drop_invalid=drop_invalid)
    records = [output.record(one, "matrix", "pose", "confidence", "explained", "visible") for one in finds]
    written = out
    if out is not None and out.suffix.lower() == ".json":
        write_whole(out, output.json_text({"model": model, "scan": scan, "finds": records}).encode())
    elif out is not None and finds:
        _save_placed(out, known, finds)
    else:
        written = None  # there is nothing to place
    lines = [f"{len(finds)} found" if finds else "none found"]
    for number, one in enumerate(finds):
        lines += [
            f"find {number}       confidence {one.confidence:.2f}, {one.explained:.0%} of what should be seen is, "
            f"{one.visible:.0%} of the surface",
            *("  " + " ".join(f"{value:16.9g}" for value in row) for row in one.matrix),
        ]
    output.show(json, {"finds": records, "out": written}, lines if written is None else [*lines, f"wrote {written}"])


def _save_placed(out: Path, known: Any, finds: Any) -> None:
    import numpy as np

    from geocaps.io.save import MESH_SUFFIXES, Mesh, save_cloud, save_meshes

    if known.faces is not None and out.suffix.lower() in MESH_SUFFIXES:
        save_meshes(out, [Mesh(f"find_{place}", one.apply(known), known.faces) for place, one in enumerate(finds)])
    else:
        save_cloud(out, np.concatenate([one.apply(known.points) for one in finds]))


def scene(
    scan: Annotated[str, Positional, arg(metavar="SCAN")],
    out: OutFolder = None,
    index: Text = None,
    viewer: Viewer = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Find the objects of a scan, each with its capsule and its completed shape; with an index, their names and poses.

    Supporting planes are set aside. How many objects there are is found, not given.

    Example: geocaps scene scan.ply --index shapes.lance --out scene

    Args:
        scan: The scan: objects on a floor or a table.
        out: Folder for the results: scene.json, the scan in the colours of its objects (labels.ply), and the points and
            the completed shape of each object (object_0.ply, object_0_whole.ply and so on).
        index: Index that names the objects (geocaps index add).
        viewer: Where the sensor stood, in the coordinates of the scan (default: the origin, if the scan can have been
            taken from there).
    """
    from geocaps.apps.clouds import as_cloud
    from geocaps.apps.encode import load
    from geocaps.apps.scene import parse_scene

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"cannot write {out}: it is a file, not a folder")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"cannot write {out}: the folder {out.parent} does not exist")
    cloud = as_cloud(scan, 0, "the scan", drop_invalid=drop_invalid)
    model = load(weights)
    named: Any = None
    if index is not None:
        from geocaps.index import Index

        named = Index(index, model)
    found = parse_scene(cloud, named, model=model, viewer=viewer)
    objects = []
    for one in found.objects:
        entry = {"points": len(one.points), **output.record(one.capsule, "pose", "radius", "confidence")}
        if one.match is not None:
            entry["match"] = output.record(one.match, "name", "class_name", "matrix", "pose", "scale")
        objects.append(entry)
    planes = [{"normal": one.normal, "offset": one.offset, "points": int(one.on.sum())} for one in found.planes]
    record = {"objects": objects, "planes": planes, "out": out}
    if out is not None:
        _save_scene(out, cloud.points, found, output.json_text(record))
    count = "1 object" if len(objects) == 1 else f"{len(objects)} objects"
    lines = [f"{count}, {len(planes)} supporting plane{'' if len(planes) == 1 else 's'}"]
    for number, one in enumerate(found.objects):
        name = "" if one.match is None else f"  {one.match.name}"
        lines.append(f"object {number}     {len(one.points):,} points, confidence {one.capsule.confidence:.2f}{name}")
    output.show(json, record, lines if out is None else [*lines, f"wrote        {out}"])


def _save_scene(out: Path, points: Any, found: Any, record: str) -> None:
    from geocaps.apps.drawing import label_colors
    from geocaps.io.save import save_points, write_whole

    out.mkdir(exist_ok=True)
    save_points(
        out / "labels.ply", points, labels=found.labels, colors=label_colors(found.labels, max(len(found.objects), 1))
    )
    for number, one in enumerate(found.objects):
        save_points(out / f"object_{number}.ply", points[one.points])
        save_points(out / f"object_{number}_whole.ply", one.complete())
    write_whole(out / "scene.json", record.encode())
