"""What is installed, what weights are, what a file holds: the answers of ``geocaps info``."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from geocaps.apps.weights import sha256_of, weights_folder
from geocaps.errors import CheckpointError, DatasetError, FileFormatError
from geocaps.points import datasets
from geocaps.points.io import load_points
from geocaps.training.checkpoint import CARD, WEIGHTS, load_checkpoint

_CARD_LINES = 4
_DATA_SETS = (".npz", ".h5", ".hdf5")


@dataclass(frozen=True)
class Environment:
    """What geocaps runs on."""

    geocaps: str
    python: str
    system: str
    torch: str
    threads: int
    processors: int
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


@dataclass(frozen=True)
class AboutFile:
    """A cloud, a mesh or a data set in a file."""

    path: str
    format: str
    bytes: int
    kind: str
    """``cloud``, ``mesh`` or ``data set``."""
    objects: int
    points: int
    """Points of a cloud, vertices of a mesh; of a data set, those of its first object."""
    faces: int
    lowest: list[float]
    highest: list[float]
    """Bounds; of a data set, those of its first object."""


def environment() -> Environment:
    """Versions of geocaps, Python and torch, threads, and which extras are installed."""
    return Environment(
        geocaps=metadata.version("geocaps"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        processors=os.cpu_count() or 1,
        extras=_extras(),
    )


def about_weights(folder: str | os.PathLike[str] | None = None) -> AboutWeights:
    """A checkpoint folder; without one, the weights that ship with the package."""
    with weights_folder(folder) as place:
        network = load_checkpoint(place)
        return AboutWeights(
            folder=str(place),
            sha256=sha256_of(place / WEIGHTS),
            bytes=(place / WEIGHTS).stat().st_size,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            card=_first_lines(place / CARD),
            config=network.config.to_dict(),
        )


def about_file(path: str | os.PathLike[str]) -> AboutFile:
    """What ``encode`` and the others would read from a file; its whole content is read and checked."""
    path = Path(path)
    shown, kind, objects, faces = _read(path)
    return AboutFile(
        path=str(path),
        format=path.suffix[1:].upper(),
        bytes=path.stat().st_size,
        kind=kind,
        objects=objects,
        points=len(shown),
        faces=faces,
        lowest=shown.min(axis=0).tolist(),
        highest=shown.max(axis=0).tolist(),
    )


def _read(path: Path) -> tuple[Float[np.ndarray, "n 3"], str, int, int]:
    """Points to show, kind, objects and faces. Single clouds and data sets share some suffixes: both are tried."""
    not_a_set = ""
    if path.suffix.lower() in _DATA_SETS:
        try:
            whole = datasets.load(path)
            return whole.points(0).numpy(), "data set", len(whole), 0
        except (DatasetError, IndexError) as error:
            # Bytes that do not open at all are said once, by the reader below.
            not_a_set = f" (nor is it a data set: {error})" if error.__cause__ is None else ""
    try:
        cloud = load_points(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}{not_a_set}") from error
    if cloud.faces is None or cloud.vertices is None:
        return cloud.points, "cloud", 1, 0
    return cloud.vertices, "mesh", 1, len(cloud.faces)


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
