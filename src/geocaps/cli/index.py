"""``geocaps index``: a search index of objects, for retrieval in arbitrary orientations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import UNSET, DropInvalid, Json, OutFile, Sources, Weights, show
from geocaps.errors import SearchIndexError, UsageError

if TYPE_CHECKING:
    from geocaps.index import Index

_FOLDER = "Folder of the index, or an address on object storage such as s3://bucket/shapes.lance."
_Index = Annotated[str, Positional, arg(metavar="INDEX", help=_FOLDER)]
_Class = Annotated[Optional[str], arg(name="class", metavar="NAME", help_behavior_hint="")]  # noqa: UP045
_Pattern = Annotated[Optional[str], arg(metavar="PATTERN", help_behavior_hint="")]  # noqa: UP045


def add(
    index: _Index,
    sources: Sources,
    class_name: _Class = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Add folders and files to an index, which is created if it does not exist.

    Objects with the same content as one in the index are not added again, so re-run a stopped command to resume it.
    Files that cannot be read are reported and skipped.

    Example: geocaps index add shapes.lance my_meshes/

    Args:
        sources: Folders (a class per sub-folder), files, or the embedded sets: shapes, furniture.
        class_name: Class of everything that is added, instead of the names of the folders.
    """
    if not sources:
        raise UsageError(f"nothing to add to {index}: name folders, files, shapes or furniture")
    if Path(index).is_file():
        raise UsageError(f"{index} is a file, but an index is a folder: choose another name")
    from geocaps.data import EMBEDDED, load

    found = _opened(index, weights)
    # A folder of the name of an embedded set is ./shapes.
    named = [load(name) if name in EMBEDDED else name for name in sources]
    with output.progress_bar("adding") as advance:
        report = found.add(named, class_name=class_name, drop_invalid=drop_invalid, on_object=advance)
    if report.skipped and not report.added and not report.known:
        name, reason = report.skipped[0].name, report.skipped[0].reason
        first = reason if name in reason else f"{name}: {reason}"
        count = len(report.skipped)
        raise SearchIndexError(
            first if count == 1 else f"none of the {count} objects could be added to {index}; the first: {first}"
        )
    record = {"index": index, "objects": len(found), **vars(report)}
    show(json, record, [f"{index}: {report!r}", f"{len(found)} objects in all"])


def search(
    index: _Index,
    query: Annotated[str, Positional, arg(metavar="QUERY")],
    k: int = 10,
    verify: int = 100,
    class_name: _Class = None,
    path: _Pattern = None,
    out: OutFile = None,
    weights: Weights = None,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """Search an index for the object in a cloud, a mesh or a partial scan, with the pose that aligns it with the query.

    Candidates are the objects whose part percepts match best; each is verified by aligning the query with it. The
    result is "none of these" if nothing in the index explains the query. The pose of each hit is T_query_hit: x_query =
    scale R x_hit + t; its inverse is T_object_scan.

    Example: geocaps index search shapes.lance scan.ply --k 5 --out hits.png

    Args:
        query: Cloud, scan or mesh to look for: PLY, OBJ, STL, PCD, XYZ, NPY, LAS and more.
        k: Number of hits.
        verify: Number of candidates to verify; 0 for none.
        class_name: Only objects of this class.
        path: Only objects whose whole path matches a pattern with * and ?, such as "*/chairs/*".
        out: Output file for a picture of the hits (PNG).
    """
    from geocaps.io.save import check_target, write_whole

    if k < 1 or verify < 0:
        raise UsageError(f"--k must be at least 1 and --verify at least 0, not {k} and {verify}")
    check_target(out, (".png",))
    result = _opened(index, weights).search(
        query, k, verify=verify, class_name=class_name, path=path, drop_invalid=drop_invalid
    )
    if out is not None:
        write_whole(out, result.png())
    hits = [
        {
            **output.record(hit, "name", "path"),
            "class": hit.class_name,
            **output.record(hit, "similarity", "confidence", "overlap", "error", "matrix", "pose", "scale", "id"),
            "T_object_scan": hit.T_object_scan.matrix(),
        }
        for hit in result
    ]
    told = {"found": result.found, "verdict": result.verdict}
    record = {"index": index, "query": query, "dropped": result.dropped, **told, "hits": hits, "out": out}
    show(json, record, [repr(result), *([] if out is None else [f"wrote {out}"])])


def info(index: _Index, json: Json = False) -> None:
    """Show the contents of an index: objects, classes, and the weights that it was made with.

    Example: geocaps index info shapes.lance
    """
    found = _opened(index).info()
    show(json, found, [repr(found)])


def remove(
    index: _Index,
    class_name: _Class = None,
    path: _Pattern = None,
    id: Annotated[tuple[str, ...], UNSET] = (),
    json: Json = False,
) -> None:
    """Remove objects from an index: those that match all of the options. Their files are not touched.

    Example: geocaps index remove shapes.lance --path "*/old_scans/*"

    Args:
        class_name: Objects of this class.
        path: Objects whose whole path matches a pattern with * and ?.
        id: Objects with these ids, as in the JSON of a search.
    """
    if class_name is None and path is None and not id:
        raise UsageError("nothing to remove: give --class, --path or --id")
    found = _opened(index)
    removed = found.remove(class_name=class_name, path=path, ids=id or None)
    record = {"index": index, "removed": removed, "objects": len(found)}
    show(json, record, [f"{index}: {removed} removed, {len(found)} left"])


def _opened(index: str, weights: Path | None = None) -> Index:
    from geocaps.apps.encode import load
    from geocaps.index import Index

    return Index(index, None if weights is None else load(weights))
