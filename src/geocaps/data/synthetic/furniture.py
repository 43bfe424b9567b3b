"""Tables, desks, beds and shelves."""

import math

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.legs import four_legs, pedestal, runners
from geocaps.data.synthetic.solid import Solid, join, mirrored_pair, stack


def table(draw: Draw) -> dict[str, Solid]:
    width, height = draw.between(0.8, 2.0), draw.between(0.4, 0.8)
    depth = width * draw.between(0.5, 1.0)
    thickness = draw.between(0.025, 0.06)
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
            apron = p.box(stand_width * 0.9, 0.08, 0.02)
            side = p.box(0.02, 0.08, stand_depth * 0.9)
            parts["apron"] = join(
                [apron.at(0, height - 0.08, z * stand_depth * 0.44) for z in (-1, 1)]
                + [side.at(x * stand_width * 0.44, height - 0.08, 0) for x in (-1, 1)]
            )
    elif style == "pedestal":
        parts["legs"] = pedestal(draw, depth * draw.between(0.3, 0.42), height)
    elif style == "runners":
        parts["legs"] = runners(draw, stand_width, stand_depth, height)
    else:
        frame = p.box(0.06, height - 0.05, stand_depth * 0.25) + p.box(0.07, 0.05, stand_depth * 0.8)
        frame += p.box(0.07, 0.05, stand_depth * 0.8).at(y=height - 0.05)
        parts["legs"] = mirrored_pair(frame.at(x=stand_width * 0.36))
        parts["legs"] += p.box(stand_width * 0.72, 0.08, 0.04).at(y=height * 0.3)
    if style == "four" and draw.chance(0.3):
        parts["shelf"] = p.box(stand_width * 0.85, 0.02, stand_depth * 0.85).at(y=height * draw.between(0.2, 0.4))
    return parts


def desk(draw: Draw) -> dict[str, Solid]:
    width, depth, height = draw.between(1.0, 1.8), draw.between(0.5, 0.8), draw.between(0.68, 0.78)
    thickness, side = draw.between(0.02, 0.05), draw.pick(-1, 1)
    cabinet = draw.between(0.3, 0.45)
    x = side * (width / 2 - cabinet / 2 - 0.02)
    floor = draw.between(0.0, 0.15)
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
    panel = height * draw.between(0.4, 0.8)
    parts["panel"] = p.box(width * 0.94, panel, 0.02).at(0, height - panel, depth * 0.44)
    if draw.chance(0.35):
        rise, shelf_depth = draw.between(0.25, 0.5), depth * draw.between(0.25, 0.4)
        board = p.box(width, 0.02, shelf_depth).at(y=rise)
        cheeks = mirrored_pair(p.box(0.02, rise, shelf_depth).at(x=width / 2 - 0.02))
        back = p.box(width, rise, 0.015).at(z=shelf_depth / 2)
        parts["hutch"] = (board + cheeks + back).at(0, height + thickness, depth / 2 - shelf_depth / 2)
    return parts


def bed(draw: Draw) -> dict[str, Solid]:
    width, length = draw.between(0.9, 2.0), draw.between(1.9, 2.2)
    leg, rail, thick = draw.between(0.1, 0.3), draw.between(0.12, 0.25), draw.between(0.15, 0.3)
    top = leg + rail * 0.6 + thick
    headboard = top + draw.between(0.5, 0.9)
    parts = {
        "frame": p.box(width + 0.08, rail, length + 0.06).at(y=leg),
        "mattress": p.rounded_box(width, thick, length, draw.between(0.03, 0.07)).at(y=leg + rail * 0.6),
        "headboard": _bed_board(draw, width + 0.1, headboard).at(z=length / 2 + 0.06),
    }
    if draw.chance(0.5):
        footboard = draw.between(leg + rail + 0.02, top)
        parts["footboard"] = _bed_board(draw, width + 0.1, footboard).at(z=-length / 2 - 0.06)
    pillows = 2 if width > 1.3 else 1
    pillow_width = (width - 0.1) / pillows * draw.between(0.8, 0.95)
    pillow = p.ellipsoid(pillow_width / 2, 0.07, 0.22).turned("x", -10)
    spread = width / pillows
    parts["pillows"] = stack(
        pillow, [((k + 0.5) * spread - width / 2, top + 0.05, length / 2 - 0.28) for k in range(pillows)]
    )
    if draw.chance(0.5):
        cover = length * draw.between(0.4, 0.7)
        blanket = p.rounded_box(width + 0.06, thick * 0.8, cover, 0.03)
        parts["blanket"] = blanket.at(0, top - thick * 0.8 + 0.03, -length / 2 + cover / 2 - 0.02)
    post = p.box(0.07, leg, 0.07) if draw.chance(0.5) else p.cylinder(0.04, leg)
    corners = [(x * width * 0.47, 0, z * length * 0.47) for x in (-1, 1) for z in (-1, 1)]
    parts["legs"] = stack(post, corners)
    return parts


def _bed_board(draw: Draw, width: float, height: float) -> Solid:
    style = draw.pick("panel", "arch", "bars", "soft")
    if style == "panel":
        return p.box(width, height, draw.between(0.03, 0.06))
    if style == "soft":
        return p.rounded_box(width, height, 0.12, 0.05)
    if style == "arch":
        rise = height * draw.between(0.15, 0.3)
        arc = [
            (width / 2 * math.cos(math.pi * k / 16), height - rise + rise * math.sin(math.pi * k / 16))
            for k in range(17)
        ]
        return p.prism([(-width / 2, 0), (width / 2, 0), *arc], 0.05)
    bars = draw.whole(4, 9)
    gap = width / bars
    rods = stack(p.cylinder(0.015, height * 0.9), [(gap * (k + 0.5) - width / 2, 0.1, 0) for k in range(bars)])
    posts = mirrored_pair(p.cylinder(0.03, height).at(x=width / 2) + p.sphere(0.045).at(width / 2, height, 0))
    return rods + posts + p.rod((-width / 2, height * 0.93, 0), (width / 2, height * 0.93, 0), 0.02)


def shelf(draw: Draw) -> dict[str, Solid]:
    width, height, depth = draw.between(0.5, 1.4), draw.between(0.8, 2.1), draw.between(0.22, 0.42)
    thickness = draw.between(0.015, 0.04)
    floor = draw.between(0.03, 0.15)
    boards = draw.whole(3, 7)
    step = (height - floor - thickness) / (boards - 1)
    board = p.box(width, thickness, depth)
    parts = {
        "boards": stack(board, [(0, floor + k * step, 0) for k in range(boards)]),
        "sides": mirrored_pair(p.box(thickness, height, depth).at(x=width / 2)),
        "back": p.box(width, height - floor, 0.01).at(0, floor, depth / 2),
    }
    if draw.chance(0.4):
        columns = draw.whole(1, 3)
        divider = p.box(thickness, height - floor, depth * 0.95)
        parts["dividers"] = stack(
            divider, [(width * ((k + 1) / (columns + 1) - 0.5), floor, 0) for k in range(columns)]
        )
    if draw.chance(0.4):
        rows = draw.whole(1, max(1, boards // 2))
        door = p.box(width * 0.49, rows * step, 0.015).at(width * 0.25, floor, -depth / 2 - 0.008)
        parts["doors"] = mirrored_pair(
            door + p.sphere(0.015).at(width * 0.05, floor + rows * step * 0.6, -depth / 2 - 0.02)
        )
    if draw.chance(0.6):
        parts["plinth"] = p.box(width, floor, 0.02).at(z=-depth * 0.42)
    return parts
