"""Mugs, bottles, teapots and bowls."""

import itertools

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.solid import Solid


def mug(draw: Draw) -> dict[str, Solid]:
    radius, height = draw.between(0.035, 0.048), draw.between(0.07, 0.125)
    wall = draw.between(0.003, 0.005)
    base, belly, rim = draw.between(0.65, 1.0), draw.between(0.95, 1.15), draw.between(0.9, 1.1)
    profile = p.smooth([(base, 0.0), (belly, 0.4), (rim, 1.0)], 8) if draw.chance(0.5) else [(base, 0.0), (rim, 1.0)]
    outside = [(r * radius, y * height) for r, y in profile]
    body = p.vessel([(0, 0), *outside], wall)
    parts = {"body": body}
    low, high = draw.between(0.1, 0.25) * height, draw.between(0.72, 0.9) * height
    reach, tube = draw.between(0.022, 0.036), draw.between(0.0045, 0.007)

    def wall_at(y: float) -> float:
        for (r0, y0), (r1, y1) in itertools.pairwise(outside):
            if y <= y1:
                return r0 + (r1 - r0) * (y - y0) / (y1 - y0) - wall / 2
        return outside[-1][0]

    far = max(wall_at(low), wall_at(high)) + reach
    path = [(wall_at(low), low, 0.0), (far, low, 0.0), (far, high, 0.0), (wall_at(high), high, 0.0)]
    style = draw.pick("loop", "square", "ear")
    if style == "ear":
        path = [path[0], (far * 0.85, low * 0.9, 0.0), (far, high, 0.0), path[3]]
    parts["handle"] = p.pipe(path, tube, bend=0.4 * (high - low) if style != "square" else 2.2 * tube).scaled(
        z=draw.between(1.0, 1.8)
    )
    return parts


def bottle(draw: Draw) -> dict[str, Solid]:
    radius, height = draw.between(0.03, 0.055), draw.between(0.2, 0.33)
    neck, shoulder = draw.between(0.25, 0.45) * radius, draw.between(0.45, 0.72) * height
    slope = draw.between(0.03, 0.25) * height
    neck_start = min(shoulder + slope, height * 0.88)
    waist = draw.between(0.8, 1.0)
    side = [(radius * 0.92, 0.0), (radius, height * 0.03), (radius * waist, shoulder * 0.5), (radius, shoulder * 0.92)]
    curve = p.smooth([*side, (radius * 0.9, shoulder), (neck * 1.1, neck_start)], 5)
    parts = {"body": p.revolve([(0, 0), *curve, (neck, neck_start)]).scaled(z=draw.pick(1.0, 1.0, 0.6))}
    parts["neck"] = p.revolve([(neck, neck_start), (neck, height), (neck * 0.8, height), (neck * 0.8, neck_start)])
    style = draw.pick("cap", "cork", "open", "pump")
    if style == "cap":
        parts["cap"] = p.cylinder(neck * 1.15, height * 0.07).at(y=height * 0.96)
    elif style == "cork":
        parts["cap"] = p.frustum(neck * 0.75, neck * 0.95, height * 0.08).at(y=height * 0.97)
    elif style == "pump":
        top = height * 1.12
        parts["cap"] = p.cylinder(neck * 1.1, height * 0.05).at(y=height * 0.97)
        nozzle = [(0.0, height, 0.0), (0.0, top, 0.0), (0.0, top, -radius * 0.9), (0.0, top * 0.98, -radius * 0.95)]
        parts["pump"] = p.pipe(nozzle, neck * 0.25)
    if draw.chance(0.5):
        parts["ring"] = p.ring(neck, neck * 0.15).at(y=height * 0.93)
    return parts


def bowl(draw: Draw) -> dict[str, Solid]:
    radius, height = draw.between(0.07, 0.15), draw.between(0.04, 0.1)
    foot = radius * draw.between(0.3, 0.55)
    belly, flare = draw.between(0.7, 0.95), draw.between(0.0, 0.15)
    curve = p.smooth(
        [(foot, 0.0), (radius * belly, height * 0.4), (radius, height), (radius * (1 + flare), height * 1.03)], 6
    )
    parts = {"body": p.vessel([(0, 0), *curve], draw.between(0.003, 0.006))}
    if draw.chance(0.6):
        stand = height * draw.between(0.08, 0.5)
        ring = p.revolve([(foot * 0.75, 0), (foot, 0), (foot * 0.9, stand), (foot * 0.7, stand), (foot * 0.75, 0)])
        parts["foot"] = ring.at(y=-stand)
    if draw.chance(0.2):
        parts["lid"] = p.dome(radius * (1 + flare), height * 0.4).at(y=height * 1.03)
        parts["lid"] += p.sphere(height * 0.12).at(y=height * 1.5)
    return parts


def teapot(draw: Draw) -> dict[str, Solid]:
    radius, height = draw.between(0.07, 0.09), draw.between(0.09, 0.16)
    style = draw.pick("round", "straight", "pear")
    rows = {
        "round": [(0.6, 0.0), (0.98, 0.35), (0.98, 0.6), (0.5, 1.0)],
        "straight": [(1.0, 0.0), (0.92, 0.4), (0.8, 0.8), (0.65, 1.0)],
        "pear": [(0.75, 0.0), (1.0, 0.25), (0.75, 0.65), (0.5, 1.0)],
    }[style]
    outside = [(r * radius, y * height) for r, y in p.smooth(rows, 7)]
    opening = outside[-1][0]
    parts: dict[str, Solid] = {"body": p.vessel([(0, 0), *outside], 0.004)}
    lid = opening * draw.between(1.0, 1.1)
    parts["lid"] = p.dome(lid, height * draw.between(0.08, 0.25)).at(y=height)
    knob = draw.between(0.008, 0.014)
    parts["knob"] = p.sphere(knob).at(y=height * 1.2 + knob)
    tip_y, reach = height * draw.between(0.85, 1.15), radius * draw.between(1.7, 2.2)
    root, tip = draw.between(0.022, 0.03), draw.between(0.009, 0.014)
    low = height * draw.between(0.2, 0.4)
    if draw.chance(0.5):
        parts["spout"] = p.rod((0, low, -radius * 0.75), (0, tip_y, -reach), root, tip)
    else:
        path = [
            (0.0, low, -radius * 0.7),
            (0.0, low, -reach * 0.8),
            (0.0, tip_y, -reach * 0.85),
            (0.0, tip_y, -reach * 1.1),
        ]
        parts["spout"] = p.pipe(path, (root + tip) / 2, bend=reach * 0.25)
    tube = draw.between(0.006, 0.01)
    if draw.chance(0.7):
        out = radius * draw.between(1.6, 2.0)
        lower, upper = height * draw.between(0.2, 0.35), height * draw.between(0.75, 0.9)
        hoop = [(0.0, lower, radius * 0.8), (0.0, lower, out), (0.0, upper, out), (0.0, upper, radius * 0.6)]
    else:
        top = height * draw.between(1.6, 1.9)
        hoop = [
            (0.0, height * 0.8, -radius * 0.7),
            (0.0, top, -radius * 0.8),
            (0.0, top, radius),
            (0.0, height * 0.6, radius * 0.8),
        ]
    parts["handle"] = p.pipe(hoop, tube, bend=height * 0.3)
    if draw.chance(0.4):
        parts["foot"] = p.cylinder(outside[0][0] * 0.9, height * 0.07).at(y=-height * 0.06)
    return parts
