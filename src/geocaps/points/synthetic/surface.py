"""The exact surface of an object: its patches in the normalised frame, and uniform sampling by area."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int

from geocaps.points.synthetic.solid import Solid, join

# Rounding to float32 must not push the farthest point out of the unit sphere.
_INSIDE = 1.0 - 1e-6


@dataclass(frozen=True)
class Surface:
    """Curved patches first, then triangles; `weights` bound the area element of each over its unit square."""

    solid: Solid
    labels: Int[np.ndarray, "patches"]
    areas: Float[np.ndarray, "patches"]
    weights: Float[np.ndarray, "patches"]

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.weights)

    @cached_property
    def _curved(self) -> np.ndarray:
        """One column a patch: nine numbers of the profile, then the offset, linear map and cofactors by columns."""
        solid = self.solid
        maps = [
            np.concatenate([m[:, :, k] for k in range(3)], axis=1) for m in (solid.linear, _cofactors(solid.linear))
        ]
        return np.ascontiguousarray(np.concatenate([solid.profiles, solid.offset, *maps], axis=1).T)

    @cached_property
    def _flat(self) -> np.ndarray:
        """One column a triangle: its first corner, two edges, and normal times area."""
        first, second, third = self.solid.triangles.transpose(1, 0, 2)
        along, across = second - first, third - first
        return np.ascontiguousarray(np.concatenate([first, along, across, np.cross(along, across) / 2], axis=1).T)

    def sample(
        self, count: int, generator: torch.Generator
    ) -> tuple[Float[np.ndarray, "count 3"], Float[np.ndarray, "count 3"], Int[np.ndarray, "count"]]:
        """Points, unit normals and patches, independent and uniform by area.

        A patch is proposed in proportion to its weight, a parameter (u, v) uniformly, and the point is kept with the
        probability (area element at the point) / weight: whatever the curvature and the stretching, what is kept is
        uniform by area.
        """
        ends = self._ends
        acceptance = min(float(self.areas.sum() / ends[-1]), 1.0)
        kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        missing = count
        while missing > 0:
            proposals = math.ceil((missing + 4 * math.sqrt(missing * (1 - acceptance)) + 1e-6) / acceptance)
            pick, u, v, keep = torch.rand((4, proposals), dtype=torch.float64, generator=generator).numpy()
            patch = np.minimum(np.searchsorted(ends, pick * ends[-1], side="right"), len(ends) - 1)
            points, normals = self.evaluate(patch, u, v)
            element = np.sqrt(np.einsum("in,in->n", normals, normals))
            accepted = np.flatnonzero(keep * self.weights[patch] < element)[:missing]
            kept.append((points[:, accepted], normals[:, accepted] / element[accepted], patch[accepted]))
            missing -= len(accepted)
        points, normals, patch = (np.concatenate(arrays, axis=-1) for arrays in zip(*kept, strict=True))
        return points.T, normals.T, patch

    def evaluate(
        self, patch: Int[np.ndarray, "n"], u: Float[np.ndarray, "n"], v: Float[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "3 n"], Float[np.ndarray, "3 n"]]:
        """Points at parameters of patches, and outward normals whose length is the area element there."""
        curves = len(self.solid.profiles)
        points, normals = np.empty((3, len(patch))), np.empty((3, len(patch)))
        curved = np.flatnonzero(patch < curves)
        flat = np.flatnonzero(patch >= curves)
        if len(curved):
            points[:, curved], normals[:, curved] = _on_curves(self._curved[:, patch[curved]], u[curved], v[curved])
        if len(flat):
            points[:, flat], normals[:, flat] = _on_triangles(self._flat[:, patch[flat] - curves], u[flat], v[flat])
        return points, normals


def make_surface(parts: dict[str, Solid]) -> Surface:
    """The parts' surface, its area centroid at the origin and its farthest point on the unit sphere."""
    solid = join(parts.values())
    labels = np.concatenate(
        [np.full(len(part.profiles), k) for k, part in enumerate(parts.values())]
        + [np.full(len(part.triangles), k) for k, part in enumerate(parts.values())]
    )
    raw = Surface(solid, labels, np.zeros(len(labels)), np.zeros(len(labels)))
    areas, centres = _moments(raw)
    centroid = areas @ centres / areas.sum()
    scale = _INSIDE / _farthest(raw, centroid)
    placed = solid.transformed(np.eye(3) * scale, -centroid * scale)
    return Surface(placed, labels, areas * scale**2, _weights(placed))


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
    first, second, third = solid.triangles.transpose(1, 0, 2)
    flat = np.linalg.norm(np.cross(second - first, third - first), axis=1) / 2
    # Rounding may lift the true element a hair above the bound; triangles are accepted always for the same reason.
    return np.concatenate([widest * speed * np.abs(phi_span) * stretch * (1 + 1e-12), flat * (1 - 1e-12)])


def _moments(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """Area and centroid of every patch: Gauss-Legendre on curved ones, closed form on triangles."""
    solid = surface.solid
    curves = len(solid.profiles)
    (u, u_weight), (v, v_weight) = (_gauss(nodes) for nodes in (24, 10))
    patch = np.repeat(np.arange(curves), len(u) * len(v))
    points, normals = surface.evaluate(patch, np.tile(np.repeat(u, len(v)), curves), np.tile(v, curves * len(u)))
    mass = np.linalg.norm(normals, axis=0).reshape(curves, len(u) * len(v)) * np.outer(u_weight, v_weight).reshape(-1)
    areas = mass.sum(axis=1)
    centres = np.einsum("inq,nq->ni", points.reshape(3, curves, len(u) * len(v)), mass)
    centres /= np.maximum(areas, np.finfo(float).tiny)[:, None]
    first, second, third = solid.triangles.transpose(1, 0, 2)
    flat = np.linalg.norm(np.cross(second - first, third - first), axis=1) / 2
    return np.concatenate([areas, flat]), np.concatenate([centres, solid.triangles.mean(axis=1)])


def _farthest(surface: Surface, centre: np.ndarray) -> float:
    """The largest distance from a centre: at a corner of a triangle, or found on curved patches by a shrinking grid."""
    solid = surface.solid
    best = float(np.linalg.norm(solid.triangles - centre, axis=-1).max(initial=0.0))
    patch = np.arange(len(solid.profiles))
    u, v, width = np.full(len(patch), 0.5), np.full(len(patch), 0.5), 0.5
    for steps, shrink in ((17, 0.125), (9, 0.25), (9, 0.25), (9, 0.25), (9, 0.25), (9, 0.25)):
        if not len(patch):
            break
        shift = np.linspace(-width, width, steps)
        us = np.clip(u[:, None] + np.repeat(shift, steps), 0, 1)
        vs = np.clip(v[:, None] + np.tile(shift, steps), 0, 1)
        points, _ = surface.evaluate(np.repeat(patch, steps**2), us.reshape(-1), vs.reshape(-1))
        distance = np.linalg.norm(points.T - centre, axis=1).reshape(len(patch), -1)
        found = distance.argmax(axis=1)
        u, v = us[np.arange(len(patch)), found], vs[np.arange(len(patch)), found]
        reach = distance.max(axis=1)
        best = max(best, float(reach.max()))
        near = reach > 0.95 * best
        patch, u, v, width = patch[near], u[near], v[near], width * shrink
    return best


def _gauss(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    x, weight = np.polynomial.legendre.leggauss(nodes)
    return (x + 1) / 2, weight / 2
