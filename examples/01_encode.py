"""Encode a point cloud: its canonical pose, its pose-invariant feature and its part capsules.

Turn the cloud any way you like: the feature stays the same, and the pose turns with it.

    python examples/01_encode.py
"""

from __future__ import annotations

import torch

import geocaps

model = geocaps.load()
chair = geocaps.datasets.load("shapes", per_class=1).of_classes("chair").points(0)  # [2048, 3]

capsule = model.encode(chair)  # an array, a tensor, a path or a trimesh
print(
    "canonical pose     translation",
    capsule.pose.translation.numpy().round(3),
    "wxyz",
    capsule.pose.wxyz.numpy().round(3),
)
print("feature           ", tuple(capsule.feature.shape))
print("part capsules     ", capsule.parts.feature.shape[0], "with poses", tuple(capsule.parts.pose.matrix().shape))
print("points per part   ", torch.bincount(capsule.labels, minlength=capsule.parts.feature.shape[0]).tolist())

turn = geocaps.Pose.random(generator=torch.Generator().manual_seed(0), dtype=torch.float64)
turned = model.encode(turn.apply(chair.double()))

difference = (turned.feature - capsule.feature).norm() / capsule.feature.norm()
angle = turned.pose.angle_to(turn @ capsule.pose).rad2deg()
apart = (turned.canonical() - capsule.canonical()).abs().max()
print(f"after a random turn: the feature changed by {difference:.1e} of its length, the pose followed to {angle:.2f}°,")
print(f"                     and in the canonical frame the two clouds are {apart:.1e} apart")
