"""``geocaps info``: what is installed, what weights are, what a file holds."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from geocaps.cli.output import UNSET, console, print_json
from geocaps.errors import CheckpointError, install_hint

if TYPE_CHECKING:
    from geocaps.apps.about import AboutFile, AboutWeights, Environment


def info(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[WEIGHTS|FILE]"), UNSET] = "",
    /,
    *,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Versions, extras and the shipped weights; or what a checkpoint folder or a file of points holds.

    Weights: size, checksum, the first lines of their card, configuration. A file: format, points, bounds.

    Example: geocaps info     or     geocaps info scan.ply --json

    Args:
        what: A checkpoint folder, or a cloud, mesh or data set; without it, the shipped weights.
        json: One JSON object on standard output.
    """
    from geocaps.apps.about import about_file, about_weights, environment

    if os.path.isdir(what) and not os.path.exists(os.path.join(what, "config.json")):
        raise CheckpointError(
            f"{what} is no checkpoint: it has no config.json; for a folder of clouds call  geocaps data info {what}"
        )
    here = environment()
    if what and not os.path.isdir(what):
        file = about_file(what)
        record, lines = {"file": asdict(file)}, _file_lines(file)
    else:
        weights = about_weights(what or None)
        record, lines = {"weights": asdict(weights)}, _weights_lines(weights)
    if json:
        print_json({"environment": asdict(here), **record})
        return
    if not what:
        lines = [*_environment_lines(here), "", *lines]
    console().print("\n".join(lines), markup=False, soft_wrap=True)


def _environment_lines(here: Environment) -> list[str]:
    lines = [
        f"geocaps      {here.geocaps}",
        f"python       {here.python}, {here.system}",
        f"torch        {here.torch}, {here.threads} threads, {here.processors} processors",
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
        *(f"config       {line}" for line in _config_lines(config)),
        *(f"card         {line}" for line in weights.card.splitlines()),
    ]


def _config_lines(config: dict[str, Any]) -> list[str]:
    """One line for each layer of the model."""
    return [
        f"{layer}: " + ", ".join(f"{name} {value}" for name, value in config[layer].items())
        for layer in ("parts", "object")
    ]


def _file_lines(file: AboutFile) -> list[str]:
    of_first = " (of the first object)" if file.kind == "data set" else ""
    count = f"{file.points:,} vertices, {file.faces:,} faces" if file.kind == "mesh" else f"{file.points:,} points"
    return [
        f"file         {file.path}",
        f"format       {file.format}, a {file.kind}, {file.bytes:,} bytes",
        *([f"objects      {file.objects:,}"] if file.kind == "data set" else []),
        f"size         {count}{of_first}",
        f"bounds       {_corner(file.lowest)} to {_corner(file.highest)}{of_first}",
    ]


def _corner(values: list[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
