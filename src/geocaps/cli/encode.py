"""``geocaps encode`` and ``export``: capsules of files and folders in one table, and the encoder for other runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from geocaps.cli import output
from geocaps.cli.output import Count, DropInvalid, Flag, Json, Sources, Weights
from geocaps.errors import EncodingError, Skipped

_SHOWN = 20


def encode(
    sources: Sources,
    /,
    *,
    out: Annotated[Path, arg(metavar="FILE")],
    weights: Weights = None,
    engine: Literal["local", "ray"] = "local",
    workers: Count = None,
    overwrite: Flag = False,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Encode files, folders and data sets into capsules: one row for each object, in Parquet or NPZ.

    Columns: name, path, member, points, dropped; translation and wxyz (the canonical pose) and radius of the whole
    object, in the units of the file; feature, confidence; part_translation, part_wxyz, part_feature, part_share (of the
    points), part_percept; labels (the part of each point, -1 for a stray one); center, scale (the normalisation);
    content_sha256, weights_sha256, geocaps_version.

    Memory does not grow with the folder. Re-run a stopped command to resume it. Files that cannot be read are skipped,
    shown, and listed in OUT.failed.json; the exit code is 1 only when no file can be read.

    Example: geocaps encode scans/ more/chair.obj --out capsules.parquet

    Args:
        sources: Files, folders (searched to any depth), data sets (.npz, .h5), or the embedded "shapes", "furniture".
        out: Where to write: a name that ends in .parquet or .npz.
        engine: local: processes on this machine. ray: Ray Data, on the cluster of RAY_ADDRESS or started here.
        workers: Number of processes (default: as many as there are processors).
        overwrite: Replace the output.
    """
    from geocaps.batch import encode_files

    try:
        with output.progress_bar("encoding") as advance:
            found = encode_files(
                sources,
                out,
                weights=weights,
                engine=engine,
                workers=workers,
                drop_invalid=drop_invalid,
                overwrite=overwrite,
                on_object=advance,
            )
    except EncodingError as error:
        if json:
            output.print_json({"out": None, "objects": 0, "failed": error.failed})
        else:
            _show_failed(error.failed)
        raise
    if json:
        output.print_json(found)
        return
    again = f", {found.resumed} objects were done by an earlier run" if found.resumed else ""
    output.say(f"{found.out}: {found.objects} objects{again}")
    if found.failed:
        output.say(f"SKIPPED {len(found.failed)} that could not be encoded; all are listed in {found.out}.failed.json")
        _show_failed(found.failed)


def _show_failed(failed: Sequence[Skipped]) -> None:
    if failed:
        output.show_table(("file", "why it was skipped"), [(one.name, one.reason) for one in failed[:_SHOWN]])
    if len(failed) > _SHOWN:
        output.say(f"and {len(failed) - _SHOWN} more")


def export(
    *,
    out: Annotated[Path, arg(name="onnx", metavar="FILE", aliases=("--out",))],
    weights: Weights = None,
    points: Count = None,
    json: Json = False,
) -> None:
    """Write the encoder as one ONNX graph, for clouds of a fixed number of points.

    The whole encoder is in the graph: it takes `points` [N, 3] (float32, your units, any order) and gives translation,
    wxyz, radius, feature, confidence, part_translation, part_wxyz, part_feature, part_share, part_percept, labels,
    center and scale, as `geocaps encode` does. Not in it: reading files, choosing N points of a larger cloud (take any
    N at random), and decoding surfaces. The graph is compared with the model on three objects before it is kept.

    Takes a minute or two. Run it with:  onnxruntime.InferenceSession("encoder.onnx").run(None, {"points": xyz})

    Example: geocaps export --out encoder.onnx --points 1024

    Args:
        out: Where to write: a name that ends in .onnx.
        points: Number of points of every cloud (default: as many as the model takes).
    """
    from geocaps.apps.export import export_onnx

    with output.spinner("tracing the encoder, a minute or two"):
        done = export_onnx(out, weights=weights, points=points)
    lines = [
        f"{done.out}: {done.points} points, {done.bytes:,} bytes, opset {done.opset}",
        f"largest difference from the model on three objects: {done.difference:.1e} (relative)",
    ]
    output.show(json, done, lines)
