"""Scans: PCD, the format of the Point Cloud Library, and LAS and LAZ, read by laspy (the extra `las`)."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geocaps.errors import MissingExtraError
from geocaps.io import limits
from geocaps.io.limits import Geometry

_MAX_HEADER_BYTES = 64 * 1024
_TYPES = {"F": (4, 8), "I": (1, 2, 4, 8), "U": (1, 2, 4, 8)}


@dataclass(frozen=True)
class _Header:
    names: list[str]
    row: np.dtype  # a field f0, f1, ... for each name, of as many values as it has in a row
    points: int
    encoding: str
    size: int  # bytes before the data

    @property
    def axes(self) -> list[str]:
        """The fields x, y and z."""
        return [f"f{self.names.index(axis)}" for axis in "xyz"]


def read_pcd(path: Path) -> Geometry:
    """Read x, y, z of a PCD file; rows that are not finite mean "no return", as in organised scans.

    The viewpoint of the header is where the sensor stood; the points are already in its frame, so it is not applied.
    """
    data = limits.read_bytes(path)
    header = _parse_header(data)
    size = header.points * header.row.itemsize
    body = memoryview(data)[header.size :]
    if header.encoding == "ascii":
        points = _read_ascii(header, bytes(body))
    elif header.encoding == "binary":
        limits.check_present(size, len(body), "the points that the header declares")
        table = np.frombuffer(body, dtype=header.row, count=header.points)
        points = np.column_stack([table[axis][:, 0] for axis in header.axes])
    else:
        points = _read_compressed(header, body, size)
    return limits.cloud(points, limits.extras_of(header.names))


def _parse_header(data: bytes) -> _Header:
    entries: dict[str, list[str]] = {}
    position = 0
    while "DATA" not in entries:
        end = data.find(b"\n", position, _MAX_HEADER_BYTES)
        if end < 0:
            raise ValueError("it has no PCD header that ends with DATA")
        words = data[position:end].decode("latin-1").split()
        position = end + 1
        if words and not words[0].startswith("#"):
            entries[words[0].upper()] = words[1:]
    names = entries.get("FIELDS", entries.get("COLUMNS", []))
    sizes = [int(word) for word in entries.get("SIZE", [])]
    kinds = entries.get("TYPE", [])
    counts = [int(word) for word in entries.get("COUNT", ["1"] * len(names))]
    if not len(names) == len(sizes) == len(kinds) == len(counts) or not {"x", "y", "z"} <= set(names):
        raise ValueError("its header must give x, y and z, and SIZE, TYPE and COUNT for each field")
    fields: list[tuple[str, str, tuple[int]]] = []
    for name, size, kind, count in zip(names, sizes, kinds, counts, strict=True):
        if size not in _TYPES.get(kind, ()) or not 0 <= count <= 65_536 or (count == 0 and name in ("x", "y", "z")):
            raise ValueError(f"the field '{name[:20]}' has TYPE {kind[:20]}, SIZE {size}, COUNT {count}")
        fields.append((f"f{len(fields)}", f"<{kind.lower()}{size}", (count,)))
    width, height = (int(entries.get(key, ["1"])[0]) for key in ("WIDTH", "HEIGHT"))
    points = int(entries["POINTS"][0]) if "POINTS" in entries else width * height
    limits.check_count(points)
    encoding = " ".join(entries["DATA"]).lower()
    if encoding not in ("ascii", "binary", "binary_compressed"):
        raise ValueError(f"DATA must be ascii, binary or binary_compressed, not {encoding[:40]!r}")
    return _Header(names, np.dtype(fields), points, encoding, position)


def _read_ascii(header: _Header, body: bytes) -> np.ndarray:
    if header.points == 0:
        return np.empty((0, 3))
    limits.check_text(len(body))
    starts = np.cumsum([0, *(header.row[i].shape[0] for i in range(len(header.names)))])
    # The shortest row is a digit for each field and a blank or a line's end after it.
    limits.check_present(header.points * 2 * int(starts[-1]) - 1, len(body), "the points that it declares")
    columns = [int(starts[header.names.index(axis)]) for axis in "xyz"]
    rows = np.loadtxt(io.BytesIO(body), usecols=columns, ndmin=2, max_rows=header.points, encoding="latin-1")
    if len(rows) != header.points:
        raise ValueError(f"the header declares {header.points:,} points, and {len(rows):,} follow: cut short")
    return rows


def _read_compressed(header: _Header, body: memoryview, size: int) -> np.ndarray:
    """Compressed data are stored field by field, not row by row."""
    limits.check_present(8, len(body), "the two sizes of the compressed data")
    packed_size, declared = (int(value) for value in np.frombuffer(body, "<u4", 2))
    limits.check_present(packed_size, len(body) - 8, "the compressed points")
    if declared != size:
        raise ValueError(f"its points take {size:,} bytes, and {declared:,} are declared")
    limits.check_expansion(size, packed_size)
    unpacked = decompress_lzf(bytes(body[8 : 8 + packed_size]), size)
    columns = []
    for axis in header.axes:
        kind, start = dict(header.row.fields or {})[axis][:2]
        values = np.frombuffer(unpacked, kind.base, kind.shape[0] * header.points, start * header.points)
        columns.append(values[:: kind.shape[0]])
    return np.column_stack(columns)


def decompress_lzf(packed: bytes, size: int) -> bytes:
    """Unpack LZF data that must give exactly `size` bytes.

    A control byte below 32 is followed by that many bytes plus one, to copy as they are. Any other holds a length in
    its upper three bits (7: one more byte follows) and, with the next byte, how far back the bytes to repeat begin.
    """
    out = bytearray()
    written, position, end = 0, 0, len(packed)
    try:
        while position < end and written <= size:
            control = packed[position]
            if control < 32:
                after = position + control + 2
                if after > end:
                    raise IndexError
                out += packed[position + 1 : after]
                written += control + 1
                position = after
                continue
            length = (control >> 5) + 2
            if length == 9:
                position += 1
                length += packed[position]
            distance = ((control & 31) << 8) + packed[position + 1] + 1
            position += 2
            start = written - distance
            if start < 0:
                raise ValueError("its compressed data refer to what lies before their beginning: damaged")
            if distance >= length:
                out += out[start : start + length]
            else:
                # The bytes to repeat overlap those being written: they form a pattern.
                out += (out[start:] * (length // distance + 1))[:length]
            written += length
    except IndexError:
        raise ValueError("its compressed data end in the middle: damaged or cut short") from None
    if written != size:
        raise ValueError(f"its compressed data give another number of bytes than the {size:,} declared: damaged")
    return bytes(out)


# ── LAS and LAZ ───────────────────────────────────────────────────────────────────────────────────────────────────────

_VLR_BYTES = 54  # of the header of a record
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


def read_las(path: Path) -> Geometry:
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
    """Offset of the points, size of one, and whether they are compressed; laspy checks none of this."""
    if data[:4] != b"LASF" or len(data) < 227:
        raise ValueError("it does not begin with a LAS header")
    header_bytes, point_start, records, point_format, point_bytes = struct.unpack_from("<HIIBH", data, 94)
    limits.check_present(point_start, len(data), "the header and its records")
    limits.check_present(header_bytes + records * _VLR_BYTES, point_start, "the records that the header declares")
    return point_start, point_bytes, bool(point_format & _COMPRESSED_BIT)


def _check_chunks(data: bytes, point_start: int, header: Any, lazrs: Any) -> None:
    """Walk the chunks: lazrs allocates whatever size they declare, and aborts the process when it cannot."""
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
