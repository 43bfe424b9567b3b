"""How far poses of few points can be trusted: stated confidence against the share that is right.

    python benchmarks/few_points.py

Every embedded object (four of each class of shapes; the furniture) is encoded from its 2,048 points, then from a random
subset of n. A pose is right when it is within 15° of that of all points. Only objects whose full pose is not ambiguous
count: a sphere has no right pose. ``probability`` is what the network states, ``confidence`` what users get: the
probability times ``reliability(n)``. The last lines are n random points in a cube, which have no right pose at all.
"""

from __future__ import annotations

import numpy as np
import torch

import geocaps
from geocaps.apps.encoding import reliability

COUNTS = (16, 32, 64, 128, 256, 512, 1024)
RIGHT = 15.0
NOISE = 100


def main() -> None:
    model = geocaps.load()
    full = model.config.points
    objects = {"shapes": geocaps.datasets.load("shapes", per_class=4), "furniture": geocaps.datasets.load("furniture")}
    print("set        points  objects  probability  right  reliability  confidence  right of those >= 0.9")
    for name, data in objects.items():
        clouds = [data.points(index) for index in range(len(data))]
        whole = model.encode_many(clouds)
        clear = np.array([not one.ambiguous for one in whole])
        for count in COUNTS:
            generator = torch.Generator().manual_seed(count)
            few = model.encode_many(
                [cloud[torch.randperm(len(cloud), generator=generator)[:count]] for cloud in clouds]
            )
            right = (np.degrees(whole.pose.angle_to(few.pose)) < RIGHT)[clear]
            stated = few.parse.probability.amax(dim=1).numpy()[clear]
            given = few.confidence[clear]
            sure = right[given >= 0.9]
            print(
                f"{name:<10} {count:>6}  {clear.sum():>7}  {stated.mean():>11.2f}  {right.mean():>5.2f}  "
                f"{reliability(count, full):>11.2f}  {given.mean():>10.2f}  "
                + (f"{sure.mean():.2f} ({len(sure)})" if len(sure) else "none")
            )
    rng = np.random.default_rng(0)
    for count in COUNTS:
        given = model.encode_many([rng.random((count, 3)) for _ in range(NOISE)]).confidence
        print(f"noise      {count:>6}  {NOISE:>7}  largest confidence {given.max():.2f}, mean {given.mean():.2f}")


if __name__ == "__main__":
    main()
