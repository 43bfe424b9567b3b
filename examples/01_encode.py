"""Encode a point cloud: its canonical pose, its pose-invariant feature and its part capsules.

Rotate the cloud in any way: the feature stays the same, and the pose rotates with it.

    python examples/01_encode.py
"""

from __future__ import annotations

import numpy as np

import geocaps

model = geocaps.load()
chair = geocaps.datasets.load("shapes", per_class=1).of_classes("chair").points(0)  # [2048, 3]

capsule = model.encode(chair)  # an array, a path or a trimesh
print("canonical pose     translation", capsule.pose.translation.round(3), "wxyz", capsule.pose.wxyz.round(3))
print("feature           ", capsule.feature.shape)
print("part capsules     ", len(capsule.parts), "with poses", capsule.parts.pose.matrix().shape)
print("points per part   ", np.bincount(capsule.labels[capsule.labels >= 0], minlength=len(capsule.parts)).tolist())

rotation = geocaps.Similarity.from_wxyz(np.random.default_rng(0).normal(size=4))  # uniformly random
rotated = model.encode(rotation.apply(chair))

difference = np.linalg.norm(rotated.feature - capsule.feature) / np.linalg.norm(capsule.feature)
angle = np.degrees(rotated.pose.angle_to(rotation @ capsule.pose))
apart = np.abs(rotated.canonical() - capsule.canonical()).max()
print(f"after a random rotation the feature differs by {difference:.1e} of its length and the pose by {angle:.2f}°;")
print(f"in the canonical frame the two clouds differ by {apart:.1e}")
