"""Find the objects of a scan, some of them touching, each with its capsule and its completed shape.

Writes nothing.

    python examples/09_scene.py [FOLDER]
"""

from __future__ import annotations

import numpy as np

import geocaps
from geocaps.data.scenes import scene

# The truth is known of a composed scene; of your own, give a path, and geocaps.Index("shapes.lance") to name objects.
made = scene(1010, points=20000)
parsed = geocaps.parse_scene(made.points, viewer=made.viewers)
print(f"{len(parsed.objects)} objects found, {len(made.members)} are there")
for one in parsed.objects:
    true = np.bincount(made.instance[one.points] + 1).argmax() - 1
    share = (made.instance[one.points] == true).mean()
    name = "floor" if true < 0 else made.members[true].shape.class_name
    print(f"  {share:.0%} of {len(one.points)} points belong to a {name}; radius {one.capsule.radius:.2f}")
