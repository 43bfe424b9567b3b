"""Find an object again, whatever way it is turned, and the pose that brings each hit onto it.

Makes an index of the embedded shapes (needs `pip install "geocaps[index]"`), looks for a new sampling of one of them in
a random pose, and draws the hits. Run it twice: the second time nothing is added.

    python examples/04_search.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import geocaps

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
kinds = ["guitar", "hammer", "spade", "wrench", "chair", "lamp"]
shapes = geocaps.datasets.load("shapes", per_class=4).of_classes(kinds)

index = geocaps.Index(folder / "shapes.lance")  # a folder of your files would do: index.add("my_meshes/")
print(index.add(shapes))

generator = torch.Generator().manual_seed(0)
wanted = shapes.of_classes("guitar")
points = wanted.samplings(0, 1024, 1, generator)[0].double()
query = geocaps.Pose.random(generator=generator, dtype=torch.float64).apply(points)

hits = index.search(query, k=5)
print(hits)
print("T_query_hit of the best one =")
print(hits[0].matrix.round(3))

(folder / "hits.png").write_bytes(hits.png())
print("wrote", folder / "hits.png")
