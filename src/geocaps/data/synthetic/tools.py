"""Hand tools, upright along y."""

import math

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.solid import Solid, mirrored_pair


def hammer(draw: Draw) -> dict[str, Solid]:
    """The face strikes towards -z; the claw or peen is behind."""
    length, thickness = draw.between(0.26, 0.42), draw.between(0.012, 0.018)
    head, face = draw.between(0.06, 0.09), draw.between(0.015, 0.024)
    grip = length * draw.between(0.3, 0.5)
    parts = {"handle": p.cylinder(thickness * 0.7, length).scaled(z=1.25)}
    parts["grip"] = p.revolve(
        p.smooth([(thickness * 0.8, 0), (thickness, grip * 0.2), (thickness * 0.85, grip)], 5)
    ).scaled(z=1.25) + p.revolve([(0, 0), (thickness * 0.8, 0)]).scaled(z=1.25)
    block = face * 1.7
    parts["head"] = p.rounded_box(block, block * 1.1, block * 1.3, 0.003).at(y=length - block)
    y = length - block * 0.45
    neck = p.rod((0, y, 0), (0, y, -head * 0.75), face * 0.7)
    parts["face"] = neck + p.rod((0, y, -head * 0.6), (0, y, -head), face, face * 1.05)
    style = draw.pick("claw", "wedge", "ball")
    if style == "claw":
        reach, drop = head * draw.between(1.2, 1.5), draw.between(0.03, 0.05)
        half = block * 0.5
        prong = p.loft(
            *(
                [(near, top, z), (far, top, z), (far, top - thick, z), (near, top - thick, z)]
                for near, far, top, thick, z in (
                    (0.0, half, y + half * 0.9, block * 0.8, block * 0.5),
                    (half * 0.25, half * 1.1, y + half * 0.7, block * 0.4, reach * 0.6),
                    (half * 0.5, half * 1.2, y + half * 0.7 - drop, block * 0.12, reach),
                )
            )
        )
        parts["claw"] = mirrored_pair(prong)
    elif style == "wedge":
        reach, half = head * draw.between(1.3, 1.7), block * 0.45
        parts["peen"] = p.loft(
            [(-half, y - half, 0.0), (half, y - half, 0.0), (half, y + half, 0.0), (-half, y + half, 0.0)],
            [
                (-half, y + half * 0.2, reach),
                (half, y + half * 0.2, reach),
                (half, y + half * 0.4, reach),
                (-half, y + half * 0.4, reach),
            ],
        )
    else:
        reach = head * draw.between(1.2, 1.4)
        parts["peen"] = p.rod((0, y, 0), (0, y, reach), face * 0.55) + p.sphere(face * 0.75).at(y=y, z=reach)
    return parts


def screwdriver(draw: Draw) -> dict[str, Solid]:
    """Tip down, handle on top."""
    grip, radius = draw.between(0.08, 0.12), draw.between(0.011, 0.018)
    shaft, blade = draw.between(0.06, 0.18), draw.between(0.0025, 0.004)
    waist = draw.between(0.6, 0.85)
    rows = [(0.5, 0.0), (0.75, 0.08), (waist, 0.22), (1.0, 0.5), (0.95, 0.85), (0.6, 0.99)]
    curve = [(r * radius, shaft + y * grip) for r, y in p.smooth(rows, 5)]
    parts = {"handle": p.revolve([(0, shaft), *curve, (0, shaft + grip)])}
    ridges = draw.whole(0, 8)
    if ridges >= 3:
        for k in range(ridges):
            angle = 2 * math.pi * k / ridges
            x, z = radius * 0.95 * math.cos(angle), radius * 0.95 * math.sin(angle)
            ridge = p.rod((x, shaft + grip * 0.42, z), (x, shaft + grip * 0.9, z), radius * 0.18)
            parts["ridges"] = parts["ridges"] + ridge if "ridges" in parts else ridge
    parts["shaft"] = p.cylinder(blade, shaft + 0.005)
    tip = draw.between(0.012, 0.02)
    if draw.chance(0.5):
        wide, thin = blade * draw.between(1.2, 1.9), blade * 0.2
        parts["tip"] = p.loft(
            *(
                [(x * w, y, z * d) for x, z in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
                for w, d, y in ((blade, blade, 0.0), (wide, thin, -tip))
            )
        )
    else:
        parts["tip"] = p.frustum(blade * 0.15, blade, tip).at(y=-tip)
        fin = p.box(blade * 1.6, tip * 0.6, blade * 0.35).at(y=-tip * 0.75)
        parts["tip"] += fin + fin.turned("y", 90)
    if draw.chance(0.4):
        parts["collar"] = p.frustum(radius * 0.6, radius * 0.5, 0.008).at(y=shaft - 0.006)
    return parts


def spade(draw: Draw) -> dict[str, Solid]:
    """Blade down and hollow to the front, grip on top."""
    shaft, radius = draw.between(0.6, 1.0), draw.between(0.014, 0.02)
    width, blade = draw.between(0.16, 0.28), draw.between(0.22, 0.36)
    arc = draw.between(50, 110)
    curve = width / 2 / math.sin(math.radians(arc / 2))
    plate = p.bent_plate(curve, blade, 0.006, arc).turned("y", -90).at(z=-curve)
    parts = {"blade": plate}
    if draw.chance(0.6):
        half = width / 2
        point = draw.between(0.06, 0.12)
        nose = [(-half, 0.0), (half, 0.0), (half * 0.6, -point * 0.6), (0.0, -point), (-half * 0.6, -point * 0.6)]
        sag = curve * (1 - math.cos(math.radians(arc / 2)))
        parts["blade"] += p.prism(nose, 0.006).at(z=-sag * 0.6)
    socket = draw.between(0.1, 0.25)
    parts["socket"] = p.frustum(radius * 1.5, radius * 1.1, socket).at(y=blade * 0.75, z=-0.005)
    top = blade + shaft
    parts["shaft"] = p.cylinder(radius, top - blade * 0.8).at(y=blade * 0.8)
    if draw.chance(0.5):
        wing, thick = width * draw.between(0.3, 0.45), draw.between(0.008, 0.014)
        tread = p.rod((wing * 0.35, blade, -0.01), (wing, blade, -0.02), thick, thick * 0.8)
        parts["treads"] = mirrored_pair(tread)
    style = draw.pick("tee", "dee", "knob", "plain")
    span = draw.between(0.05, 0.08)
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
    length, thickness = draw.between(0.14, 0.28), draw.between(0.006, 0.011)
    bar, jaw = draw.between(0.012, 0.02), draw.between(0.02, 0.032)
    parts = {"bar": p.rounded_box(bar, length, thickness * draw.between(0.6, 0.9), 0.002)}
    parts["jaw"] = _jaw(jaw, thickness).turned("z", draw.pick(0.0, 15.0, 22.0)).at(y=length + jaw * 0.6)
    if draw.chance(0.6):
        ring, hole = jaw * draw.between(0.75, 0.95), draw.between(0.55, 0.7)
        inner = ring * hole
        wall = [(inner, 0), (ring, 0), (ring, thickness * 1.2), (inner, thickness * 1.2), (inner, 0)]
        parts["ring"] = p.revolve(wall).turned("x", 90).at(y=-ring * 0.8, z=-thickness * 0.6)
    else:
        parts["second_jaw"] = _jaw(jaw * draw.between(0.7, 0.95), thickness).turned("z", 180).at(y=-jaw * 0.5)
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
    handle, tube = draw.between(0.1, 0.16), draw.between(0.005, 0.008)
    spread, jaw = draw.between(0.018, 0.04), draw.between(0.03, 0.08)
    width, thick = draw.between(0.009, 0.014), draw.between(0.008, 0.012)
    opening = draw.between(0.0, 12.0)
    nose = width * draw.between(0.3, 0.9)
    blade = p.loft(
        *(
            [(x, y, z * d) for x, z in ((0.0005, -1), (w, -1), (w, 1), (0.0005, 1))]
            for w, d, y in ((width, thick / 2, 0.0), (nose, thick * 0.3, jaw))
        )
    )
    parts = {"jaws": mirrored_pair(blade.turned("z", -opening / 2))}
    parts["pivot"] = p.cylinder(width, thick * 1.15).turned("x", 90).at(z=-thick * 0.575)
    knee = draw.between(0.25, 0.5) * handle
    path = [(-width * 0.3, 0.0, 0.0), (-spread, -knee, 0.0), (-spread * draw.between(0.8, 1.3), -handle, 0.0)]
    arm = p.pipe(path, tube, bend=0.05)
    parts["handles"] = mirrored_pair(arm)
    if draw.chance(0.7):
        sleeve = p.rod(path[1], path[2], tube * 1.35)
        parts["sleeves"] = mirrored_pair(sleeve)
    return parts
