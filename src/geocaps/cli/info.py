"""``geocaps info``: what is installed, what a checkpoint is, what a file holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

import geocaps
from geocaps.cli.output import UNSET, Json, show
from geocaps.errors import CheckpointError, DatasetError, FileFormatError, install_hint

if TYPE_CHECKING:
    from geocaps.io import FileReport

_CARD_LINES = 4
_DATA_SETS = (".npz", ".h5", ".hdf5")


def info(
    what: Annotated[str, Positional, arg(metavar="[WEIGHTS|FILE]"), UNSET] = "",
    /,
    *,
    json: Json = False,
) -> None:
    """Show versions, extras and the shipped weights; or what a checkpoint folder or a file of points holds.

    Weights: size, checksum, the first lines of their card, configuration. A file: format, points, faces, bounds, units,
    duplicated, stray and invalid points.

    Example: geocaps info     or     geocaps info scan.ply --json

    Args:
        what: A checkpoint folder, or a cloud, mesh or data set; without it, the shipped weights.
    """
    if os.path.isdir(what) and not os.path.exists(os.path.join(what, "config.json")):
        raise CheckpointError(
            f"{what} is no checkpoint: it has no config.json; for a folder of clouds call  geocaps data info {what}"
        )
    here, lines = _environment()
    if what and not os.path.isdir(what):
        file = about_file(what)
        show(json, {"environment": here, "file": file}, file_lines(file))
    else:
        weights, about = _weights(what or None)
        show(json, {"environment": here, "weights": weights}, about if what else [*lines, "", *about])


def _environment() -> tuple[dict[str, Any], list[str]]:
    """Versions and extras, as a record and as lines; torch itself is not imported for it."""
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
    """A checkpoint folder (without one, the shipped weights), as a record and as lines."""
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
    """What a file holds, read whole: a cloud, a mesh, or a data set, with which single clouds share some suffixes."""
    from geocaps.io import describe, limits, report_of

    path, not_a_set = Path(name), ""
    if path.suffix.lower() in _DATA_SETS:
        from geocaps import data

        try:
            whole = data.load(path)
            return report_of(path, limits.cloud(whole.points(0)), data_set_of=len(whole))
        except (DatasetError, IndexError) as error:
            # Bytes that do not open at all are said once, by the reader below.
            not_a_set = f" (nor is it a data set: {error})" if error.__cause__ is None else ""
    try:
        return describe(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}{not_a_set}") from error


def file_lines(file: FileReport) -> list[str]:
    """The content of a file, for people."""
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
    # Triangles of an STL file share no corners, so that its vertices are there many times.
    every = " (STL stores the corners of each face anew)" if file.format == "STL" and file.duplicates else ""
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
