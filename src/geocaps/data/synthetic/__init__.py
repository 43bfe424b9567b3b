"""Embedded shapes: procedural objects, unlimited and seeded, with exact surfaces, normals, parts and frames.

Canonical frame of every class: y is up, the front faces -z, and so +x is the object's own right. A chair's sitter looks
to -z, a car drives to -z, a bed's foot, a hammer's face and a teapot's spout point to -z; a mug's handle points to +x.
Tools stand upright along y, their working end on top (a spade's and a screwdriver's below).
Primitives overlap where they are joined, as in most CAD meshes: a few points lie inside a neighbouring part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from geocaps.data.synthetic import furniture, household, vehicles
from geocaps.data.synthetic.solids import Draw, Solid, join
from geocaps.errors import InvalidInputError

_MAKERS: dict[str, Callable[[Draw], dict[str, Solid]]] = {
    maker.__name__: maker
    for maker in (
        vehicles.airplane, furniture.bed, vehicles.boat, household.bottle, household.bowl, vehicles.car,
        furniture.chair, furniture.desk, household.guitar, household.hammer, household.lamp, household.monitor,
        household.mug, household.pliers, household.screwdriver, furniture.shelf, furniture.sofa, household.spade,
        furniture.table, household.teapot, furniture.toilet, vehicles.truck, household.wrench,
    )
}  # fmt: skip
CLASS_NAMES: tuple[str, ...] = tuple(_MAKERS)
_SYMMETRIC = {"bottle", "bowl", "lamp", "pliers", "screwdriver", "shelf", "table", "wrench"}
ASYMMETRIC: frozenset[str] = frozenset(CLASS_NAMES) - _SYMMETRIC
"""Classes no object of which looks the same, or nearly the same, after any rotation."""
# Rounding to float32 must not push the farthest point out of the unit sphere.
_INSIDE = 1.0 - 1e-6


@dataclass(frozen=True)
class PatchTable:
    """Patches ready for evaluation, curved ones first: one column each.

    A curved column holds the nine numbers of the profile, the offset, the linear map and its cofactors (by columns); a
    flat one holds a corner, two edges, and normal times area. Single precision is ten times as fast and enough to draw
    points with; measures are taken in double.
    """

    curved: Float[np.ndarray, "30 curved"]
    flat: Float[np.ndarray, "12 flat"]

    def evaluate(
        self, counts: Int[np.ndarray, "patches"], u: Float[np.ndarray, "n"], v: Float[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "3 n"], Float[np.ndarray, "3 n"]]:
        """Points at parameters, and outward normals whose length is the area element there.

        The first `counts[0]` parameters belong to the first patch, the next `counts[1]` to the second, and so on.
        """
        curves = self.curved.shape[1]
        cut = int(counts[:curves].sum())
        round_points, round_normals = _on_curves(np.repeat(self.curved, counts[:curves], axis=1), u[:cut], v[:cut])
        flat_points, flat_normals = _on_triangles(np.repeat(self.flat, counts[curves:], axis=1), u[cut:], v[cut:])
        return np.hstack([round_points, flat_points]), np.hstack([round_normals, flat_normals])


@dataclass(frozen=True)
class Surface:
    """The patches of an object (curved ones first, then triangles), each with its part, its area and a weight.

    The weight bounds the patch's area element over its unit square of parameters; `ends` sums up the shares of the
    weights.
    """

    solid: Solid
    labels: Int[np.ndarray, "patches"]
    areas: Float[np.ndarray, "patches"]
    weights: Float32[np.ndarray, "patches"]
    ends: Float32[np.ndarray, "patches"]
    table: PatchTable

    def sample(
        self, count: int, generator: torch.Generator
    ) -> tuple[Float32[np.ndarray, "count 3"], Float32[np.ndarray, "count 3"], Int[np.ndarray, "count"]]:
        """Points, unit normals and patches, independent and uniform by area.

        A patch is proposed in proportion to its weight, a parameter (u, v) uniformly, and the point is kept with the
        probability (area element at the point) / weight: whatever the curvature and the stretching, what is kept is
        uniform by area.
        """
        acceptance = min(float(self.areas.sum()) / float(self.weights.sum()), 1.0)
        kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        missing = count
        while missing > 0:
            proposals = math.ceil((missing + 4 * math.sqrt(missing * (1 - acceptance))) / acceptance)
            pick, u, v, keep = torch.rand((4, proposals), generator=generator).numpy()
            # Sorted choices of patches find their patch and its numbers far faster; the order is drawn anew below.
            counts = np.diff(np.searchsorted(np.sort(pick), self.ends), prepend=0)
            points, normals = self.table.evaluate(counts, u, v)
            element = np.sqrt(np.einsum("in,in->n", normals, normals))
            accepted = np.flatnonzero(keep * np.repeat(self.weights, counts) < element)
            accepted = accepted[torch.randperm(len(accepted), generator=generator).numpy()[:missing]]
            normals = normals.take(accepted, axis=1) / element.take(accepted)
            patch = np.repeat(np.arange(len(counts)), counts).take(accepted)
            kept.append((points.take(accepted, axis=1), normals, patch))
            missing -= len(accepted)
        points, normals, patch = (np.concatenate(arrays, axis=-1) for arrays in zip(*kept, strict=True))
        return np.ascontiguousarray(points.T), np.ascontiguousarray(normals.T), patch


@dataclass(frozen=True)
class SurfaceSample:
    """Independent points of one surface, uniform by area, with exact unit normals (outward) and parts."""

    points: Float[Tensor, "count 3"]
    normals: Float[Tensor, "count 3"]
    part_labels: Int[Tensor, "count"]


@dataclass(frozen=True)
class Shape:
    """One object. `part_names` are the parts this object has; a name means the same throughout its class."""

    class_name: str
    part_names: tuple[str, ...]
    seed: int
    surface: Surface = field(repr=False, compare=False)

    def sample(self, count: int, generator: torch.Generator) -> SurfaceSample:
        """`count` new points (float32; labels int64 index `part_names`).

        The frame belongs to the surface, not to the sample: area centroid at the origin, farthest point at distance 1.
        """
        if count < 1:
            raise InvalidInputError(f"count must be at least 1, but it is {count}: ask for one point or more.")
        if generator.device.type != "cpu":
            raise InvalidInputError(
                f"the generator must be on the CPU, but it is on {generator.device}: make a CPU one."
            )
        points, normals, patch = self.surface.sample(count, generator)
        return SurfaceSample(*map(torch.from_numpy, (points, normals, self.surface.labels[patch])))


def make_shape(class_name: str, seed: int) -> Shape:
    """The object that belongs to a class and a seed (any whole number), the same on every machine."""
    if class_name not in _MAKERS:
        raise InvalidInputError(f"there is no embedded class {class_name!r}: choose one of {', '.join(CLASS_NAMES)}.")
    parts = _MAKERS[class_name](Draw(f"{class_name}/{seed}"))
    return Shape(class_name, tuple(parts), seed, make_surface(parts))


def make_surface(parts: dict[str, Solid]) -> Surface:
    """The parts' surface, its area centroid at the origin and its farthest point on the unit sphere."""
    solid = join(parts.values())
    patches = [len(part.profiles) for part in parts.values()] + [len(part.triangles) for part in parts.values()]
    labels = np.repeat(np.tile(np.arange(len(parts)), 2), patches)
    table = _tabulate(solid, np.float64)
    areas, centres = _moments(solid, table)
    centroid = areas @ centres / areas.sum()
    scale = _INSIDE / _farthest(solid, table, centroid)
    placed = solid.transformed(np.eye(3) * scale, -centroid * scale)
    weights = _weights(placed)
    ends = (np.cumsum(weights) / weights.sum()).astype(np.float32)
    ends[-1] = 1.0
    return Surface(placed, labels, areas * scale**2, weights.astype(np.float32), ends, _tabulate(placed, np.float32))


def _tabulate(solid: Solid, dtype: type[np.floating]) -> PatchTable:
    maps = [np.hstack([m[:, :, k] for k in range(3)]) for m in (solid.linear, _cofactors(solid.linear))]
    first, second, third = solid.triangles.transpose(1, 0, 2)
    along, across = second - first, third - first
    curved, flat = [solid.profiles, solid.offset, *maps], [first, along, across, np.cross(along, across) / 2]
    return PatchTable(*(np.ascontiguousarray(np.hstack(columns).T, dtype=dtype) for columns in (curved, flat)))


def _on_curves(table: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rho, rho_span, height, height_span, radius, psi, psi_span, phi, phi_span = table[:9]
    psi = psi + v * psi_span
    phi = phi + u * phi_span
    cos_psi, sin_psi, cos_phi, sin_phi = np.cos(psi), np.sin(psi), np.cos(phi), np.sin(phi)
    rho = rho + v * rho_span + radius * cos_psi
    height = height + v * height_span + radius * sin_psi
    turning = radius * psi_span
    element = rho * np.abs(phi_span)
    radial = (height_span + turning * cos_psi) * element
    axial = (turning * sin_psi - rho_span) * element
    points = table[9:12] + table[12:15] * (rho * cos_phi) + table[15:18] * height + table[18:21] * (rho * sin_phi)
    normals = table[21:24] * (radial * cos_phi) + table[24:27] * axial + table[27:30] * (radial * sin_phi)
    return points, normals


def _on_triangles(table: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    outside = u + v > 1  # the unit square folded onto the triangle: each half covers it once
    u, v = np.where(outside, 1 - u, u), np.where(outside, 1 - v, v)
    return table[:3] + table[3:6] * u + table[6:9] * v, table[9:]


def _cofactors(linear: np.ndarray) -> np.ndarray:
    """How normals times area map, kept outward under mirrors: |det| · inverse transpose."""
    columns = linear.transpose(2, 0, 1)
    cofactor = np.stack([np.cross(columns[(k + 1) % 3], columns[(k + 2) % 3]) for k in range(3)], axis=-1)
    return cofactor * np.sign(np.linalg.det(linear))[:, None, None]


def _weights(solid: Solid) -> np.ndarray:
    """The largest area element a curved patch can have; a triangle's is constant."""
    rho, rho_span, _, height_span, radius, psi, psi_span, _, phi_span = solid.profiles.T
    start, end = np.minimum(psi, psi + psi_span), np.maximum(psi, psi + psi_span)
    crest = np.ceil(start / (2 * math.pi)) * (2 * math.pi) <= end
    reach = radius * np.where(crest, 1.0, np.maximum(np.cos(start), np.cos(end)))
    widest = np.maximum(rho, rho + rho_span) + reach
    speed = np.sqrt(rho_span**2 + height_span**2 + (radius * psi_span) ** 2)
    stretch = np.prod(np.linalg.svd(solid.linear, compute_uv=False)[:, :2], axis=1)
    return np.concatenate([widest * speed * np.abs(phi_span) * stretch, _triangle_areas(solid)])


def _triangle_areas(solid: Solid) -> np.ndarray:
    first, second, third = solid.triangles.transpose(1, 0, 2)
    return np.linalg.norm(np.cross(second - first, third - first), axis=1) / 2


def _moments(solid: Solid, table: PatchTable) -> tuple[np.ndarray, np.ndarray]:
    """Area and centroid of every patch: Gauss-Legendre on curved ones, closed form on triangles."""
    curves = len(solid.profiles)
    (u, u_weight), (v, v_weight) = (((x + 1) / 2, w / 2) for x, w in map(np.polynomial.legendre.leggauss, (24, 10)))
    nodes = len(u) * len(v)
    counts = np.repeat([nodes, 0], [curves, len(solid.triangles)])
    points, normals = table.evaluate(counts, np.tile(np.repeat(u, len(v)), curves), np.tile(v, curves * len(u)))
    mass = np.linalg.norm(normals, axis=0).reshape(curves, nodes) * np.outer(u_weight, v_weight).reshape(-1)
    areas = mass.sum(axis=1)
    centres = np.einsum("inq,nq->ni", points.reshape(3, curves, nodes), mass)
    centres /= np.maximum(areas, np.finfo(float).tiny)[:, None]
    return np.append(areas, _triangle_areas(solid)), np.concatenate([centres, solid.triangles.mean(axis=1)])


def _farthest(solid: Solid, table: PatchTable, centre: np.ndarray) -> float:
    """The largest distance from a centre: at a corner of a triangle, or found on curved patches by a shrinking grid."""
    best = float(np.linalg.norm(solid.triangles - centre, axis=-1).max(initial=0.0))
    patch = np.arange(len(solid.profiles))
    u, v, width = np.full(len(patch), 0.5), np.full(len(patch), 0.5), 0.5
    steps = 9
    for _ in range(7):
        if not len(patch):
            break
        shift = np.linspace(-width, width, steps)
        us = np.clip(u[:, None] + np.repeat(shift, steps), 0, 1)
        vs = np.clip(v[:, None] + np.tile(shift, steps), 0, 1)
        counts = np.zeros(len(solid.profiles) + len(solid.triangles), dtype=np.int64)
        counts[patch] = steps**2
        points, _ = table.evaluate(counts, us.reshape(-1), vs.reshape(-1))
        distance = np.linalg.norm(points.T - centre, axis=1).reshape(len(patch), -1)
        found = distance.argmax(axis=1)
        u, v = us[np.arange(len(patch)), found], vs[np.arange(len(patch)), found]
        reach = distance.max(axis=1)
        best = max(best, float(reach.max()))
        near = reach > 0.9 * best
        patch, u, v, width = patch[near], u[near], v[near], width / 4
    return best
