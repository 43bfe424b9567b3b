"""Clouds for the page: embedded objects, files named on the command line, bounded uploads, and how each is stood up."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64
from scipy.spatial.transform import Rotation

from geocaps import datasets
from geocaps.apps.clouds import as_cloud
from geocaps.apps.encoding import Encoding
from geocaps.apps.orient import Standing
from geocaps.apps.rendering import surface
from geocaps.data import PointDataset
from geocaps.errors import FileFormatError, GeocapsError, InvalidInputError, NotFiniteError
from geocaps.geometry.sampling import at_most, thinned
from geocaps.io import SUFFIXES, load_points

MAX_UPLOAD_BYTES = 32 * 1024**2
MAX_UPLOAD_POINTS = 2_000_000
SHOWN_POINTS = 4096  # points of a cloud that are shown: enough to see it, few enough to encode while a slider moves
SCAN_POINTS = 200_000  # points of a cloud that are kept, for modes that need a whole scan
EXAMPLE = "chair 1"  # the embedded object that is shown by default
SHAPES_SHOWN = 3  # objects of each procedural class in the list


@dataclass(frozen=True)
class ShownCloud:
    """A cloud in the user's coordinates, reduced from ``total`` points to those that the page shows."""

    name: str
    points: Float[np.ndarray, "n 3"]
    total: int
    dropped: int = 0  # number of points left out because they were NaN or infinite
    dense: Float[np.ndarray, "m 3"] | None = None  # more of its points, if not all are shown
    path: str | None = None  # of its file, as given on the command line
    upright: bool = False  # whether it is known to stand upright along y

    @cached_property
    def exact(self) -> Float64[np.ndarray, "n 3"]:
        return self.points.astype(np.float64)

    @property
    def scan(self) -> Float[np.ndarray, "m 3"]:
        """All points that the page keeps."""
        return self.points if self.dense is None else self.dense

    @cached_property
    def normals(self) -> Float64[np.ndarray, "n 3"]:
        return surface(self.exact)[0]

    @cached_property
    def center(self) -> Float64[np.ndarray, "3"]:
        return self.exact.mean(axis=0)

    @cached_property
    def radius(self) -> float:
        return max(float(np.linalg.norm(self.exact - self.center, axis=1).max()), 1e-12)


def shown_cloud(name: str, points: np.ndarray, minimum: int) -> ShownCloud:
    """A checked cloud, thinned in canonical order, so that a rotated copy keeps the same points."""
    checked = as_cloud(points, minimum, name).points
    total = len(checked)
    if total <= SHOWN_POINTS:
        return ShownCloud(name, checked, total)
    shown = checked[np.sort(thinned(checked, SHOWN_POINTS))]
    return ShownCloud(name, shown, total, dense=checked[at_most(SCAN_POINTS, total)])


def file_cloud(path: str | os.PathLike[str], minimum: int, *, drop_invalid: bool = False) -> ShownCloud:
    """A local file, named by the person who started the page."""
    loaded = load_points(path, drop_invalid=drop_invalid)
    cloud = shown_cloud(Path(path).name, loaded.points, minimum)
    return replace(cloud, dropped=loaded.dropped, path=os.fspath(path))


def by_name(clouds: Sequence[ShownCloud]) -> dict[str, ShownCloud]:
    """Clouds by unique names; files with the same name in different folders are numbered."""
    named: dict[str, ShownCloud] = {}
    for cloud in clouds:
        numbered = (f"{cloud.name} ({count})" for count in itertools.count(2))
        name = next(name for name in itertools.chain([cloud.name], numbered) if name not in named)
        named[name] = replace(cloud, name=name)
    return named


def uploaded_cloud(name: str, content: bytes, minimum: int) -> ShownCloud:
    """A file uploaded by a browser: limited in size, and read by the safe readers from a temporary folder."""
    name = _plain_name(name)
    check_upload(name, len(content))
    with tempfile.TemporaryDirectory(prefix="geocaps-upload-") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            points = load_points(path).points
        except GeocapsError as error:
            # The person knows the file by its name, not by its temporary path.
            said = f"{error.what}: take them out first" if isinstance(error, NotFiniteError) else str(error)
            raise FileFormatError(said.replace(f"{folder}{os.sep}", "")) from None
    if len(points) > MAX_UPLOAD_POINTS:
        raise InvalidInputError(
            f"{name} has {len(points):,} points; the page takes {MAX_UPLOAD_POINTS:,}: "
            "start geocaps view with the file's name instead, or thin it out"
        )
    return shown_cloud(name, points, minimum)


def check_upload(name: str, size: int) -> None:
    """Refuses a file that is too large or of an unknown format, if possible before it has been transferred."""
    name = _plain_name(name)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        came = f"'{suffix}'" if suffix else "no suffix"
        raise FileFormatError(f"{name} has {came}, which is not read: expected one of {' '.join(sorted(SUFFIXES))}")
    if size > MAX_UPLOAD_BYTES:
        raise InvalidInputError(
            f"{name} has {size:,} bytes; the page takes {MAX_UPLOAD_BYTES:,}: "
            "start geocaps view with the file's name instead"
        )


def embedded_names() -> tuple[str, ...]:
    """The embedded objects, by their names on the page."""
    return tuple(_embedded())


def embedded_cloud(name: str, minimum: int) -> ShownCloud:
    found = _embedded().get(name)
    if found is None:
        raise InvalidInputError(f"there is no embedded object {name!r}: choose one of the list")
    dataset, index = found
    return replace(shown_cloud(name, dataset.points(index), minimum), upright=True)


@lru_cache(maxsize=1)
def _embedded() -> dict[str, tuple[PointDataset, int]]:
    shapes, furniture = datasets.load("shapes"), datasets.load("furniture")
    found: dict[str, tuple[PointDataset, int]] = {}
    for code, class_name in enumerate(shapes.class_names):
        for place, index in enumerate(np.flatnonzero(shapes.labels == code)[:SHAPES_SHOWN].tolist()):
            found[f"{class_name} {place + 1}"] = (shapes, index)
    for index, object_id in enumerate(furniture.object_ids):
        found[f"furniture: {object_id.rsplit('#', 1)[-1]} ({index + 1})"] = (furniture, index)
    return found


def _plain_name(name: str) -> str:
    """The last part of a name sent by a browser, without characters that are special to a file system or a page."""
    last = re.split(r"[/\\]", name)[-1]
    plain = re.sub(r"[^\w.() -]", "_", last).strip(". ")
    return plain[-100:] or "upload"


# ── how objects are turned to stand on the page, whose y axis points up ───────────────────────────────────────────────
#
# Files have their objects upright along y or along z. What would support an object (``apps.orient``) says which, for
# several files of one kind together; z is taken only where that is likely enough.

UP = np.array([0.0, 1.0, 0.0])
_ALONG_Z = np.array([0.0, 0.0, 1.0])
_SURE = 0.8
_NEAR = np.cos(np.radians(25))  # between an axis of the file and the corresponding axis of the surface
_SIX = np.concatenate([np.eye(3), -np.eye(3)])  # in the order of ``Standing.log_support``


@dataclass(frozen=True)
class Stance:
    """A rotation from an object's coordinates to the page's, in which it stands upright, and the reason for it."""

    rotation: Float64[np.ndarray, "3 3"]
    how: str


KNOWN = Stance(np.eye(3), "embedded objects stand along y")
AS_GIVEN = Stance(np.eye(3), "as it came, y up: what would support it does not tell")


def standing_along(up: Float64[np.ndarray, "3"], how: str) -> Stance:
    """The smallest rotation that makes a direction point up."""
    return Stance(Rotation.align_vectors(UP[None], up[None])[0].as_matrix(), how)


def stances(objects: Sequence[tuple[Encoding, bool]]) -> list[Stance]:
    """How objects of one kind stand; ``True`` marks one that is known to stand along y."""
    unknown = [encoding for encoding, known in objects if not known]
    found = AS_GIVEN
    # The paper's object layer has no frames.
    if unknown and all(encoding.parse.frames is not None for encoding in unknown):
        odds = sum(_z_over_y(Standing.of(encoding)) for encoding in unknown)
        chance = float(1 / (1 + np.exp(-odds)))
        for up, axis, sure in ((_ALONG_Z, "z", chance), (UP, "y", 1 - chance)):
            if sure >= _SURE:
                found = standing_along(up, f"{axis} is up by what would support it ({sure:.2f})")
    return [KNOWN if known else found for _, known in objects]


def _z_over_y(standing: Standing) -> float:
    """Log odds of z against y pointing up; 0 if these are not axes of the surface."""
    directions = _SIX @ standing.described.rotations[0].T
    along = np.stack([directions @ _ALONG_Z, directions @ UP])
    if along.max(axis=1).min() < _NEAR:
        return 0.0
    z, y = standing.log_support[along.argmax(axis=1)]
    return float(np.clip(z - y, -20, 20))
