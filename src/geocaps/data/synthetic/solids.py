"""Solids made of primitives, and the seeded choices behind an object.

A solid is flat triangles and curved patches, which can be moved, turned, stretched and joined. A curved patch is a line
or an arc in the half-plane (ρ, y), swept about the y axis and then placed by an affine map. With v in [0, 1] along the
profile and u in [0, 1] around the axis,

    ψ = psi + v·psi_span        ρ = rho + v·rho_span + radius·cos ψ        y = height + v·height_span + radius·sin ψ
    φ = phi + u·phi_span        local = (ρ cos φ, y, ρ sin φ)              point = linear · local + offset

A line has radius 0 (discs, cones, cylinders); an arc has no spans of rho and height (spheres, tori, elbows). The outer
side lies to the right of the profile's direction: going up at ρ > 0 faces away from the axis.
"""

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float

# At run time an int is not a float, and shape tests check annotations at run time.
Number = float | int

PROFILE_FIELDS = ("rho", "rho_span", "height", "height_span", "radius", "psi", "psi_span", "phi", "phi_span")
FULL = 2 * math.pi
Point2 = tuple[Number, Number]
Point3 = tuple[Number, Number, Number]
Option = TypeVar("Option")


class Draw:
    """Repeatable choices for one object.

    Python's `random.Random.random` is guaranteed to give the same numbers for the same key in every release and on
    every machine, which numpy and torch do not promise; everything here is built from it alone.
    """

    def __init__(self, key: str) -> None:
        self._next = random.Random(key).random

    def __call__(self, low: Number, high: Number) -> float:
        """A number between two others."""
        return low + (high - low) * self._next()

    def whole(self, low: int, high: int) -> int:
        """A whole number in [low, high], both ends included."""
        return low + int(self._next() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self._next() < probability

    def pick(self, *options: Option) -> Option:
        return options[int(self._next() * len(options))]


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
    plane = {"x": [1, 2], "y": [2, 0], "z": [0, 1]}[axis]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrix = np.eye(3)
    matrix[np.ix_(plane, plane)] = [[cos, -sin], [sin, cos]]
    return matrix


def join(solids: Iterable[Solid]) -> Solid:
    fields = zip(*((one.triangles, one.profiles, one.linear, one.offset) for one in solids), strict=True)
    return Solid(*map(np.concatenate, fields))


def mirrored_pair(solid: Solid) -> Solid:
    """The solid and its mirror image across the plane x = 0: left and right."""
    return solid + solid.scaled(x=-1.0)


def from_triangles(triangles: Float[np.ndarray, "flat 3 3"]) -> Solid:
    """A closed triangle mesh with one consistent orientation, turned so that it faces outwards."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    volume = np.einsum("ni,ni->", a - a[:1], np.cross(b - a[:1], c - a[:1]))
    return _flat(triangles if volume >= 0 else triangles[:, ::-1])


def from_profiles(profiles: Iterable[dict[str, Number]]) -> Solid:
    rows = np.array([[profile.get(field, 0.0) for field in PROFILE_FIELDS] for profile in profiles], dtype=np.float64)
    count = len(rows)
    return Solid(np.zeros((0, 3, 3)), rows, np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3)))


def stack(solid: Solid, offsets: Iterable[tuple[Number, Number, Number]]) -> Solid:
    """Copies of a solid, one at each offset."""
    return join(solid.at(*offset) for offset in offsets)


# ── primitives: standing on the plane y = 0, centred on the y axis, unless the docstring says otherwise ───────────────


def box(width: Number, height: Number, depth: Number) -> Solid:
    """Sides along x, y, z."""
    return prism([(-width / 2, 0), (width / 2, 0), (width / 2, height), (-width / 2, height)], depth)


def rounded_box(width: Number, height: Number, depth: Number, radius: Number) -> Solid:
    """A box whose edges are quarter cylinders and whose corners are eighths of a sphere."""
    half = np.array([width, height, depth]) / 2
    radius = min(radius, 0.999 * float(half.min()))
    core = half - radius
    pieces = []
    for axis, side in itertools.product(range(3), (-1, 1)):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        corners = np.zeros((4, 3))
        corners[:, axis] = side * half[axis]
        corners[:, i] = np.array([-1, 1, 1, -1]) * core[i]
        corners[:, j] = np.array([-1, -1, 1, 1]) * core[j] * side
        pieces.append(_flat(corners[[[0, 1, 2], [0, 2, 3]]]))
    for axis in range(3):
        quarter = {"rho": radius, "height": -core[axis], "height_span": 2 * core[axis], "phi_span": math.pi / 2}
        edge = from_profiles([quarter]).transformed(np.roll(np.eye(3), 1 - axis, axis=1), np.zeros(3))
        edge = edge.at(*(core * (np.arange(3) != axis)))
        for signs in itertools.product((1, -1), repeat=2):
            pieces.append(edge.scaled(*np.insert(signs, axis, 1).tolist()))
    corner = from_profiles([{"radius": radius, "psi_span": math.pi / 2, "phi_span": math.pi / 2}]).at(*core)
    pieces += [corner.scaled(*signs) for signs in itertools.product((-1, 1), repeat=3)]
    return join(pieces).at(0, height / 2, 0)


def prism(outline: Sequence[Point2], depth: Number) -> Solid:
    """An outline in the plane of x and y (simple, any number of corners), extruded over z in [-depth/2, depth/2]."""
    flat = np.asarray(outline, dtype=np.float64)
    front = np.column_stack([flat, np.full(len(flat), -depth / 2)])
    back = front + np.array([0.0, 0.0, depth])
    cap = triangulate(flat)
    return from_triangles(np.concatenate([_skin(front, back), back[cap], front[cap[:, ::-1]]]))


def loft(*rings: Sequence[Point3]) -> Solid:
    """A closed skin through rings of equally many corners; the first and last ring are filled (star-shaped ones)."""
    turns = [np.asarray(ring, dtype=np.float64) for ring in rings]
    skins = [_skin(lower, upper) for lower, upper in itertools.pairwise(turns)]
    return from_triangles(np.concatenate([_fan(turns[0])[:, ::-1], *skins, _fan(turns[-1])]))


def taper(axis: str, *sections: tuple[Number, Number, Number, Number, Number]) -> Solid:
    """A closed skin through rectangles: x from and to, the other side from and to, and the place along axis y or z."""
    rings = []
    for left, right, low, high, at in sections:
        corners = ((left, low), (right, low), (right, high), (left, high))
        rings.append([(x, at, side) if axis == "y" else (x, side, at) for x, side in corners])
    return loft(*rings)


def revolve(profile: Sequence[Point2], degrees: Number = 360.0) -> Solid:
    """Lines through (radius, height) turned about y: from the bottom of the axis, out, up and back faces outwards."""
    span = math.radians(degrees)
    return from_profiles(
        {"rho": rho, "rho_span": to_rho - rho, "height": height, "height_span": to_height - height, "phi_span": span}
        for (rho, height), (to_rho, to_height) in itertools.pairwise(profile)
        if (rho, height) != (to_rho, to_height)
    )


def cylinder(radius: Number, height: Number) -> Solid:
    return frustum(radius, radius, height)


def frustum(bottom: Number, top: Number, height: Number) -> Solid:
    return revolve([(0, 0), (bottom, 0), (top, height), (0, height)])


def vessel(outside: Sequence[Point2], thickness: Number) -> Solid:
    """An open vessel: the outside from the axis at the bottom up to the rim, and an inner wall."""
    floor = outside[0][1] + thickness
    inside = [(max(rho - thickness, 0.0), max(height, floor)) for rho, height in reversed(outside)]
    inside[0] = (inside[0][0], outside[-1][1])
    return revolve([*outside, *inside])


def sphere(radius: Number) -> Solid:
    """Centred on the origin."""
    return from_profiles([{"radius": radius, "psi": -math.pi / 2, "psi_span": math.pi, "phi_span": FULL}])


def ellipsoid(x: Number, y: Number, z: Number) -> Solid:
    """Half-axes x, y, z; centred on the origin."""
    return sphere(1.0).scaled(x, y, z)


def dome(radius: Number, height: Number) -> Solid:
    """The upper half of an ellipsoid, with its flat floor."""
    arc = from_profiles([{"radius": 1.0, "psi_span": math.pi / 2, "phi_span": FULL}])
    return arc.scaled(radius, height, radius) + revolve([(0, 0), (radius, 0)])


def ring(radius: Number, tube: Number) -> Solid:
    """A torus about y, centred on the origin."""
    return from_profiles([{"rho": radius, "radius": tube, "psi_span": FULL, "phi_span": FULL}])


def bent_plate(radius: Number, height: Number, thickness: Number, degrees: Number) -> Solid:
    """Part of an upright pipe's wall of outer radius `radius`, its middle at angle 0 (towards +x)."""
    inner, span = radius - thickness, math.radians(degrees)
    outline = [(inner, 0.0), (radius, 0.0), (radius, height), (inner, height), (inner, 0.0)]
    plate = revolve(outline, degrees)
    corners = np.array([[inner, 0, 0], [radius, 0, 0], [radius, height, 0], [inner, height, 0]], dtype=np.float64)
    start = _flat(corners[[[0, 2, 1], [0, 3, 2]]])
    end = _flat(corners[[[0, 1, 2], [0, 2, 3]]]).transformed(_swing(span), np.zeros(3))
    return (plate + start + end).transformed(_swing(-span / 2), np.zeros(3))


def pipe(path: Sequence[Point3], radius: Number, bend: Number = 0.0) -> Solid:
    """A round tube along a path, its corners rounded to the bend radius (0: a ball at each), its ends closed."""
    corners = [np.asarray(corner, dtype=np.float64) for corner in path]
    pieces, start = [], corners[0]
    for before, corner, after in zip(corners[:-2], corners[1:-1], corners[2:], strict=True):
        come, leave = _unit(corner - before), _unit(after - corner)
        angle = math.acos(float(np.clip(come @ leave, -1.0, 1.0)))
        reach = math.tan(angle / 2)
        room = 0.49 * min(np.linalg.norm(corner - before), np.linalg.norm(after - corner))
        turn_radius = min(bend, room / reach) if reach > 1e-9 else 0.0
        if turn_radius <= radius:
            pieces += [_rod(start, corner, radius), sphere(radius).at(*corner)]
            start = corner
            continue
        entry = corner - come * reach * turn_radius
        inward = _unit(leave - come)
        centre = corner + inward * turn_radius / math.cos(angle / 2)
        elbow = {"rho": turn_radius, "radius": radius, "psi_span": FULL, "phi_span": angle}
        frame = np.column_stack([_unit(entry - centre), np.cross(come, _unit(entry - centre)), come])
        pieces += [_rod(start, entry, radius), from_profiles([elbow]).transformed(frame, centre)]
        start = corner + leave * reach * turn_radius
    pieces.append(_rod(start, corners[-1], radius))
    caps = [(corners[0], corners[0] - corners[1]), (corners[-1], corners[-1] - corners[-2])]
    disc = revolve([(radius, 0), (0, 0)])
    return join([*pieces, *(disc.transformed(_upright_to(_unit(outward)), end) for end, outward in caps)])


def rod(start: Point3, end: Point3, radius: Number, end_radius: Number | None = None) -> Solid:
    """A straight closed rod, tapering when the end's radius differs."""
    a, b = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
    body = frustum(radius, radius if end_radius is None else end_radius, float(np.linalg.norm(b - a)))
    return body.transformed(_upright_to(_unit(b - a)), a)


def smooth(points: Sequence[Point2], steps: int = 6) -> list[Point2]:
    """A Catmull-Rom curve through the points, as a finer line that still goes through each of them."""
    knots = np.asarray([points[0], *points, points[-1]], dtype=np.float64)
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    curve = []
    for a, b, c, d in zip(knots[:-3], knots[1:-2], knots[2:-1], knots[3:], strict=True):
        curve.append(0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3))
    line = np.concatenate([*curve, knots[-1:]])
    return [(float(x), float(y)) for x, y in line]


def triangulate(outline: Float[np.ndarray, "corners 2"]) -> np.ndarray:
    """Ear clipping: indices [corners - 2, 3] of triangles that fill a simple polygon, turning as the polygon does."""
    x, y = outline[:, 0], outline[:, 1]
    sign = 1.0 if float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) >= 0 else -1.0
    left, ears = list(range(len(outline))), []

    def side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray | np.float64:
        return sign * ((b[0] - a[0]) * (c[..., 1] - a[1]) - (b[1] - a[1]) * (c[..., 0] - a[0]))

    while len(left) > 3:
        for place, middle in enumerate(left):
            before, after = left[place - 1], left[(place + 1) % len(left)]
            a, b, c = outline[before], outline[middle], outline[after]
            others = outline[[k for k in left if k not in (before, middle, after)]]
            inside = (side(a, b, others) > 0) & (side(b, c, others) > 0) & (side(c, a, others) > 0)
            if side(a, b, c) >= 0 and not inside.any():
                ears.append((before, middle, after))
                left.pop(place)
                break
        else:
            raise AssertionError("an outline crosses itself: this is a defect of geocaps, please report it")
    return np.array([*ears, tuple(left)])


def _flat(triangles: np.ndarray) -> Solid:
    return Solid(triangles, np.zeros((0, 9)), np.zeros((0, 3, 3)), np.zeros((0, 3)))


def _skin(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    lower_next, upper_next = np.roll(lower, -1, axis=0), np.roll(upper, -1, axis=0)
    halves = [lower, lower_next, upper_next], [lower, upper_next, upper]
    return np.concatenate([np.stack(corners, axis=1) for corners in halves])


def _fan(turn_: np.ndarray) -> np.ndarray:
    return np.stack([np.broadcast_to(turn_.mean(axis=0), turn_.shape), turn_, np.roll(turn_, -1, axis=0)], axis=1)


def _rod(start: np.ndarray, end: np.ndarray, radius: Number) -> Solid:
    """The wall only."""
    wall = revolve([(radius, 0), (radius, float(np.linalg.norm(end - start)))])
    return wall.transformed(_upright_to(_unit(end - start)), start)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _upright_to(direction: np.ndarray) -> np.ndarray:
    """A rotation that takes +y to a direction."""
    other = np.eye(3)[int(np.argmin(np.abs(direction)))]
    x = _unit(np.cross(direction, other))
    return np.column_stack([x, direction, np.cross(x, direction)])


def _swing(angle: float) -> np.ndarray:
    """Turns by φ as the patches count it: from +x towards +z."""
    return turn("y", -math.degrees(angle))
