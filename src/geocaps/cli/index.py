"""``geocaps index``: add objects to a search index, and find them again whatever way they are turned."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import UNSET, console, print_json, progress_bar
from geocaps.errors import SearchIndexError, UsageError

if TYPE_CHECKING:
    from geocaps.index import Hit, Index

_Index = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")]
_Class = Annotated[str | None, tyro.conf.arg(name="class", metavar="NAME")]
_Pattern = Annotated[str | None, tyro.conf.arg(metavar="PATTERN")]
_Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def add(
    index: _Index,
    sources: Annotated[
        list[str], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="(required)")
    ],
    class_name: Annotated[_Class, UNSET] = None,
    weights: Annotated[Path | None, UNSET] = None,
    drop_invalid: _Flag = False,
    json: _Flag = False,
) -> None:
    """Add folders and files to an index; it is made when it is not there.

    What is in the index already, by content, is not added again: a run that was stopped goes on when called again.
    Files that cannot be read are listed and left out.

    Example: geocaps index add shapes.lance my_meshes/

    Args:
        index: Folder of the index, or an address on object storage such as s3://bucket/shapes.lance.
        sources: Folders (a class per sub-folder), files, or the embedded sets: shapes, furniture.
        class_name: Class of everything that is added, in place of the folders' names.
        weights: Checkpoint folder (default: the weights that ship with the package).
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output.
    """
    if not sources:
        raise UsageError(f"nothing was named to add to {index}: name folders, files, shapes or furniture")
    if Path(index).is_file():
        raise UsageError(f"{index} is a file, and an index is a folder: choose another name")
    found = _opened(index, weights)
    with progress_bar("adding") as (progress, task):
        report = found.add(
            [_source(one) for one in sources],
            class_name=class_name,
            drop_invalid=drop_invalid,
            on_object=lambda done, of: progress.update(task, completed=done, total=of),
        )
    if report.skipped and not report.added and not report.known:
        name, reason = report.skipped[0].name, report.skipped[0].reason
        first = reason if name in reason else f"{name}: {reason}"
        count = len(report.skipped)
        raise SearchIndexError(
            first if count == 1 else f"none of the {count} objects could be added to {index}; the first: {first}"
        )
    if json:
        print_json({"index": index, "objects": len(found), **asdict(report)})
    else:
        console().print(f"{index}: {report!r}\n{len(found)} objects in all", markup=False, soft_wrap=True)


def search(
    index: _Index,
    query: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUERY")],
    k: int = 10,
    rerank: int = 20,
    class_name: Annotated[_Class, UNSET] = None,
    path: Annotated[_Pattern, UNSET] = None,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), UNSET] = None,
    weights: Annotated[Path | None, UNSET] = None,
    drop_invalid: _Flag = False,
    json: _Flag = False,
) -> None:
    """Find the objects most like a cloud or mesh, and the poses that bring them onto it.

    Nearest by pose-invariant feature; the best are then aligned with the query and put in order by their Chamfer
    distance. Each hit's pose is T_query_hit: x_query = scale R x_hit + t.

    Example: geocaps index search shapes.lance scan.ply --k 5 --out hits.png

    Args:
        index: Folder of the index, or an address on object storage.
        query: Cloud or mesh to look for: PLY, OBJ, STL, PCD, XYZ, NPY, LAS and more.
        k: Hits that are shown.
        rerank: Nearest features that are aligned and put in order by Chamfer distance; 0 for none.
        class_name: Only objects of this class.
        path: Only objects whose whole path fits a pattern with * and ?, such as "*/chairs/*".
        out: Where to write a picture of the hits (PNG).
        weights: Checkpoint folder (default: the weights that ship with the package).
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output.
    """
    from geocaps.io.save import check_target
    from geocaps.io.scene import write_whole

    if k < 1 or rerank < 0:
        raise UsageError(f"--k must be at least 1 and --rerank at least 0, not {k} and {rerank}")
    if out is not None:
        check_target(out, (".png",))
    result = _opened(index, weights).search(
        query, k, rerank=rerank, class_name=class_name, path=path, drop_invalid=drop_invalid
    )
    if out is not None:
        write_whole(out, result.png())
    if json:
        record = {"index": index, "query": query, "dropped": result.dropped, "hits": [_record(hit) for hit in result]}
        print_json(record | {"out": None if out is None else str(out)})
        return
    console().print(repr(result), markup=False, soft_wrap=True)
    if out is not None:
        console().print(f"wrote {out}", markup=False, soft_wrap=True)


def info(index: _Index, json: _Flag = False) -> None:
    """What an index holds: objects, classes, the weights that it was made with.

    Example: geocaps index info shapes.lance

    Args:
        index: Folder of the index, or an address on object storage.
        json: One JSON object on standard output.
    """
    from geocaps.index import Index

    found = Index(index).info()
    if json:
        print_json(asdict(found))
    else:
        console().print(repr(found), markup=False, soft_wrap=True)


def remove(
    index: _Index,
    class_name: Annotated[_Class, UNSET] = None,
    path: Annotated[_Pattern, UNSET] = None,
    id: Annotated[tuple[str, ...], UNSET] = (),
    json: _Flag = False,
) -> None:
    """Take objects out of an index: those that fit everything given. No file of theirs is touched.

    Example: geocaps index remove shapes.lance --path "*/old_scans/*"

    Args:
        index: Folder of the index, or an address on object storage.
        class_name: Objects of this class.
        path: Objects whose whole path fits a pattern with * and ?.
        id: Objects with these ids, as in the JSON of a search.
        json: One JSON object on standard output.
    """
    from geocaps.index import Index

    if class_name is None and path is None and not id:
        raise UsageError("say what to remove: --class, --path or --id")
    found = Index(index)
    removed = found.remove(class_name=class_name, path=path, ids=id or None)
    if json:
        print_json({"index": index, "removed": removed, "objects": len(found)})
    else:
        console().print(f"{index}: {removed} removed, {len(found)} left", markup=False, soft_wrap=True)


def _opened(index: str, weights: Path | None) -> Index:
    from geocaps.apps.encode import load
    from geocaps.index import Index

    return Index(index, None if weights is None else load(weights))


def _source(name: str) -> Any:
    """A path, or the embedded set of that name (a folder that is called so is ./shapes)."""
    from geocaps.data import EMBEDDED, load

    return load(name) if name in EMBEDDED else name


def _record(hit: Hit) -> dict[str, Any]:
    return {
        "name": hit.name,
        "path": hit.path,
        "class": hit.class_name,
        "distance": hit.distance,
        "chamfer": hit.chamfer,
        "matrix": hit.matrix,
        "translation": hit.pose.translation.tolist(),
        "wxyz": hit.pose.wxyz.tolist(),
        "scale": hit.scale,
        "id": hit.id,
    }
