"""Columns of text: XYZ, TXT, PTS, CSV."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from geocaps.io import limits
from geocaps.io.limits import Geometry

_COMMENTS = ("#", "//", "%")


def read(path: Path) -> Geometry:
    """Read x, y, z from columns, divided by space, comma, semicolon or tab.

    They are the columns that a header line names x, y and z, else the first three; other columns are passed over.
    Lines that are blank or begin with #, // or % are comments. A lone number first (PTS) is the number of points.
    """
    stream = io.StringIO(limits.read_text(path))
    start, line = _next_line(stream)
    expected = None
    if line.isascii() and line.isdigit():
        expected = int(line)
        limits.check_count(expected)
        start, line = _next_line(stream)
    delimiter = next((mark for mark in ";,\t" if line.count(mark) >= 2), None)
    names = [name.strip(" \"'").lower() for name in line.split(delimiter)]
    if len(names) < 3:
        raise ValueError(f"expected at least three columns, the first line is {line[:60]!r}")
    columns: tuple[int, ...] = (0, 1, 2)
    extras: tuple[str, ...] = (f"{len(names) - 3} more columns",) if len(names) > 3 else ()
    if not all(_is_number(name) for name in names[:3]):
        if {"x", "y", "z"} <= set(names):
            columns = (names.index("x"), names.index("y"), names.index("z"))
        extras = limits.extras_of(names) or extras
        start, _ = _next_line(stream)
    stream.seek(start)
    rows = np.loadtxt(stream, dtype=np.float64, delimiter=delimiter, usecols=columns, ndmin=2)
    if expected is not None and len(rows) != expected:
        raise ValueError(f"the first line declares {expected:,} points, and {len(rows):,} follow: damaged or cut short")
    return limits.cloud(rows, extras)


def _next_line(stream: io.StringIO) -> tuple[int, str]:
    """Where the next line that is neither blank nor a comment begins, and the line."""
    while True:
        start = stream.tell()
        line = stream.readline()
        if not line:
            raise ValueError("there are no lines of numbers")
        line = line.strip()
        if line and not line.startswith(_COMMENTS):
            return start, line


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
