"""Find an object from a partial scan in an arbitrary orientation, and where the scan lies on it.

Makes an index of the embedded shapes (needs the extra `index`), searches for a crop of a new sampling of one of them in
a random pose, and draws the hits. Run it twice: the second time nothing is added.

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
crop = points[np.argsort(points @ [1.0, 0.5, 0.2])[:700]]  # what lies on one side of a plane
scan = geocaps.Similarity.from_wxyz(np.random.default_rng(0).normal(size=4)).apply(crop)

hits = index.search(scan, k=5)
print(hits)  # says "none of these" where nothing in the index explains the scan
print("T_object_scan of the best one =")
print(hits[0].T_object_scan.matrix().round(3))

(folder / "hits.png").write_bytes(hits.png())
print("wrote", folder / "hits.png")
