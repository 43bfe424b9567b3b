"""``geocaps track``: where an object is, frame by frame."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import DropInvalid, Flag, Json, OutFile, Weights
from geocaps.errors import UsageError

if TYPE_CHECKING:
    from geocaps.apps.track import Tracked, Tracker
    from geocaps.apps.track.picture import Shot


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
    """Follow an object through frames that each show a part of it, even while it is covered.

    Prints in how many frames it was found, and why not in the others. A frame that cannot be used is reported and
    skipped; NaN points in frames, where a sensor saw nothing, are left out.
    Each pose T_frame_reference is written as soon as it is known: if the run is killed, the poses so far are kept.

    Example: geocaps track reference.ply frames/ --out poses.jsonl --png tracked.png

    Args:
        sources: The object as a mesh or a whole cloud, and its frames: a folder of clouds in the order of their names,
            or one NPY or NPZ file with an array [F, N, 3]. Frames alone: the first of them build the object up.
        out: Where to write the poses: .jsonl, .csv, or .txt in TUM's format (timestamp tx ty tz qx qy qz qw, the
            timestamp is the number of the frame; without those where the object is lost).
        png: Where to write a picture: some frames, and the object in them in the colours of its visible parts.
        viewer: Where the sensor stands, in the coordinates of the frames.
        viewer_unknown: Say that it is not known where the sensor stands.
    """
    from contextlib import nullcontext

    from geocaps.apps.encode import load
    from geocaps.apps.track import Tracker
    from geocaps.apps.track.files import SUFFIXES, Frames, poses_file
    from geocaps.apps.track.picture import MOST_DRAWN, picture
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
        f"rate         {rate:.1f} frames a second",
        *(f"wrote        {target}" for target in (out, png) if target is not None),
    ]
    output.show(json, record, lines)


def _shot(tracker: Tracker, found: Tracked, frame: Any, name: str) -> list[Shot]:
    """What is drawn of a frame; nothing before there is a reference."""
    import numpy as np

    from geocaps.apps.clouds import as_cloud
    from geocaps.apps.track.picture import Shot
    from geocaps.errors import GeocapsError

    if tracker.reference is None or tracker.part_labels is None:
        return []
    try:
        points = as_cloud(frame, 0, name, drop_invalid=True).points.astype(np.float64)
    except GeocapsError:  # it was reported when it was tracked
        points = np.empty((0, 3))
    moved = found.pose.apply(tracker.reference)
    return [Shot(name[-24:], found.lost, points, moved, tracker.part_labels, found.parts_visible)]
