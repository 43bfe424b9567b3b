"""``geocaps locate``, ``scene`` and ``track``: objects found in scans, and followed from frame to frame."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import UNSET, DropInvalid, Flag, Json, OutFile, OutFolder, Text, Weights
from geocaps.errors import UsageError

if TYPE_CHECKING:
    from geocaps.apps.track import Tracked, Tracker
    from geocaps.apps.track.files import Shot

Viewer = Annotated[Optional[tuple[float, float, float]], UNSET]  # noqa: UP045 - as in output


def locate(
    model: Annotated[str, Positional, arg(metavar="MODEL")],
    scan: Annotated[str, Positional, arg(metavar="SCAN")],
    out: OutFile = None,
    viewer: Viewer = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Find every instance of a known object in a cluttered scan, or report that there is none.

    Prints T_scan_model (x_scan = R x_model + t) of each instance, the confidence, and how much of the surface that
    should be visible is there.

    Example: geocaps locate part.obj bin.pcd --out finds.json

    Args:
        model: The object: a mesh or a cloud of its whole surface, in the units of the scan.
        scan: The scan to search.
        out: Output file: .json, or the instances in their poses as PLY, OBJ, STL or GLB (a mesh stays a mesh), XYZ,
            NPY, NPZ or PCD.
        viewer: Position of the sensor, in the coordinates of the scan (default: the origin, if the scan may have been
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
            f"find {number}       confidence {one.confidence:.2f}, {one.explained:.0%} of what should be "
            f"visible is seen, {one.visible:.0%} of the surface",
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
    """Find the objects in a scan, each with its capsule and completed shape; with an index, also names and poses.

    Supporting planes are removed first. The number of objects need not be known.

    Example: geocaps scene scan.ply --index shapes.lance --out scene

    Args:
        scan: A scan of objects on a floor or a table.
        out: Folder for the results: scene.json, the scan coloured by object (labels.ply), and the points and completed
            shape of each object (object_0.ply, object_0_whole.ply and so on).
        index: Index of known objects to name them by (geocaps index add).
        viewer: Position of the sensor, in the coordinates of the scan (default: the origin, if the scan may have been
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


def track(
    sources: Annotated[list[str], Positional, arg(metavar="[REFERENCE] FRAMES", help_behavior_hint="(required)")],
    out: OutFile = None,
    png: OutFile = None,
    viewer: tuple[float, float, float] = (0.0, 0.0, 0.0),
    viewer_unknown: Flag = False,
    drop_invalid: DropInvalid = False,
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Track an object through frames that each show only part of it, through occlusions too.

    Prints the number of frames in which it was found, and the reason where it was not. A frame that cannot be used is
    reported and skipped; NaN points in frames, where the sensor saw nothing, are left out. Each pose T_frame_reference
    is written as soon as it is known, so that a run that is killed keeps the poses so far.

    Example: geocaps track reference.ply frames/ --out poses.jsonl --png tracked.png

    Args:
        sources: The object as a mesh or a whole cloud, and its frames: a folder of clouds in the order of their names,
            or one NPY or NPZ file with an array [F, N, 3]. With frames alone, the first of them build up the object.
        out: Output file for the poses: .jsonl, .csv, or .txt in TUM's format (timestamp tx ty tz qx qy qz qw, where the
            timestamp is the frame number; frames in which the object is lost are left out).
        png: Output file for a picture of some frames, with the object in the colours of its visible parts.
        viewer: Position of the sensor, in the coordinates of the frames.
        viewer_unknown: Do not assume that the position of the sensor is known.
    """
    from contextlib import nullcontext

    from geocaps.apps.encode import load
    from geocaps.apps.track import Tracker
    from geocaps.apps.track.files import MOST_DRAWN, SUFFIXES, Frames, picture, poses_file
    from geocaps.geometry.sampling import at_most
    from geocaps.io.save import check_target, write_whole

    if not 1 <= len(sources) <= 2:
        raise UsageError(f"track takes a reference and frames, or frames alone, not {len(sources)} names")
    for target, suffixes in ((out, SUFFIXES), (png, (".png",))):
        check_target(target, suffixes, inputs=sources)
    frames = Frames(sources[-1])
    reference = sources[0] if len(sources) == 2 else None
    side = None if viewer_unknown else viewer
    tracker = Tracker(reference, model=load(weights), viewer=side, drop_invalid=drop_invalid)
    drawn = set(at_most(MOST_DRAWN, len(frames)).tolist() if png is not None else ())
    shots: list[Shot] = []
    lost: list[dict[str, Any]] = []
    confidence = 0.0
    started = time.perf_counter()
    with nullcontext() if out is None else poses_file(out) as poses, output.progress_bar("frames") as advance:
        for index, (name, frame) in enumerate(zip(frames.names, frames, strict=True)):
            found = tracker.update(frame)
            if poses is not None:
                poses.write(found, name)
            if found.lost:
                lost.append({"frame": index, "name": name, "reason": found.reason})
                output.tell(f"lost: {name}: {found.reason}")
            confidence += found.confidence
            if index in drawn:
                shots += _shot(tracker, found, frame, name)
            advance(index + 1, len(frames))
    rate = len(frames) / (time.perf_counter() - started)
    if png is not None and shots:
        write_whole(png, picture(shots))
    record = {
        "frames": len(frames),
        "tracked": len(frames) - len(lost),
        "lost": lost,
        "confidence": confidence / len(frames),
        "frames_per_second": rate,
        "out": out,
        "png": png,
    }
    lines = [
        f"frames       {len(frames)}, the object was found in {len(frames) - len(lost)} of them",
        f"confidence   {confidence / len(frames):.2f}  (mean)",
        f"rate         {rate:.1f} frames per second",
        *(f"wrote        {target}" for target in (out, png) if target is not None),
    ]
    output.show(json, record, lines)


def _shot(tracker: Tracker, found: Tracked, frame: Any, name: str) -> list[Shot]:
    """A frame to draw; nothing before there is a reference."""
    import numpy as np

    from geocaps.apps.clouds import as_cloud
    from geocaps.apps.track.files import Shot
    from geocaps.errors import GeocapsError

    if tracker.reference is None or tracker.part_labels is None:
        return []
    try:
        points = as_cloud(frame, 0, name, drop_invalid=True).points.astype(np.float64)
    except GeocapsError:  # it was reported when it was tracked
        points = np.empty((0, 3))
    moved = found.pose.apply(tracker.reference)
    return [Shot(name[-24:], found.lost, points, moved, tracker.part_labels, found.parts_visible)]
