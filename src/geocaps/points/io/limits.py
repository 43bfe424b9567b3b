"""What a file may ask of this machine, and the values that every reader hands back.

A reader raises a plain `ValueError` (or whatever its library raises) with the reason; `load_points` turns it into one
sentence that names the file. Counts in a header are checked against the bytes that are there before any reader runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from trimesh.geometry import triangulate_quads

MAX_FILE_BYTES = 4 * 1024**3
# Text is parsed into Python objects about thirty times its size.
MAX_TEXT_BYTES = 512 * 1024**2
MAX_POINTS = 50_000_000
# Coordinates pack to a tenth at best, so more than a hundredfold is a bomb; below the second figure it does no harm.
MAX_EXPANSION = 100
HARMLESS_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class Geometry:
    """What a reader found: the vertices of a mesh with its triangles, or the points of a cloud."""

    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"] | None = None


def cloud(points: np.ndarray) -> Geometry:
    """Points of any numeric type, [N, 3], as a cloud in float64."""
    return Geometry(np.ascontiguousarray(points, dtype=np.float64).reshape(-1, 3))


def mesh(vertices: np.ndarray, polygons: np.ndarray | list) -> Geometry:
    """Vertices and polygons (cut into triangle fans) as a mesh, or as a cloud when no polygon has three corners."""
    points = cloud(vertices).vertices
    triangles = np.asarray(triangulate_quads(polygons)).reshape(-1, 3).astype(np.int64)
    if len(triangles) == 0:
        return Geometry(points)
    lowest, highest = int(triangles.min()), int(triangles.max())
    if lowest < 0 or highest >= len(points):
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"a face refers to vertex {wrong}, and there are {len(points)} vertices")
    return Geometry(points, triangles)


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """The whole file, after its size was checked against MAX_FILE_BYTES (or the lower `limit`)."""
    limit = MAX_FILE_BYTES if limit is None else min(limit, MAX_FILE_BYTES)
    size = path.stat().st_size
    if size > limit:
        raise ValueError(f"the file has {size:,} bytes, the limit is {limit:,}")
    with path.open("rb") as file:
        # Python sets aside what is asked for, so ask for no more than is there.
        return file.read(size)


def read_text(path: Path) -> str:
    """The whole of a text file."""
    check_text(path.stat().st_size)
    return decode(read_bytes(path))


def check_text(size: int) -> None:
    """Refuse more text than can be parsed here."""
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
    """Refuse a count that no file of ours may hold."""
    if count < 0:
        raise ValueError(f"the header declares {count} {what}")
    if count > MAX_POINTS:
        raise ValueError(f"the header declares {count:,} {what}, the limit is {MAX_POINTS:,}")


def check_present(needed: int, present: int, what: str) -> None:
    """Refuse a header that declares more than the file holds."""
    if needed > present:
        raise ValueError(f"{what} need {needed:,} bytes, and {present:,} are there: damaged or cut short")


def check_expansion(unpacked: int, stored: int) -> None:
    """Refuse data that unpacks to far more than coordinates ever do."""
    if unpacked > max(HARMLESS_BYTES, stored * MAX_EXPANSION):
        raise ValueError(f"{stored:,} bytes would unpack to {unpacked:,}: not plausible for coordinates")
