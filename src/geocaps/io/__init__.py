"""Reading and writing of points: meshes, scans, text columns and arrays; damaged and hostile files are refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from geocaps.errors import DroppedPointsWarning, FileFormatError, GeocapsError, InvalidInputError, NotFiniteError
from geocaps.io import gltf, limits, meshes, scans, tables
from geocaps.io.limits import Geometry
from geocaps.io.meshes import check_draw, sample_surface
from geocaps.io.save import save_points

__all__ = ["PointCloud", "describe", "finite_only", "is_supported", "load_points", "sample_surface", "save_points"]

DEFAULT_COUNT = 4096
# float32 keeps about seven digits: below this ratio of extent to offset fewer than four are left for the shape.
MIN_FLOAT32_RATIO = 1e-3

_READERS: dict[str, Callable[[Path], Geometry]] = {
    ".ply": meshes.read_ply, ".obj": meshes.read_obj, ".off": meshes.read_off, ".stl": meshes.read_stl,
    ".glb": gltf.read_glb, ".gltf": gltf.read_gltf,
    ".pcd": scans.read_pcd, ".las": scans.read_las, ".laz": scans.read_las,
    **dict.fromkeys((".xyz", ".txt", ".pts", ".csv"), tables.read_text),
    ".npy": tables.read_npy, ".npz": tables.read_npz, ".h5": tables.read_hdf5, ".hdf5": tables.read_hdf5,
}  # fmt: skip
SUFFIXES: frozenset[str] = frozenset(_READERS)
NO_RETURN_SUFFIXES = (".pcd",)  # formats in which NaN marks pixels of a scan without a return


@dataclass(frozen=True)
class PointCloud:
    """Points in the units and the frame of their file: nothing is centred, scaled or rotated.

    `points` (and `vertices`) are float32, or float64 if float32 would lose the shape, as for a small scan in map
    coordinates (UTM), far from the origin. `faces` and `vertices` are the mesh that the points were sampled from.
    """

    points: Float[np.ndarray, "n 3"]
    source: str
    faces: Int[np.ndarray, "f 3"] | None = None
    vertices: Float[np.ndarray, "v 3"] | None = None
    dropped: int = 0
    """Number of points (or vertices) left out because they are NaN or infinite."""
    labels: Int[np.ndarray, "n"] | None = None
    """Label of each point, if the file has labels; for a mesh, that of the nearest vertex."""


@dataclass(frozen=True)
class FileReport:
    """A report on the contents of a file of points, unchanged."""

    path: str
    format: str
    bytes: int
    kind: str  # `cloud`, `mesh` or `data set`; for the last, all but `objects` is of its first object
    objects: int
    points: int  # points of a cloud, vertices of a mesh
    faces: int
    lowest: list[float] | None
    highest: list[float] | None  # bounds of the finite points; None without any
    extent: list[float] | None  # lengths along x, y and z
    units: str | None  # the unit of length, if the file or its format states one
    duplicates: int  # points at exactly the same place as an earlier one
    not_finite: int  # points with a coordinate that is NaN or infinite
    stray: int  # points far from all others, by `STRAY_RULE`
    extras: tuple[str, ...]  # other attributes of the points in the file, which are not used


STRAY_REACH, STRAY_SHARE = 3.0, 0.95
STRAY_RULE = "more than 3 times as far from the median of the points as 95 % of them"


def describe(path: str | os.PathLike) -> FileReport:
    """A report on a whole file, in which points that `load_points` would refuse are counted."""
    return report_of(Path(path), read_geometry(Path(path)))


def report_of(path: Path, geometry: Geometry, data_set_of: int | None = None) -> FileReport:
    """A report on the geometry of a file, or on the first object of a data set."""
    points = geometry.vertices[np.isfinite(geometry.vertices).all(axis=1)].astype(np.float64)
    bounds = np.stack([points.min(axis=0), points.max(axis=0)]) if len(points) else None
    kind = "cloud" if geometry.faces is None else "mesh"
    ordered = points[np.lexsort(points.T)]
    return FileReport(
        path=str(path),
        format=path.suffix[1:].upper(),
        bytes=path.stat().st_size,
        kind=kind if data_set_of is None else "data set",
        objects=1 if data_set_of is None else data_set_of,
        points=len(geometry.vertices),
        faces=0 if geometry.faces is None else len(geometry.faces),
        lowest=None if bounds is None else bounds[0].tolist(),
        highest=None if bounds is None else bounds[1].tolist(),
        extent=None if bounds is None else (bounds[1] - bounds[0]).tolist(),
        units=geometry.units,
        duplicates=int((ordered[1:] == ordered[:-1]).all(axis=1).sum()),
        not_finite=len(geometry.vertices) - len(points),
        stray=_stray(points),
        extras=geometry.extras,
    )


def _stray(points: Float[np.ndarray, "n 3"]) -> int:
    if len(points) == 0:
        return 0
    with np.errstate(over="ignore", invalid="ignore"):  # for coordinates near the largest number
        distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return int((distance > STRAY_REACH * np.quantile(distance, STRAY_SHARE)).sum())


def is_supported(path: str | os.PathLike) -> bool:
    """Whether `load_points` reads files with this suffix."""
    return Path(path).suffix.lower() in SUFFIXES


def load_points(
    path: str | os.PathLike, count: int | None = None, *, seed: int = 0, drop_invalid: bool = False
) -> PointCloud:
    """Reads a point cloud or a mesh from a file, in the format of its suffix.

    From a mesh, `count` points (default 4096) are sampled uniformly by area; of a cloud, all points are taken in their
    order, or a random subset of `count` if it has more. The same seed gives the same points. Scenes are assembled with
    the transforms of their nodes. A file that cannot be read raises FileFormatError.

    NaN and infinite points mean "no return" in a PCD file and are left out, with a DroppedPointsWarning. In any other
    format they raise InvalidInputError, unless `drop_invalid` leaves them out too, with the faces at them.
    """
    if not os.fspath(path):
        raise InvalidInputError("an empty name was given: name a file")
    path = Path(path)
    check_draw(1 if count is None else count, seed)
    if count is not None and count > limits.MAX_POINTS:
        raise InvalidInputError(f"{count:,} points were requested, the limit is {limits.MAX_POINTS:,}")
    geometry = read_geometry(path)
    drops = drop_invalid or path.suffix.lower() in NO_RETURN_SUFFIXES
    vertices, faces, dropped = finite_only(geometry.vertices, geometry.faces, str(path), drop=drops)
    labels = geometry.labels
    if labels is not None and dropped:
        labels = labels[np.isfinite(geometry.vertices).all(axis=1)]
    if faces is None:
        points = vertices
        if count is not None and count < len(points):
            chosen = np.sort(np.random.default_rng(seed).choice(len(points), count, replace=False, shuffle=False))
            points, labels = points[chosen], None if labels is None else labels[chosen]
        return PointCloud(_compact(points), str(path), dropped=dropped, labels=labels)
    try:
        points, _ = sample_surface(vertices, faces, DEFAULT_COUNT if count is None else count, seed=seed)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    if labels is not None:
        from scipy.spatial import cKDTree  # slow to import, and few meshes have labels

        labels = labels[cKDTree(vertices).query(points)[1]]
    return PointCloud(_compact(points), str(path), faces, _compact(vertices), dropped, labels)


def finite_only(
    points: Float[np.ndarray, "n 3"], faces: Int[np.ndarray, "f 3"] | None, name: str, *, drop: bool
) -> tuple[Float[np.ndarray, "m 3"], Int[np.ndarray, "g 3"] | None, int]:
    """The points (and the faces between them) without NaN and infinite ones, and the number of these.

    They are left out with a DroppedPointsWarning or, without `drop`, raise NotFiniteError.
    """
    sound = np.isfinite(points).all(axis=1)
    wrong = len(points) - int(sound.sum())
    if not wrong:
        return points, faces, 0
    what = f"{name}: {wrong:,} of {len(points):,} points have a coordinate that is NaN or infinite"
    if wrong == len(points):
        raise InvalidInputError(f"{what}: there are no valid points")
    if not drop:
        raise NotFiniteError(what)
    warnings.warn(DroppedPointsWarning(f"{what}; they are left out"), stacklevel=3)
    if faces is not None:
        faces = (np.cumsum(sound) - 1)[faces[sound[faces].all(axis=1)]]
    return points[sound], faces, wrong


def read_geometry(path: Path) -> Geometry:
    """The geometry of a file, unchanged and with at least one point; errors name the file."""
    reader = _READERS.get(path.suffix.lower())
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass  # reported below
    except OSError as error:
        raise InvalidInputError(f"cannot open {str(path)[:300]}: {error.strerror or error}") from error
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder, but a file was expected: load its files one by one")
    if not path.exists():
        raise InvalidInputError(f"{path} does not exist: check the name and the folder")
    if reader is None:
        suffix = f"'{path.suffix}'" if path.suffix else "no suffix"
        raise FileFormatError(f"{path} has {suffix}, which is not read: expected one of {' '.join(sorted(SUFFIXES))}")
    # Opening a pipe or a device would block forever.
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a regular file: copy its content to one first")
    if path.stat().st_size == 0:
        raise FileFormatError(f"{path} is empty (0 bytes): write or download it again")
    kind = path.suffix[1:].upper()
    try:
        # Overflow in hostile coordinates gives infinity, which is refused later.
        with np.errstate(all="ignore"):
            geometry = reader(path)
    except GeocapsError:
        raise
    except Exception as error:
        # The text of a KeyError and the like is a bare value, so the name of the error is added.
        named = str(error).strip() if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__} {error}"
        reason = (named or type(error).__name__).splitlines()[0][:300]
        raise FileFormatError(f"cannot read {path} as {kind}: {reason}") from error
    total = len(geometry.vertices)
    if total == 0:
        raise FileFormatError(f"{path} holds no points: a {kind} file with at least one was expected")
    if total > limits.MAX_POINTS:
        raise FileFormatError(f"{path} holds {total:,} points, the limit is {limits.MAX_POINTS:,}: thin it out first")
    return geometry


def _compact(points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """float32, unless that would lose the shape: far from the origin, or outside the range of float32."""
    largest = np.abs(points).max()
    extent = np.ptp(points, axis=0).max()
    in_range = largest < np.finfo(np.float32).max and (largest == 0 or largest > np.finfo(np.float32).tiny)
    near = extent == 0 or extent >= MIN_FLOAT32_RATIO * largest
    return points.astype(np.float32) if in_range and near else points
