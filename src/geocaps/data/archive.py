"""Unpacks a zip from elsewhere: nothing outside its folder, nothing larger than it may be, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from geocaps.errors import DatasetError

MOST_FILES = 1_000_000
MOST_RATIO = 100
RATIO_MATTERS_ABOVE = 2**28
"""A bomb is recognised by its ratio, but small files of zeros (a sparse grid) may shrink a lot honestly."""


def extract_zip(archive: Path, folder: Path) -> None:
    """Unpacks into the new folder ``folder``, which appears only when everything went well."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = [info for info in file.infolist() if not info.is_dir()]
            _check(archive, folder, file.infolist())
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
                whole = Path(place) / "content"
                whole.mkdir()
                for info in members:
                    target = whole.joinpath(*PurePosixPath(info.filename).parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with file.open(info) as member, target.open("xb") as out:
                        shutil.copyfileobj(member, out, 2**20)  # zipfile stops at the declared size and checks the CRC
                os.replace(whole, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{archive}: cannot be unpacked ({error}); delete it and download again") from error


def _check(archive: Path, folder: Path, members: list[zipfile.ZipInfo]) -> None:
    size = archive.stat().st_size
    unpacked = sum(info.file_size for info in members)
    free = shutil.disk_usage(folder.parent).free
    if len(members) > MOST_FILES:
        raise DatasetError(f"{archive}: holds {len(members)} files, more than the {MOST_FILES} that are unpacked")
    # Entries that share bytes (the overlapping kind of bomb) add up to more than there is.
    if sum(info.compress_size for info in members) > size:
        raise DatasetError(f"{archive}: its entries overlap, which no honest archive does; it is not unpacked")
    if unpacked > max(RATIO_MATTERS_ABOVE, MOST_RATIO * size):
        raise DatasetError(
            f"{archive}: {size} bytes would become {unpacked}, which looks like a zip bomb; not unpacked"
        )
    if unpacked > free:
        raise DatasetError(f"{archive}: needs {unpacked} bytes in {folder.parent}, which has {free} free")
    for info in members:
        name = info.filename
        parts = name.split("/")
        unsafe = "\\" in name or "\0" in name or ":" in name or name.startswith("/") or ".." in parts
        if unsafe or stat.S_ISLNK(info.external_attr >> 16):
            raise DatasetError(f"{archive}: the entry {name!r} points outside the folder or is a link; not unpacked")
