"""Segment an object into parts, without any labels, and write it as a coloured PLY.

Writes parts.ply (the input points) and surfaces.ply (the surface decoded from each part capsule); open them in MeshLab,
Blender or CloudCompare.

    python examples/02_parts.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import geocaps

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
airplane = geocaps.datasets.load("shapes", per_class=1).of_classes("airplane").points(0)

found = geocaps.parts(airplane)  # with the weights that ship with the package
found.save(folder / "parts.ply")
print(f"{folder / 'parts.ply'}: {len(found.labels)} points in {(found.counts > 0).sum()} parts")

found.save_surfaces(folder / "surfaces.ply")
parts, samples, _ = found.surfaces.shape
print(f"{folder / 'surfaces.ply'}: {parts} decoded surfaces of {samples} points")
