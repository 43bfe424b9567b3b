"""Household objects: lamps, monitors, guitars; mugs, bottles, bowls, teapots; hand tools, upright along y."""

import itertools
import math

from geocaps.data.synthetic import solids as p
from geocaps.data.synthetic.solids import Draw, Solid, join, mirrored_pair, stack


def lamp(draw: Draw) -> dict[str, Solid]:
    base, height, rod, plinth = draw(0.1, 0.2), draw(0.35, 1.3), draw(0.008, 0.018), draw(0.02, 0.05)
    style = draw.pick("upright", "upright", "arc", "arm")
    lower, upper, tall = draw(0.12, 0.24), draw(0.05, 0.16), draw(0.14, 0.28)
    foot = p.frustum(base, base * draw(0.5, 1.0), plinth) if draw.chance(0.7) else p.dome(base, plinth * 1.5)
    parts = {"base": foot}
    if style == "upright":
        if draw.chance(0.4):
            bulge = draw(0.04, 0.1)
            profile = [(rod * 2, 0), (bulge, height * 0.3), (bulge * 0.6, height * 0.6), (rod, height)]
            parts["stem"] = p.revolve(p.smooth(profile, 8)).at(y=plinth)
        else:
            parts["stem"] = p.cylinder(rod, height).at(y=plinth)
        hang = height + plinth - tall * 0.6
        parts["shade"] = _shade(lower, upper, tall).at(y=hang)
        parts["bulb"] = p.sphere(0.035).at(y=height + plinth)
        return parts
    reach = draw(0.25, 0.6) * height
    if style == "arc":
        path = [(0.0, 0.0, 0.0), (0.0, height, 0.0), (0.0, height, -reach), (0.0, height * 0.85, -reach)]
        parts["stem"] = p.pipe(path, rod, bend=reach * 0.45)
        parts["shade"] = _shade(lower * 0.7, upper * 0.5, tall * 0.7).at(y=height * 0.85 - tall * 0.6, z=-reach)
        parts["bulb"] = p.sphere(0.03).at(y=height * 0.85 - tall * 0.2, z=-reach)
        return parts
    elbow = (0.0, height * 0.55, reach * 0.4)
    tip = (0.0, height * draw(0.8, 1.0), -reach)
    parts["stem"] = p.pipe([(0.0, 0.0, 0.0), elbow, tip], rod) + p.sphere(rod * 2).at(*elbow)
    head = _shade(lower * 0.6, upper * 0.4, tall * 0.6).turned("x", draw(0, 35))
    parts["shade"] = head.at(tip[0], tip[1] - tall * 0.55, tip[2])
    return parts


def _shade(lower: float, upper: float, height: float) -> Solid:
    """An open cone with a thin wall."""
    wall = 0.006
    return p.revolve([(lower - wall, 0), (lower, 0), (upper, height), (upper - wall, height), (lower - wall, 0)])


def monitor(draw: Draw) -> dict[str, Solid]:
    width = draw(0.45, 0.9)
    height = width * draw.pick(0.42, 0.56, 0.62, 0.75)
    thick, lift, bezel = draw(0.015, 0.05), draw(0.08, 0.2), draw(0.008, 0.025)
    parts = {}
    if draw.chance(0.25):
        radius = width * draw(1.0, 1.6)
        panel = p.bent_plate(radius, height, thick, math.degrees(width / radius)).turned("y", -90)
        parts["screen"] = panel.at(0, lift, -radius + thick)
    else:
        parts["screen"] = p.rounded_box(width, height, thick, thick * 0.3).at(y=lift)
        front = -thick / 2 - 0.004
        rim = stack(p.box(width, bezel, 0.01), [(0, lift, front), (0, lift + height - bezel, front)])
        parts["bezel"] = rim + mirrored_pair(p.box(bezel, height, 0.01).at(width / 2 - bezel / 2, lift, front))
    deep = draw(0.04, 0.16)
    near, far = width * draw(0.3, 0.45), width * 0.15
    rear = (-near, near, -height * 0.4, height * 0.4, 0.0), (-far, far, -height * 0.2, height * 0.2, deep)
    parts["rear"] = p.taper("z", *rear).at(0, lift + height / 2, thick / 2)
    neck = p.box(width * draw(0.08, 0.16), lift + height * 0.4, 0.025)
    parts["neck"] = neck.at(z=thick / 2 + deep * 0.6 + 0.01)
    spread, plate, style = width * draw(0.3, 0.5), draw(0.012, 0.025), draw.pick("plate", "disc", "claws")
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


def guitar(draw: Draw) -> dict[str, Solid]:
    """Upright, its strings to the front."""
    length, depth = draw(0.42, 0.5), draw(0.035, 0.11)
    lower, waist, upper = draw(0.17, 0.21), draw(0.1, 0.14), draw(0.13, 0.16)
    half = [(0.0, 0.0), (lower * 0.75, 0.03), (lower, length * 0.27), (waist, length * 0.6), (upper, length * 0.82)]
    right = p.smooth([*half, (upper * 0.6, length * 0.98), (0.0, length)], 5)
    left = [(-x, y) for x, y in reversed(right[1:-1])]
    if draw.chance(0.4):
        bite = draw(0.5, 0.75)
        right = [(x * bite if y > length * 0.8 else x, y) for x, y in right]
    neck, neck_width = draw(0.32, 0.45), draw(0.045, 0.06)
    front = -depth / 2
    parts = {"body": p.prism([*right, *left], depth)}
    parts["neck"] = p.box(neck_width, neck + length * 0.25, 0.022).at(0, length * 0.75, front - 0.008)
    head = draw(0.14, 0.19)
    top = length + neck
    wing = neck_width * draw(0.6, 0.9)
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


def mug(draw: Draw) -> dict[str, Solid]:
    radius, height, wall = draw(0.035, 0.048), draw(0.07, 0.125), draw(0.003, 0.005)
    base, belly, rim = draw(0.65, 1.0), draw(0.95, 1.15), draw(0.9, 1.1)
    profile = p.smooth([(base, 0.0), (belly, 0.4), (rim, 1.0)], 8) if draw.chance(0.5) else [(base, 0.0), (rim, 1.0)]
    outside = [(r * radius, y * height) for r, y in profile]
    parts = {"body": p.vessel([(0, 0), *outside], wall)}
    low, high = draw(0.1, 0.25) * height, draw(0.72, 0.9) * height
    reach, tube = draw(0.022, 0.036), draw(0.0045, 0.007)

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
    bend = 0.4 * (high - low) if style != "square" else 2.2 * tube
    parts["handle"] = p.pipe(path, tube, bend).scaled(z=draw(1.0, 1.8))
    return parts


def bottle(draw: Draw) -> dict[str, Solid]:
    radius, height = draw(0.03, 0.055), draw(0.2, 0.33)
    neck, shoulder, slope = draw(0.25, 0.45) * radius, draw(0.45, 0.72) * height, draw(0.03, 0.25) * height
    neck_start = min(shoulder + slope, height * 0.88)
    waist = draw(0.8, 1.0)
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
    radius, height = draw(0.07, 0.15), draw(0.04, 0.1)
    foot, belly, flare = radius * draw(0.3, 0.55), draw(0.7, 0.95), draw(0.0, 0.15)
    knots = [(foot, 0.0), (radius * belly, height * 0.4), (radius, height), (radius * (1 + flare), height * 1.03)]
    curve = p.smooth(knots, 6)
    parts = {"body": p.vessel([(0, 0), *curve], draw(0.003, 0.006))}
    if draw.chance(0.6):
        stand = height * draw(0.08, 0.5)
        ring = p.revolve([(foot * 0.75, 0), (foot, 0), (foot * 0.9, stand), (foot * 0.7, stand), (foot * 0.75, 0)])
        parts["foot"] = ring.at(y=-stand)
    if draw.chance(0.2):
        parts["lid"] = p.dome(radius * (1 + flare), height * 0.4).at(y=height * 1.03)
        parts["lid"] += p.sphere(height * 0.12).at(y=height * 1.5)
    return parts


def teapot(draw: Draw) -> dict[str, Solid]:
    radius, height, style = draw(0.07, 0.09), draw(0.09, 0.16), draw.pick("round", "straight", "pear")
    rows = {
        "round": [(0.6, 0.0), (0.98, 0.35), (0.98, 0.6), (0.5, 1.0)],
        "straight": [(1.0, 0.0), (0.92, 0.4), (0.8, 0.8), (0.65, 1.0)],
        "pear": [(0.75, 0.0), (1.0, 0.25), (0.75, 0.65), (0.5, 1.0)],
    }[style]
    outside = [(r * radius, y * height) for r, y in p.smooth(rows, 7)]
    opening = outside[-1][0]
    parts: dict[str, Solid] = {"body": p.vessel([(0, 0), *outside], 0.004)}
    lid = opening * draw(1.0, 1.1)
    parts["lid"] = p.dome(lid, height * draw(0.08, 0.25)).at(y=height)
    knob = draw(0.008, 0.014)
    parts["knob"] = p.sphere(knob).at(y=height * 1.2 + knob)
    tip_y, reach = height * draw(0.85, 1.15), radius * draw(1.7, 2.2)
    root, tip, low = draw(0.022, 0.03), draw(0.009, 0.014), height * draw(0.2, 0.4)
    if draw.chance(0.5):
        parts["spout"] = p.rod((0, low, -radius * 0.75), (0, tip_y, -reach), root, tip)
    else:
        bow = [(low, -radius * 0.7), (low, -reach * 0.8), (tip_y, -reach * 0.85), (tip_y, -reach * 1.1)]
        parts["spout"] = p.pipe([(0.0, y, z) for y, z in bow], (root + tip) / 2, bend=reach * 0.25)
    tube = draw(0.006, 0.01)
    if draw.chance(0.7):
        out, lower, upper = radius * draw(1.6, 2.0), height * draw(0.2, 0.35), height * draw(0.75, 0.9)
        hoop = [(lower, radius * 0.8), (lower, out), (upper, out), (upper, radius * 0.6)]
    else:
        top = height * draw(1.6, 1.9)
        hoop = [(height * 0.8, -radius * 0.7), (top, -radius * 0.8), (top, radius), (height * 0.6, radius * 0.8)]
    parts["handle"] = p.pipe([(0.0, y, z) for y, z in hoop], tube, bend=height * 0.3)
    if draw.chance(0.4):
        parts["foot"] = p.cylinder(outside[0][0] * 0.9, height * 0.07).at(y=-height * 0.06)
    return parts


def hammer(draw: Draw) -> dict[str, Solid]:
    """The face strikes towards -z; the claw or peen is behind."""
    length, thickness, head, face = draw(0.26, 0.42), draw(0.012, 0.018), draw(0.06, 0.09), draw(0.015, 0.024)
    grip = length * draw(0.3, 0.5)
    parts = {"handle": p.cylinder(thickness * 0.7, length).scaled(z=1.25)}
    sleeve = p.smooth([(thickness * 0.8, 0), (thickness, grip * 0.2), (thickness * 0.85, grip)], 5)
    parts["grip"] = (p.revolve(sleeve) + p.revolve([(0, 0), (thickness * 0.8, 0)])).scaled(z=1.25)
    block = face * 1.7
    parts["head"] = p.rounded_box(block, block * 1.1, block * 1.3, 0.003).at(y=length - block)
    y = length - block * 0.45
    neck = p.rod((0, y, 0), (0, y, -head * 0.75), face * 0.7)
    parts["face"] = neck + p.rod((0, y, -head * 0.6), (0, y, -head), face, face * 1.05)
    style = draw.pick("claw", "wedge", "ball")
    if style == "claw":
        reach, drop = head * draw(1.2, 1.5), draw(0.03, 0.05)
        half = block * 0.5
        high, bent, tip = y + half * 0.9, y + half * 0.7, y + half * 0.7 - drop
        prong = p.taper(
            "z",
            (0.0, half, high, high - block * 0.8, block * 0.5),
            (half * 0.25, half * 1.1, bent, bent - block * 0.4, reach * 0.6),
            (half * 0.5, half * 1.2, tip, tip - block * 0.12, reach),
        )
        parts["claw"] = mirrored_pair(prong)
    elif style == "wedge":
        reach, half = head * draw(1.3, 1.7), block * 0.45
        edge = (-half, half, y + half * 0.2, y + half * 0.4, reach)
        parts["peen"] = p.taper("z", (-half, half, y - half, y + half, 0.0), edge)
    else:
        reach = head * draw(1.2, 1.4)
        parts["peen"] = p.rod((0, y, 0), (0, y, reach), face * 0.55) + p.sphere(face * 0.75).at(y=y, z=reach)
    return parts


def screwdriver(draw: Draw) -> dict[str, Solid]:
    """Tip down, handle on top."""
    grip, radius, shaft, blade = draw(0.08, 0.12), draw(0.011, 0.018), draw(0.06, 0.18), draw(0.0025, 0.004)
    waist = draw(0.6, 0.85)
    rows = [(0.5, 0.0), (0.75, 0.08), (waist, 0.22), (1.0, 0.5), (0.95, 0.85), (0.6, 0.99)]
    curve = [(r * radius, shaft + y * grip) for r, y in p.smooth(rows, 5)]
    parts = {"handle": p.revolve([(0, shaft), *curve, (0, shaft + grip)])}
    ridges = draw.whole(0, 8)
    if ridges >= 3:
        angles = [2 * math.pi * k / ridges for k in range(ridges)]
        around = [(radius * 0.95 * math.cos(angle), radius * 0.95 * math.sin(angle)) for angle in angles]
        low, high = shaft + grip * 0.42, shaft + grip * 0.9
        parts["ridges"] = join(p.rod((x, low, z), (x, high, z), radius * 0.18) for x, z in around)
    parts["shaft"] = p.cylinder(blade, shaft + 0.005)
    tip = draw(0.012, 0.02)
    if draw.chance(0.5):
        wide, thin = blade * draw(1.2, 1.9), blade * 0.2
        parts["tip"] = p.taper("y", (-blade, blade, -blade, blade, 0.0), (-wide, wide, -thin, thin, -tip))
    else:
        parts["tip"] = p.frustum(blade * 0.15, blade, tip).at(y=-tip)
        fin = p.box(blade * 1.6, tip * 0.6, blade * 0.35).at(y=-tip * 0.75)
        parts["tip"] += fin + fin.turned("y", 90)
    if draw.chance(0.4):
        parts["collar"] = p.frustum(radius * 0.6, radius * 0.5, 0.008).at(y=shaft - 0.006)
    return parts


def spade(draw: Draw) -> dict[str, Solid]:
    """Blade down and hollow to the front, grip on top."""
    shaft, radius, width, blade = draw(0.6, 1.0), draw(0.014, 0.02), draw(0.16, 0.28), draw(0.22, 0.36)
    arc = draw(50, 110)
    curve = width / 2 / math.sin(math.radians(arc / 2))
    parts = {"blade": p.bent_plate(curve, blade, 0.006, arc).turned("y", -90).at(z=-curve)}
    if draw.chance(0.6):
        half = width / 2
        point = draw(0.06, 0.12)
        nose = [(-half, 0.0), (half, 0.0), (half * 0.6, -point * 0.6), (0.0, -point), (-half * 0.6, -point * 0.6)]
        sag = curve * (1 - math.cos(math.radians(arc / 2)))
        parts["blade"] += p.prism(nose, 0.006).at(z=-sag * 0.6)
    socket = draw(0.1, 0.25)
    parts["socket"] = p.frustum(radius * 1.5, radius * 1.1, socket).at(y=blade * 0.75, z=-0.005)
    top = blade + shaft
    parts["shaft"] = p.cylinder(radius, top - blade * 0.8).at(y=blade * 0.8)
    if draw.chance(0.5):
        wing, thick = width * draw(0.3, 0.45), draw(0.008, 0.014)
        tread = p.rod((wing * 0.35, blade, -0.01), (wing, blade, -0.02), thick, thick * 0.8)
        parts["treads"] = mirrored_pair(tread)
    style, span = draw.pick("tee", "dee", "knob", "plain"), draw(0.05, 0.08)
    if style == "tee":
        parts["grip"] = p.rod((-span, top, 0), (span, top, 0), radius * 1.1)
    elif style == "dee":
        path = [(0.0, top, 0.0), (-span, top + 0.04, 0.0), (-span, top + 0.11, 0.0)]
        path += [(-x, y, z) for x, y, z in reversed(path)]
        parts["grip"] = p.pipe(path, radius * 0.6, bend=0.02)
    elif style == "knob":
        parts["grip"] = p.sphere(radius * 1.8).at(y=top)
    return parts


def wrench(draw: Draw) -> dict[str, Solid]:
    """Jaw on top, ring or second jaw below; the flat side to the front."""
    length, thickness, bar, jaw = draw(0.14, 0.28), draw(0.006, 0.011), draw(0.012, 0.02), draw(0.02, 0.032)
    parts = {"bar": p.rounded_box(bar, length, thickness * draw(0.6, 0.9), 0.002)}
    parts["jaw"] = _jaw(jaw, thickness).turned("z", draw.pick(0.0, 15.0, 22.0)).at(y=length + jaw * 0.6)
    if draw.chance(0.6):
        ring, hole = jaw * draw(0.75, 0.95), draw(0.55, 0.7)
        inner = ring * hole
        wall = [(inner, 0), (ring, 0), (ring, thickness * 1.2), (inner, thickness * 1.2), (inner, 0)]
        parts["ring"] = p.revolve(wall).turned("x", 90).at(y=-ring * 0.8, z=-thickness * 0.6)
    else:
        parts["second_jaw"] = _jaw(jaw * draw(0.7, 0.95), thickness).turned("z", 180).at(y=-jaw * 0.5)
    return parts


def _jaw(radius: float, thickness: float) -> Solid:
    """A disc with a slot open to the top."""
    slot, floor = radius * 0.5, -radius * 0.15
    start = math.asin(slot / radius)
    steps = 18
    angles = [math.pi / 2 + start + (2 * math.pi - 2 * start) * k / steps for k in range(steps + 1)]
    arc = [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]
    return p.prism([*arc, (slot, floor), (-slot, floor)], thickness)


def pliers(draw: Draw) -> dict[str, Solid]:
    """Jaws on top, the flat side to the front; the handles cross at the pivot."""
    handle, tube, spread, jaw = draw(0.1, 0.16), draw(0.005, 0.008), draw(0.018, 0.04), draw(0.03, 0.08)
    width, thick, opening = draw(0.009, 0.014), draw(0.008, 0.012), draw(0.0, 12.0)
    nose = width * draw(0.3, 0.9)
    root, end = (0.0005, width, -thick / 2, thick / 2, 0.0), (0.0005, nose, -thick * 0.3, thick * 0.3, jaw)
    blade = p.taper("y", root, end)
    parts = {"jaws": mirrored_pair(blade.turned("z", -opening / 2))}
    parts["pivot"] = p.cylinder(width, thick * 1.15).turned("x", 90).at(z=-thick * 0.575)
    knee = draw(0.25, 0.5) * handle
    path = [(-width * 0.3, 0.0, 0.0), (-spread, -knee, 0.0), (-spread * draw(0.8, 1.3), -handle, 0.0)]
    parts["handles"] = mirrored_pair(p.pipe(path, tube, bend=0.05))
    if draw.chance(0.7):
        parts["sleeves"] = mirrored_pair(p.rod(path[1], path[2], tube * 1.35))
    return parts
