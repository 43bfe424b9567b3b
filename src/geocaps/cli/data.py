"""``geocaps data``: look into data sets, make one of a folder of meshes, fetch the public ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from geocaps.cli.output import UNSET, console, messages, print_json, progress_bar
from geocaps.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from geocaps.data.download import Source
    from geocaps.data.pack import PackReport
    from geocaps.data.survey import Survey


def info(source: Positional[str], /, *, split: Annotated[str | None, UNSET] = None, json: bool = False) -> None:
    """What a data set holds, and what is wrong with it; or what a single cloud or mesh is.

    Counts per class, points per object, extents, and problems: points that are not finite, empty or constant clouds,
    duplicated objects, labels out of range, files that cannot be read. Every object is read once. Of a
    single file: points, faces, extents, units if known, duplicated, invalid and stray points.

    Example:  geocaps data info my_meshes/     or     geocaps data info furniture --json

    Args:
        source: "shapes", "furniture", an .npz, HDF5, a folder of HDF5 files or of meshes and clouds, or one of these.
        split: Only this split: train, val or test.
        json: One JSON object on standard output.
    """
    if source not in ("shapes", "furniture") and Path(source).is_file():
        from geocaps.apps.about import about_file
        from geocaps.cli.info import file_lines

        single = about_file(source)
        if single.kind != "data set":
            if split is not None:
                raise UsageError(f"--split is for data sets, and {source} is a single {single.kind}")
            if json:
                print_json({"file": asdict(single)})
            else:
                _say(console(), "\n".join(file_lines(single)))
            return
    from geocaps.data import survey

    with progress_bar() as (progress, task):
        found = survey(source, split=split, on_object=lambda done, of: progress.update(task, completed=done, total=of))
    if json:
        print_json(asdict(found))
    else:
        _show_survey(found)


def pack(
    folder: Positional[Path],
    output: Positional[Path],
    /,
    *,
    points: int = 2048,
    seed: int = 0,
    workers: Annotated[int | None, UNSET] = None,
    drop_invalid: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Sample a folder of meshes or clouds into one .npz data set.

    A sub-folder is a class; folders named train, val or test are splits. Objects are centred and scaled to the unit
    sphere. A run that was stopped goes on where it was when called again. Files that cannot be read are listed.

    Example:  geocaps data pack my_meshes/ my_set.npz --points 4096

    Args:
        folder: Where the files are.
        output: The .npz to write.
        points: Points per object. Twice what a training step takes gives it two independent samplings.
        seed: Another seed gives other points.
        workers: Processes; as many as there are processors when not given.
        drop_invalid: Leave out points that are NaN or infinite; otherwise such files are skipped, but for PCD files.
        overwrite: Replace the output, and drop unfinished work of another call.
        json: One JSON object on standard output.
    """
    from geocaps.data.pack import pack as run

    with progress_bar() as (progress, task):
        report = run(
            folder,
            output,
            points=points,
            seed=seed,
            workers=workers,
            drop_invalid=drop_invalid,
            overwrite=overwrite,
            on_file=lambda done, of: progress.update(task, completed=done, total=of),
        )
    if json:
        print_json({**asdict(report), "output": str(report.output)})
    else:
        _show_packed(report)


def download(
    name: Annotated[Positional[str], UNSET] = "",
    /,
    *,
    to: Path = Path("data"),
    url: Annotated[str | None, UNSET] = None,
    sha256: Annotated[str | None, UNSET] = None,
    json: bool = False,
) -> None:
    """Fetch a public data set, or say how to get it; without a name, list the known ones.

    A transfer that was cut off goes on when called again. The file is checked against its known checksum, else its
    SHA-256 is printed and kept beside it, and a later download must fit.

    Example:  geocaps data download modelnet40 --to data

    Args:
        name: modelnet40, shapenet_core55, shapenet_v2, shapenet_part, or any name with --url.
        to: The folder to download into.
        url: Another address of the file (a mirror).
        sha256: The checksum that the file must have.
        json: One JSON object on standard output.
    """
    from geocaps.data.download import download as run
    from geocaps.data.download import sources

    known = sources()
    if not name and (url is not None or sha256 is not None):
        raise UsageError("--url and --sha256 need a name for the data set: give it one, which becomes its folder")
    if not name:
        _show_sources(known, json)
        return
    source = known.get(name)
    if source is not None and source.url is None and url is None:
        if json:
            print_json({"status": "by hand", **asdict(source)})
        raise DatasetError(f"{name} cannot be fetched by a program: {source.how}")
    if source is not None:
        _say(messages(), f"{source.title}\nLicence: {source.licence}. See {source.page}")
    with progress_bar(is_bytes=True) as (progress, task):
        got = run(
            name,
            to,
            url=url,
            sha256=sha256,
            on_bytes=lambda done, of: progress.update(task, completed=done, total=of),
        )
    if json:
        status = "downloaded" if got.fetched else "already there"
        print_json({"status": status, **asdict(got), "path": str(got.path), "archive": str(got.archive)})
        return
    out = console()
    _say(out, f"{'downloaded' if got.fetched else 'already there'}: {got.path}")
    _say(out, f"sha256 {got.sha256}")
    _say(
        out, f"checked against {got.checked_against or 'nothing: no checksum is known; this one is kept for next time'}"
    )


def _say(out: Console, text: str, style: str | None = None) -> None:
    """A line for people as it is: no markup in it, and no line breaks within a path."""
    out.print(text, style=style, markup=False, soft_wrap=True)


def _show_survey(found: Survey) -> None:
    from rich.table import Table

    out = console()
    _say(out, f"{found.name}: {found.objects} objects, fingerprint {found.fingerprint}")
    if found.classes:
        table = Table("class", "objects")
        for name, count in found.classes.items():
            table.add_row(name, str(count))
        if found.unlabelled:
            table.add_row("(no label)", str(found.unlabelled))
        out.print(table)
    if found.splits:
        _say(out, "splits: " + ", ".join(f"{name} {count}" for name, count in found.splits.items()))
    if found.point_counts and found.radii and found.lowest and found.highest:
        _say(out, "points per object: {} (median {}) to {}".format(*found.point_counts))
        _say(out, "half diagonal: {:.4g} (median {:.4g}) to {:.4g}".format(*found.radii))
        corners = " to ".join(
            "(" + ", ".join(f"{value:.4g}" for value in c) + ")" for c in (found.lowest, found.highest)
        )
        _say(out, f"extent: {corners}")
    if not found.problems:
        _say(out, "no problems found")
    for problem in found.problems:
        _say(out, f"problem: {problem.kind}: {problem.count}", style="bold red")
        for example in problem.examples:
            _say(out, f"  {example}")
        if problem.count > len(problem.examples):
            _say(out, f"  and {problem.count - len(problem.examples)} more")


def _show_packed(report: PackReport) -> None:
    out = console()
    again = f", {report.resumed} files were done by an earlier run" if report.resumed else ""
    _say(out, f"{report.output}: {report.objects} objects of {report.points} points{again}")
    for skipped in report.skipped:
        _say(out, f"skipped {skipped.object_id}: {skipped.reason}")


def _show_sources(known: dict[str, Source], json: bool) -> None:
    if json:
        print_json({"sources": {name: asdict(source) for name, source in known.items()}})
        return
    out = console()
    for name, source in known.items():
        _say(out, f"{name}: {source.title}")
        _say(out, f"  licence: {source.licence}; see {source.page}")
        _say(out, f"  checksum: {source.checksum or 'unknown'} ({source.checksum_note})")
        _say(out, f"  how: {source.how}")
