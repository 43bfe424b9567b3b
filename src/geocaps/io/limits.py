"""Limits on the resources that a file may use, and the geometry that every reader returns.

A reader raises a plain `ValueError` (or whatever its library raises) with the reason; `load_points` turns it into one
sentence that names the file. Counts in headers are checked against the actual bytes before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

MAX_FILE_BYTES = 4 * 1024**3
# Text is parsed into Python objects that are about thirty times as large.
MAX_TEXT_BYTES = 512 * 1024**2
MAX_POINTS = 50_000_000
# Coordinates compress to a tenth at best, so more than a hundredfold is a bomb; below the second figure it is harmless.
MAX_EXPANSION = 100
HARMLESS_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class Geometry:
    """The result of a reader: the vertices of a mesh with its triangles, or the points of a cloud."""

    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"] | None = None
    extras: tuple[str, ...] = ()  # other attributes of the points, such as colours, which are ignored
    units: str | None = None  # the unit of length, if the file or its format states one
    labels: Int[np.ndarray, "v"] | None = None  # of the vertices or points


def cloud(
    points: np.ndarray, extras: Iterable[str] = (), units: str | None = None, labels: np.ndarray | None = None
) -> Geometry:
    """Points of any numeric type, [N, 3], as a cloud in float64; labels are kept if they are whole numbers."""
    points = np.ascontiguousarray(points, dtype=np.float64).reshape(-1, 3)
    return Geometry(points, None, tuple(extras), units, None if labels is None else _whole_numbers(labels, len(points)))


def _whole_numbers(values: np.ndarray, count: int) -> Int[np.ndarray, "v"] | None:
    """Labels as 32-bit integers; None if they are not labels: fractions, NaN, too large, or not one for each point."""
    values = np.asarray(values)
    if values.shape != (count,) or values.dtype.kind not in "fiu":
        return None
    exact = values.astype(np.float64)
    fits = np.isfinite(exact).all() and (exact == np.rint(exact)).all() and (np.abs(exact) < 2**31).all()
    return exact.astype(np.int32) if fits else None


def label_column(names: Iterable[str]) -> str | None:
    """The first of these columns with a name for labels."""
    return next((name for name in names if name.lower() in _EXTRAS["labels"]), None)


def mesh(
    vertices: np.ndarray,
    polygons: np.ndarray | Sequence,
    extras: Iterable[str] = (),
    units: str | None = None,
    labels: np.ndarray | None = None,
) -> Geometry:
    """Vertices and polygons (split into triangle fans) as a mesh, or as a cloud if no polygon has three corners."""
    whole = cloud(vertices, extras, units, labels)
    points, triangles = whole.vertices, _fans(polygons)
    if len(triangles) == 0:
        return whole
    lowest, highest = int(triangles.min()), int(triangles.max())
    if lowest < 0 or highest >= len(points):
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"a face refers to vertex {wrong}, and there are {len(points)} vertices")
    return replace(whole, faces=triangles)


def _fans(polygons: np.ndarray | Sequence) -> Int[np.ndarray, "f 3"]:
    """Triangles, in the order of the polygons, each of which is split into a fan about its first corner."""
    if isinstance(polygons, np.ndarray):
        lengths, corners = np.full(len(polygons), polygons.shape[-1]), polygons.astype(np.int64).ravel()
    else:
        lengths = np.fromiter(map(len, polygons), dtype=np.int64, count=len(polygons))
        corners = np.fromiter(chain.from_iterable(polygons), dtype=np.int64, count=int(lengths.sum()))
    pieces = np.maximum(lengths - 2, 0)
    first = np.repeat(np.cumsum(lengths) - lengths, pieces)
    step = np.arange(len(first)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.column_stack([corners[first], corners[first + step + 1], corners[first + step + 2]])


def extras_of(names: Iterable[str]) -> tuple[str, ...]:
    """What columns with these names hold, apart from coordinates."""
    known = {name.lower() for name in names}
    return tuple(what for what, signs in _EXTRAS.items() if known & signs)


_EXTRAS = {
    "colours": {"red", "r", "rgb", "rgba", "diffuse_red", "color_0"},
    "normals": {"nx", "normal_x", "normal"},
    "intensity": {"intensity", "scalar_intensity"},
    "labels": {"label", "labels", "class", "classification", "scalar_label"},
}


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """The whole file, after its size was checked."""
    size = checked_size(path, limit)
    with path.open("rb") as file:
        # Python allocates what is asked for, so ask for no more than is there.
        return file.read(size)


def checked_size(path: Path, limit: int | None = None) -> int:
    """The size of a file, at most MAX_FILE_BYTES (or the lower `limit`)."""
    limit = MAX_FILE_BYTES if limit is None else min(limit, MAX_FILE_BYTES)
    size = path.stat().st_size
    if size > limit:
        raise ValueError(f"the file has {size:,} bytes, the limit is {limit:,}")
    return size


def read_text(path: Path) -> str:
    """A whole text file."""
    check_text(path.stat().st_size)
    return decode(read_bytes(path))


def check_text(size: int) -> None:
    """Refuse text that exceeds MAX_TEXT_BYTES."""
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"its text has {size:,} bytes, the limit is {MAX_TEXT_BYTES:,}: convert it to a binary format")


def decode(data: bytes) -> str:
    """Text in UTF-8 or, failing that, Latin-1 (which reads any byte: numbers are ASCII in both), lines ended by \\n."""
    check_text(len(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def check_count(count: int, what: str = "points") -> None:
    """Refuse a count that is negative or exceeds MAX_POINTS."""
    if count < 0:
        raise ValueError(f"the header declares {count} {what}")
    if count > MAX_POINTS:
        raise ValueError(f"the header declares {count:,} {what}, the limit is {MAX_POINTS:,}")


def check_present(needed: int, present: int, what: str) -> None:
    """Refuse a header that declares more than the file holds."""
    if needed > present:
        raise ValueError(f"{what} need {needed:,} bytes, and {present:,} are there: damaged or cut short")


def check_expansion(unpacked: int, stored: int) -> None:
    """Refuse data that unpack to far more than coordinates ever do."""
    if unpacked > max(HARMLESS_BYTES, stored * MAX_EXPANSION):
        raise ValueError(f"{stored:,} bytes would unpack to {unpacked:,}: not plausible for coordinates")
