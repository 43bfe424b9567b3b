"""Augmentation and corruption of one cloud: pure functions, each with an explicit generator.

Functions that turn points return the rotation R too (new = R · old); functions that select points return the kept
indices, so that labels and normals can follow.
"""

import math

import torch
from jaxtyping import Float, Int
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from geocaps.errors import InvalidInputError

Points = Float[Tensor, "n 3"]
Selection = tuple[Float[Tensor, "m 3"], Int[Tensor, "m"]]
Rotated = tuple[Float[Tensor, "n 3"], Float[Tensor, "3 3"]]


def rotate_uniform(points: Points, generator: torch.Generator) -> Rotated:
    """Turned by a rotation uniform on SO(3)."""
    _check_points(points)
    quaternion = torch.randn(4, generator=generator, dtype=torch.float64)
    w, *xyz = (quaternion / quaternion.norm()).tolist()
    axis = torch.tensor(xyz, dtype=torch.float64)
    sine = float(axis.norm())
    if sine == 0.0:
        return _rotated(points, torch.eye(3, dtype=torch.float64))
    return _rotated(points, _axis_angle(axis / sine, 2 * math.atan2(sine, w)))


def rotate_axis_angle(points: Points, generator: torch.Generator, max_angle: float = math.pi) -> Rotated:
    """Turned about a random axis by an angle uniform in [-max_angle, max_angle]: the paper's sampling.

    This is not uniform on SO(3): small angles come far more often.
    """
    _check_points(points)
    _check_range("max_angle", max_angle, 0.0, math.pi)
    angle = max_angle * (2 * float(torch.rand((), generator=generator, dtype=torch.float64)) - 1)
    return _rotated(points, _axis_angle(_direction(generator), angle))


def translate(
    points: Points, generator: torch.Generator, reach: float = 1.0
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "3"]]:
    """Moved by an offset uniform in [-reach, reach]³; the offset is returned too."""
    _check_points(points)
    _check_range("reach", reach, 0.0, math.inf)
    offset = reach * (2 * torch.rand(3, generator=generator, dtype=torch.float64) - 1).to(points.dtype)
    return points + offset, offset


def scale_anisotropic(
    points: Points, low: float, high: float, generator: torch.Generator
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "3"]]:
    """Stretched along x, y and z by factors uniform in [low, high]; the factors are returned too."""
    _check_points(points)
    if not 0.0 < low <= high < math.inf:
        raise InvalidInputError(f"the factors must satisfy 0 < low <= high, but low is {low} and high is {high}.")
    factors = (low + (high - low) * torch.rand(3, generator=generator, dtype=torch.float64)).to(points.dtype)
    return points * factors, factors


def gaussian_noise(points: Points, std: float, generator: torch.Generator) -> Points:
    """Every coordinate moved by independent Gaussian noise."""
    _check_points(points)
    _check_range("std", std, 0.0, math.inf)
    return points + std * torch.randn(points.shape, generator=generator, dtype=points.dtype)


def outliers(points: Points, share: float, generator: torch.Generator) -> tuple[Points, Int[Tensor, "replaced"]]:
    """The share of the points (rounded) replaced by uniform points of the ball about the cloud; the count stays.

    The ball is centred on the mean and reaches to the farthest point. The replaced indices are returned too.
    """
    _check_points(points)
    _check_range("share", share, 0.0, 1.0)
    replaced = torch.randperm(len(points), generator=generator)[: round(share * len(points))].sort().values
    centre = points.mean(dim=0)
    radius = (points - centre).norm(dim=1).max()
    directions = torch.randn((len(replaced), 3), generator=generator, dtype=points.dtype)
    directions = directions / directions.norm(dim=1, keepdim=True).clamp_min(torch.finfo(points.dtype).tiny)
    depth = torch.rand((len(replaced), 1), generator=generator, dtype=points.dtype) ** (1 / 3)
    result = points.clone()
    result[replaced] = centre + radius * depth * directions
    return result, replaced


def resample(points: Points, count: int, generator: torch.Generator, replacement: bool = False) -> Selection:
    """`count` points drawn at random, each at most once unless with replacement."""
    _check_points(points)
    if count < 1:
        raise InvalidInputError(f"count must be at least 1, but it is {count}: ask for one point or more.")
    if replacement:
        kept = torch.randint(len(points), (count,), generator=generator)
    elif count > len(points):
        raise InvalidInputError(
            f"{count} points cannot be drawn without replacement from {len(points)}: ask for fewer or pass "
            "replacement=True."
        )
    else:
        kept = torch.randperm(len(points), generator=generator)[:count]
    return points[kept], kept


def crop_half_space(points: Points, keep: float, generator: torch.Generator) -> Selection:
    """What lies on one side of a plane of random direction, placed so that the share `keep` (rounded) remains."""
    _check_points(points)
    count = _kept_count(points, keep)
    along = points.to(torch.float64) @ _direction(generator)
    kept = along.argsort(stable=True)[:count].sort().values
    return points[kept], kept


def vary_density(points: Points, generator: torch.Generator, strength: float = 4.0) -> Selection:
    """As many points drawn with replacement, denser along a random direction.

    From one end of the cloud to the other the chance of a point grows evenly up to (1 + strength) times.
    """
    _check_points(points)
    _check_range("strength", strength, 0.0, math.inf)
    along = points.to(torch.float64) @ _direction(generator)
    extent = float(along.max() - along.min())
    chance = 1 + strength * (along - along.min()) / extent if extent > 0 else torch.ones_like(along)
    kept = torch.multinomial(chance, len(points), replacement=True, generator=generator)
    return points[kept], kept


def drop_patches(points: Points, patches: int, radius: float, generator: torch.Generator) -> Selection:
    """Without the points within `radius` of each of `patches` points, drawn one after another from what is left.

    A patch that would leave nothing is not cut, so at least one point always remains.
    """
    _check_points(points)
    if patches < 0:
        raise InvalidInputError(f"patches must be 0 or more, but it is {patches}.")
    _check_range("radius", radius, 0.0, math.inf)
    kept = torch.arange(len(points))
    for _ in range(patches):
        seed = kept[int(torch.randint(len(kept), (), generator=generator))]
        outside = (points[kept] - points[seed]).norm(dim=1) > radius
        if bool(outside.any()):
            kept = kept[outside]
    return points[kept], kept


def occlude_view(points: Points, view: Float[Tensor, "3"] | torch.Generator, openness: float = 2.0) -> Selection:
    """The points seen from a viewpoint outside the cloud: hidden-point removal of Katz, Tal and Basri (2007).

    Every point is flipped to the far side of a sphere about the viewpoint of radius 10^openness times the largest
    distance; what lies on the convex hull of the flipped points and the viewpoint is seen. A larger openness sees more.
    Given a generator, the viewpoint lies in a random direction at three times the cloud's radius.
    """
    _check_points(points)
    _check_range("openness", openness, 0.0, 12.0)
    if isinstance(view, torch.Generator):
        centre = points.mean(dim=0)
        viewpoint = centre + 3 * (points - centre).norm(dim=1).max() * _direction(view).to(points.dtype)
    else:
        viewpoint = view
    offset = (points - viewpoint).to(torch.float64)
    distance = offset.norm(dim=1, keepdim=True)
    if not bool((distance > 0).all()):
        raise InvalidInputError(
            "the viewpoint lies on a point of the cloud, or the points are all the same: give a cloud with volume and "
            "a viewpoint outside it."
        )
    flipped = offset + 2 * (10.0**openness * distance.max() - distance) * offset / distance
    try:
        hull = ConvexHull(torch.cat([flipped, flipped.new_zeros(1, 3)]).numpy())
    except (QhullError, ValueError):
        raise InvalidInputError(
            f"none of the {len(points)} points can be called hidden, because with the viewpoint they lie in one plane, "
            "line or place: give a cloud with volume."
        ) from None
    vertices = torch.from_numpy(hull.vertices).to(torch.int64)
    kept = vertices[vertices < len(points)].sort().values
    return points[kept], kept


def _rotated(points: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
    rotation = rotation.to(points.dtype)
    return points @ rotation.T, rotation


def _axis_angle(axis: Tensor, angle: float) -> Tensor:
    """Rodrigues' formula."""
    x, y, z = axis.tolist()
    cross = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    return torch.eye(3, dtype=torch.float64) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def _direction(generator: torch.Generator) -> Float[Tensor, "3"]:
    """Uniform on the unit sphere."""
    height, turn = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    height, turn = 2 * height - 1, 2 * math.pi * turn
    wide = math.sqrt(max(0.0, 1 - height * height))
    return torch.tensor([wide * math.cos(turn), wide * math.sin(turn), height], dtype=torch.float64)


def _kept_count(points: Tensor, keep: float) -> int:
    if not 0.0 < keep <= 1.0:
        raise InvalidInputError(f"keep must be a share in (0, 1], but it is {keep}.")
    return max(1, round(keep * len(points)))


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
