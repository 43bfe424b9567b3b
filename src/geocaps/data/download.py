"""Downloads of public data sets: resumable, checked, and in place completely or not at all.

A file is fetched to ``<name>.part`` (a later call resumes), checked, then renamed. Its SHA-256 is kept beside it, so
that a file without a published checksum is at least known to be the same the next time.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import stat
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from geocaps.atomic import make_folder, written_whole
from geocaps.data.base import hashed
from geocaps.errors import DatasetError, UsageError

TIMEOUT_SECONDS = 60
BLOCK = 2**18
MOST_FILES = 1_000_000
MOST_RATIO = 100
RATIO_MATTERS_ABOVE = 2**28  # bytes: a bomb shows by its ratio, but a small sparse grid may honestly shrink a lot
SIGNATURES = {".zip": b"PK", ".npz": b"PK", ".h5": b"\x89HDF", ".hdf5": b"\x89HDF"}

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Source:
    """Where a public data set is. ``checksum`` is ``algorithm:hex``; without ``url`` it has to be fetched by hand."""

    name: str
    title: str
    licence: str
    page: str
    url: str | None
    filename: str
    checksum: str | None
    checksum_note: str
    how: str


@dataclass(frozen=True)
class Downloaded:
    """Result of a download. ``path`` is what ``load`` takes; ``checked_against`` says what vouches for the bytes."""

    path: Path
    sha256: str
    checked_against: str | None
    fetched: bool


def sources() -> dict[str, Source]:
    """The table of known data sets (geocaps/data/sources.json)."""
    table = json.loads((resources.files("geocaps") / "data" / "sources.json").read_text(encoding="utf-8"))
    return {name: Source(name=name, **entry) for name, entry in table.items()}


def download(
    name: str,
    folder: Path,
    *,
    url: str | None = None,
    sha256: str | None = None,
    on_bytes: Progress | None = None,
) -> Downloaded:
    """Fetch a known data set, or with ``url`` any other, into ``folder``; a zip is unpacked to ``folder/name``.

    ``on_bytes(done, of)`` is called with the progress. With a wrong checksum nothing is left in place (DatasetError).
    """
    source = _source(name, url)
    address = url or source.url
    if address is None:
        raise DatasetError(f"{name} cannot be downloaded automatically: {source.how}")
    checksum = _expected(source, url, sha256)
    is_new = not folder.exists()
    make_folder(folder)
    target = folder / source.filename
    record = target.with_name(target.name + ".sha256")
    against = "the known checksum" if checksum else None
    if checksum is None and record.is_file():
        checksum, against = "sha256:" + record.read_text(encoding="utf-8")[:64], f"an earlier download ({record})"
    fetched = not target.exists()
    if fetched:
        part = target.with_name(target.name + ".part")
        try:
            _fetch(address, part, on_bytes)
        except DatasetError:
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
            raise
        _check(part, target.suffix.lower(), checksum, address)
    elif checksum is not None and hashed(target, hashlib.new(checksum.split(":")[0])) != checksum.split(":")[1]:
        raise DatasetError(f"{target} exists but is not the file of {checksum}; move it away and download again")
    digest = hashed(part if fetched else target, hashlib.sha256())
    _write_beside(record, f"{digest}  {target.name}\n")
    if fetched:
        os.replace(part, target)
    if target.suffix.lower() != ".zip":
        return Downloaded(target, digest, against, fetched)
    unpacked = folder / name
    if not unpacked.exists():
        extract_zip(target, unpacked)
    # An archive often has a single folder at its top: that is the data set.
    entries = [entry for entry in unpacked.iterdir() if not entry.name.startswith((".", "__"))]
    place = entries[0] if len(entries) == 1 and entries[0].is_dir() else unpacked
    return Downloaded(place, digest, against, fetched)


def _source(name: str, url: str | None) -> Source:
    known = sources()
    if url is None:
        if name not in known:
            raise UsageError(f"{name!r} is not a known data set; known are {', '.join(known)}; any other needs --url")
        return known[name]
    address = urllib.parse.urlsplit(url)
    if address.scheme not in ("http", "https"):
        raise UsageError(f"{url}: only http and https addresses can be downloaded")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UsageError(f"{name!r}: a name is made of letters, digits, '_', '-' and '.', and becomes a folder")
    filename = urllib.parse.unquote(address.path).rsplit("/", 1)[-1]
    named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. -]*", filename) and Path(filename).suffix.lower() in SIGNATURES
    if name in known:
        return replace(known[name], filename=filename) if named else known[name]
    if not named:
        raise UsageError(f"{url}: the address must end in a file name with one of {', '.join(SIGNATURES)}")
    return Source(name, name, "as its owner says", url, url, filename, None, "none is known", "")


def _expected(source: Source, url: str | None, sha256: str | None) -> str | None:
    if sha256 is None:
        return None if url is not None and url != source.url else source.checksum
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"--sha256 takes 64 hexadecimal digits, got {sha256!r}")
    return f"sha256:{sha256.lower()}"


def _fetch(url: str, part: Path, on_bytes: Progress | None) -> None:
    """Fetch into ``part``, resuming what is there when the server still has the same file."""
    tag_file = part.with_name(part.name + ".tag")
    have = part.stat().st_size if part.exists() and tag_file.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "geocaps", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", tag_file.read_text(encoding="utf-8"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
            have = have if reply.status == 206 else 0
            length = reply.headers.get("Content-Length")
            total = have + int(length) if length and length.isdigit() else None
            if have and not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise DatasetError(
                    f"{url}: the server sent another range than asked for; delete the .part file and re-run"
                )
            needed, free = (total or 0) - have, shutil.disk_usage(part.parent).free
            if needed > free:
                raise DatasetError(
                    f"{part.parent} has {free} bytes free, but {needed} are needed; choose another folder"
                )
            _remember_tag(tag_file, reply)
            with part.open("ab" if have else "wb") as file:
                while block := reply.read(BLOCK):
                    file.write(block)
                    have += len(block)
                    if on_bytes is not None:
                        on_bytes(have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # what is there is not a part of the file on the server
            part.unlink(missing_ok=True)
            tag_file.unlink(missing_ok=True)
            raise DatasetError(
                f"{url}: the part that was fetched earlier does not fit; re-run to start over"
            ) from error
        raise DatasetError(
            f"{url}: the server answered {error.code} {error.reason}; try later or give --url"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DatasetError(f"{url}: the transfer failed ({reason}); re-run to resume") from error
    if total is not None and have != total:
        raise DatasetError(f"{url}: the transfer ended at {have} of {total} bytes; re-run to resume")
    tag_file.unlink(missing_ok=True)


def _remember_tag(tag_file: Path, reply: http.client.HTTPResponse) -> None:
    """What identifies this version of the file on the server; without it a part cannot be trusted to fit."""
    etag = reply.headers.get("ETag")
    tag = etag if etag and not etag.startswith("W/") else reply.headers.get("Last-Modified")
    if tag:
        _write_beside(tag_file, tag)
    else:
        tag_file.unlink(missing_ok=True)


def _check(part: Path, suffix: str, checksum: str | None, url: str) -> None:
    """Refuse and delete a file of the wrong kind or with the wrong checksum."""
    with part.open("rb") as file:
        start = file.read(8)
    if not start.startswith(SIGNATURES[suffix]):
        part.unlink()
        what = "a web page" if start.lstrip().startswith(b"<") else f"something that starts with {start!r}"
        raise DatasetError(f"{url}: expected a {suffix} file, the server sent {what}; give another --url")
    algorithm, _, expected = (checksum or "").partition(":")
    found = hashed(part, hashlib.new(algorithm)) if checksum else ""
    if found != expected:
        part.unlink()
        raise DatasetError(
            f"{url}: the {algorithm} of what came is {found}, expected {expected}; it was deleted. "
            "Re-run, and if this stays so the file has changed at its source: check it there and give --sha256"
        )


def _write_beside(path: Path, text: str) -> None:
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")


# ── a zip from elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────


def extract_zip(archive: Path, folder: Path) -> None:
    """Unpack into the new folder ``folder``, which appears only when everything went well."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = [info for info in file.infolist() if not info.is_dir()]
            _check_archive(archive, folder, file.infolist())
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


def _check_archive(archive: Path, folder: Path, members: list[zipfile.ZipInfo]) -> None:
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
