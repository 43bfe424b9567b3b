"""Files written completely or not at all, and the finished pieces from which an interrupted run is resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from geocaps.errors import UsageError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path``, which replaces it if all goes well, and is removed otherwise."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Makes a folder for results, and its parents; to be called before long work, so that none of it is lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}; choose another one") from error


class WorkFolder:
    """``OUT.partial``, beside the output of a long run: its finished pieces, each an NPZ archive.

    The name of a piece is a hash of what it was made from, which must be plain JSON. So an existing piece is always the
    right one, whatever has changed since the run was interrupted, and everything else is made again.
    """

    def __init__(self, path: Path, made_with: object) -> None:
        self.path = path
        self._made_with = made_with
        path.mkdir(exist_ok=True)

    def has(self, made_from: object) -> bool:
        """Whether the piece exists and is intact; a damaged one is made again."""
        try:
            with ZipFile(self._place(made_from)) as archive:
                return archive.testzip() is None
        except (OSError, BadZipFile):
            return False

    def add(self, made_from: object, arrays: Mapping[str, Any]) -> None:
        with written_whole(self._place(made_from)) as beside, beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def pieces(self, made_from: Iterable[object]) -> Iterator[np.lib.npyio.NpzFile]:
        """The finished pieces, one at a time; arrays are read on access."""
        for one in made_from:
            with np.load(self._place(one), allow_pickle=False) as archive:
                yield archive

    @contextmanager
    def joined(self, out: Path) -> Iterator[Path]:
        """A file for the joined result, which then becomes ``out``; the pieces are removed."""
        place = self.path / "joined.new"
        yield place
        os.replace(place, out)
        self.remove()

    def remove(self) -> None:
        """Removes the pieces, and the folder if nothing else is in it."""
        for pattern in ("*.shard", ".*.part", "joined.new", "settings.json"):
            for place in self.path.glob(pattern):
                place.unlink()
        with suppress(OSError):
            self.path.rmdir()

    def _place(self, made_from: object) -> Path:
        name = hashlib.sha256(json.dumps([self._made_with, made_from]).encode()).hexdigest()[:32]
        return self.path / f"{name}.shard"
