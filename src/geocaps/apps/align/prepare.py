"""Preparation of a cloud for alignment: normals, quick nearest neighbours, probes and local frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import distance_transform_edt
from scipy.spatial import ConvexHull, QhullError, cKDTree
from scipy.spatial.distance import cdist

from geocaps.geometry.sampling import canonical_order, evenly, voxel_means

PROBES, _PROBED = 96, 512  # farthest points that stand for the cloud in scores, and how many they are chosen among
KEYPOINTS = 32  # the first of the probes, which get local frames
FRAME_RADIUS = 0.5  # of a local frame, in units of the cloud's spread (the root mean square distance from the centroid)
_CELLS, _MARGIN = 24, 0.3  # of the table of near points: cells along its longest side, and room around the cloud
_NORMAL_NEIGHBOURS, _HANDFUL = 12, 12
_LEAF = 24  # points at the end of a branch of a tree: quicker than scipy's own ten for clouds of a thousand
_EVEN, _PASSES = 1.35, 6  # density is even where the surface's usual spacing is no more than this times the points' own
_VOXEL = 0.6  # of the surface's usual distance to the fourth neighbour: what is nearer together becomes one point
_DOUBTFUL, _TINY = 1e-6, np.finfo(np.float64).tiny  # two least eigenvalues so near leave the normal open
# Times the median: a fourth neighbour farther away than the first makes a point sparse, up to the second.
_SPARSE, _SPARSEST = 1.3, 9.0
_ISOLATED = 3.0  # a point whose fourth neighbour is this many times farther away than the median is isolated


@dataclass(frozen=True)
class Frames:
    """Local reference frames: the part capsules' poses, up to the signs of their axes."""

    origin: Float[np.ndarray, "k 3"]
    rotation: Float[np.ndarray, "k 3 3"]  # columns: tangent, bitangent, normal
    size: Float[np.ndarray, "k 3"]  # standard deviation along each axis
    offset: Float[np.ndarray, "k 3"]  # from keypoint to mean, along each axis: changes sign with it
    skew: Float[np.ndarray, "k 3"]  # cube root of the third moment along each axis: changes sign with it


@dataclass(frozen=True)
class Prepared:
    """A cloud in working units: its centroid near the origin, its spread about 1."""

    points: Float[np.ndarray, "n 3"]
    columns: Float[np.ndarray, "3 n"]  # the points once more, a row for each coordinate
    normals: Float[np.ndarray, "3 n"]
    spacing: float  # median distance to the nearest other point
    neighbour: Int[np.ndarray, "n"]  # the nearest other point
    sparsity: Float[np.ndarray, "n"]  # square of how many times farther than usual its neighbours are; at least 1
    solid: Bool[np.ndarray, "n"]  # false where a point stands alone: noise that farthest-point sampling would pick
    probes: Int[np.ndarray, "p"]
    tree: cKDTree
    table: NearestTable
    hull: Float[np.ndarray, "f 4"]  # planes (outward normal, offset) of the convex hull; none for a flat cloud

    @cached_property
    def own(self) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Square distances of each point from its neighbour and from that one's plane."""
        gap = self.columns - self.columns.take(self.neighbour, axis=1)
        across = (gap * self.normals.take(self.neighbour, axis=1)).sum(axis=0)
        return (gap * gap).sum(axis=0), across * across


@dataclass(frozen=True)
class Neighbours:
    """Of each point of a cloud the nearest ones, itself first."""

    index: Int[np.ndarray, "n k"]
    distance: Float[np.ndarray, "n k"]


@dataclass(frozen=True)
class NearestTable:
    """For each cell of a grid a near point: one look-up in place of a search, exact to about a cell."""

    origin: Float[np.ndarray, "3"]
    step: float
    index: Int[np.ndarray, "x y z"]
    distance: Float[np.ndarray, "x y z"]  # to that point, from cell to cell
    beyond: Bool[np.ndarray, "x y z"]  # whether the cell lies outside the cloud's convex hull

    def __call__(self, points: Float[np.ndarray, "3 *batch"]) -> Int[np.ndarray, "*batch"]:
        return self.index.take(self.cells(points))

    def cells(self, points: Float[np.ndarray, "3 *batch"]) -> Int[np.ndarray, "*batch"]:
        """The number of each point's cell; what lies outside counts to the outermost cells."""
        _, across, deep = self.index.shape
        scaled = (points.reshape(3, -1) - self.origin[:, None].astype(points.dtype)) * (1 / self.step)
        last = np.array(self.index.shape, dtype=points.dtype)[:, None] - 1
        x, y, z = np.clip(scaled, 0, last, out=scaled).astype(np.intp)
        return ((x * across + y) * deep + z).reshape(points.shape[1:])


def evened(points: Float[np.ndarray, "n 3"], most: int) -> tuple[Float[np.ndarray, "k 3"], Neighbours]:
    """At most ``most`` points of even density, each place once, in an order that does not depend on the given one.

    A scanner sees what is near a hundred times as densely as what is far, and the dense parts would have all the say.
    So points become means of voxels as large as the spacing that is usual on the surface (not among the points), until
    both are nearly the same. A cloud that is even already stays as it is.
    """
    even = voxel_means(points, 2 * most) if len(points) > 2 * most else np.asarray(points, dtype=np.float64)
    even = even[canonical_order(even)]
    even = even[np.insert((even[1:] != even[:-1]).any(axis=1), 0, True)]
    near = neighbours(even)
    for _ in range(_PASSES):
        if len(even) <= _HANDFUL:
            break
        spacing = _fourth(near)
        usual = float(np.median(spacing))
        # By area: a point stands for the square of its spacing. Strays, far from all others, must not decide.
        area = np.minimum(spacing, _ISOLATED * usual) ** 2
        order = np.argsort(spacing)
        on_surface = float(spacing[order[np.searchsorted(np.cumsum(area[order]), area.sum() / 2)]])
        if on_surface <= _EVEN * usual:
            break
        even = voxel_means(even, most, _VOXEL * on_surface)
        even = even[canonical_order(even)]
        near = neighbours(even)
    if len(even) > most:
        even = voxel_means(even, most)
        even = even[canonical_order(even)]
        near = neighbours(even)
    return even, near


def neighbours(points: Float[np.ndarray, "n 3"], tree: cKDTree | None = None) -> Neighbours:
    """As many as a normal needs: fewer in a sparse cloud, whose twelfth lies round the corner."""
    count = min(_NORMAL_NEIGHBOURS, max(6, len(points) // 20), len(points))
    distance, index = (tree or cKDTree(points, _LEAF)).query(points, count)
    return Neighbours(index.reshape(len(points), count), distance.reshape(len(points), count))


def _fourth(near: Neighbours) -> Float[np.ndarray, "n"]:
    """The distance to the fourth neighbour."""
    return near.distance[:, min(4, near.distance.shape[1] - 1)]


def prepare(points: Float[np.ndarray, "n 3"], near: Neighbours | None = None) -> Prepared:
    tree = cKDTree(points, _LEAF)
    near = neighbours(points, tree) if near is None else near
    reach = _fourth(near)
    usual = np.median(reach)
    solid = reach <= _ISOLATED * usual
    columns = np.ascontiguousarray(points.T)
    candidates = np.flatnonzero(solid)
    candidates = candidates[evenly(min(len(candidates), _PROBED), len(candidates))]
    probes = candidates[farthest(points[candidates], min(PROBES, len(candidates)))]
    hull = _hull(points[solid])
    return Prepared(
        points=points,
        columns=columns,
        normals=plane_normals(columns.take(near.index, axis=1)),
        spacing=float(np.median(near.distance[:, 1])),
        neighbour=near.index[:, 1],
        sparsity=np.clip(reach / (_SPARSE * usual), 1, _SPARSEST) ** 2,
        solid=solid,
        probes=probes,
        tree=tree,
        table=_table(points, solid, hull),
        hull=hull,
    )


def local_frames(given: Prepared) -> Frames:
    """Frames at the first probes, from the neighbours within a radius weighted by 1 - d/radius.

    Where a cloud is so sparse that few points lie within the radius, it grows to hold a handful.
    """
    cloud = given.points[given.solid]
    centers = given.points[given.probes[:KEYPOINTS]]
    distance = cdist(centers, cloud)
    radius = np.full(len(centers), FRAME_RADIUS)
    handful = min(_HANDFUL, len(cloud))
    sparse = np.flatnonzero((distance < FRAME_RADIUS).sum(axis=1) < handful)
    radius[sparse] = 1.5 * np.partition(distance[sparse], handful - 1, axis=1)[:, handful - 1]
    weight = np.clip(1 - distance / radius[:, None], 0, None)
    weight /= weight.sum(axis=1, keepdims=True)
    # All moments about the origin in one product: they are few, and the pairs of a center and a point are many.
    squares = (cloud[:, :, None] * cloud[:, None]).reshape(-1, 9)
    cubes = (squares[:, :, None] * cloud[:, None]).reshape(-1, 27)
    moments = weight @ np.concatenate([cloud, squares, cubes], axis=1)
    mean, second, third = moments[:, :3], moments[:, 3:12].reshape(-1, 3, 3), moments[:, 12:].reshape(-1, 3, 3, 3)
    variance, axes = np.linalg.eigh(second - mean[:, :, None] * mean[:, None])
    tangent, normal = axes[..., 2], axes[..., 0]
    rotation = np.stack([tangent, np.cross(normal, tangent), normal], axis=-1)
    along = np.einsum("ki,kia->ka", mean, rotation)
    square = np.einsum("kij,kia,kja->ka", second, rotation, rotation)
    cube = np.einsum("kijl,kia,kja,kla->ka", third, rotation, rotation, rotation)
    return Frames(
        origin=mean,
        rotation=rotation,
        size=np.sqrt(np.clip(variance[:, ::-1], 0, None)),
        offset=np.einsum("ki,kia->ka", mean - centers, rotation),
        skew=np.cbrt(cube - 3 * along * square + 2 * along**3),
    )


def plane_normals(near: Float[np.ndarray, "3 n k"]) -> Float[np.ndarray, "3 n"]:
    """Of the plane through each group of neighbours: the eigenvector of their covariance's least eigenvalue.

    In closed form, ten times as quick as a decomposition, where the least eigenvalue stands alone.
    """
    near = near - near.mean(axis=-1, keepdims=True)
    x, y, z = near
    xx, xy, xz, yy, yz, zz = (np.einsum("nk,nk->n", *pair) for pair in ((x, x), (x, y), (x, z), (y, y), (y, z), (z, z)))
    middle = (xx + yy + zz) / 3
    a, b, c = xx - middle, yy - middle, zz - middle
    spread = np.sqrt((a * a + b * b + c * c + 2 * (xy * xy + xz * xz + yz * yz)) / 6)
    determinant = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    third = np.arccos(np.clip(determinant / np.maximum(2 * spread**3, _TINY), -1, 1)) / 3
    least = 2 * spread * np.cos(third + 2 * np.pi / 3)
    a, b, c = a - least, b - least, c - least
    # What is left has rank two: every column of its adjugate lies along the normal, and the longest is the truest.
    along = np.array([b * c - yz * yz, a * c - xz * xz, a * b - xy * xy])
    of_xy, of_xz, of_yz = xz * yz - xy * c, xy * yz - xz * b, xy * xz - yz * a
    columns = np.array([[along[0], of_xy, of_xz], [of_xy, along[1], of_yz], [of_xz, of_yz, along[2]]])
    normals = columns[along.argmax(axis=0), :, np.arange(len(middle))].T
    length = np.sqrt(np.einsum("in,in->n", normals, normals))
    doubtful = np.flatnonzero(length <= _DOUBTFUL * spread**2)
    normals = normals / np.maximum(length, _TINY)
    if len(doubtful):  # a line or a ball of points
        some = near[:, doubtful].transpose(1, 0, 2)
        normals[:, doubtful] = np.linalg.eigh(some @ some.transpose(0, 2, 1))[1][:, :, 0].T
    return np.ascontiguousarray(normals)


def farthest(points: Float[np.ndarray, "n 3"], count: int) -> Int[np.ndarray, "count"]:
    """As ``farthest_points``, for one small cloud."""
    centered = points - points.mean(axis=0)
    length = np.einsum("ni,ni->n", centered, centered)
    columns, twice = np.ascontiguousarray(centered.T), -2 * centered
    last = int(length.argmax())
    chosen, nearest, away = [last], np.full(len(points), np.inf), np.empty(len(points))
    while len(chosen) < count:
        np.dot(twice[last], columns, out=away)
        away += length
        away += length[last]
        np.minimum(nearest, away, out=nearest)
        last = int(nearest.argmax())
        chosen.append(last)
    return np.array(chosen)


def _hull(points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "f 4"]:
    try:
        return ConvexHull(points).equations
    except QhullError:  # flat, or too few points: it has no inside
        return np.empty((0, 4))


def _table(
    points: Float[np.ndarray, "n 3"], solid: Bool[np.ndarray, "n"], hull: Float[np.ndarray, "f 4"]
) -> NearestTable:
    kept = np.flatnonzero(solid)
    low = points[kept].min(axis=0) - _MARGIN
    size = points[kept].max(axis=0) + _MARGIN - low
    step = float(size.max()) / _CELLS
    shape = np.ceil(size / step - 1e-9).astype(np.int64)
    holder = np.full(shape, -1)
    holder[tuple(((points[kept] - low) / step).astype(np.int64).T)] = kept
    distance, nearest = distance_transform_edt(holder < 0, return_indices=True)
    return NearestTable(low, step, holder[tuple(nearest)], step * distance, _beyond(low, step, shape, hull))


def _beyond(
    low: Float[np.ndarray, "3"], step: float, shape: Int[np.ndarray, "3"], hull: Float[np.ndarray, "f 4"]
) -> Bool[np.ndarray, "x y z"]:
    """Which cells lie outside the hull: of every second one along each side, which is exact enough."""
    x, y, z = (low[axis] + step * (0.5 + np.arange(0.5, shape[axis], 2)) for axis in range(3))
    planes = hull.astype(np.float32)
    level = (planes[:, :1] * x)[:, :, None, None] + (planes[:, 1:2] * y + planes[:, 3:])[:, None, :, None]
    outside = (level > -(planes[:, 2:3] * z)[:, None, None, :]).any(axis=0)
    for axis in range(3):
        outside = outside.repeat(2, axis=axis)
    return np.ascontiguousarray(outside[: shape[0], : shape[1], : shape[2]])
