"""LAS and LAZ, the formats of laser scans, through laspy (the extra `las`)."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from geocaps.errors import MissingExtraError
from geocaps.io import limits
from geocaps.io.limits import Geometry

_VLR_HEADER_BYTES = 54
_LASZIP_RECORD = 22204
_COMPRESSED_BIT = 0x80
# For each kind of item in a layered chunk (point formats 6 to 10) the number of its layers; type 14 has one a byte.
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}
_EXTRA_BYTES_ITEM = 14
_GEO_KEYS, _WKT, _LINEAR_UNITS = 34735, 2112, 3076
_UNITS: dict[int | str, str] = {
    9001: "metres", 9002: "feet", 9003: "US survey feet", "metre": "metres", "meter": "metres", "foot": "feet",
    "us survey foot": "US survey feet",
}  # fmt: skip


def read(path: Path) -> Geometry:
    """Read x, y, z of a LAS or LAZ file, in its own coordinates (scale and offset applied, in float64)."""
    try:
        import laspy
        import lazrs
    except ImportError as error:
        raise MissingExtraError("reading LAS and LAZ files", "las") from error
    data = limits.read_bytes(path)
    point_start, point_bytes, compressed = _check_header(data)
    reader = laspy.LasReader(io.BytesIO(data), read_evlrs=False, laz_backend=laspy.LazBackend.Lazrs)
    header = reader.header
    limits.check_count(header.point_count)
    size = header.point_count * point_bytes
    if header.point_count == 0:
        return limits.cloud(np.empty((0, 3)))
    if not compressed:
        limits.check_present(size, len(data) - point_start, "the points that the header declares")
    try:
        if compressed:
            limits.check_expansion(size, len(data) - point_start)
            _check_chunks(data, point_start, header, lazrs)
        points = reader.read_points(-1)
    except BaseException as error:
        # lazrs stops on damaged data with a Rust panic, which pyo3 does not derive from Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"its compressed points are damaged ({error})") from error
    if len(points) != header.point_count:
        raise ValueError(f"{header.point_count:,} points are declared, and {len(points):,} are there: cut short")
    extras = limits.extras_of(name for name in header.point_format.dimension_names if np.any(points[name]))
    return limits.cloud(np.column_stack([points.x, points.y, points.z]), extras, _units(header))


def _units(header: Any) -> str | None:
    """The unit of length that the coordinate system of the file states, as GeoTIFF keys or as WKT; else None."""
    for vlr in header.vlrs:
        content = vlr.record_data_bytes()
        if vlr.record_id == _GEO_KEYS and vlr.user_id == "LASF_Projection":
            keys = np.frombuffer(content[: len(content) // 8 * 8], "<u2").reshape(-1, 4)
            for key, place, _, value in keys[1:].tolist():
                if key == _LINEAR_UNITS and place == 0:
                    return _UNITS.get(value)
        if vlr.record_id == _WKT and vlr.user_id == "LASF_Projection":
            found = re.findall(rb'(?:LENGTHUNIT|UNIT)\["([^"]{1,40})"', content)
            lengths = [name.decode("latin-1") for name in found if not name.lower().startswith((b"deg", b"rad"))]
            return _UNITS.get(lengths[0].lower(), lengths[0]) if lengths else None
    return None


def _check_header(data: bytes) -> tuple[int, int, bool]:
    """Where the points begin, the bytes of one, whether they are compressed; laspy believes these without a look."""
    if data[:4] != b"LASF" or len(data) < 227:
        raise ValueError("it does not begin with a LAS header")
    header_bytes, point_start, records, point_format, point_bytes = struct.unpack_from("<HIIBH", data, 94)
    limits.check_present(point_start, len(data), "the header and its records")
    limits.check_present(
        header_bytes + records * _VLR_HEADER_BYTES, point_start, "the records that the header declares"
    )
    return point_start, point_bytes, bool(point_format & _COMPRESSED_BIT)


def _check_chunks(data: bytes, point_start: int, header: Any, lazrs: Any) -> None:
    """Walk the chunks: lazrs sets aside whatever size they declare, and ends the process when it cannot."""
    records = [vlr for vlr in header.vlrs if vlr.record_id == _LASZIP_RECORD and vlr.user_id == "laszip encoded"]
    if len(records) != 1:
        raise ValueError("it has no description of its compression (LASzip record)")
    description = records[0].record_data_bytes()
    items = _laszip_items(description)
    if sum(size for _, size in items) != header.point_format.size:
        raise ValueError("the description of its compression does not fit its points: damaged")
    chunk_points = struct.unpack_from("<I", description, 12)[0]
    if chunk_points == 0:
        raise ValueError("its compressed chunks have no points: damaged")

    limits.check_present(point_start + 8, len(data), "the position of the chunk table")
    table = struct.unpack_from("<q", data, point_start)[0]
    if table == -1:
        table = struct.unpack_from("<q", data, len(data) - 8)[0]
    if not point_start + 8 <= table <= len(data) - 8:
        raise ValueError("the position of its chunk table is outside the file: damaged or cut short")
    chunk_count = struct.unpack_from("<I", data, table + 4)[0]
    # A chunk has at least one point, stored as it is.
    limits.check_present(chunk_count * header.point_format.size, table - point_start - 8, "its compressed chunks")

    stream = io.BytesIO(data)
    stream.seek(point_start)
    chunks = lazrs.read_chunk_table(stream, lazrs.LazVlr(description))
    position = point_start + 8
    for _, chunk_bytes in chunks:
        limits.check_present(position + chunk_bytes, table, "its compressed chunks")
        if any(kind in _LAYERS for kind, _ in items):
            _check_layers(data, position, chunk_bytes, items)
        position += chunk_bytes


def _laszip_items(description: bytes) -> list[tuple[int, int]]:
    """Kind and size of each part of a point, from the LASzip record."""
    limits.check_present(34, len(description), "the description of its compression")
    count = struct.unpack_from("<H", description, 32)[0]
    limits.check_present(34 + 6 * count, len(description), "the description of its compression")
    return [struct.unpack_from("<HH", description, 34 + 6 * i) for i in range(count)]


def _check_layers(data: bytes, position: int, chunk_bytes: int, items: list[tuple[int, int]]) -> None:
    """A layered chunk: its first point, the number of points, the size of each layer, then the layers."""
    layers = sum(size if kind == _EXTRA_BYTES_ITEM else _LAYERS.get(kind, 0) for kind, size in items)
    first = sum(size for _, size in items)
    limits.check_present(first + 4 + 4 * layers, chunk_bytes, "the layers of a compressed chunk")
    sizes = struct.unpack_from(f"<{layers}I", data, position + first + 4)
    limits.check_present(first + 4 + 4 * layers + sum(sizes), chunk_bytes, "the layers of a compressed chunk")
