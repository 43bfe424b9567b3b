"""Input validation: any kind of point cloud that users may pass, as checked arrays."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64

from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity
from geocaps.model.config import MAX_COORDINATE

if TYPE_CHECKING:
    from geocaps.geometry.se3 import Pose  # torch, which validation does without

MESH_POINTS = 4096
"""Points sampled from a mesh that is passed as an object."""
_LINE = 1e-4
"""Second spread of a cloud, relative to the first, below which it is a line with an undefined rotation about it."""

Source = Any
"""A path, an array or tensor ``[N, 3]``, an object with ``vertices`` (and ``faces``) like trimesh's; or several."""


@dataclass(frozen=True)
class Cloud:
    """One checked cloud in the user's coordinates, with a name for messages."""

    points: np.ndarray  # [n, 3], float32 or float64, finite
    name: str
    vertices: np.ndarray | None = None  # of the mesh that the points were sampled from: [v, 3], unchanged
    faces: np.ndarray | None = None  # [f, 3]
    dropped: int = 0  # number of points (of a mesh: vertices) left out because they were NaN or infinite
    labels: np.ndarray | None = None  # [n] of the points, where a file has any


def as_cloud(source: Source, minimum: int, name: str, *, drop_invalid: bool = False) -> Cloud:
    """One checked cloud, or an error; ``drop_invalid`` leaves out points that are NaN or infinite."""
    vertices = faces = labels = None
    if isinstance(source, Cloud):
        points, name, vertices, faces = source.points, source.name, source.vertices, source.faces
        dropped, labels = source.dropped, source.labels
    elif isinstance(source, (str, os.PathLike)):
        from geocaps.io import load_points  # not needed to load weights

        loaded, name = load_points(source, drop_invalid=drop_invalid), str(source)
        points, vertices, faces, dropped = loaded.points, loaded.vertices, loaded.faces, loaded.dropped
        labels = loaded.labels
    elif hasattr(source, "vertices"):
        points, vertices, faces, dropped = _mesh_points(source, name, drop_invalid)
    else:
        points, dropped = _array(source, name, flat=True), 0
        if not np.isfinite(points).all():
            from geocaps.io import finite_only

            points, _, dropped = finite_only(points, None, name, drop=drop_invalid)
    if len(points) < minimum:
        raise InvalidInputError(f"{name} has {len(points)} points; at least {minimum} are needed, one for each part")
    largest = float(np.abs(points).max(initial=0))
    if largest > MAX_COORDINATE:
        raise InvalidInputError(
            f"{name} has a coordinate of {largest:.3g}, which exceeds the limit of {MAX_COORDINATE:.0e}"
        )
    return Cloud(points, name, vertices, faces, dropped, labels)


class Placed:
    """A result with a ``pose`` from one cloud's frame to another's: ``x_parent = scale · R · x_local + t``."""

    pose: Similarity

    @property
    def matrix(self) -> Float64[np.ndarray, "4 4"]:
        """The pose as a matrix with ``scale · R`` in its upper left block."""
        return self.pose.matrix()

    @property
    def scale(self) -> float:
        return float(self.pose.scale)

    def apply(self, source: Source) -> Float64[np.ndarray, "*points 3"]:
        """Points from the local to the parent frame: an array or list ``[..., 3]``, a path, a mesh (its vertices)."""
        return self.pose.apply(_coordinates(source))


def _coordinates(source: Source) -> np.ndarray:
    if isinstance(source, (str, os.PathLike)):
        source = as_cloud(source, 0, "")
    if isinstance(source, Cloud):
        return source.points if source.vertices is None else source.vertices
    return _array(source.vertices if hasattr(source, "vertices") else source, "points")


def require_extent(points: np.ndarray, name: str) -> None:
    """Raises for points ``[n, 3]`` that are all in one place or on one line, which have no orientation."""
    exact = np.asarray(points, dtype=np.float64)
    center = exact.mean(axis=0)
    offset = exact - center
    reach = float(np.abs(offset).max())
    if reach <= 1e-12 * float(np.abs(center).max()) or reach == 0:
        raise InvalidInputError(f"the points of {name} are all in one place, so they have no orientation")
    offset /= reach
    variance = np.linalg.eigvalsh(offset.T @ offset)
    if variance[1] <= _LINE**2 * variance[2]:
        raise InvalidInputError(f"the points of {name} lie on one line, so the rotation about that line is undefined")


def normalization(points: Float[np.ndarray, "n 3"], name: str) -> Similarity:
    """From the model's frame, with the centroid at 0 and the farthest point at distance 1, to the user's.

    ``x_user = scale · x_model + translation``, in float64, so that map coordinates keep their precision. The scale of a
    single point is 1.
    """
    exact = points.astype(np.float64)
    center = exact.mean(axis=0)
    radius = float(np.sqrt(((exact - center) ** 2).sum(axis=1).max()))
    if not np.isfinite(radius):
        raise InvalidInputError(f"{name} has coordinates that are NaN, infinite or too large")
    if radius == 0 and np.ptp(exact, axis=0).any():
        raise InvalidInputError(f"{name} is too small: scale its coordinates up first")
    # Points that differ only by rounding are one point.
    alone = radius <= 1e-12 * float(np.abs(center).max())
    return Similarity(np.eye(3), center, 1.0 if alone or radius == 0 else radius)


def to_user(pose: Pose, own: Similarity) -> Similarity:
    """Poses from the model's frame to the user's coordinates: positions are scaled, rotations are not."""
    translation = pose.translation.double().numpy() * own.scale + own.translation
    return Similarity.from_wxyz(pose.wxyz.double().numpy(), translation)


def _mesh_points(mesh: Any, name: str, drop: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, int]:
    """Points of a mesh object, its vertices and faces if it has any, and the number of vertices left out."""
    from geocaps.io import finite_only, sample_surface

    given, faces = _array(np.asarray(mesh.vertices), name, flat=True), getattr(mesh, "faces", None)
    if faces is None or len(faces) == 0:
        points, _, dropped = finite_only(given, None, name, drop=drop)
        return points, None, None, dropped
    vertices, triangles, dropped = finite_only(given, np.asarray(faces), name, drop=drop)
    assert triangles is not None
    return sample_surface(vertices, triangles, MESH_POINTS, seed=0)[0], vertices, triangles, dropped


def _array(source: Any, name: str, flat: bool = False) -> np.ndarray:
    """Numbers as float32 or float64; with ``flat`` they must be ``[N, 3]``."""
    torch = sys.modules.get("torch")  # not imported here: whoever passes a tensor has imported it
    if torch is not None and isinstance(source, torch.Tensor):
        source = _from_torch(source, name)
    if np.ma.is_masked(source):
        raise InvalidInputError(f"{name} has masked points: remove them first, with compress_rows for instance")
    try:
        array = np.asarray(source)
    except Exception as error:  # a foreign object's conversion may raise anything
        raise InvalidInputError(f"{name} is not an array [N, 3] of points: {_first_line(error)}") from error
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"{name} must be a path or an array [N, 3] of numbers, not {type(source).__name__} of {array.dtype}"
        )
    if flat and (array.ndim != 2 or array.shape[1] != 3):
        raise InvalidInputError(f"{name} must be an array [N, 3] of points, not of shape {list(array.shape)}")
    kept = array.dtype.isnative and array.dtype in (np.float32, np.float64)
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is refused as such
        array = array if kept else array.astype(np.float64)
    # PyTorch accepts neither arrays with negative strides nor read-only ones.
    return array if array.flags.writeable and min(array.strides, default=1) >= 0 else array.copy()


def _from_torch(tensor: Any, name: str) -> np.ndarray:
    import torch

    try:
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantised, without data
        raise InvalidInputError(
            f"{name} is a tensor that cannot be converted to an array (it must be dense): {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
