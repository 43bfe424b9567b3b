"""Label one object by hand, and get the labels on others of its kind, in arbitrary orientations.

Writes one PLY for each object, with a label and a confidence for each point, and a picture of all of them.

    python examples/06_transfer.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import geocaps
from geocaps.apps.transfer import references, save_png
from geocaps.data.synthetic import make_shape

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
mugs = [make_shape("mug", seed).sample(2048, torch.Generator().manual_seed(seed)) for seed in range(5)]

# The embedded shapes know their parts; of your own objects, label one in MeshLab or CloudCompare and give its file.
labelled = (mugs[0].points.numpy(), mugs[0].part_labels.numpy())
random = np.random.default_rng(0)
others = [geocaps.Similarity.from_wxyz(random.normal(size=4)).apply(mug.points.numpy()) for mug in mugs[1:]]

model = geocaps.load()
found = geocaps.transfer(labelled, others, model, out=folder / "labelled")
for one, mug in zip(found, mugs[1:], strict=True):
    right = (one.labels == mug.part_labels.numpy()).mean()
    print(f"{one.name}: {right:.0%} of the points labelled right, mean confidence {one.confidence.mean():.2f}")

save_png(folder / "labelled.png", found, references(labelled, model))
print("wrote", folder / "labelled", "and", folder / "labelled.png")
