"""How far poses of few points can be trusted: stated confidence against the share that is right.

    python benchmarks/few_points.py

Every embedded object (four of each class of shapes; the furniture) is encoded from its 2,048 points, then from a random
subset of n. A pose is right when it is within 15° of that of all points. Only objects whose full pose is not ambiguous
count: a sphere has no right pose. Nor do clouds that are refused: 32 points of which one is stray are one too few for
32 parts. ``probability`` is what the network states, ``confidence`` what users get: the probability times
``reliability(n)``. The last lines are n random points in a cube, which have no right pose at all.

``--per-class 1 --furniture 10`` is a quick look.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geocaps
from geocaps.apps.clouds import Cloud
from geocaps.apps.encode import reliability
from geocaps.apps.encoding import Encodings
from geocaps.errors import InvalidInputError

COUNTS = (32, 64, 128, 256, 512, 1024)
RIGHT = 15.0
NOISE = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-class", type=int, default=4, help="objects of each class of shapes")
    parser.add_argument("--furniture", type=int, default=None, help="pieces of furniture (default: all)")
    args = parser.parse_args()

    model = geocaps.load()
    full = model.config.points
    shapes, furniture = geocaps.datasets.load("shapes", per_class=args.per_class), geocaps.datasets.load("furniture")
    objects = {"shapes": shapes, "furniture": furniture.subset(np.arange(len(furniture))[: args.furniture])}
    print("set        points  objects  probability  right  reliability  confidence  right of those >= 0.9")
    for name, data in objects.items():
        clouds = [data.points(index) for index in range(len(data))]
        whole = model.encode_many(clouds)
        clear = [index for index, one in enumerate(whole) if not one.ambiguous]
        for count in COUNTS:
            generator = torch.Generator().manual_seed(count)
            subsets = {
                index: clouds[index][torch.randperm(len(clouds[index]), generator=generator)[:count].numpy()]
                for index in clear
            }
            counted, few = encoded(model, subsets)
            if not counted:
                print(f"{name:<10} {count:>6}  all refused")
                continue
            right = np.degrees(whole.pose[counted].angle_to(few.pose)) < RIGHT
            stated, given = few.parse.probability.amax(dim=1).numpy(), few.confidence
            sure = right[given >= 0.9]
            print(
                f"{name:<10} {count:>6}  {len(counted):>7}  {stated.mean():>11.2f}  {right.mean():>5.2f}  "
                f"{reliability(count, full):>11.2f}  {given.mean():>10.2f}  "
                + (f"{sure.mean():.2f} ({len(sure)})" if len(sure) else "none")
            )
    rng = np.random.default_rng(0)
    for count in COUNTS:
        counted, some = encoded(model, {index: rng.random((count, 3)) for index in range(NOISE)})
        told = f"largest confidence {some.confidence.max():.2f}, mean {some.confidence.mean():.2f}" if counted else ""
        print(f"noise      {count:>6}  {len(counted):>7}  {told or 'all refused'}")


def encoded(model: geocaps.Model, clouds: dict[int, np.ndarray]) -> tuple[list[int], Encodings]:
    """The clouds that are not refused for want of points without their stray ones: their numbers and encodings."""
    counted = []
    for index, points in clouds.items():
        try:
            model.prepare(Cloud(points, "a subset"))
        except InvalidInputError:
            continue
        counted.append(index)
    return counted, model.encode_many([clouds[index] for index in counted]) if counted else Encodings([])


if __name__ == "__main__":
    main()
