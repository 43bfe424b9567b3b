"""How well and how fast ``geocaps.align`` lays two views of one object on each other, against plain baselines.

Two independent samplings of each object, both turned by rotations uniform on SO(3), 1,024 points each. `resampled`: as
they are; `noisy`: the second with Gaussian noise 0.01 and 5 % outliers; `partial`: the second cut by a half space that
keeps 70 % of it. RAE is the angle of the rotation error over π; a random guess has 0.703.

Run:  python benchmarks/align_pairs.py                                  the embedded shapes
      python benchmarks/align_pairs.py --npz modelnet40.npz --per-class 8   five asymmetric classes of a file, in the
                                                     layout of `geocaps data pack`, with at least 2,048 points an object
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import cKDTree

from geocaps.apps.align import align
from geocaps.points.corruption import crop_half_space, gaussian_noise, outliers, rotate_uniform
from geocaps.points.synthetic import ASYMMETRIC, make_shape

POINTS = 1024
KINDS = ("resampled", "noisy", "partial")
NPZ_CLASSES = ("bed", "chair", "sofa", "toilet", "monitor")
SIGNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])

Views = tuple[torch.Tensor, torch.Tensor]
Rigid = tuple[np.ndarray, np.ndarray]  # rotation, translation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npz", type=Path, help="objects of this file rather than embedded shapes")
    parser.add_argument("--per-class", type=int, default=2)
    parser.add_argument("--skip", type=int, default=0, help="objects of each class left out first")
    options = parser.parse_args()
    if options.npz is None:
        objects = list(embedded(options.per_class, options.skip))
    else:
        objects = list(stored(options.npz, options.per_class, options.skip))
    print(f"{len(objects)} pairs of each kind\n")
    print(f"{'kind':<12}{'method':<16}{'mean RAE':>10}{'median':>10}{'within 5°':>11}{'ms a pair':>11}")
    for kind in KINDS:
        pairs = [make_pair(first, second, kind, seed) for seed, (first, second) in enumerate(objects)]
        for name, method in METHODS.items():
            errors, milliseconds = [], []
            for a, b, truth in pairs:
                start = time.perf_counter()
                rotation = method(a, b)
                milliseconds.append(1e3 * (time.perf_counter() - start))
                errors.append(angle(rotation, truth) / np.pi)
            close = np.mean(np.array(errors) * 180 < 5)
            print(
                f"{kind:<12}{name:<16}{np.mean(errors):>10.4f}{np.median(errors):>10.4f}{close:>11.1%}"
                f"{np.median(milliseconds):>11.1f}"
            )


def embedded(per_class: int, skip: int) -> Iterator[Views]:
    """Two samplings of embedded shapes of the classes without symmetry."""
    for class_name in sorted(ASYMMETRIC):
        for seed in range(skip, skip + per_class):
            generator = torch.Generator().manual_seed(seed)
            shape = make_shape(class_name, seed)
            first, second = (shape.sample(POINTS, generator).points.double() for _ in range(2))
            yield first, second


def stored(path: Path, per_class: int, skip: int) -> Iterator[Views]:
    """Disjoint halves of the stored points, a random subset of each."""
    with np.load(path) as file:
        points, labels, names = file["points"], file["labels"], file["class_names"].tolist()
        scale = float(file["scale"]) if "scale" in file else 1.0
    for class_name in NPZ_CLASSES:
        for index in np.flatnonzero(labels == names.index(class_name))[skip : skip + per_class]:
            cloud = torch.from_numpy(points[index].astype(np.float64) * scale)
            cloud = cloud[torch.randperm(len(cloud), generator=torch.Generator().manual_seed(int(index)))]
            half = len(cloud) // 2
            yield cloud[:half][:POINTS], cloud[half:][:POINTS]


def make_pair(
    first: torch.Tensor, second: torch.Tensor, kind: str, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both views as seen, and the true rotation from the first to the second."""
    generator = torch.Generator().manual_seed(1000 + seed)
    if kind == "noisy":
        second = outliers(gaussian_noise(second, 0.01, generator), 0.05, generator)[0]
    if kind == "partial":
        second = crop_half_space(second, 0.7, generator)[0]
    a, turn_a = rotate_uniform(first, generator)
    b, turn_b = rotate_uniform(second, generator)
    return a.numpy(), b.numpy(), (turn_b @ turn_a.T).numpy()


def angle(rotation: np.ndarray, truth: np.ndarray) -> float:
    return float(np.arccos(np.clip((np.trace(rotation.T @ truth) - 1) / 2, -1, 1)))


# ── methods: the rotation from A to B ─────────────────────────────────────────────────────────────────────────────────


def geocaps_align(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return align(a, b).pose.rotation_matrix().numpy()


def pca(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Principal axes, each pointing where the third moment is positive."""
    return skewed_axes(b) @ skewed_axes(a).T


def pca_chamfer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The best of the four ways to lay the axes on each other, by Chamfer distance."""
    return min(four_ways(a, b), key=lambda motion: chamfer(a, b, motion))[0]


def pca_icp(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All four ways refined by point-to-point ICP, then the best by Chamfer distance."""
    tree = cKDTree(b)
    return min((icp(a, b, tree, motion) for motion in four_ways(a, b)), key=lambda motion: chamfer(a, b, motion))[0]


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "PCA": pca,
    "PCA x4": pca_chamfer,
    "PCA x4 + ICP": pca_icp,
    "geocaps": geocaps_align,
}


def principal_axes(points: np.ndarray) -> np.ndarray:
    offset = points - points.mean(axis=0)
    axes = np.linalg.eigh(offset.T @ offset)[1]
    return np.stack([axes[:, 2], axes[:, 1], np.cross(axes[:, 2], axes[:, 1])], axis=1)


def skewed_axes(points: np.ndarray) -> np.ndarray:
    axes = principal_axes(points)
    third = (((points - points.mean(axis=0)) @ axes) ** 3).mean(axis=0)
    first, second = axes[:, 0] * np.sign(third[0]), axes[:, 1] * np.sign(third[1])
    return np.stack([first, second, np.cross(first, second)], axis=1)


def four_ways(a: np.ndarray, b: np.ndarray) -> list[Rigid]:
    axes_a, axes_b = principal_axes(a), principal_axes(b)
    rotations = [(axes_b * signs) @ axes_a.T for signs in SIGNS]
    return [(rotation, b.mean(axis=0) - rotation @ a.mean(axis=0)) for rotation in rotations]


def chamfer(a: np.ndarray, b: np.ndarray, motion: Rigid) -> float:
    moved = a @ motion[0].T + motion[1]
    return float((cKDTree(b).query(moved)[0] ** 2).mean() + (cKDTree(moved).query(b)[0] ** 2).mean())


def icp(a: np.ndarray, b: np.ndarray, tree: cKDTree, motion: Rigid, steps: int = 30, keep: float = 0.8) -> Rigid:
    """Trimmed: the nearest share of the points is fitted in each step."""
    rotation, translation = motion
    for _ in range(steps):
        distance, partner = tree.query(a @ rotation.T + translation)
        kept = np.argsort(distance)[: int(keep * len(a))]
        source, target = a[kept], b[partner[kept]]
        u, _, vt = np.linalg.svd((target - target.mean(axis=0)).T @ (source - source.mean(axis=0)))
        rotation = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
        translation = target.mean(axis=0) - rotation @ source.mean(axis=0)
    return rotation, translation


if __name__ == "__main__":
    main()
