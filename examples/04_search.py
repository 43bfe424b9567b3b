"""Retrieve an object in an arbitrary orientation, and the pose that aligns each hit with it.

Makes an index of the embedded shapes (needs the extra `index`), searches for a new sampling of one of them in a random
pose, and draws the hits. Run it twice: the second time nothing is added.

    python examples/04_search.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import geocaps

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
kinds = ["guitar", "hammer", "spade", "wrench", "chair", "lamp"]
shapes = geocaps.datasets.load("shapes", per_class=4).of_classes(kinds)

index = geocaps.Index(folder / "shapes.lance")  # for a folder of your own: index.add("my_meshes/")
print(index.add(shapes))

points = shapes.of_classes("guitar").samplings(0, 1024, 1, torch.Generator().manual_seed(0))[0].numpy()
query = geocaps.Similarity.from_wxyz(np.random.default_rng(0).normal(size=4)).apply(points)

hits = index.search(query, k=5)
print(hits)
print("T_query_hit of the best one =")
print(hits[0].matrix.round(3))

(folder / "hits.png").write_bytes(hits.png())
print("wrote", folder / "hits.png")
