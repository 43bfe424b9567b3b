"""``geocaps encode``, ``export``, ``parts``, ``complete`` and ``transfer``: objects encoded, segmented, completed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import Count, DropInvalid, Flag, Json, OutFile, OutFolder, Sources, Weights
from geocaps.errors import EncodingError, InvalidInputError, Skipped, UsageError

if TYPE_CHECKING:
    from geocaps.apps.parts import Decomposition
    from geocaps.apps.transfer import Transferred

_SHOWN = 20
_FORMATS = "Cloud or mesh: PLY, OBJ, STL, GLB, PCD, XYZ, NPY, LAS and more."
_File = Annotated[str, Positional, arg(metavar="FILE", help=_FORMATS)]


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
    points), part_percept; labels (the part of each point, -1 for stray points); center, scale (the normalisation);
    content_sha256, weights_sha256, geocaps_version.

    Memory use does not depend on the number of files. Re-run a stopped command to resume it. Files that cannot be read
    are skipped, reported, and listed in OUT.failed.json; the exit code is 1 only if no file could be read.

    Example: geocaps encode scans/ more/chair.obj --out capsules.parquet

    Args:
        sources: Files, folders (searched to any depth), data sets (.npz, .h5), or the embedded "shapes", "furniture".
        out: Output file: .parquet or .npz.
        engine: local: processes on this machine; ray: Ray Data, on the cluster at RAY_ADDRESS or started locally.
        workers: Number of processes (default: one per processor).
        overwrite: Replace an existing output file.
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
    again = f", {found.resumed} of them from an earlier run" if found.resumed else ""
    output.say(f"{found.out}: {found.objects} objects{again}")
    if found.failed:
        output.say(f"SKIPPED {len(found.failed)} that could not be encoded; full list: {found.out}.failed.json")
        _show_failed(found.failed)


def _show_failed(failed: Sequence[Skipped]) -> None:
    if failed:
        output.show_table(("file", "reason"), [(one.name, one.reason) for one in failed[:_SHOWN]])
    if len(failed) > _SHOWN:
        output.say(f"and {len(failed) - _SHOWN} more")


def export(
    *,
    out: Annotated[Path, arg(name="onnx", metavar="FILE", aliases=("--out",))],
    weights: Weights = None,
    points: Count = None,
    json: Json = False,
) -> None:
    """Export the encoder as one ONNX graph, for clouds with a fixed number of points.

    The graph is the whole encoder: it takes `points` [N, 3] (float32, your units, any order) and returns translation,
    wxyz, radius, feature, confidence, part_translation, part_wxyz, part_feature, part_share, part_percept, labels,
    center and scale, like `geocaps encode`. It does not read files, choose N points of a larger cloud (take any N at
    random), or decode surfaces. The graph is checked against the model on three objects before the file is kept.

    Takes a minute or two. Run it with:  onnxruntime.InferenceSession("encoder.onnx").run(None, {"points": xyz})

    Example: geocaps export --out encoder.onnx --points 1024

    Args:
        out: Output file: .onnx.
        points: Number of points in every cloud (default: the model's own).
    """
    from geocaps.apps.export import export_onnx

    with output.spinner("tracing the encoder, a minute or two"):
        done = export_onnx(out, weights=weights, points=points)
    lines = [
        f"{done.out}: {done.points} points, {done.bytes:,} bytes, opset {done.opset}",
        f"largest difference from the model on three objects: {done.difference:.1e} (relative)",
    ]
    output.show(json, done, lines)


def parts(
    file: _File,
    out: OutFile = None,
    surfaces: OutFile = None,
    png: OutFile = None,
    canonical: Flag = False,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Segment a cloud or mesh into parts, unsupervised; writes coloured points or faces, surfaces and a picture.

    Prints the number of points in each part, and its pose (position and orientation) in the units of the file. Stray
    points belong to no part: they are grey, and their label is -1.

    Example: geocaps parts chair.obj --out chair_parts.ply --surfaces chair_surfaces.glb --png chair.png

    Args:
        out: Output file for the object, coloured by part: PLY, GLB, XYZ, NPZ or PCD; a mesh stays a mesh with coloured
            faces in PLY, OBJ and GLB.
        surfaces: Output file for the decoded surface of each part, in its colour: GLB, OBJ or PLY.
        png: Output file for a picture of the coloured object and the surfaces.
        canonical: Colour --out and --png by canonical labels, which number the same part alike in every scan and every
            object of its kind.
    """
    from geocaps.apps.encode import load
    from geocaps.apps.parts import parts as find
    from geocaps.io.save import CLOUD_SUFFIXES, COLORED_MESH_SUFFIXES, check_target

    for target, suffixes in (
        (out, sorted({*CLOUD_SUFFIXES, *COLORED_MESH_SUFFIXES} - {".npy"})),  # NPY holds points alone
        (surfaces, COLORED_MESH_SUFFIXES),
        (png, (".png",)),
    ):
        check_target(target, suffixes, inputs=(file,))
    if out is not None and surfaces is not None and out.resolve() == surfaces.resolve():
        raise UsageError(f"--out and --surfaces are both {out}: choose two different names")
    found = find(file, load(weights), drop_invalid=drop_invalid)
    if out is not None:
        found.save(out, canonical=canonical)
    if surfaces is not None:
        found.save_surfaces(surfaces)
    if png is not None:
        found.save_png(png, canonical=canonical)
    if json:
        files = {"out": out, "surfaces": surfaces, "png": png}
        output.print_json({**_parts_record(found), "canonical": canonical, **files})
        return
    from rich.text import Text

    rows: list[list[Any]] = []
    counts = found.canonical_counts if canonical else found.counts
    for j, count in enumerate(counts):
        mark = Text.assemble(("■", "#{:02x}{:02x}{:02x}".format(*found.colors[j])), f" {j}")
        row = [mark, f"{count:,}", f"{count / len(found.points):.0%}"]
        if not canonical:  # poses are those of the part capsules
            row.append(", ".join(f"{value:.4g}" for value in found.capsules.pose.translation[j].tolist()))
            row.append(", ".join(f"{value:.3f}" for value in found.capsules.pose.wxyz[j].tolist()))
        rows.append(row)
    output.show_table(("part", "points", "share", *(() if canonical else ("translation", "wxyz"))), rows)
    stray = len(found.points) - int(counts.sum())
    written = [f"wrote {target}" for target in (out, surfaces, png) if target is not None]
    output.say(
        f"{found.name}: {len(found.points):,} points in {len(found)} parts" + (f", {stray:,} stray" if stray else ""),
        *written,
    )


def _parts_record(found: Decomposition) -> dict[str, Any]:
    feature = found.capsules.feature
    return {
        "file": found.name,
        "points": len(found.points),
        "dropped": found.dropped,
        "stray": int((found.labels < 0).sum()),
        "faces": None if found.faces is None else len(found.faces),
        "feature_size": feature.shape[-1],
        "surface_points": found.surfaces.shape[1],
        "parts": [
            {
                "points": int(count),
                "canonical_points": int(canonical_count),
                "faces": None if found.face_labels is None else int((found.face_labels == j).sum()),
                **output.record(found.capsules.pose[j], "translation", "wxyz"),
                "feature": feature[j],
                "color": found.colors[j],
            }
            for j, (count, canonical_count) in enumerate(zip(found.counts, found.canonical_counts, strict=True))
        ],
    }


def complete(
    file: _File,
    out: Annotated[Path, arg(metavar="FILE")],
    png: OutFile = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Complete a partial scan: writes points of the whole object, including what the scan did not see.

    The points are decoded from the object capsule, in the coordinates and units of the scan. Prints the radius and the
    centre of the whole object, and the confidence in its pose: the lower it is, the less reliable is the unseen side.

    Example: geocaps complete scan.ply --out whole.ply --png both.png

    Args:
        out: Output file for the points of the whole object: PLY, GLB, XYZ, NPY, NPZ or PCD.
        png: Output file for a picture of the scan and the completed object.
    """
    from geocaps.apps.encode import load
    from geocaps.apps.parts import complete as find
    from geocaps.io.save import CLOUD_SUFFIXES, check_target

    check_target(out, CLOUD_SUFFIXES, inputs=(file,))
    check_target(png, (".png",))
    found = find(file, load(weights), drop_invalid=drop_invalid)
    found.save(out)
    if png is not None:
        found.save_png(png)
    record: dict[str, Any] = {"name": found.name, "given": len(found.given), "points": len(found.points)}
    record |= output.record(found, "dropped", "radius", "center", "confidence", "ambiguous")
    center = ", ".join(f"{value:.9g}" for value in found.center.tolist())
    lines = [
        f"{found.name}: {len(found.given):,} points completed to {len(found.points):,}",
        f"centre       ({center})",
        f"radius       {found.radius:.6g}",
        f"confidence   {found.confidence:.2f}" + ("  AMBIGUOUS" if found.ambiguous else ""),
        *(f"wrote        {target}" for target in (out, png) if target is not None),
    ]
    output.show(json, {**record, "out": out, "png": png}, lines)


def transfer(
    labelled: Annotated[str, Positional, arg(metavar="LABELLED")],
    targets: Annotated[list[str], Positional, arg(metavar="TARGETS", help_behavior_hint="(required)")],
    out: OutFolder = None,
    suffix: str = ".ply",
    png: OutFile = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Transfer point labels from one or a few objects to others of the same kind, in arbitrary orientations.

    Prints the number of points with each label, the mean confidence in the labels, and the labelled object that most of
    them come from. Files that cannot be read are reported and skipped.

    Example: geocaps transfer labelled.ply chairs/ --out labelled_chairs --png labelled.png

    Args:
        labelled: File with a label for each point (a scalar "label" in PLY, an array "labels" in NPZ, a column of
            whole numbers in XYZ or TXT), or a folder of such files.
        targets: Clouds, meshes, or folders of them.
        out: Folder for the labelled results, with a confidence for each point; files keep their names.
        suffix: Format of the files in --out: .ply, .npz, .xyz or .pcd.
        png: Output file for a picture of the labelled objects, followed by the results.
    """
    from geocaps.apps.canonical import MOST_DRAWN, find_jobs
    from geocaps.apps.encode import load
    from geocaps.apps.transfer import SUFFIXES, references, save_png, transfer_each
    from geocaps.io.save import check_target

    if suffix not in SUFFIXES:
        raise UsageError(f"the suffix {suffix} cannot hold labels: choose one of {' '.join(SUFFIXES)}")
    check_target(png, (".png",))
    jobs = find_jobs(targets, out, suffix)
    model = load(weights)
    known = references(labelled, model, drop_invalid=drop_invalid)
    objects: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    drawn: list[Transferred] = []
    results = transfer_each(known, jobs, model, drop_invalid=drop_invalid)
    for index, found in output.worked("labels", jobs, results, skipped):
        objects.append(_transferred_record(found) | {"out": jobs[index].target})
        if png is not None and len(drawn) < MOST_DRAWN:
            drawn.append(found)
    if not objects:
        raise InvalidInputError(f"none of the {len(jobs)} files could be labelled")
    if png is not None:
        save_png(png, drawn, known)
    if json:
        output.print_json({"labelled": [one.name for one in known], "objects": objects, "skipped": skipped, "png": png})
        return
    rows = [
        [
            one["file"],
            f"{one['points']:,}",
            "  ".join(f"{name}: {count:,}" for name, count in one["labels"].items()),
            f"{one['confidence']:.2f}",
            one["source"],
        ]
        for one in objects
    ]
    output.show_table(("object", "points", "points per label", "confidence", "labels from"), rows)
    output.say_written(objects, skipped, out, png)


def _transferred_record(found: Transferred) -> dict[str, Any]:
    import numpy as np

    names, counts = np.unique(found.labels, return_counts=True)
    return {
        "file": found.name,
        "points": len(found.points),
        "dropped": found.dropped,
        "labels": {str(name): int(count) for name, count in zip(names.tolist(), counts.tolist(), strict=True)},
        "confidence": float(found.confidence.mean()),
        "source": found.source,
        "similarity": found.similarity,
    }
