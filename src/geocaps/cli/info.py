"""``geocaps info``: versions, weights, and the content of a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import tyro

from geocaps.cli.output import UNSET, Json, show
from geocaps.errors import CheckpointError, install_hint

if TYPE_CHECKING:
    from geocaps.apps.about import AboutWeights, Environment
    from geocaps.io.load import FileReport


def info(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[WEIGHTS|FILE]"), UNSET] = "",
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
    from geocaps.apps.about import about_file, about_weights, environment

    if os.path.isdir(what) and not os.path.exists(os.path.join(what, "config.json")):
        raise CheckpointError(
            f"{what} is no checkpoint: it has no config.json; for a folder of clouds call  geocaps data info {what}"
        )
    here = environment()
    if what and not os.path.isdir(what):
        file = about_file(what)
        show(json, {"environment": here, "file": file}, file_lines(file))
    else:
        weights = about_weights(what or None)
        lines = _weights_lines(weights)
        show(
            json, {"environment": here, "weights": weights}, lines if what else [*_environment_lines(here), "", *lines]
        )


def _environment_lines(here: Environment) -> list[str]:
    lines = [
        f"geocaps      {here.geocaps}",
        f"python       {here.python}, {here.system}",
        f"torch        {here.torch}, {here.processors} processors",
    ]
    for extra, packages in here.extras.items():
        missing = [name for name, version in packages.items() if version is None]
        present = ", ".join(f"{name} {version}" for name, version in packages.items() if version is not None)
        how = f"not installed ({', '.join(missing)}):  {install_hint(extra)}" if missing else present
        lines.append(f"extra        {extra:<12} {how}")
    return lines


def _weights_lines(weights: AboutWeights) -> list[str]:
    config = weights.config
    return [
        f"weights      {weights.folder}",
        f"sha256       {weights.sha256}",
        f"size         {weights.parameters:,} parameters, {weights.bytes:,} bytes",
        f"model        {config['points']} points, {config['parts']['parts']} parts of {config['parts']['feature']} "
        f"features, object feature {config['object']['feature']}",
        *(
            f"config       {layer}: " + ", ".join(f"{name} {value}" for name, value in config[layer].items())
            for layer in ("parts", "object")
        ),
        *(f"card         {line}" for line in weights.card.splitlines()),
    ]


def file_lines(file: FileReport) -> list[str]:
    """The content of a file, for people."""
    from geocaps.io.load import STRAY_RULE

    of_first = " (of the first object)" if file.kind == "data set" else ""
    count = f"{file.points:,} vertices, {file.faces:,} faces" if file.kind == "mesh" else f"{file.points:,} points"
    bounds = ["bounds       none: no point is finite"]
    if file.lowest is not None and file.highest is not None and file.extent is not None:
        bounds = [
            f"bounds       {_corner(file.lowest)} to {_corner(file.highest)}{of_first}",
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


def _corner(values: list[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
