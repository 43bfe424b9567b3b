"""Cut an object into parts, without any labels, and write it as a coloured PLY.

Writes parts.ply (the input points) and surfaces.ply (the surface decoded from each part capsule); open them in MeshLab,
Blender or CloudCompare.

    python examples/02_parts.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import geocaps
from geocaps.apps.drawing import part_colors
from geocaps.points.io import save_points

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
airplane = geocaps.datasets.load("shapes", per_class=1).of_classes("airplane").points(0)

capsule = geocaps.load().encode(airplane)
colors = part_colors(capsule.parts.feature.shape[0])

save_points(folder / "parts.ply", airplane, labels=capsule.labels, colors=colors[capsule.labels])
print(f"{folder / 'parts.ply'}: {len(airplane)} points in {len(capsule.labels.unique())} parts")

surface = capsule.reconstruct("parts")  # points [J, M, 3], and the triangles of one part's grid
parts, samples, _ = surface.points.shape
save_points(folder / "surfaces.ply", surface.points.reshape(-1, 3), colors=colors.repeat(samples, axis=0))
print(f"{folder / 'surfaces.ply'}: {parts} decoded surfaces of {samples} points")
