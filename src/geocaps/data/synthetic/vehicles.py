"""Cars, trucks, airplanes and boats; the nose points to -z."""

import math
from collections.abc import Sequence

from geocaps.data.synthetic import solids as p
from geocaps.data.synthetic.solids import Draw, Solid, join, mirrored_pair, stack


def _wheel(radius: float, width: float, hub: float) -> Solid:
    """Its axle along x, centred."""
    tyre = p.cylinder(radius, width) + p.cylinder(hub * radius, width * 1.25).at(y=-width * 0.125)
    return tyre.at(y=-width / 2).turned("z", 90)


def _from_side(outline: Sequence[tuple[float, float]], width: float) -> Solid:
    """An outline of (length, height), length growing to the rear, extruded across the vehicle."""
    return p.prism([(-z, y) for z, y in outline], width).turned("y", 90)


def car(draw: Draw) -> dict[str, Solid]:
    style = draw.pick("saloon", "hatchback", "estate", "pickup", "sports")
    length, width = draw(3.6, 4.8), draw(1.6, 1.95)
    height = {"saloon": 1.45, "hatchback": 1.5, "estate": 1.55, "pickup": 1.75, "sports": 1.2}[style]
    height *= draw(0.95, 1.1)
    wheel = draw(0.29, 0.37) * (1.15 if style == "pickup" else 1.0)
    floor = wheel * draw(0.55, 0.75)
    waist = floor + (height - floor) * draw(0.5, 0.58)
    bonnet = waist - (waist - floor) * draw(0.25, 0.45)
    front, rear = -length / 2, length / 2
    # Shares of the length: where the windscreen starts, the roof starts, the roof ends, the rear window ends.
    shares = {
        "saloon": (0.36, 0.47, 0.74, 0.88),
        "hatchback": (0.3, 0.42, 0.84, 0.98),
        "estate": (0.3, 0.4, 0.92, 0.99),
        "pickup": (0.22, 0.3, 0.5, 0.53),
        "sports": (0.44, 0.54, 0.7, 0.93),
    }[style]
    shift = draw(-0.02, 0.03)
    screen_z, roof_z, roof_end_z, boot_z = (front + length * (share + shift * (share < 0.8)) for share in shares)
    tail = waist - (0.02 if style in ("estate", "hatchback") else draw(0.0, 0.06))
    nose = floor + (bonnet - floor) * draw(0.5, 0.75)
    side = [(front, floor), (front, nose), (front + 0.18, bonnet), (screen_z, waist), (boot_z, waist), (rear, tail)]
    parts = {"body": _from_side([*side, (rear, floor)], width)}
    tuck = draw(0.75, 0.9)
    low, high = width / 2 * 0.97, width / 2 * tuck
    parts["cabin"] = p.taper("y", (-low, low, screen_z, boot_z, waist), (-high, high, roof_z, roof_end_z, height))
    if style == "pickup":
        bed_wall = p.box(0.06, 0.3, rear - boot_z).at(width / 2 - 0.03, waist, (rear + boot_z) / 2)
        parts["bed"] = mirrored_pair(bed_wall) + p.box(width, 0.3, 0.06).at(0, waist, rear - 0.03)
    tyre, axle = _wheel(wheel, draw(0.18, 0.26), draw(0.5, 0.7)), length * draw(0.29, 0.33)
    track = width / 2 - 0.08
    parts["wheels"] = stack(tyre, [(x * track, wheel, z) for x in (-1, 1) for z in (-axle, axle * 0.95)])
    bumper = p.rounded_box(width * 0.96, 0.2, 0.16, 0.06)
    parts["bumpers"] = stack(bumper, [(0, floor + 0.02, front - 0.03), (0, floor + 0.05, rear + 0.03)])
    mirror = p.ellipsoid(0.1, 0.08, 0.06).at(width / 2 + 0.09, waist + 0.08, screen_z + 0.25)
    parts["mirrors"] = mirrored_pair(mirror)
    lamp = p.ellipsoid(0.16, 0.08, 0.08).at(width * 0.36, (nose + bonnet) / 2, front + 0.05)
    parts["lights"] = mirrored_pair(lamp)
    if style in ("sports", "saloon") and draw.chance(0.4):
        blade = p.box(width * 0.85, 0.03, 0.22).at(0, tail + 0.2, rear - 0.15)
        parts["spoiler"] = blade + mirrored_pair(p.box(0.04, 0.22, 0.12).at(width * 0.33, tail, rear - 0.15))
    if style in ("estate", "pickup") and draw.chance(0.5):
        rail = p.rod((0, 0, roof_z + 0.1), (0, 0, roof_end_z - 0.1), 0.025)
        parts["roof_rails"] = mirrored_pair(rail.at(width / 2 * tuck - 0.08, height + 0.03, 0))
    return parts


def truck(draw: Draw) -> dict[str, Solid]:
    width, cab_length, load_length, wheel = draw(2.2, 2.6), draw(1.4, 2.2), draw(3.5, 7.5), draw(0.45, 0.55)
    deck, cab_height = wheel * 2 + 0.05, draw(2.2, 3.0)
    length = cab_length + 0.15 + load_length
    front, rear = -length / 2, length / 2
    bonnet = draw(0.7, 1.1) if draw.chance(0.35) else 0.0
    rake = draw(0.05, 0.4)
    cab_rear, floor = front + cab_length, wheel * 0.8
    side = [(front, floor), (front, cab_height * 0.55), (front + rake, cab_height), (cab_rear, cab_height)]
    parts = {"cab": _from_side([*side, (cab_rear, floor)], width * 0.97)}
    if bonnet:
        hood = p.rounded_box(width * 0.75, cab_height * 0.5 - floor, bonnet + 0.2, 0.12)
        parts["bonnet"] = hood.at(0, floor, front - bonnet / 2 + 0.1)
    parts["chassis"] = p.box(width * 0.5, 0.25, length).at(0, wheel, 0.0)
    middle = rear - load_length / 2
    cargo, tall = draw.pick("box", "tank", "flatbed", "tipper", "logs"), draw(1.6, 2.6)
    if cargo == "box":
        parts["cargo"] = p.box(width, tall, load_length).at(0, deck, middle)
    elif cargo == "tank":
        radius = width * 0.46
        shell = [(0, -0.25), (radius * 0.7, -0.15), (radius, 0), (radius, load_length - 0.4)]
        shell += [(radius * 0.7, load_length - 0.25), (0, load_length - 0.15)]
        tank = p.revolve(shell).turned("x", 90).scaled(y=0.85)
        parts["cargo"] = tank.at(0, deck + radius * 0.85, middle - load_length / 2 + 0.2)
        parts["cargo"] += p.cylinder(0.3, 0.2).at(0, deck + radius * 1.68, middle)
    elif cargo == "tipper":
        low, high = width / 2 * 0.8, width / 2
        base, rim = deck + 0.12, deck + tall * 0.6
        ring = [(-low, deck), (low, deck), (high, rim), (high - 0.1, rim), (low - 0.1, base)]
        ring += [(0.1 - low, base), (0.1 - high, rim), (-high, rim)]
        parts["cargo"] = p.prism(ring, load_length).at(z=middle)
        parts["cargo"] += p.box(width * 0.85, tall * 0.7, 0.1).at(0, deck, middle - load_length / 2)
    else:
        parts["cargo"] = p.box(width, 0.12, load_length).at(0, deck, middle)
        parts["cargo"] += p.box(width, tall * 0.5, 0.1).at(0, deck, middle - load_length / 2 + 0.05)
        if cargo == "logs":
            log = p.rod((0, 0, -load_length * 0.47), (0, 0, load_length * 0.47), width * 0.16)
            rows = [(-0.33, 0.3), (0.0, 0.3), (0.33, 0.3), (-0.165, 0.58), (0.165, 0.58)]
            parts["load"] = stack(log, [(x * width, deck + y * width - width * 0.02, middle) for x, y in rows])
    tyre = _wheel(wheel, 0.3, draw(0.4, 0.6))
    axles = [front + cab_length * 0.45 - bonnet * 0.5]
    axles += [rear - 0.9 - 1.1 * k for k in range(draw.whole(1, 2 if load_length < 5 else 3))]
    parts["wheels"] = stack(tyre, [(x * (width / 2 - 0.16), wheel, z) for x in (-1, 1) for z in axles])
    mirror = p.box(0.12, 0.4, 0.1).at(width / 2 + 0.12, cab_height * 0.62, front + rake + 0.1)
    parts["mirrors"] = mirrored_pair(mirror)
    parts["bumper"] = p.box(width * 0.98, 0.3, 0.15).at(0, floor - 0.1, front - bonnet - 0.05)
    if draw.chance(0.4):
        x = draw.pick(-1, 1) * width * 0.42
        parts["exhaust"] = p.cylinder(0.08, cab_height * 0.7).at(x, wheel * 1.5, cab_rear + 0.07)
    return parts


def _wing(span: float, root: float, tip: float, sweep: float, lift: float, thickness: float) -> Solid:
    """The right half of a wing: from x = 0 out to `span`, the root's chord centred on z = 0."""
    rings = []
    for x, y, chord, middle in ((0.0, 0.0, root, 0.0), (span, lift, tip, sweep)):
        thick = thickness * chord / root
        section = ((-0.5, 0.0), (-0.3, 0.5), (0.1, 0.45), (0.5, 0.0), (0.1, -0.25), (-0.3, -0.35))
        rings.append([(x, y + thick * up, middle + chord * along) for along, up in section])
    return p.loft(*rings)


def airplane(draw: Draw) -> dict[str, Solid]:
    length, radius, nose, tail = draw(8.0, 14.0), draw(0.5, 0.85), draw(0.08, 0.16), draw(0.25, 0.4)
    blunt = draw(0.5, 0.75)
    rows = [(0.0, 0.0), (blunt * 0.6, nose * 0.25), (0.9, nose * 0.75), (1.0, nose * 1.2)]
    rows += [(1.0, 1 - tail), (0.6, 1 - tail * 0.45)]
    profile = [(r * radius, t * length) for r, t in [*p.smooth(rows, 4), (0.1, 1.0), (0.0, 1.0)]]
    parts = {"fuselage": p.revolve(profile).turned("x", 90).scaled(y=draw(0.95, 1.2)).at(z=-length / 2)}
    high = draw.chance(0.35)
    y = radius * (0.75 if high else -0.5)
    span, root = length * draw(0.4, 0.6), length * draw(0.14, 0.22)
    sweep, dihedral, tip = span * draw(0.0, 0.55), span * draw(0.0, 0.1), root * draw(0.3, 0.75)
    place = -length * draw(0.02, 0.1)
    parts["wings"] = mirrored_pair(_wing(span, root, tip, sweep, dihedral, root * 0.13).at(y=y, z=place))
    if draw.chance(0.3):
        fence = _wing(length * 0.06, tip * 0.9, tip * 0.4, tip * 0.4, 0.0, 0.1).turned("z", 85)
        parts["winglets"] = mirrored_pair(fence.at(span, y + dihedral, place + sweep))
    fin_height, tail_z = length * draw(0.12, 0.17), length * 0.43
    tee = draw.chance(0.3)
    fin = _wing(fin_height, root * 0.75, root * 0.4, fin_height * 0.6, 0.0, 0.14).turned("z", 90)
    parts["fin"] = fin.at(y=radius * 0.3, z=tail_z)
    plane = _wing(span * 0.38, root * 0.55, root * 0.3, span * 0.15, 0.0, 0.12)
    drop = radius * 0.3 + fin_height * 0.95 if tee else radius * 0.25
    parts["tailplane"] = mirrored_pair(plane.at(y=drop, z=tail_z + (fin_height * 0.55 if tee else 0.0)))
    style = draw.pick("jets", "jets", "rear", "propeller", "four")
    pod_radius, pod = radius * draw(0.35, 0.5), length * draw(0.1, 0.14)
    inside = [(0.0, pod * 0.4), (pod_radius * 0.85, pod * 0.3), (pod_radius * 0.85, 0.0), (pod_radius, 0.02 * pod)]
    engine = p.revolve([*inside, (pod_radius * 1.05, pod * 0.4), (pod_radius * 0.6, pod), (0, pod)]).turned("x", 90)
    if style in ("jets", "four"):
        stations = (0.32, 0.6) if style == "four" else (draw(0.28, 0.42),)
        hung = [(span * k, y + dihedral * k - pod_radius * 1.2, place + sweep * k - root * 0.6) for k in stations]
        parts["engines"] = mirrored_pair(stack(engine, hung))
    elif style == "rear":
        parts["engines"] = mirrored_pair(engine.at(radius + pod_radius, radius * 0.3, length * 0.22))
    else:
        blades, reach = draw.whole(2, 4), radius * draw(1.3, 1.8)
        blade = p.box(reach * 0.16, reach, 0.04)
        star = join(blade.turned("z", 360 * k / blades) for k in range(blades))
        parts["propeller"] = star.at(z=-length / 2 - 0.03) + p.sphere(radius * 0.2).at(z=-length / 2)
    return parts


def boat(draw: Draw) -> dict[str, Solid]:
    length = draw(4.0, 12.0)
    beam, depth = length * draw(0.24, 0.36), length * draw(0.1, 0.16)
    stern, sheer, flat = draw(0.6, 0.95), depth * draw(0.2, 0.6), draw(0.3, 0.8)
    rings = []
    steps = 8
    for k in range(steps + 1):
        t = k / steps  # from the bow to the stern
        fullness = math.sin(math.pi / 2 * min(1.0, t / 0.55)) ** 0.8
        half = max(beam / 2 * fullness * (1 - (1 - stern) * max(0.0, t - 0.5) * 2), 0.01)
        rise, keel = sheer * (1 - t) ** 2, depth * 0.7 * max(0.0, 1 - t / 0.25) ** 2
        z = -length / 2 + length * t - (depth * 0.3 if k == 0 else 0.0)
        top, chine = depth + rise, keel + depth * 0.25
        section = [(-half, top), (half, top), (half * flat, chine), (0.0, keel), (-half * flat, chine)]
        rings.append([(x, y, z) for x, y in section])
    parts = {"hull": p.loft(*rings)}
    style = draw.pick("sail", "cabin", "open", "ferry")
    if style == "sail":
        mast, z = length * draw(0.9, 1.25), -length * draw(0.05, 0.15)
        boom, lift = length * draw(0.35, 0.5), depth + length * 0.1
        parts["mast"] = p.cylinder(length * 0.009, mast).at(y=depth * 0.9, z=z)
        parts["mast"] += p.rod((0, lift, z), (0, lift, z + boom), length * 0.007)
        luff = z + 0.02 * length
        parts["sail"] = _from_side([(luff, lift), (z + boom, lift), (luff, depth + mast * 0.95)], length * 0.006)
        if draw.chance(0.7):
            jib = [(z - 0.02 * length, depth + mast * 0.75), (z - 0.02 * length, lift), (-length * 0.5, depth + sheer)]
            parts["jib"] = _from_side(jib, length * 0.006)
        root, tip = 0.05 * depth, -depth
        fin = [(-0.08 * length, root), (0.1 * length, root), (0.08 * length, tip), (-0.02 * length, tip)]
        parts["keel"] = _from_side(fin, length * 0.015)
    elif style == "open":
        bench = p.box(beam * 0.9, depth * 0.12, length * 0.06)
        parts["benches"] = stack(bench, [(0, depth * 1.05, length * z) for z in (-0.1, 0.1, 0.3)])
        motor = p.rounded_box(beam * 0.2, depth * 0.9, length * 0.07, 0.04 * length).at(y=depth * 0.9)
        parts["motor"] = (motor + p.rod((0, -depth * 0.4, 0), (0, depth, 0), length * 0.01)).at(z=length * 0.53)
    else:
        floors = draw.whole(2, 3) if style == "ferry" else 1
        cabin, wide, tall = length * draw(0.3, 0.5), beam * draw(0.55, 0.75), depth * draw(0.7, 1.1)
        z = length * draw(0.05, 0.18)
        for k in range(floors):
            long, level = cabin * (1 - 0.22 * k), depth + tall * k
            rake = long * 0.2
            house = [(-long / 2, level), (-long / 2 + rake, level + tall), (long / 2, level + tall), (long / 2, level)]
            block = _from_side(house, wide * (1 - 0.1 * k)).at(z=z)
            parts["cabin"] = parts["cabin"] + block if k else block
        if style == "ferry":
            funnel = p.frustum(beam * 0.12, beam * 0.1, tall * 1.2).scaled(z=1.5)
            parts["funnel"] = funnel.at(0, depth + tall * floors, z + cabin * 0.12)
        rail = [(-beam * 0.3, depth + sheer, -length * 0.25), (-beam * 0.1, depth * 1.3 + sheer, -length * 0.46)]
        rail += [(-x, y, w) for x, y, w in reversed(rail)]
        parts["rail"] = p.pipe(rail, length * 0.006)
    return parts
