"""A solid: flat triangles and curved patches, which can be moved, turned, stretched and joined.

A curved patch is a line or an arc in the half-plane (ρ, y), swept about the y axis and then placed by an affine map.
With v in [0, 1] along the profile and u in [0, 1] around the axis,

    ψ = psi + v·psi_span        ρ = rho + v·rho_span + radius·cos ψ        y = height + v·height_span + radius·sin ψ
    φ = phi + u·phi_span        local = (ρ cos φ, y, ρ sin φ)              point = linear · local + offset

A line has radius 0 (discs, cones, cylinders); an arc has no spans of rho and height (spheres, tori, elbows). The outer
side lies to the right of the profile's direction: going up at ρ > 0 faces away from the axis.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Float

# At run time an int is not a float, and shape tests check annotations at run time.
Number = float | int

PROFILE_FIELDS = ("rho", "rho_span", "height", "height_span", "radius", "psi", "psi_span", "phi", "phi_span")


@dataclass(frozen=True)
class Solid:
    """Patches in one frame: triangles by their corners (anticlockwise seen from outside), curved ones as above."""

    triangles: Float[np.ndarray, "flat 3 3"]
    profiles: Float[np.ndarray, "curved 9"]
    linear: Float[np.ndarray, "curved 3 3"]
    offset: Float[np.ndarray, "curved 3"]

    def __add__(self, other: "Solid") -> "Solid":
        return join((self, other))

    def transformed(self, linear: Float[np.ndarray, "3 3"], offset: Float[np.ndarray, "3"]) -> "Solid":
        triangles = self.triangles @ linear.T + offset
        if np.linalg.det(linear) < 0:
            triangles = triangles[:, ::-1]  # a mirror turns anticlockwise into clockwise
        return Solid(triangles, self.profiles, linear @ self.linear, self.offset @ linear.T + offset)

    def at(self, x: Number = 0.0, y: Number = 0.0, z: Number = 0.0) -> "Solid":
        return self.transformed(np.eye(3), np.array([x, y, z], dtype=np.float64))

    def turned(self, axis: str, degrees: Number) -> "Solid":
        """Turned about a coordinate axis through the origin, by the right-hand rule."""
        return self.transformed(turn(axis, degrees), np.zeros(3))

    def scaled(self, x: Number = 1.0, y: Number = 1.0, z: Number = 1.0) -> "Solid":
        """Stretched; a negative factor mirrors."""
        return self.transformed(np.diag([float(x), float(y), float(z)]), np.zeros(3))


def turn(axis: str, degrees: Number) -> Float[np.ndarray, "3 3"]:
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    angle = math.radians(degrees)
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = math.cos(angle)
    matrix[second, first] = math.sin(angle)
    matrix[first, second] = -math.sin(angle)
    return matrix


def join(solids: Iterable[Solid]) -> Solid:
    every = tuple(solids)
    return Solid(
        np.concatenate([solid.triangles for solid in every]),
        np.concatenate([solid.profiles for solid in every]),
        np.concatenate([solid.linear for solid in every]),
        np.concatenate([solid.offset for solid in every]),
    )


def mirrored_pair(solid: Solid) -> Solid:
    """The solid and its mirror image across the plane x = 0: left and right."""
    return solid + solid.scaled(x=-1.0)


def from_triangles(triangles: Float[np.ndarray, "flat 3 3"]) -> Solid:
    """A closed triangle mesh with one consistent orientation, turned so that it faces outwards."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    volume = np.einsum("ni,ni->", a - a[:1], np.cross(b - a[:1], c - a[:1]))
    facing = triangles if volume >= 0 else triangles[:, ::-1]
    return Solid(facing, np.zeros((0, 9)), np.zeros((0, 3, 3)), np.zeros((0, 3)))


def from_profiles(profiles: Iterable[dict[str, Number]]) -> Solid:
    rows = np.array([[profile.get(field, 0.0) for field in PROFILE_FIELDS] for profile in profiles], dtype=np.float64)
    count = len(rows)
    return Solid(np.zeros((0, 3, 3)), rows, np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3)))


def stack(solid: Solid, offsets: Iterable[tuple[Number, Number, Number]]) -> Solid:
    """Copies of a solid, one at each offset."""
    return reduce(Solid.__add__, [solid.at(*offset) for offset in offsets])
