"""Frames read from files, poses written as they are found, and a picture of a tracked sequence."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from jaxtyping import Bool, Float64, Int

from geocaps.apps.drawing import STRAY_COLOR, Grid, draw_points, part_colors
from geocaps.errors import FileFormatError, InvalidInputError
from geocaps.geometry.sampling import at_most
from geocaps.io import is_supported
from geocaps.io.tables import read_arrays

if TYPE_CHECKING:
    from geocaps.apps.track import Tracked

SUFFIXES = (".jsonl", ".csv", ".txt")
_FIELDS = ("frame", "name", "tx", "ty", "tz", "qw", "qx", "qy", "qz", "confidence", "visible", "lost", "reason")


class Frames(Sequence[Any]):
    """The frames of a folder or of one array, as input for ``Tracker.update``, and their ``names``."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        path = Path(source)
        if path.is_dir():
            found = [one for one in path.iterdir() if is_supported(one) and one.is_file() and one.name[0] != "."]
            files = sorted(found, key=lambda one: natural(one.name))
            self._frames: Any = files
            self.names = [one.name for one in files]
        else:
            self._frames = _array(path)
            self.names = [f"{path.name}[{index}]" for index in range(len(self._frames))]
        if not len(self._frames):
            raise InvalidInputError(f"{path} has no frames: a folder of clouds or an array [F, N, 3] was expected")

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: Any) -> Any:
        return self._frames[index]


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts frame_10 after frame_9."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name) if piece]


def _array(path: Path) -> np.ndarray:
    """``[F, N, 3]`` from an NPY file, or from the array ``frames`` or ``points`` of an NPZ file."""
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist: name a folder of frames, or an NPY or NPZ file of them")
    try:
        if path.suffix.lower() == ".npy":
            frames = np.load(path, mmap_mode="r", allow_pickle=False)
        elif path.suffix.lower() == ".npz":
            arrays = read_arrays(path)
            frames = arrays.get("frames", arrays.get("points", np.empty(0)))
        else:
            raise InvalidInputError(f"{path} is a single cloud: name a folder of frames, or an NPY or NPZ file of them")
    except (ValueError, OSError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise FileFormatError(f"cannot read {path} as frames: {(str(error).splitlines() or [''])[0][:300]}") from error
    if frames.ndim != 3 or frames.shape[2] != 3 or frames.dtype.kind not in "fiu":
        raise InvalidInputError(f"{path} has an array of shape {list(frames.shape)}: frames [F, N, 3] were expected")
    return frames


class Poses:
    """A file of poses that grows by a line for each frame, and keeps them whatever happens to the process.

    JSON lines, CSV, or TUM's text, which has no lost frames.
    """

    def __init__(self, file: TextIO, suffix: str) -> None:
        self._file, self._suffix = file, suffix
        self._write_text("# timestamp tx ty tz qx qy qz qw\n" if suffix == ".txt" else "")
        if suffix == ".csv":
            csv.writer(file).writerow(_FIELDS)

    def write(self, found: Tracked, name: str) -> None:
        """Writes one frame, which is in the file when this returns."""
        if self._suffix == ".jsonl":
            self._write_text(json.dumps(record(found, name), ensure_ascii=False) + "\n")
        elif self._suffix == ".csv":
            one = record(found, name)
            numbers = [*one["translation"], *one["wxyz"], one["confidence"], one["parts_visible"]]
            csv.writer(self._file).writerow([one["frame"], name, *numbers, int(found.lost), found.reason])
        elif not found.lost:
            w, x, y, z = found.pose.wxyz.tolist()
            values = [*found.pose.translation.tolist(), x, y, z, w]
            self._write_text(f"{found.frame} {' '.join(f'{value:.9g}' for value in values)}\n")
        self._file.flush()

    def _write_text(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


@contextmanager
def poses_file(path: Path) -> Iterator[Poses]:
    """Opens a new file of poses, in the format of its suffix, one of ``SUFFIXES``."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield Poses(file, path.suffix.lower())
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def record(found: Tracked, name: str) -> dict[str, Any]:
    """One frame, for JSON."""
    return {
        "frame": found.frame,
        "name": name,
        "translation": found.pose.translation.tolist(),
        "wxyz": found.pose.wxyz.tolist(),
        "confidence": round(found.confidence, 6),
        "visible": [round(share, 4) for share in found.visible.tolist()],
        "parts_visible": int(found.parts_visible.sum()),
        "lost": found.lost,
        "reason": found.reason,
    }


# ── a picture of some frames ──────────────────────────────────────────────────────────────────────────────────────────

MOST_DRAWN = 24
_COLUMNS, _POINTS = 8, 700
_FRAME_COLOR = (0.1, 0.1, 0.1)
FROM_SENSOR = np.array([-1, 1, -1])
"""Half a turn about the vertical: a sensor looks along its z axis, but pictures are seen against it."""


@dataclass(frozen=True)
class Shot:
    """One frame to draw: its points, and the reference in it."""

    title: str
    lost: bool
    frame: Float64[np.ndarray, "n 3"]
    reference: Float64[np.ndarray, "m 3"]
    labels: Int[np.ndarray, "m"]
    visible: Bool[np.ndarray, "j"]


def picture(shots: list[Shot]) -> bytes:
    """A picture of frames as seen from the origin: points in black, visible parts in colours, hidden ones grey."""
    columns = min(_COLUMNS, len(shots))
    grid = Grid(-(-len(shots) // columns), columns)
    for place, shot in enumerate(shots):
        colors = np.where(shot.visible[:, None], part_colors(len(shot.visible)), STRAY_COLOR)[shot.labels]
        few = [at_most(_POINTS, len(one)) for one in (shot.reference, shot.frame)]
        panel = grid.panel(*divmod(place, columns), shot.title, "red" if shot.lost else "black")
        draw_points(panel, FROM_SENSOR * shot.reference[few[0]], colors[few[0]])
        draw_points(panel, FROM_SENSOR * shot.frame[few[1]], _FRAME_COLOR, size=0.6)
    grid.caption(
        "The reference where it was found, each visible part in its colour, on the points of the frame.",
        {"points of the frame": _FRAME_COLOR, "hidden parts": STRAY_COLOR},
    )
    return grid.png()
