"""Corruption of one cloud, by pure functions with explicit generators.

Functions that select points also return the indices kept, for labels and normals.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from geocaps.errors import InvalidInputError

Points = Float[Tensor, "n 3"]
Selection = tuple[Float[Tensor, "m 3"], Int[Tensor, "m"]]

FLIP = 100.0
"""Radius of the sphere of :func:`visible_from` in units of the farthest point's distance. With 1,000 to 2,000 points, a
smaller one hides visible points in corners; a larger one lets the back of a plate show through."""


def gaussian_noise(points: Points, std: float, generator: torch.Generator) -> Points:
    """Every coordinate moved by independent Gaussian noise."""
    _check_points(points)
    _check_range("std", std, 0.0, math.inf)
    return points + std * torch.randn(points.shape, generator=generator, dtype=points.dtype)


def outliers(points: Points, share: float, generator: torch.Generator) -> tuple[Points, Int[Tensor, "replaced"]]:
    """Replaces a share of the points (rounded) by uniformly random points of the ball around the cloud.

    The ball is centred on the mean and reaches to the farthest point. The indices replaced are returned too.
    """
    replaced = _drawn(points, share, generator)
    centre = points.mean(dim=0)
    radius = (points - centre).norm(dim=1).max()
    directions = torch.randn((len(replaced), 3), generator=generator, dtype=points.dtype)
    directions = directions / directions.norm(dim=1, keepdim=True).clamp_min(torch.finfo(points.dtype).tiny)
    depth = torch.rand((len(replaced), 1), generator=generator, dtype=points.dtype) ** (1 / 3)
    return points.index_put((replaced,), centre + radius * depth * directions), replaced


def stray_points(
    points: Points, share: float, half_side: float, generator: torch.Generator
) -> tuple[Points, Int[Tensor, "replaced"]]:
    """Replaces a share of the points (rounded) by uniformly random points of a cube around the origin.

    The cube is [-half_side, half_side]³, independent of the cloud. The indices replaced are returned too.
    """
    replaced = _drawn(points, share, generator)
    _check_range("half_side", half_side, 0.0, math.inf)
    uniform = torch.rand((len(replaced), 3), generator=generator, dtype=points.dtype)
    return points.index_put((replaced,), half_side * (2 * uniform - 1)), replaced


def crop_half_space(points: Points, keep: float, generator: torch.Generator) -> Selection:
    """The points on one side of a plane of random direction, placed so that the share `keep` (rounded) remains."""
    _check_points(points)
    if not 0.0 < keep <= 1.0:
        raise InvalidInputError(f"keep must be a share in (0, 1], but it is {keep}.")
    count = max(1, round(keep * len(points)))
    along = points.to(torch.float64) @ _direction(generator)
    kept = along.argsort(stable=True)[:count].sort().values
    return points[kept], kept


def visible_from(points: Points, direction: Float[Tensor, "3"] | torch.Generator, distance: float = 4.0) -> Selection:
    """The points that are visible from ``distance`` radii away from the mean, in a given or a random direction.

    Hidden point removal (Katz, Tal and Basri 2007): every point is reflected outwards at a large sphere around the
    viewer; those on the convex hull of the reflected points and the viewer are visible. Copies of a point are treated
    alike. Nearer than about 3 radii, the far side of a cloud of 1,000 points is visible through the near one.
    """
    _check_points(points)
    if not distance > 1:
        raise InvalidInputError(f"distance must be more than 1, the cloud's own radius, but it is {distance}.")
    towards = (_direction(direction) if isinstance(direction, torch.Generator) else direction).double().numpy()
    length = np.linalg.norm(towards)
    if not (length > 0 and np.isfinite(length)):
        raise InvalidInputError(f"direction must be a vector that is not zero, but it is {towards.tolist()}.")
    places, copies = np.unique(points.double().numpy(), axis=0, return_inverse=True)
    offset = places - points.double().numpy().mean(axis=0)
    radius = np.linalg.norm(offset, axis=1).max()
    sight = offset - distance * radius * towards / length
    depth = np.linalg.norm(sight, axis=1, keepdims=True)
    if radius > 0:
        sight *= 2 * FLIP * depth.max() / depth - 1
    visible = np.zeros(len(places), dtype=bool)
    try:
        corners = ConvexHull(np.concatenate([sight, np.zeros((1, 3))])).vertices
        visible[corners[corners < len(places)]] = True
    except QhullError:  # fewer than three points, or all in one plane with the viewer: nothing hides anything
        visible[:] = True
    kept = torch.from_numpy(np.flatnonzero(visible[copies.reshape(-1)]))
    return points[kept], kept


def vary_density(points: Points, generator: torch.Generator, strength: float = 4.0) -> Selection:
    """The same number of points, drawn with replacement, with a density that varies along a random direction.

    From one end of the cloud to the other, the probability of a point grows linearly by a factor of 1 + strength.
    """
    _check_points(points)
    _check_range("strength", strength, 0.0, math.inf)
    along = points.to(torch.float64) @ _direction(generator)
    extent = float(along.max() - along.min())
    chance = 1 + strength * (along - along.min()) / extent if extent > 0 else torch.ones_like(along)
    kept = torch.multinomial(chance, len(points), replacement=True, generator=generator)
    return points[kept], kept


def _drawn(points: Points, share: float, generator: torch.Generator) -> Int[Tensor, "drawn"]:
    """The indices of a share (rounded) of the points, in their order."""
    _check_points(points)
    _check_range("share", share, 0.0, 1.0)
    return torch.randperm(len(points), generator=generator)[: round(share * len(points))].sort().values


def _direction(generator: torch.Generator) -> Float[Tensor, "3"]:
    """Uniform on the unit sphere."""
    height, turn = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    height, turn = 2 * height - 1, 2 * math.pi * turn
    wide = math.sqrt(max(0.0, 1 - height * height))
    return torch.tensor([wide * math.cos(turn), wide * math.sin(turn), height], dtype=torch.float64)


def _check_points(points: Tensor) -> None:
    if points.ndim != 2 or points.shape[1] != 3:
        raise InvalidInputError(f"the cloud must have the shape [n, 3], but it has {list(points.shape)}.")
    if len(points) == 0:
        raise InvalidInputError("the cloud has no points: give at least one.")
    if not bool(torch.isfinite(points).all()):
        raise InvalidInputError("the cloud has coordinates that are not finite: remove those points first.")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not (low <= value <= high and math.isfinite(value)):
        bound = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise InvalidInputError(f"{name} must be {bound}, but it is {value}.")
