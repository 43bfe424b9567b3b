"""Find every mug in a cluttered scan from one side; and a guitar, which is not there.

Writes nothing.

    python examples/08_locate.py [FOLDER]
"""

from __future__ import annotations

import numpy as np
import torch

import geocaps
from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape

# The true poses are known of a composed scene; of your own, give paths: geocaps.locate("mug.obj", "scan.pcd").
mug, guitar = make_shape("mug", 3), make_shape("guitar", 5)
shapes = [mug, make_shape("car", 1), mug, make_shape("chair", 2)]
scene = compose(shapes, torch.Generator().manual_seed(4), points=20000, sizes={id(mug): 0.9})
mugs = [one for one in scene.members if one.shape is mug]

finds = geocaps.locate(mugs[0].model(20000), scene.points)
print(f"{len(finds)} of {len(mugs)} mugs found")
for find in finds:
    away = min(float(np.linalg.norm(one.pose.translation - find.pose.translation)) for one in mugs)
    print(f"  {away:.3f} away from one, confidence {find.confidence:.2f}, {find.visible:.0%} of the surface seen")

other = guitar.sample(20000, torch.Generator().manual_seed(0)).points.numpy()
print(f"guitars: {geocaps.locate(other, scene.points) or 'none'}")
