"""Align two scans of one object: other points, another pose, noise.

python examples/03_align.py
"""

from __future__ import annotations

import numpy as np
import torch

import geocaps

chairs = geocaps.datasets.load("shapes", per_class=1).of_classes("chair")
first, second = chairs.samplings(0, 1024, 2, torch.Generator().manual_seed(0)).numpy()

rng = np.random.default_rng(0)
truth = geocaps.Similarity.from_wxyz(rng.normal(size=4), translation=[0.5, -1.0, 2.0])
scan = truth.apply(second) + 0.005 * rng.normal(size=(1024, 3))

found = geocaps.align(first, scan)  # needs no weights, and is deterministic
print("T_scan_first =")
print(found.matrix.round(4))
angle = np.degrees(found.pose.angle_to(truth))
distance = np.linalg.norm(found.pose.translation - truth.translation)
print(f"error: {angle:.2f}° and {distance:.4f}")
print(f"residual {found.error:.4f}, confidence {found.confidence:.2f}, ambiguous: {found.ambiguous}")

# Overlap is a figure of its own: half of the scan lies on the chair as surely as all of it.
half = scan[scan[:, 0] > np.median(scan[:, 0])]
found = geocaps.align(first, half)
print(f"half a scan: {found.overlap[0]:.0%} of the chair explained, confidence {found.confidence:.2f}")

# A guess, from a turntable or a rough placement by hand, is led on; nothing else is searched.
rough = geocaps.Similarity.from_wxyz(np.array([1.0, 0.05, 0.0, 0.0]), np.array([0.02, 0.0, 0.0])) @ truth
found = geocaps.align(first, scan, init=rough)
print(f"from a guess: {np.degrees(found.pose.angle_to(truth)):.2f}° off")
