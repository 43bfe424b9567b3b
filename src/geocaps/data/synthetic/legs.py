"""What furniture stands on."""

import math

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.solid import Solid, join


def four_legs(draw: Draw, width: float, depth: float, height: float) -> Solid:
    """Four legs under the corners of a rectangle, of one drawn style."""
    thickness = draw.between(0.035, 0.07) * (0.6 + 0.4 * height / 0.45)
    style = draw.pick("square", "round", "tapered", "splayed", "turned")
    x, z = width / 2 - thickness, depth / 2 - thickness
    splay = draw.between(0.1, 0.22) * height
    swell, waist = draw.between(0.9, 1.3), draw.between(0.45, 0.7)

    def leg(side: int, end: int) -> Solid:
        top = (side * x, height, end * z)
        foot = (side * x, 0.0, end * z)
        if style == "square":
            return p.box(thickness, height, thickness).at(*foot)
        if style == "round":
            return p.rod(foot, top, thickness / 2)
        if style == "tapered":
            return p.rod(foot, top, thickness * 0.3, thickness * 0.65)
        if style == "splayed":
            inner = (side * (x - splay / 2), height, end * (z - splay / 2))
            return p.rod(
                (side * (x + splay / 3), 0.0, end * (z + splay / 3)), inner, thickness * 0.35, thickness * 0.55
            )
        half = thickness / 2
        profile = [
            (half * 0.7, 0.0),
            (half * swell, 0.2),
            (half * waist, 0.3),
            (half * swell, 0.6),
            (half * waist, 0.8),
        ]
        curve = p.smooth([*profile, (half, 0.9), (half, 1.0)], 4)
        return p.revolve([(0, 0), *curve, (0, 1)]).scaled(y=height).at(*foot)

    return join(leg(side, end) for side in (-1, 1) for end in (-1, 1))


def pedestal(draw: Draw, reach: float, height: float) -> Solid:
    """One column on a disc or on a star of feet, with castors or without."""
    column = draw.between(0.02, 0.045) * (1 + reach)
    if draw.chance(0.4):
        disc = draw.between(0.02, 0.04)
        return p.frustum(reach, reach * draw.between(0.6, 0.95), disc) + p.cylinder(column, height - disc).at(y=disc)
    feet, wheel = draw.whole(3, 6), draw.between(0.02, 0.035)
    castors, rise = draw.chance(0.5), draw.between(0.02, 0.08)
    pieces = [p.cylinder(column, height - wheel).at(y=wheel)]
    for k in range(feet):
        angle = 2 * math.pi * (k + 0.5) / feet
        x, z = reach * math.sin(angle), reach * math.cos(angle)
        pieces.append(p.rod((x, 2 * wheel, z), (0.0, 2 * wheel + rise, 0.0), column * 0.45, column * 0.8))
        pieces.append(p.sphere(wheel).at(x, wheel, z) if castors else p.cylinder(column * 0.45, 2 * wheel).at(x, 0, z))
    return join(pieces)


def runners(draw: Draw, width: float, depth: float, height: float) -> Solid:
    """Two bent tubes, left and right, on the floor from front to back."""
    tube = draw.between(0.012, 0.022)
    x, z = width / 2 - tube, depth / 2 - tube
    path = [(0.0, height, -z), (0.0, tube, -z), (0.0, tube, z), (0.0, height, z)]
    side = p.pipe(path, tube, bend=draw.between(0.04, 0.12))
    return join([side.at(x=x), side.at(x=-x), p.rod((-x, height - tube, -z), (x, height - tube, -z), tube)])
