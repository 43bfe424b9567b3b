"""Lamps, monitors and guitars."""

import math

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.solid import Solid, join, mirrored_pair, stack


def lamp(draw: Draw) -> dict[str, Solid]:
    base, height = draw.between(0.1, 0.2), draw.between(0.35, 1.3)
    rod, plinth = draw.between(0.008, 0.018), draw.between(0.02, 0.05)
    style = draw.pick("upright", "upright", "arc", "arm")
    lower, upper, tall = draw.between(0.12, 0.24), draw.between(0.05, 0.16), draw.between(0.14, 0.28)
    foot = p.frustum(base, base * draw.between(0.5, 1.0), plinth) if draw.chance(0.7) else p.dome(base, plinth * 1.5)
    parts = {"base": foot}
    if style == "upright":
        if draw.chance(0.4):
            bulge = draw.between(0.04, 0.1)
            profile = [(rod * 2, 0), (bulge, height * 0.3), (bulge * 0.6, height * 0.6), (rod, height)]
            parts["stem"] = p.revolve(p.smooth(profile, 8)).at(y=plinth)
        else:
            parts["stem"] = p.cylinder(rod, height).at(y=plinth)
        hang = height + plinth - tall * 0.6
        parts["shade"] = _shade(lower, upper, tall).at(y=hang)
        parts["bulb"] = p.sphere(0.035).at(y=height + plinth)
        return parts
    reach = draw.between(0.25, 0.6) * height
    if style == "arc":
        path = [(0.0, 0.0, 0.0), (0.0, height, 0.0), (0.0, height, -reach), (0.0, height * 0.85, -reach)]
        parts["stem"] = p.pipe(path, rod, bend=reach * 0.45)
        parts["shade"] = _shade(lower * 0.7, upper * 0.5, tall * 0.7).at(y=height * 0.85 - tall * 0.6, z=-reach)
        parts["bulb"] = p.sphere(0.03).at(y=height * 0.85 - tall * 0.2, z=-reach)
        return parts
    elbow = (0.0, height * 0.55, reach * 0.4)
    tip = (0.0, height * draw.between(0.8, 1.0), -reach)
    parts["stem"] = p.pipe([(0.0, 0.0, 0.0), elbow, tip], rod) + p.sphere(rod * 2).at(*elbow)
    head = _shade(lower * 0.6, upper * 0.4, tall * 0.6).turned("x", draw.between(0, 35))
    parts["shade"] = head.at(tip[0], tip[1] - tall * 0.55, tip[2])
    return parts


def _shade(lower: float, upper: float, height: float) -> Solid:
    """An open cone with a thin wall."""
    wall = 0.006
    return p.revolve(
        [(lower - wall, 0), (lower, 0), (upper, height), (upper - wall, height), (lower - wall, 0)],
    )


def monitor(draw: Draw) -> dict[str, Solid]:
    width = draw.between(0.45, 0.9)
    height = width * draw.pick(0.42, 0.56, 0.62, 0.75)
    thick, lift = draw.between(0.015, 0.05), draw.between(0.08, 0.2)
    bezel = draw.between(0.008, 0.025)
    parts = {}
    if draw.chance(0.25):
        radius = width * draw.between(1.0, 1.6)
        panel = p.bent_plate(radius, height, thick, math.degrees(width / radius)).turned("y", -90)
        parts["screen"] = panel.at(0, lift, -radius + thick)
    else:
        parts["screen"] = p.rounded_box(width, height, thick, thick * 0.3).at(y=lift)
        front = -thick / 2 - 0.004
        rim = p.box(width, bezel, 0.01).at(0, lift, front) + p.box(width, bezel, 0.01).at(
            0, lift + height - bezel, front
        )
        parts["bezel"] = rim + mirrored_pair(p.box(bezel, height, 0.01).at(width / 2 - bezel / 2, lift, front))
    deep = draw.between(0.04, 0.16)
    near, far = (width * draw.between(0.3, 0.45), height * 0.4), (width * 0.15, height * 0.2)
    shell = p.loft(*([(x * sx, y * sy, z) for sx, sy in _CORNERS] for (x, y), z in ((near, 0.0), (far, deep))))
    parts["rear"] = shell.at(0, lift + height / 2, thick / 2)
    parts["neck"] = p.box(width * draw.between(0.08, 0.16), lift + height * 0.4, 0.025).at(
        z=thick / 2 + deep * 0.6 + 0.01
    )
    spread, plate = width * draw.between(0.3, 0.5), draw.between(0.012, 0.025)
    style = draw.pick("plate", "disc", "claws")
    z = deep * 0.3
    if style == "plate":
        parts["foot"] = p.rounded_box(spread, plate, spread * 0.7, plate * 0.4).at(z=z)
    elif style == "disc":
        parts["foot"] = p.cylinder(spread / 2, plate).scaled(z=0.8).at(z=z)
    else:
        start = (0.0, plate, thick / 2 + deep * 0.6)
        ends = [(side * spread * 0.6, plate, end) for side in (-1, 1) for end in (-spread * 0.5, spread * 0.3)]
        parts["foot"] = join(p.rod(start, end, plate * 0.8, plate * 0.5) for end in ends)
    return parts


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))


def guitar(draw: Draw) -> dict[str, Solid]:
    """Upright, its strings to the front."""
    length, depth = draw.between(0.42, 0.5), draw.between(0.035, 0.11)
    lower, waist, upper = draw.between(0.17, 0.21), draw.between(0.1, 0.14), draw.between(0.13, 0.16)
    half = [(0.0, 0.0), (lower * 0.75, 0.03), (lower, length * 0.27), (waist, length * 0.6), (upper, length * 0.82)]
    right = p.smooth([*half, (upper * 0.6, length * 0.98), (0.0, length)], 5)
    left = [(-x, y) for x, y in reversed(right[1:-1])]
    if draw.chance(0.4):
        bite = draw.between(0.5, 0.75)
        right = [(x * bite if y > length * 0.8 else x, y) for x, y in right]
    neck, neck_width = draw.between(0.32, 0.45), draw.between(0.045, 0.06)
    front = -depth / 2
    parts = {"body": p.prism([*right, *left], depth)}
    parts["neck"] = p.box(neck_width, neck + length * 0.25, 0.022).at(0, length * 0.75, front - 0.008)
    head = draw.between(0.14, 0.19)
    top = length + neck
    wing = neck_width * draw.between(0.6, 0.9)
    outline = [(-neck_width / 2, 0), (neck_width / 2, 0), (wing, head * 0.2), (wing * 0.9, head), (-wing * 0.9, head)]
    parts["head"] = p.prism([*outline, (-wing, head * 0.2)], 0.016).turned("x", 10).at(0, top, front)
    one_side = draw.chance(0.3)
    pegs, sides = (6, (1,)) if one_side else (3, (-1, 1))
    peg = p.rod((0, 0, 0), (0.03, 0, 0), 0.006) + p.ellipsoid(0.012, 0.009, 0.006).at(x=0.035)
    column = stack(peg, [(wing * 0.92, top + head * (k + 0.8) / (pegs + 0.6), front + 0.012) for k in range(pegs)])
    parts["pegs"] = join(column.scaled(x=side) for side in sides)
    parts["bridge"] = p.box(lower * 0.7, 0.03, 0.02).at(0, length * 0.25, front - 0.008)
    if depth > 0.07:
        parts["hole"] = p.ring(0.05, 0.006).turned("x", 90).at(0, length * 0.58, front)
    else:
        parts["pickups"] = stack(p.box(0.08, 0.025, 0.02), [(0, length * y, front - 0.006) for y in (0.4, 0.6)])
    return parts
