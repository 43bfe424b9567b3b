"""``geocaps info`` and ``geocaps data``: versions, weights and files; data sets surveyed, packed and downloaded."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

from tyro.conf import Positional, arg

import geocaps
from geocaps.cli import output
from geocaps.cli.output import UNSET, Count, DropInvalid, Flag, Json, OutFile, Text
from geocaps.errors import CheckpointError, DatasetError, FileFormatError, UsageError, install_hint

if TYPE_CHECKING:
    from geocaps.data import Survey
    from geocaps.io import FileReport


_CARD_LINES = 4
_DATA_SETS = (".npz", ".h5", ".hdf5")


def info(
    what: Annotated[str, Positional, arg(metavar="[WEIGHTS|FILE]"), UNSET] = "",
    /,
    *,
    json: Json = False,
) -> None:
    """Show versions, extras and the shipped weights, or the contents of a checkpoint folder or a file of points.

    Weights: size, checksum, the first lines of their card, configuration. A file: format, points, faces, bounds, units,
    duplicated, stray and invalid points.

    Example: geocaps info     or     geocaps info scan.ply --json

    Args:
        what: A checkpoint folder, or a cloud, mesh or data set; without it, the shipped weights.
    """
    if os.path.isdir(what) and not os.path.exists(os.path.join(what, "config.json")):
        raise CheckpointError(
            f"{what} is not a checkpoint: it has no config.json; for a folder of clouds use  geocaps data info {what}"
        )
    here, lines = _environment()
    if what and not os.path.isdir(what):
        file = about_file(what)
        output.show(json, {"environment": here, "file": file}, file_lines(file))
    else:
        weights, about = _weights(what or None)
        output.show(json, {"environment": here, "weights": weights}, about if what else [*lines, "", *about])


def _environment() -> tuple[dict[str, Any], list[str]]:
    """Versions and extras, as a record and as lines, without importing torch."""
    import platform
    import re
    from importlib import metadata

    def version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    # From the package's own metadata, which names what the installed version asks for.
    extras: dict[str, dict[str, str | None]] = {}
    for requirement in metadata.requires("geocaps") or ():
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if package is not None and extra is not None and extra[1] not in ("all", "test"):
            extras.setdefault(extra[1], {})[package[0]] = version(package[0])
    here = {
        "geocaps": geocaps.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": version("torch") or "not installed",
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "extras": extras,
    }
    lines = [
        f"geocaps      {here['geocaps']}",
        f"python       {here['python']}, {here['system']}",
        f"torch        {here['torch']}, {here['processors']} processors",
    ]
    for name, packages in extras.items():
        missing = [package for package, found in packages.items() if found is None]
        present = ", ".join(f"{package} {found}" for package, found in packages.items() if found is not None)
        how = f"not installed ({', '.join(missing)}):  {install_hint(name)}" if missing else present
        lines.append(f"extra        {name:<12} {how}")
    return here, lines


def _weights(folder: str | None) -> tuple[dict[str, Any], list[str]]:
    """A checkpoint folder, or the shipped weights, as a record and as lines."""
    from geocaps.model.checkpoint import CARD, WEIGHTS, count_weights, find_checkpoint, find_weights, read_config

    place = find_checkpoint(folder)
    config = read_config(place).to_dict()
    try:
        card = [line for line in (place / CARD).read_text(encoding="utf-8").splitlines() if line.strip()][:_CARD_LINES]
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {place / CARD}: {error}") from error
    found = {
        "folder": str(place),
        "sha256": find_weights(folder).sha256,
        "bytes": (place / WEIGHTS).stat().st_size,
        "parameters": count_weights(place / WEIGHTS),
        "card": "\n".join(card),
        "config": config,
    }
    lines = [
        f"weights      {found['folder']}",
        f"sha256       {found['sha256']}",
        f"size         {found['parameters']:,} parameters, {found['bytes']:,} bytes",
        f"model        {config['points']} points, {config['parts']['parts']} parts of {config['parts']['feature']} "
        f"features, object feature {config['object']['feature']}",
        *(
            f"config       {layer}: " + ", ".join(f"{name} {value}" for name, value in config[layer].items())
            for layer in ("parts", "object")
        ),
        *(f"card         {line}" for line in card),
    ]
    return found, lines


def about_file(name: str) -> FileReport:
    """A report on a whole file: a cloud, a mesh, or a data set, which may have the same suffix as a single cloud."""
    from geocaps.io import describe, limits, report_of

    path, not_a_set = Path(name), ""
    if path.suffix.lower() in _DATA_SETS:
        from geocaps import data

        try:
            whole = data.load(path)
            return report_of(path, limits.cloud(whole.points(0)), data_set_of=len(whole))
        except (DatasetError, IndexError) as error:
            # A file that cannot be opened at all is reported once, by the reader below.
            not_a_set = f" (nor is it a data set: {error})" if error.__cause__ is None else ""
    try:
        return describe(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}{not_a_set}") from error


def file_lines(file: FileReport) -> list[str]:
    """The report as lines of text."""
    from geocaps.io import STRAY_RULE

    def corner(values: list[float]) -> str:
        return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"

    of_first = " (of the first object)" if file.kind == "data set" else ""
    count = f"{file.points:,} vertices, {file.faces:,} faces" if file.kind == "mesh" else f"{file.points:,} points"
    bounds = ["bounds       none: no point is finite"]
    if file.lowest is not None and file.highest is not None and file.extent is not None:
        bounds = [
            f"bounds       {corner(file.lowest)} to {corner(file.highest)}{of_first}",
            f"extent       {' x '.join(f'{length:.6g}' for length in file.extent)}",
        ]
    # The triangles of an STL file share no corners, so each vertex is stored several times.
    every = " (STL stores the corners of every face separately)" if file.format == "STL" and file.duplicates else ""
    return [
        f"file         {file.path}",
        f"format       {file.format}, a {file.kind}, {file.bytes:,} bytes",
        *([f"objects      {file.objects:,}"] if file.kind == "data set" else []),
        f"size         {count}{of_first}",
        *bounds,
        f"units        {file.units or 'not stated in the file'}",
        f"duplicates   {file.duplicates:,}{every}",
        f"invalid      {file.not_finite:,}{' (NaN or infinite)' if file.not_finite else ''}",
        f"stray        {file.stray:,}{f' ({STRAY_RULE})' if file.stray else ''}",
        f"attributes   {', '.join(file.extras) or 'none'}{' (not used)' if file.extras else ''}",
    ]


# ── data sets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def survey(source: Positional[str], /, *, split: Text = None, json: Json = False) -> None:
    """Show the contents of a data set and any problems with it, or the contents of a single cloud or mesh.

    Counts per class, points per object, extents, and problems: points that are not finite, empty or constant clouds,
    duplicated objects, labels out of range, files that cannot be read. Every object is read once. For a single file:
    points, faces, extents, units if known, duplicated, invalid and stray points.

    Example:  geocaps data info my_meshes/     or     geocaps data info furniture --json

    Args:
        source: shapes, furniture, an .npz or HDF5 file, a folder of HDF5 files, meshes or clouds, or one cloud or mesh.
        split: Only this split: train, val or test.
    """
    if source not in ("shapes", "furniture") and Path(source).is_file():
        single = about_file(source)
        if single.kind != "data set":
            if split is not None:
                raise UsageError(f"--split is for data sets, but {source} is a single {single.kind}")
            output.show(json, {"file": single}, file_lines(single))
            return
    from geocaps.data import survey as survey_of

    with output.progress_bar() as advance:
        found = survey_of(source, split=split, on_object=advance)
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

    Subfolders are classes, except those named train, val or test, which are splits. Objects are centred and scaled to
    the unit sphere. Re-run a stopped command to resume it. Files that cannot be read are reported and skipped.

    Example:  geocaps data pack my_meshes/ --out my_set.npz --points 4096

    Args:
        folder: Folder with the files.
        file: Output file, instead of --out.
        out: Output file: .npz.
        points: Points per object. Twice the number that training uses gives two independent samplings.
        seed: Seed of the sampling.
        workers: Number of processes (default: one per processor).
        overwrite: Replace an existing output file, and discard the unfinished work of another run.
    """
    from geocaps.data.folder import pack as run

    target = file if out is None else out
    if target is None or (out is not None and file is not None):
        raise UsageError("name one output file: --out FILE.npz")
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
    again = f", {report.resumed} of them from an earlier run" if report.resumed else ""
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
    """Download a public data set, or explain how to get it; without a name, list the known ones.

    Re-run an interrupted download to resume it. The file is checked against its known checksum; if none is known, its
    SHA-256 is printed and stored beside it, and later downloads are checked against that.

    Example:  geocaps data download modelnet40 --out data

    Args:
        name: modelnet40, shapenet_core55, shapenet_v2, shapenet_part, or any name with --url.
        out: Folder to download into.
        url: Another address of the file, such as a mirror.
        sha256: Checksum that the file must have.
    """
    from geocaps.data.download import download as run
    from geocaps.data.download import sources

    known = sources()
    if not name and (url is not None or sha256 is not None):
        raise UsageError("--url and --sha256 need a name for the data set, which is also the name of its folder")
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
        raise DatasetError(f"{name} cannot be downloaded automatically: {source.how}")
    if source is not None:
        output.tell(source.title, f"Licence: {source.licence}. See {source.page}")
    with output.progress_bar(is_bytes=True) as advance:
        got = run(name, out, url=url, sha256=sha256, on_bytes=advance)
    status = "downloaded" if got.fetched else "already there"
    lines = [
        f"{status}: {got.path}",
        f"sha256 {got.sha256}",
        f"checked against {got.checked_against or 'nothing: no checksum is known; this one is stored for next time'}",
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
