"""Align two scans of one object: other points, another pose, noise.

python examples/03_align.py
"""

from __future__ import annotations

import torch

import geocaps

generator = torch.Generator().manual_seed(0)
chairs = geocaps.datasets.load("shapes", per_class=1).of_classes("chair")
first, second = chairs.samplings(0, 1024, 2, generator).double()

truth = geocaps.Pose(
    torch.tensor([0.5, -1.0, 2.0]).double(), geocaps.Pose.random(generator=generator, dtype=torch.float64).wxyz
)
scan = truth.apply(second) + 0.005 * torch.randn(1024, 3, generator=generator)

found = geocaps.align(first, scan)  # needs no weights; nothing is random
print("T_scan_first =")
print(found.matrix.round(4))
print(
    f"off by {found.pose.angle_to(truth).rad2deg():.2f}° and {(found.pose.translation - truth.translation).norm():.4f}"
)
print(f"residual {found.error:.4f}, confidence {found.confidence:.2f}, ambiguous: {found.ambiguous}")
