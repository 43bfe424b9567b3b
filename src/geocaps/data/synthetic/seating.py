"""Chairs, sofas and toilets: what one sits on."""

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.legs import four_legs, pedestal, runners
from geocaps.data.synthetic.solid import Solid, mirrored_pair, stack


def chair(draw: Draw) -> dict[str, Solid]:
    width, depth = draw.between(0.38, 0.6), draw.between(0.38, 0.55)
    height, thickness = draw.between(0.38, 0.52), draw.between(0.03, 0.1)
    back = _chair_back(draw, width, draw.between(0.35, 0.75)).turned("x", draw.between(0, 16))
    parts = {
        "seat": _chair_seat(draw, width, depth, thickness).at(y=height),
        "back": back.at(y=height + thickness * 0.5, z=depth / 2 - 0.02),
        "legs": _chair_legs(draw, width, depth, height),
    }
    if draw.chance(0.4):
        rise, pad = draw.between(0.16, 0.26), draw.between(0.03, 0.07)
        reach, z = depth * draw.between(0.6, 1.0), 0.0
        arm = p.rounded_box(pad, 0.03, reach, 0.012).at(y=rise, z=depth / 2 - reach / 2)
        post = draw.pick(0.35, 0.6) * reach
        arm += p.rod((0.0, 0.0, depth / 2 - post), (0.0, rise, depth / 2 - post), pad * 0.3)
        parts["armrests"] = mirrored_pair(arm.at(width / 2 + pad * 0.2, height + thickness / 2, z))
    return parts


def _chair_seat(draw: Draw, width: float, depth: float, thickness: float) -> Solid:
    style = draw.pick("flat", "cushion", "round", "tapered")
    if style == "flat":
        return p.box(width, thickness, depth)
    if style == "cushion":
        return p.rounded_box(width, thickness, depth, thickness * 0.45)
    if style == "round":
        return p.cylinder(0.5, thickness).scaled(width, 1.0, depth)
    front, rear = width / 2, width / 2 * draw.between(0.65, 0.9)
    outline = [(-front, -depth / 2), (front, -depth / 2), (rear, depth / 2), (-rear, depth / 2)]
    return p.prism(outline, thickness).turned("x", 90).at(y=thickness / 2)


def _chair_back(draw: Draw, width: float, height: float) -> Solid:
    """Upright, its foot on the x axis."""
    style = draw.pick("panel", "slats", "ladder", "bent", "spindles", "frame")
    thickness = draw.between(0.02, 0.06)
    if style == "panel":
        gap = draw.between(0.0, 0.12)
        panel = p.rounded_box(width * draw.between(0.8, 1.0), height - gap, thickness, thickness * 0.4).at(y=gap)
        post = p.box(thickness, gap + 0.1, thickness * 0.5).at(x=width * 0.25)
        return panel + mirrored_pair(post)
    if style == "bent":
        radius = width * draw.between(0.55, 0.9)
        plate = p.bent_plate(radius, height * 0.75, 0.02, draw.between(70, 120)).turned("y", -90)
        return plate.at(y=height * 0.25, z=-radius + 0.03) + mirrored_pair(
            p.box(0.025, height * 0.5, 0.02).at(x=width * 0.2)
        )
    posts = mirrored_pair(p.box(thickness, height, thickness).at(x=width / 2 - thickness / 2))
    rail = p.box(width, draw.between(0.04, 0.1), thickness)
    if style == "frame":
        return p.pipe(
            [(-width / 2, 0, 0), (-width / 2, height, 0), (width / 2, height, 0), (width / 2, 0, 0)],
            thickness * 0.4,
            0.1,
        ) + p.rounded_box(width * 0.9, height * draw.between(0.3, 0.6), 0.02, 0.008).at(y=height * 0.3)
    if style == "ladder":
        rungs = draw.whole(2, 5)
        step = height / rungs
        rung = p.box(width - thickness, step * draw.between(0.3, 0.6), thickness * 0.6)
        return posts + stack(rung, [(0, step * (k + 0.45), 0) for k in range(rungs)])
    bars = draw.whole(3, 7)
    gap = (width - 2 * thickness) / (bars + 1)
    bar = p.box(gap * 0.5, height, thickness * 0.5) if style == "slats" else p.cylinder(0.009, height)
    middle = stack(bar, [(gap * (k + 1) - width / 2 + thickness, 0, 0) for k in range(bars)])
    return posts + middle + rail.at(y=height)


def _chair_legs(draw: Draw, width: float, depth: float, height: float) -> Solid:
    style = draw.pick("four", "four", "four", "pedestal", "runners")
    if style == "pedestal":
        return pedestal(draw, width * draw.between(0.45, 0.6), height)
    if style == "runners":
        return runners(draw, width, depth, height)
    legs = four_legs(draw, width, depth, height)
    if draw.chance(0.3):
        y = height * draw.between(0.25, 0.5)
        legs += mirrored_pair(p.rod((width * 0.42, y, -depth * 0.4), (width * 0.42, y, depth * 0.4), 0.01))
    return legs


def sofa(draw: Draw) -> dict[str, Solid]:
    seats = draw.whole(1, 4)
    seat, arm = draw.between(0.55, 0.7), draw.between(0.1, 0.25)
    inner, depth = seat * seats, draw.between(0.75, 1.0)
    width = inner + 2 * arm
    base, leg = draw.between(0.18, 0.28), draw.between(0.04, 0.15)
    soft, back, cushion = draw.between(0.02, 0.06), draw.between(0.14, 0.26), draw.between(0.12, 0.2)
    rise = draw.between(0.3, 0.5)
    back_height = base + cushion + rise
    front = depth - back
    parts = {
        "base": p.rounded_box(width, base, depth, 0.02).at(y=leg),
        "back": p.rounded_box(width, back_height, back, soft)
        .turned("x", draw.between(0, 8))
        .at(y=leg, z=depth / 2 - back / 2),
    }
    arm_height = base + cushion + draw.between(0.05, 0.2)
    if draw.chance(0.35):
        side = p.box(arm * 0.8, arm_height - arm / 2, depth) + p.cylinder(arm / 2, depth).turned("x", 90).at(
            y=arm_height - arm / 2, z=-depth / 2
        )
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
        chaise = draw.between(0.5, 0.8)
        x = draw.pick(-1, 1) * (inner / 2 - seat / 2)
        lounge = p.rounded_box(seat, base, chaise, 0.02) + p.rounded_box(seat * 0.98, cushion, chaise, soft).at(y=base)
        parts["chaise"] = lounge.at(x, leg, -depth / 2 - chaise / 2)
    foot = p.rod((0, 0, 0), (0, leg, 0), draw.between(0.015, 0.03), draw.between(0.03, 0.04))
    parts["legs"] = stack(foot, [(x * (width / 2 - 0.08), 0, z * (depth / 2 - 0.08)) for x in (-1, 1) for z in (-1, 1)])
    return parts


def toilet(draw: Draw) -> dict[str, Solid]:
    half_width, half_length = draw.between(0.17, 0.2), draw.between(0.21, 0.27)
    height = draw.between(0.36, 0.44)
    stretch = half_length / half_width
    waist = draw.between(0.5, 0.75)
    outside = p.smooth([(waist, 0.0), (waist * 0.9, 0.3), (waist * 1.05, 0.5), (0.95, 0.85), (1.0, 1.0)], 4)
    shell = p.vessel([(0, 0), *outside], 0.16).scaled(half_width, height, half_length)
    parts = {"bowl": shell}
    rim = p.ring(half_width * 0.84, half_width * 0.16).scaled(1.0, 0.35, stretch)
    parts["seat"] = rim.at(y=height + 0.012)
    lid = p.cylinder(half_width, 0.02).scaled(z=stretch).at(z=-half_length)
    raised = draw.chance(0.6)
    tank_height, tank_depth = draw.between(0.28, 0.42), draw.between(0.14, 0.2)
    hinge = half_length * 0.92
    parts["lid"] = lid.turned("x", draw.between(82, 98) if raised else 0).at(y=height + 0.035, z=hinge)
    tank = p.rounded_box(half_width * draw.between(2.0, 2.5), tank_height, tank_depth, 0.02)
    tank_z = hinge + tank_depth / 2 + 0.04
    tank_y = height + draw.between(-0.04, 0.03)
    parts["tank"] = tank.at(y=tank_y, z=tank_z) + p.rounded_box(half_width * 2.1, 0.03, tank_depth * 1.08, 0.01).at(
        y=tank_y + tank_height, z=tank_z
    )
    parts["tank"] += (
        p.box(half_width * 1.2, tank_y * draw.pick(0.5, 1.0), tank_z - 0.1)
        .scaled(y=-1)
        .at(y=tank_y, z=tank_z / 2 + 0.1)
    )
    if draw.chance(0.5):
        parts["lever"] = p.cylinder(0.025, 0.012).at(y=tank_y + tank_height + 0.03, z=tank_z)
    else:
        lever = p.rod((0, 0, 0), (0, 0, -0.04), 0.01) + p.rod((0, 0, -0.035), (-0.08, -0.01, -0.035), 0.008)
        parts["lever"] = lever.at(half_width * 0.7, tank_y + tank_height * 0.8, tank_z - tank_depth / 2)
    return parts
