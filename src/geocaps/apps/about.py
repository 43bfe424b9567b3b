"""Answers of ``geocaps info``: what is installed, what a checkpoint is, what a file holds."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import geocaps
from geocaps.errors import CheckpointError, DatasetError, FileFormatError
from geocaps.io import describe, limits
from geocaps.io.load import FileReport, report_of
from geocaps.model.checkpoint import CARD, WEIGHTS, count_weights, find_checkpoint, find_weights, read_config

_CARD_LINES = 4
_DATA_SETS = (".npz", ".h5", ".hdf5")


@dataclass(frozen=True)
class Environment:
    """What geocaps runs on."""

    geocaps: str
    python: str
    system: str
    torch: str
    processors: int
    """Those that this process may use."""
    extras: dict[str, dict[str, str | None]]
    """Extra → package → installed version, or None."""


@dataclass(frozen=True)
class AboutWeights:
    """A checkpoint folder."""

    folder: str
    sha256: str
    bytes: int
    parameters: int
    card: str
    """The first lines of its card."""
    config: dict[str, Any]


def environment() -> Environment:
    """Versions of geocaps, Python and torch, and which extras are installed; torch itself is not imported for it."""
    return Environment(
        geocaps=geocaps.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        torch=_version("torch") or "not installed",
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        extras=_extras(),
    )


def about_weights(folder: str | os.PathLike[str] | None = None) -> AboutWeights:
    """A checkpoint folder; without one, the weights that ship with the package."""
    place = find_checkpoint(folder)
    return AboutWeights(
        folder=str(place),
        config=read_config(place).to_dict(),
        parameters=count_weights(place / WEIGHTS),
        sha256=find_weights(folder).sha256,
        bytes=(place / WEIGHTS).stat().st_size,
        card=_first_lines(place / CARD),
    )


def about_file(path: str | os.PathLike[str]) -> FileReport:
    """What a file holds, read whole: a cloud, a mesh, or a data set, with which single clouds share some suffixes."""
    path = Path(path)
    not_a_set = ""
    if path.suffix.lower() in _DATA_SETS:
        from geocaps import data as datasets

        try:
            whole = datasets.load(path)
            return report_of(path, limits.cloud(whole.points(0).numpy()), data_set_of=len(whole))
        except (DatasetError, IndexError) as error:
            # Bytes that do not open at all are said once, by the reader below.
            not_a_set = f" (nor is it a data set: {error})" if error.__cause__ is None else ""
    try:
        return describe(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}{not_a_set}") from error


def _extras() -> dict[str, dict[str, str | None]]:
    """From the package's own metadata, so that it names what the installed version asks for."""
    found: dict[str, dict[str, str | None]] = {}
    for requirement in metadata.requires("geocaps") or ():
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if package is not None and extra is not None and extra[1] not in ("all", "test"):
            found.setdefault(extra[1], {})[package[0]] = _version(package[0])
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_lines(card: Path) -> str:
    try:
        lines = [line for line in card.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {card}: {error}") from error
    return "\n".join(lines[:_CARD_LINES])
