"""``geocaps data``: inspect data sets, pack a folder of meshes into one, download the public ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from tyro.conf import Positional, arg

from geocaps.cli import output
from geocaps.cli.output import UNSET, Count, DropInvalid, Flag, Json, OutFile, Text
from geocaps.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from geocaps.data import Survey


def info(source: Positional[str], /, *, split: Text = None, json: Json = False) -> None:
    """Show what a data set holds and what is wrong with it, or what a single cloud or mesh holds.

    Counts per class, points per object, extents, and problems: points that are not finite, empty or constant clouds,
    duplicated objects, labels out of range, files that cannot be read. Every object is read once. Of a single file:
    points, faces, extents, units if known, duplicated, invalid and stray points.

    Example:  geocaps data info my_meshes/     or     geocaps data info furniture --json

    Args:
        source: shapes, furniture, an .npz or HDF5 file, a folder of HDF5 files, meshes or clouds, or one cloud or mesh.
        split: Only this split: train, val or test.
    """
    if source not in ("shapes", "furniture") and Path(source).is_file():
        from geocaps.cli.info import about_file, file_lines

        single = about_file(source)
        if single.kind != "data set":
            if split is not None:
                raise UsageError(f"--split is for data sets, and {source} is a single {single.kind}")
            output.show(json, {"file": single}, file_lines(single))
            return
    from geocaps.data import survey

    with output.progress_bar() as advance:
        found = survey(source, split=split, on_object=advance)
    if json:
        output.print_json(found)
    else:
        _show_survey(found)


def pack(
    folder: Positional[Path],
    file: Annotated[Positional[Optional[Path]], arg(metavar="[FILE]", help_behavior_hint="")] = None,  # noqa: UP045
    /,
    *,
    out: OutFile = None,
    points: int = 2048,
    seed: int = 0,
    workers: Count = None,
    drop_invalid: DropInvalid = False,
    overwrite: Flag = False,
    json: Json = False,
) -> None:
    """Sample a folder of meshes or clouds into one .npz data set.

    A sub-folder is a class; folders named train, val or test are splits. Objects are centred and scaled to the unit
    sphere. Re-run a stopped command to resume it. Files that cannot be read are listed and skipped.

    Example:  geocaps data pack my_meshes/ --out my_set.npz --points 4096

    Args:
        folder: The folder of the files.
        file: The .npz to write, in place of --out.
        out: The .npz to write.
        points: Points per object. Twice the number that training uses gives two independent samplings.
        seed: Seed of the sampling: another one gives other points.
        workers: Number of processes (default: as many as there are processors).
        overwrite: Replace the output, and drop unfinished work of another run.
    """
    from geocaps.data.folder import pack as run

    target = file if out is None else out
    if target is None or (out is not None and file is not None):
        raise UsageError("name one .npz to write: --out FILE")
    with output.progress_bar() as advance:
        report = run(
            folder,
            target,
            points=points,
            seed=seed,
            workers=workers,
            drop_invalid=drop_invalid,
            overwrite=overwrite,
            on_file=advance,
        )
    again = f", {report.resumed} files were done by an earlier run" if report.resumed else ""
    lines = [f"{report.output}: {report.objects} objects of {report.points} points{again}"]
    output.show(json, report, [*lines, *(f"skipped {one.name}: {one.reason}" for one in report.skipped)])


def download(
    name: Annotated[Positional[str], UNSET] = "",
    /,
    *,
    out: Annotated[Path, arg(name="to", metavar="DIR", aliases=("--out",))] = Path("data"),
    url: Text = None,
    sha256: Text = None,
    json: Json = False,
) -> None:
    """Download a public data set, or say how to get it; without a name, list the known ones.

    Re-run an interrupted download to resume it. The file is checked against its known checksum; without one, its
    SHA-256 is printed and kept beside it, and a later download must match.

    Example:  geocaps data download modelnet40 --out data

    Args:
        name: modelnet40, shapenet_core55, shapenet_v2, shapenet_part, or any name with --url.
        out: The folder to download into.
        url: Another address of the file (a mirror).
        sha256: The checksum that the file must have.
    """
    from geocaps.data.download import download as run
    from geocaps.data.download import sources

    known = sources()
    if not name and (url is not None or sha256 is not None):
        raise UsageError("--url and --sha256 need a name for the data set: give it one, which becomes its folder")
    if not name:
        lines = [
            f"{title}: {source.title}\n"
            f"  licence: {source.licence}; see {source.page}\n"
            f"  checksum: {source.checksum or 'unknown'} ({source.checksum_note})\n"
            f"  how: {source.how}"
            for title, source in known.items()
        ]
        output.show(json, {"sources": known}, lines)
        return
    source = known.get(name)
    if source is not None and source.url is None and url is None:
        if json:
            output.print_json({"status": "by hand", **asdict(source)})
        raise DatasetError(f"{name} cannot be fetched by a program: {source.how}")
    if source is not None:
        output.tell(source.title, f"Licence: {source.licence}. See {source.page}")
    with output.progress_bar(is_bytes=True) as advance:
        got = run(name, out, url=url, sha256=sha256, on_bytes=advance)
    status = "downloaded" if got.fetched else "already there"
    lines = [
        f"{status}: {got.path}",
        f"sha256 {got.sha256}",
        f"checked against {got.checked_against or 'nothing: no checksum is known; this one is kept for next time'}",
    ]
    output.show(json, {"status": status, **asdict(got)}, lines)


def _show_survey(found: Survey) -> None:
    output.say(f"{found.name}: {found.objects} objects, fingerprint {found.fingerprint}")
    if found.classes:
        unlabelled = [("(no label)", str(found.unlabelled))] if found.unlabelled else []
        output.show_table(("class", "objects"), [*((name, str(n)) for name, n in found.classes.items()), *unlabelled])
    if found.splits:
        output.say("splits: " + ", ".join(f"{name} {count}" for name, count in found.splits.items()))
    if found.point_counts and found.radii and found.lowest and found.highest:
        corners = ("(" + ", ".join(f"{value:.4g}" for value in c) + ")" for c in (found.lowest, found.highest))
        output.say(
            "points per object: {} (median {}) to {}".format(*found.point_counts),
            "half diagonal: {:.4g} (median {:.4g}) to {:.4g}".format(*found.radii),
            "extent: " + " to ".join(corners),
        )
    if not found.problems:
        output.say("no problems found")
    for problem in found.problems:
        output.say(f"problem: {problem.kind}: {problem.count}", style="bold red")
        output.say(*(f"  {example}" for example in problem.examples))
        if problem.count > len(problem.examples):
            output.say(f"  and {problem.count - len(problem.examples)} more")
