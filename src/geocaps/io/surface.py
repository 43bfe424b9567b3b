"""Points drawn uniformly by area from triangles."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from geocaps.errors import InvalidInputError


def sample_surface(
    vertices: ArrayLike, faces: ArrayLike, count: int, *, seed: int
) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, " n"]]:
    """Draw `count` points uniformly by area from a triangle mesh.

    vertices [V, 3], faces [F, 3] (indices). Gives the points [count, 3] in float64 and the face of each [count].
    The same seed gives the same points. A mesh without area raises InvalidInputError.
    """
    corners = np.asarray(vertices, dtype=np.float64)
    triangles = np.asarray(faces)
    _check(corners, triangles, count, seed)

    # The areas of very large or very small meshes leave the range of float64 unless they are brought to size first.
    extent = np.ptp(corners, axis=0).max()
    if not np.isfinite(extent) or extent <= 0:
        raise InvalidInputError(f"cannot sample a surface whose extent is {extent:g}: the mesh has no area")
    a, b, c = (corners[triangles[:, i]] for i in range(3))
    areas = np.linalg.norm(np.cross((b - a) / extent, (c - a) / extent), axis=1)
    edges = np.cumsum(areas)
    if not edges[-1] > 0:
        raise InvalidInputError(f"cannot sample a surface without area: all {len(triangles)} triangles are degenerate")

    rng = np.random.default_rng(seed)
    # side="right" never picks a triangle of zero area; rounding may reach past the last, hence the minimum.
    last = int(np.flatnonzero(areas)[-1])
    face_index = np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), last)
    u, v = rng.random((2, count, 1))
    outside = u + v > 1
    u, v = np.where(outside, 1 - u, u), np.where(outside, 1 - v, v)
    start = a[face_index]
    return start + u * (b[face_index] - start) + v * (c[face_index] - start), face_index


def _check(corners: np.ndarray, triangles: np.ndarray, count: int, seed: int) -> None:
    if corners.ndim != 2 or corners.shape[1] != 3:
        raise InvalidInputError(f"vertices must have shape [V, 3], not {list(corners.shape)}")
    if triangles.ndim != 2 or triangles.shape[1] != 3 or triangles.dtype.kind not in "iu":
        raise InvalidInputError(
            f"faces must be integers of shape [F, 3], not {triangles.dtype} of shape {list(triangles.shape)}"
        )
    if len(triangles) == 0:
        raise InvalidInputError("cannot sample the surface of a mesh without faces")
    if triangles.min() < 0 or triangles.max() >= len(corners):
        raise InvalidInputError(f"faces must refer to the {len(corners)} vertices, some refer to others")
    if not np.isfinite(corners).all():
        raise InvalidInputError("vertices must be finite numbers, some are NaN or infinite")
    check_draw(count, seed)


def check_draw(count: int, seed: int) -> None:
    """Refuse a number of points or a seed that cannot be drawn with."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidInputError(f"the number of points must be a whole number of at least 1, not {count!r}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"the seed must be a whole number of at least 0, not {seed!r}")
