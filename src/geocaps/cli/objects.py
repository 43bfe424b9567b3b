"""``geocaps align``, ``canonical``, ``parts``, ``complete``, ``transfer``: objects laid on one another, turned, cut up,
made whole, labelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import DropInvalid, Flag, Json, OutFile, OutFolder, Weights
from geocaps.errors import InvalidInputError, Skipped, UsageError

if TYPE_CHECKING:
    from geocaps.apps.align import Alignment
    from geocaps.apps.canonical import Job
    from geocaps.apps.parts import Decomposition
    from geocaps.apps.transfer import Transferred

Result = TypeVar("Result")
_LITTLE = 0.5
_FORMATS = "Cloud or mesh: PLY, OBJ, STL, GLB, PCD, XYZ, NPY, LAS and more."
_File = Annotated[str, Positional, arg(metavar="FILE", help=_FORMATS)]


def align(
    a: Annotated[str, Positional, arg(metavar="A")],
    b: Annotated[str, Positional, arg(metavar="B")],
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
    from geocaps.apps.align import align as find
    from geocaps.apps.clouds import as_cloud
    from geocaps.io.save import CLOUD_SUFFIXES, MESH_SUFFIXES, Mesh, check_target, save_cloud, save_meshes

    if out is not None:
        check_target(out, {*CLOUD_SUFFIXES, *MESH_SUFFIXES}, inputs=(a, b))
    moving = as_cloud(a, 0, "A", drop_invalid=drop_invalid)
    if out is not None and moving.faces is None and out.suffix.lower() not in CLOUD_SUFFIXES:
        raise UsageError(
            f"cannot write {out}: {a} is a cloud without faces, so the name must end in {' or '.join(CLOUD_SUFFIXES)}"
        )
    found = find(moving, b, refine=refine, scale=scale, drop_invalid=drop_invalid)
    if out is not None and moving.faces is not None and out.suffix.lower() in MESH_SUFFIXES:
        save_meshes(out, [Mesh(Path(moving.name).stem, found.apply(moving), moving.faces)])
    elif out is not None:
        save_cloud(out, found.apply(moving.points))
    record = output.record(found, "matrix", "pose", "scale", "error", "confidence", "overlap", "uncertain", "ambiguous")
    record["alternatives"] = [output.record(one, "pose", "scale", "confidence") for one in found.alternatives]
    output.show(json, {**record, "dropped": found.dropped, "out": out}, _lines(found, out))


def _lines(found: Alignment, out: Path | None) -> list[str]:
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
        lines += ["LITTLE OVERLAP: trust this only if one cloud is a part of the other; for other units try --scale."]
    if found.ambiguous:
        lines += ["AMBIGUOUS: the clouds look nearly the same in other poses, so this one is a choice among several."]
    if found.alternatives:
        lines += ["alternatives", *(f"  {one.confidence:.2f}  {text(one.pose)}" for one in found.alternatives)]
    return lines if out is None else [*lines, f"wrote        {out}"]


def canonical(
    files: Annotated[list[str], Positional, arg(metavar="FILES", help_behavior_hint="(required)")],
    out: OutFolder = None,
    suffix: str = ".ply",
    png: OutFile = None,
    like: OutFile = None,
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
        like: Object that stands as all should: the others, of its kind, are turned as it is. The confidence is then
            the share of the similar objects that say so.
    """
    from geocaps.apps.canonical import MOST_DRAWN, canonical_each, find_jobs, picture
    from geocaps.apps.encode import load
    from geocaps.geometry.sampling import evenly
    from geocaps.io.save import check_target, write_whole

    jobs = find_jobs(files, out, suffix)
    if png is not None:
        check_target(png, (".png",))
    drawn = set(evenly(min(len(jobs), MOST_DRAWN), len(jobs)).tolist() if png is not None else ())
    objects: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    thumbnails = []
    model = load(weights)
    example = None if like is None else model.encode(like, drop_invalid=drop_invalid)
    results = canonical_each(jobs, model, like=example, drop_invalid=drop_invalid)
    for index, found in _worked("canonical poses", jobs, results, skipped):
        record = {"file": found.name, "points": len(found.given)}
        record |= output.record(found, "dropped", "pose", "confidence", "ambiguous")
        others = [output.record(one, "pose", "probability") for one in found.alternatives]
        objects.append({**record, "alternatives": others, "out": jobs[index].target})
        if index in drawn:
            thumbnails.append(found.thumbnail())
    if not objects:
        raise InvalidInputError(f"none of the {len(jobs)} files could be brought to a canonical pose")
    if png is not None and thumbnails:
        write_whole(png, picture(thumbnails))
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
    _say_written(objects, skipped, out, png)


def _worked(
    title: str, jobs: Sequence[Job], results: Iterable[Result | Skipped], skipped: list[dict[str, Any]]
) -> Iterator[tuple[int, Result]]:
    """Results with their numbers, as they come; of many objects, those that cannot be read are told and listed."""
    with output.progress_bar(title) as advance:
        for index, found in enumerate(results):
            advance(index + 1, len(jobs))
            if not isinstance(found, Skipped):
                yield index, found
                continue
            if len(jobs) == 1:
                raise InvalidInputError(found.reason)
            skipped.append({"file": found.name, "reason": found.reason})
            output.tell(f"skipped: {found.reason}")


def _say_written(objects: Sequence[Any], skipped: Sequence[Any], *places: Path | None) -> None:
    output.say(
        f"{len(objects)} objects" + (f", {len(skipped)} skipped (see above)" if skipped else ""),
        *(f"wrote {where}" for where in places if where is not None),
    )


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
    """Cut a cloud or mesh into parts, without labels; writes them as coloured points or faces, surfaces and a picture.

    Prints the parts: how many points each has, and its pose (position and orientation) in the file's units. Stray
    points belong to no part: they are grey, and their label is -1.

    Example: geocaps parts chair.obj --out chair_parts.ply --surfaces chair_surfaces.glb --png chair.png

    Args:
        out: Where to write the object in the colours of its parts: PLY, GLB, XYZ, NPZ or PCD; a mesh stays a mesh
            with coloured faces in PLY, OBJ and GLB.
        surfaces: Where to write the decoded surface of each part, coloured: GLB, OBJ or PLY.
        png: Where to write a picture of both.
        canonical: Colour --out and --png by the object's own decomposition, in which a part keeps its number from one
            object or scan to another.
    """
    from geocaps.apps.encode import load
    from geocaps.apps.parts import parts as find
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
    """Complete a partial scan: writes points of the whole object, also where the scan has none.

    They are what the object capsule decodes to, in the scan's own coordinates and units. Prints the radius and the
    centre of the whole object, and the confidence in its pose: the lower it is, the less the unseen side is known.

    Example: geocaps complete scan.ply --out whole.ply --png both.png

    Args:
        out: Where to write the points of the whole object: PLY, GLB, XYZ, NPY, NPZ or PCD.
        png: Where to write a picture: as given, and whole.
    """
    from geocaps.apps.complete import complete as find
    from geocaps.apps.encode import load
    from geocaps.io.save import CLOUD_SUFFIXES, check_target

    check_target(out, CLOUD_SUFFIXES, inputs=(file,))
    if png is not None:
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
    """Put the labels of one object, or of a few, on all others of its kind, in arbitrary orientations.

    Prints for each object how its points are labelled, how far to trust it, and which labelled object it owes most to.
    Files that cannot be read are listed and skipped.

    Example: geocaps transfer labelled.ply chairs/ --out labelled_chairs --png labelled.png

    Args:
        labelled: File with a label for each point (a scalar "label" in PLY, an array "labels" in NPZ, a column of
            whole numbers in XYZ or TXT), or a folder of such files.
        targets: Clouds, meshes, or folders of them.
        out: Folder for the objects with labels and confidence, under their own names.
        suffix: Format of the files in --out: .ply, .npz, .xyz or .pcd.
        png: Where to write a picture: the labelled objects, then the others.
    """
    from geocaps.apps.canonical import MOST_DRAWN, find_jobs
    from geocaps.apps.encode import load
    from geocaps.apps.transfer import SUFFIXES, references, save_png, transfer_each
    from geocaps.io.save import check_target

    if suffix not in SUFFIXES:
        raise UsageError(f"the suffix {suffix} cannot hold labels: choose one of {' '.join(SUFFIXES)}")
    if png is not None:
        check_target(png, (".png",))
    jobs = find_jobs(targets, out, suffix)
    model = load(weights)
    known = references(labelled, model, drop_invalid=drop_invalid)
    objects: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    drawn: list[Transferred] = []
    results = transfer_each(known, jobs, model, drop_invalid=drop_invalid)
    for index, found in _worked("labels", jobs, results, skipped):
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
    output.show_table(("object", "points", "points of each label", "confidence", "labelled as"), rows)
    _say_written(objects, skipped, out, png)


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
