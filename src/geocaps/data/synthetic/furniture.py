"""Furniture: chairs, sofas, toilets, tables, desks, beds and shelves."""

import math

from geocaps.data.synthetic import solids as p
from geocaps.data.synthetic.solids import Draw, Solid, join, mirrored_pair, stack


def four_legs(draw: Draw, width: float, depth: float, height: float) -> Solid:
    """Four legs under the corners of a rectangle, of one drawn style."""
    thickness = draw(0.035, 0.07) * (0.6 + 0.4 * height / 0.45)
    style = draw.pick("square", "round", "tapered", "splayed", "turned")
    x, z = width / 2 - thickness, depth / 2 - thickness
    splay, swell, waist = draw(0.1, 0.22) * height, draw(0.9, 1.3), draw(0.45, 0.7)

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
            outer = (side * (x + splay / 3), 0.0, end * (z + splay / 3))
            return p.rod(outer, inner, thickness * 0.35, thickness * 0.55)
        half = thickness / 2
        widths = [(0.7, 0.0), (swell, 0.2), (waist, 0.3), (swell, 0.6), (waist, 0.8), (1.0, 0.9), (1.0, 1.0)]
        curve = p.smooth([(half * wide, y) for wide, y in widths], 4)
        return p.revolve([(0, 0), *curve, (0, 1)]).scaled(y=height).at(*foot)

    return join(leg(side, end) for side in (-1, 1) for end in (-1, 1))


def pedestal(draw: Draw, reach: float, height: float) -> Solid:
    """One column on a disc or on a star of feet, with castors or without."""
    column = draw(0.02, 0.045) * (1 + reach)
    if draw.chance(0.4):
        disc = draw(0.02, 0.04)
        return p.frustum(reach, reach * draw(0.6, 0.95), disc) + p.cylinder(column, height - disc).at(y=disc)
    feet, wheel, castors, rise = draw.whole(3, 6), draw(0.02, 0.035), draw.chance(0.5), draw(0.02, 0.08)
    pieces = [p.cylinder(column, height - wheel).at(y=wheel)]
    for k in range(feet):
        angle = 2 * math.pi * (k + 0.5) / feet
        x, z = reach * math.sin(angle), reach * math.cos(angle)
        pieces.append(p.rod((x, 2 * wheel, z), (0.0, 2 * wheel + rise, 0.0), column * 0.45, column * 0.8))
        pieces.append(p.sphere(wheel).at(x, wheel, z) if castors else p.cylinder(column * 0.45, 2 * wheel).at(x, 0, z))
    return join(pieces)


def runners(draw: Draw, width: float, depth: float, height: float) -> Solid:
    """Two bent tubes, left and right, on the floor from front to back."""
    tube = draw(0.012, 0.022)
    x, z = width / 2 - tube, depth / 2 - tube
    path = [(0.0, height, -z), (0.0, tube, -z), (0.0, tube, z), (0.0, height, z)]
    side = p.pipe(path, tube, bend=draw(0.04, 0.12))
    return join([side.at(x=x), side.at(x=-x), p.rod((-x, height - tube, -z), (x, height - tube, -z), tube)])


def chair(draw: Draw) -> dict[str, Solid]:
    width, depth, height, thickness = draw(0.38, 0.6), draw(0.38, 0.55), draw(0.38, 0.52), draw(0.03, 0.1)
    back = _chair_back(draw, width, draw(0.35, 0.75)).turned("x", draw(0, 16))
    parts = {
        "seat": _chair_seat(draw, width, depth, thickness).at(y=height),
        "back": back.at(y=height + thickness * 0.5, z=depth / 2 - 0.02),
        "legs": _chair_legs(draw, width, depth, height),
    }
    if draw.chance(0.4):
        rise, pad, reach = draw(0.16, 0.26), draw(0.03, 0.07), depth * draw(0.6, 1.0)
        arm = p.rounded_box(pad, 0.03, reach, 0.012).at(y=rise, z=depth / 2 - reach / 2)
        post = draw.pick(0.35, 0.6) * reach
        arm += p.rod((0.0, 0.0, depth / 2 - post), (0.0, rise, depth / 2 - post), pad * 0.3)
        parts["armrests"] = mirrored_pair(arm.at(width / 2 + pad * 0.2, height + thickness / 2, 0.0))
    return parts


def _chair_seat(draw: Draw, width: float, depth: float, thickness: float) -> Solid:
    style = draw.pick("flat", "cushion", "round", "tapered")
    if style == "flat":
        return p.box(width, thickness, depth)
    if style == "cushion":
        return p.rounded_box(width, thickness, depth, thickness * 0.45)
    if style == "round":
        return p.cylinder(0.5, thickness).scaled(width, 1.0, depth)
    front, rear = width / 2, width / 2 * draw(0.65, 0.9)
    outline = [(-front, -depth / 2), (front, -depth / 2), (rear, depth / 2), (-rear, depth / 2)]
    return p.prism(outline, thickness).turned("x", 90).at(y=thickness / 2)


def _chair_back(draw: Draw, width: float, height: float) -> Solid:
    """Upright, its foot on the x axis."""
    style, thickness = draw.pick("panel", "slats", "ladder", "bent", "spindles", "frame"), draw(0.02, 0.06)
    if style == "panel":
        gap = draw(0.0, 0.12)
        panel = p.rounded_box(width * draw(0.8, 1.0), height - gap, thickness, thickness * 0.4).at(y=gap)
        post = p.box(thickness, gap + 0.1, thickness * 0.5).at(x=width * 0.25)
        return panel + mirrored_pair(post)
    if style == "bent":
        radius = width * draw(0.55, 0.9)
        plate = p.bent_plate(radius, height * 0.75, 0.02, draw(70, 120)).turned("y", -90)
        posts = mirrored_pair(p.box(0.025, height * 0.5, 0.02).at(x=width * 0.2))
        return plate.at(y=height * 0.25, z=-radius + 0.03) + posts
    posts = mirrored_pair(p.box(thickness, height, thickness).at(x=width / 2 - thickness / 2))
    rail = p.box(width, draw(0.04, 0.1), thickness)
    if style == "frame":
        hoop = [(-width / 2, 0, 0), (-width / 2, height, 0), (width / 2, height, 0), (width / 2, 0, 0)]
        panel = p.rounded_box(width * 0.9, height * draw(0.3, 0.6), 0.02, 0.008)
        return p.pipe(hoop, thickness * 0.4, 0.1) + panel.at(y=height * 0.3)
    if style == "ladder":
        rungs = draw.whole(2, 5)
        step = height / rungs
        rung = p.box(width - thickness, step * draw(0.3, 0.6), thickness * 0.6)
        return posts + stack(rung, [(0, step * (k + 0.45), 0) for k in range(rungs)])
    bars = draw.whole(3, 7)
    gap = (width - 2 * thickness) / (bars + 1)
    bar = p.box(gap * 0.5, height, thickness * 0.5) if style == "slats" else p.cylinder(0.009, height)
    middle = stack(bar, [(gap * (k + 1) - width / 2 + thickness, 0, 0) for k in range(bars)])
    return posts + middle + rail.at(y=height)


def _chair_legs(draw: Draw, width: float, depth: float, height: float) -> Solid:
    style = draw.pick("four", "four", "four", "pedestal", "runners")
    if style == "pedestal":
        return pedestal(draw, width * draw(0.45, 0.6), height)
    if style == "runners":
        return runners(draw, width, depth, height)
    legs = four_legs(draw, width, depth, height)
    if draw.chance(0.3):
        y = height * draw(0.25, 0.5)
        legs += mirrored_pair(p.rod((width * 0.42, y, -depth * 0.4), (width * 0.42, y, depth * 0.4), 0.01))
    return legs


def sofa(draw: Draw) -> dict[str, Solid]:
    seats, seat, arm = draw.whole(1, 4), draw(0.55, 0.7), draw(0.1, 0.25)
    inner, depth = seat * seats, draw(0.75, 1.0)
    width = inner + 2 * arm
    base, leg = draw(0.18, 0.28), draw(0.04, 0.15)
    soft, back, cushion, rise = draw(0.02, 0.06), draw(0.14, 0.26), draw(0.12, 0.2), draw(0.3, 0.5)
    back_height = base + cushion + rise
    front = depth - back
    parts = {
        "base": p.rounded_box(width, base, depth, 0.02).at(y=leg),
        "back": p.rounded_box(width, back_height, back, soft).turned("x", draw(0, 8)).at(y=leg, z=depth / 2 - back / 2),
    }
    arm_height = base + cushion + draw(0.05, 0.2)
    if draw.chance(0.35):
        roll = p.cylinder(arm / 2, depth).turned("x", 90)
        side = p.box(arm * 0.8, arm_height - arm / 2, depth) + roll.at(y=arm_height - arm / 2, z=-depth / 2)
    else:
        side = p.rounded_box(arm, arm_height, depth, soft)
    parts["armrests"] = mirrored_pair(side.at(width / 2 - arm / 2, leg, 0))
    pad = p.rounded_box(seat * 0.98, cushion, front, soft)
    columns = [seat * (k + 0.5) - inner / 2 for k in range(seats)]
    parts["cushions"] = stack(pad, [(x, leg + base, -depth / 2 + front / 2) for x in columns])
    if draw.chance(0.5):
        rest = p.rounded_box(seat * 0.9, rise * 0.95, 0.14, 0.06).turned("x", 12)
        parts["cushions"] += stack(rest, [(x, leg + base + cushion, depth / 2 - back - 0.1) for x in columns])
    if seats >= 2 and draw.chance(0.3):
        chaise, x = draw(0.5, 0.8), draw.pick(-1, 1) * (inner / 2 - seat / 2)
        lounge = p.rounded_box(seat, base, chaise, 0.02) + p.rounded_box(seat * 0.98, cushion, chaise, soft).at(y=base)
        parts["chaise"] = lounge.at(x, leg, -depth / 2 - chaise / 2)
    foot = p.rod((0, 0, 0), (0, leg, 0), draw(0.015, 0.03), draw(0.03, 0.04))
    parts["legs"] = stack(foot, [(x * (width / 2 - 0.08), 0, z * (depth / 2 - 0.08)) for x in (-1, 1) for z in (-1, 1)])
    return parts


def toilet(draw: Draw) -> dict[str, Solid]:
    half_width, half_length, height = draw(0.17, 0.2), draw(0.21, 0.27), draw(0.36, 0.44)
    stretch = half_length / half_width
    waist = draw(0.5, 0.75)
    outside = p.smooth([(waist, 0.0), (waist * 0.9, 0.3), (waist * 1.05, 0.5), (0.95, 0.85), (1.0, 1.0)], 4)
    parts = {"bowl": p.vessel([(0, 0), *outside], 0.16).scaled(half_width, height, half_length)}
    rim = p.ring(half_width * 0.84, half_width * 0.16).scaled(1.0, 0.35, stretch)
    parts["seat"] = rim.at(y=height + 0.012)
    lid = p.cylinder(half_width, 0.02).scaled(z=stretch).at(z=-half_length)
    raised, tank_height, tank_depth = draw.chance(0.6), draw(0.28, 0.42), draw(0.14, 0.2)
    hinge = half_length * 0.92
    parts["lid"] = lid.turned("x", draw(82, 98) if raised else 0).at(y=height + 0.035, z=hinge)
    tank = p.rounded_box(half_width * draw(2.0, 2.5), tank_height, tank_depth, 0.02)
    tank_z = hinge + tank_depth / 2 + 0.04
    tank_y = height + draw(-0.04, 0.03)
    cover = p.rounded_box(half_width * 2.1, 0.03, tank_depth * 1.08, 0.01)
    support = p.box(half_width * 1.2, tank_y * draw.pick(0.5, 1.0), tank_z - 0.1).scaled(y=-1)
    parts["tank"] = tank.at(y=tank_y, z=tank_z) + cover.at(y=tank_y + tank_height, z=tank_z)
    parts["tank"] += support.at(y=tank_y, z=tank_z / 2 + 0.1)
    if draw.chance(0.5):
        parts["lever"] = p.cylinder(0.025, 0.012).at(y=tank_y + tank_height + 0.03, z=tank_z)
    else:
        lever = p.rod((0, 0, 0), (0, 0, -0.04), 0.01) + p.rod((0, 0, -0.035), (-0.08, -0.01, -0.035), 0.008)
        parts["lever"] = lever.at(half_width * 0.7, tank_y + tank_height * 0.8, tank_z - tank_depth / 2)
    return parts


def table(draw: Draw) -> dict[str, Solid]:
    width, height = draw(0.8, 2.0), draw(0.4, 0.8)
    depth, thickness = width * draw(0.5, 1.0), draw(0.025, 0.06)
    outline = draw.pick("rectangle", "rectangle", "soft", "oval")
    if outline == "oval":
        top = p.cylinder(0.5, thickness).scaled(width, 1.0, depth)
        stand_width, stand_depth = width * 0.7, depth * 0.7
    else:
        top = p.box(width, thickness, depth) if outline == "rectangle" else p.rounded_box(width, thickness, depth, 0.02)
        stand_width, stand_depth = width * 0.96, depth * 0.96
    parts = {"top": top.at(y=height)}
    style = draw.pick("four", "four", "pedestal", "trestle", "runners")
    if style == "four":
        parts["legs"] = four_legs(draw, stand_width, stand_depth, height)
        if draw.chance(0.5):
            rail, side = p.box(stand_width * 0.9, 0.08, 0.02), p.box(0.02, 0.08, stand_depth * 0.9)
            rails = stack(rail, [(0, height - 0.08, z * stand_depth * 0.44) for z in (-1, 1)])
            parts["apron"] = rails + stack(side, [(x * stand_width * 0.44, height - 0.08, 0) for x in (-1, 1)])
    elif style == "pedestal":
        parts["legs"] = pedestal(draw, depth * draw(0.3, 0.42), height)
    elif style == "runners":
        parts["legs"] = runners(draw, stand_width, stand_depth, height)
    else:
        frame = p.box(0.06, height - 0.05, stand_depth * 0.25) + p.box(0.07, 0.05, stand_depth * 0.8)
        frame += p.box(0.07, 0.05, stand_depth * 0.8).at(y=height - 0.05)
        parts["legs"] = mirrored_pair(frame.at(x=stand_width * 0.36))
        parts["legs"] += p.box(stand_width * 0.72, 0.08, 0.04).at(y=height * 0.3)
    if style == "four" and draw.chance(0.3):
        parts["shelf"] = p.box(stand_width * 0.85, 0.02, stand_depth * 0.85).at(y=height * draw(0.2, 0.4))
    return parts


def desk(draw: Draw) -> dict[str, Solid]:
    width, depth, height = draw(1.0, 1.8), draw(0.5, 0.8), draw(0.68, 0.78)
    thickness, side, cabinet = draw(0.02, 0.05), draw.pick(-1, 1), draw(0.3, 0.45)
    x = side * (width / 2 - cabinet / 2 - 0.02)
    floor = draw(0.0, 0.15)
    tall = height - floor
    parts = {"top": p.box(width, thickness, depth).at(y=height)}
    parts["cabinet"] = p.box(cabinet, tall, depth * 0.92).at(x, floor, 0)
    drawers = draw.whole(2, 4)
    step = tall / drawers
    front = p.box(cabinet * 0.9, step * 0.86, 0.02).at(x, floor + step * 0.07, -depth * 0.47)
    knob = draw.pick(
        p.sphere(0.018).at(x, floor + step / 2, -depth * 0.5),
        p.rod((x - 0.06, floor + step / 2, -depth * 0.5), (x + 0.06, floor + step / 2, -depth * 0.5), 0.01),
    )
    parts["drawers"] = stack(front, [(0, step * k, 0) for k in range(drawers)])
    parts["handles"] = stack(knob, [(0, step * k, 0) for k in range(drawers)])
    if floor > 0.03:
        feet = [(x + sx * cabinet * 0.4, 0, sz * depth * 0.4) for sx in (-1, 1) for sz in (-1, 1)]
        parts["legs"] = stack(p.cylinder(0.02, floor), feet)
    other = -side * (width / 2 - 0.04)
    if draw.chance(0.5):
        support = p.box(0.03, height, depth * 0.92).at(x=other)
    else:
        support = stack(p.box(0.05, height, 0.05), [(other, 0, -depth * 0.42), (other, 0, depth * 0.42)])
    parts["legs"] = parts["legs"] + support if "legs" in parts else support
    panel = height * draw(0.4, 0.8)
    parts["panel"] = p.box(width * 0.94, panel, 0.02).at(0, height - panel, depth * 0.44)
    if draw.chance(0.35):
        rise, shelf_depth = draw(0.25, 0.5), depth * draw(0.25, 0.4)
        board = p.box(width, 0.02, shelf_depth).at(y=rise)
        cheeks = mirrored_pair(p.box(0.02, rise, shelf_depth).at(x=width / 2 - 0.02))
        back = p.box(width, rise, 0.015).at(z=shelf_depth / 2)
        parts["hutch"] = (board + cheeks + back).at(0, height + thickness, depth / 2 - shelf_depth / 2)
    return parts


def bed(draw: Draw) -> dict[str, Solid]:
    width, length = draw(0.9, 2.0), draw(1.9, 2.2)
    leg, rail, thick = draw(0.1, 0.3), draw(0.12, 0.25), draw(0.15, 0.3)
    top = leg + rail * 0.6 + thick
    headboard = top + draw(0.5, 0.9)
    parts = {
        "frame": p.box(width + 0.08, rail, length + 0.06).at(y=leg),
        "mattress": p.rounded_box(width, thick, length, draw(0.03, 0.07)).at(y=leg + rail * 0.6),
        "headboard": _bed_board(draw, width + 0.1, headboard).at(z=length / 2 + 0.06),
    }
    if draw.chance(0.5):
        footboard = draw(leg + rail + 0.02, top)
        parts["footboard"] = _bed_board(draw, width + 0.1, footboard).at(z=-length / 2 - 0.06)
    pillows = 2 if width > 1.3 else 1
    pillow_width = (width - 0.1) / pillows * draw(0.8, 0.95)
    pillow = p.ellipsoid(pillow_width / 2, 0.07, 0.22).turned("x", -10)
    spread = width / pillows
    columns = [(k + 0.5) * spread - width / 2 for k in range(pillows)]
    parts["pillows"] = stack(pillow, [(x, top + 0.05, length / 2 - 0.28) for x in columns])
    if draw.chance(0.5):
        cover = length * draw(0.4, 0.7)
        blanket = p.rounded_box(width + 0.06, thick * 0.8, cover, 0.03)
        parts["blanket"] = blanket.at(0, top - thick * 0.8 + 0.03, -length / 2 + cover / 2 - 0.02)
    post = p.box(0.07, leg, 0.07) if draw.chance(0.5) else p.cylinder(0.04, leg)
    parts["legs"] = stack(post, [(x * width * 0.47, 0, z * length * 0.47) for x in (-1, 1) for z in (-1, 1)])
    return parts


def _bed_board(draw: Draw, width: float, height: float) -> Solid:
    style = draw.pick("panel", "arch", "bars", "soft")
    if style == "panel":
        return p.box(width, height, draw(0.03, 0.06))
    if style == "soft":
        return p.rounded_box(width, height, 0.12, 0.05)
    if style == "arch":
        rise = height * draw(0.15, 0.3)
        angles = [math.pi * k / 16 for k in range(17)]
        arc = [(width / 2 * math.cos(angle), height - rise + rise * math.sin(angle)) for angle in angles]
        return p.prism([(-width / 2, 0), (width / 2, 0), *arc], 0.05)
    bars = draw.whole(4, 9)
    gap = width / bars
    rods = stack(p.cylinder(0.015, height * 0.9), [(gap * (k + 0.5) - width / 2, 0.1, 0) for k in range(bars)])
    posts = mirrored_pair(p.cylinder(0.03, height).at(x=width / 2) + p.sphere(0.045).at(width / 2, height, 0))
    return rods + posts + p.rod((-width / 2, height * 0.93, 0), (width / 2, height * 0.93, 0), 0.02)


def shelf(draw: Draw) -> dict[str, Solid]:
    width, height, depth, thickness = draw(0.5, 1.4), draw(0.8, 2.1), draw(0.22, 0.42), draw(0.015, 0.04)
    floor, boards = draw(0.03, 0.15), draw.whole(3, 7)
    step = (height - floor - thickness) / (boards - 1)
    board = p.box(width, thickness, depth)
    parts = {
        "boards": stack(board, [(0, floor + k * step, 0) for k in range(boards)]),
        "sides": mirrored_pair(p.box(thickness, height, depth).at(x=width / 2)),
        "back": p.box(width, height - floor, 0.01).at(0, floor, depth / 2),
    }
    if draw.chance(0.4):
        count, divider = draw.whole(1, 3), p.box(thickness, height - floor, depth * 0.95)
        columns = [width * ((k + 1) / (count + 1) - 0.5) for k in range(count)]
        parts["dividers"] = stack(divider, [(x, floor, 0) for x in columns])
    if draw.chance(0.4):
        rows = draw.whole(1, max(1, boards // 2))
        door = p.box(width * 0.49, rows * step, 0.015).at(width * 0.25, floor, -depth / 2 - 0.008)
        knob = p.sphere(0.015).at(width * 0.05, floor + rows * step * 0.6, -depth / 2 - 0.02)
        parts["doors"] = mirrored_pair(door + knob)
    if draw.chance(0.6):
        parts["plinth"] = p.box(width, floor, 0.02).at(z=-depth * 0.42)
    return parts
