"""Which weights: the folder that a user names, or the ones that ship with the package, and their checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from geocaps.errors import CheckpointError
from geocaps.model.checkpoint import CONFIG, WEIGHTS, find_checkpoint

if TYPE_CHECKING:
    import geocaps.apps.encode


@dataclass(frozen=True)
class Weights:
    """A checkpoint folder (None: the shipped one) and the SHA-256 of its weights; small enough to send anywhere."""

    folder: str | None
    sha256: str

    def load(self) -> geocaps.apps.encode.Model:
        """The model, wherever this runs; refused where the folder holds other weights than those that were named."""
        from geocaps.apps.encode import load

        here = find_weights(self.folder).sha256
        if here != self.sha256:
            place = "the shipped weights" if self.folder is None else self.folder
            raise CheckpointError(
                f"{place} changed or differ on this machine: SHA-256 {here[:12]} instead of {self.sha256[:12]}; "
                "every machine needs the same weights"
            )
        return load(self.folder)


def find_weights(folder: str | os.PathLike[str] | None = None) -> Weights:
    """The weights in a checkpoint folder; without one, those that ship with the package."""
    with weights_folder(folder) as place:
        try:
            sha256 = sha256_of(place / WEIGHTS)
        except OSError as error:
            raise CheckpointError(
                f"cannot read {place / WEIGHTS} ({error.strerror or error}); a checkpoint is a folder with {CONFIG} "
                f"and {WEIGHTS}"
            ) from error
    return Weights(None if folder is None else os.path.abspath(folder), sha256)


@contextmanager
def weights_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The checkpoint folder as a path, for as long as the context lasts."""
    if folder is not None:
        yield find_checkpoint(folder)
        return
    with as_file(files("geocaps") / "weights" / "default") as shipped:
        yield find_checkpoint(shipped)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, read in blocks."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()
