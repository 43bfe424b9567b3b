"""PCD, the format of the Point Cloud Library: ascii, binary and binary_compressed."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

_MAX_HEADER_BYTES = 64 * 1024
_TYPES = {"F": (4, 8), "I": (1, 2, 4, 8), "U": (1, 2, 4, 8)}


@dataclass(frozen=True)
class _Field:
    name: str
    dtype: np.dtype
    count: int


@dataclass(frozen=True)
class _Header:
    fields: list[_Field]
    points: int
    encoding: str
    size: int  # bytes before the data

    @property
    def axes(self) -> list[int]:
        """The positions of the fields x, y and z."""
        names = [item.name for item in self.fields]
        return [names.index(axis) for axis in "xyz"]


def read(path: Path) -> Geometry:
    """Read x, y, z of a PCD file; rows that are not finite mean "no return", as in organised scans.

    The viewpoint of the header is where the sensor stood; the points are already in its frame, so it is not applied.
    """
    data = limits.read_bytes(path)
    header = _parse_header(data)
    row_bytes = sum(item.dtype.itemsize * item.count for item in header.fields)
    body = memoryview(data)[header.size :]
    if header.encoding == "ascii":
        points = _read_ascii(header, bytes(body))
    elif header.encoding == "binary":
        limits.check_present(header.points * row_bytes, len(body), "the points that the header declares")
        row = np.dtype([(f"f{i}", item.dtype, (item.count,)) for i, item in enumerate(header.fields)])
        table = np.frombuffer(body, dtype=row, count=header.points)
        points = np.column_stack([table[f"f{i}"][:, 0] for i in header.axes])
    else:
        points = _read_compressed(header, body, header.points * row_bytes)
    return limits.cloud(points, limits.extras_of(item.name for item in header.fields))


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
    fields = []
    for name, size, kind, count in zip(names, sizes, kinds, counts, strict=True):
        if size not in _TYPES.get(kind, ()) or not 0 <= count <= 65_536 or (count == 0 and name in ("x", "y", "z")):
            raise ValueError(f"the field '{name[:20]}' has TYPE {kind[:20]}, SIZE {size}, COUNT {count}")
        fields.append(_Field(name, np.dtype(f"<{kind.lower()}{size}"), count))
    width, height = (int(entries.get(key, ["1"])[0]) for key in ("WIDTH", "HEIGHT"))
    points = int(entries["POINTS"][0]) if "POINTS" in entries else width * height
    limits.check_count(points)
    encoding = " ".join(entries["DATA"]).lower()
    if encoding not in ("ascii", "binary", "binary_compressed"):
        raise ValueError(f"DATA must be ascii, binary or binary_compressed, not {encoding[:40]!r}")
    return _Header(fields, points, encoding, position)


def _read_ascii(header: _Header, body: bytes) -> np.ndarray:
    if header.points == 0:
        return np.empty((0, 3))
    limits.check_text(len(body))
    # The shortest row is a digit for each field and a blank or a line's end after it.
    limits.check_present(
        header.points * 2 * sum(item.count for item in header.fields) - 1, len(body), "the points that it declares"
    )
    starts = np.cumsum([0, *(item.count for item in header.fields)])
    columns = [int(starts[i]) for i in header.axes]
    rows = np.loadtxt(io.BytesIO(body), usecols=columns, ndmin=2, max_rows=header.points, encoding="latin-1")
    if len(rows) != header.points:
        raise ValueError(f"the header declares {header.points:,} points, and {len(rows):,} follow: cut short")
    return rows


def _read_compressed(header: _Header, body: memoryview, size: int) -> np.ndarray:
    """Compressed data stand field by field, not row by row."""
    limits.check_present(8, len(body), "the two sizes of the compressed data")
    packed_size, declared = (int(value) for value in np.frombuffer(body, "<u4", 2))
    limits.check_present(packed_size, len(body) - 8, "the compressed points")
    if declared != size:
        raise ValueError(f"its points take {size:,} bytes, and {declared:,} are declared")
    limits.check_expansion(size, packed_size)
    unpacked = decompress_lzf(bytes(body[8 : 8 + packed_size]), size)
    starts = np.cumsum([0, *(item.dtype.itemsize * item.count * header.points for item in header.fields)])
    columns = []
    for i in header.axes:
        item = header.fields[i]
        values = np.frombuffer(unpacked, item.dtype, item.count * header.points, int(starts[i]))
        columns.append(values.reshape(header.points, item.count)[:, 0])
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
