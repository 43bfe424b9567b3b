"""Label transfer: one or five labelled objects of a class, all others labelled from them, against four baselines.

    python benchmarks/transfer.py --data ../shared/data/shapenetpart.npz [--weights FOLDER] [--objects 20] [--draws 10]

Labelled objects are drawn from the train split, targets from the validation split (others in each draw), each turned at
random. The figure is the mean IoU of an object's labels, averaged over objects and then over classes. Baselines: the
class's majority label; the nearest point after PCA with the best of four flips; the nearest point after ``geocaps
align`` (of several labelled objects, the one that fits best); of several labelled objects the one with the nearest
feature, then ``align``.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

import geocaps
from geocaps.apps.transfer import Reference, labelled_by
from geocaps.data import PointDataset, load
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

METHODS = ("geocaps", "majority", "pca_flips", "align", "feature_align")


def iou(found: np.ndarray, true: np.ndarray, names: np.ndarray) -> float:
    """Mean over the labels of the class; one that neither has counts as 1, as in the field's part segmentation."""
    values = []
    for name in names:
        union = ((found == name) | (true == name)).sum()
        values.append(1.0 if union == 0 else ((found == name) & (true == name)).sum() / union)
    return float(np.mean(values))


def turned(points: np.ndarray, key: tuple[int, ...]) -> np.ndarray:
    rotation = Pose.random(generator=random_stream(*key)).rotation_matrix().double().numpy()
    return (points @ rotation.T).astype(np.float32)


def nearest(moved: np.ndarray, labels: np.ndarray, target: np.ndarray) -> np.ndarray:
    return labels[cKDTree(moved).query(target)[1]]


def by_pca(points: np.ndarray, labels: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    def frame(cloud: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offset = cloud - cloud.mean(axis=0)
        axes = np.linalg.eigh(offset.T @ offset)[1][:, ::-1]
        return offset, axes * np.array([1, 1, np.sign(np.linalg.det(axes))])

    (a, frame_a), (b, frame_b) = frame(points.astype(np.float64)), frame(target.astype(np.float64))
    tried = []
    for signs in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)):
        moved = a @ frame_a @ np.diag(signs) @ frame_b.T
        tried.append((cKDTree(moved).query(b)[0].mean() + cKDTree(b).query(moved)[0].mean(), moved))
    distance, best = min(tried, key=lambda one: one[0])
    return nearest(best, labels, b), distance


def by_align(points: np.ndarray, labels: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    found = geocaps.align(points, target)
    return nearest(found.apply(points), labels, target), found.error


def measure(
    data: PointDataset,
    model: geocaps.Model,
    shots: int,
    objects: int,
    draws: int,
    points: int,
    methods: tuple[str, ...],
) -> dict[str, dict[str, float]]:
    """Figures by method and class."""
    train, held_out = data.split("train"), data.split("val")
    scores: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in methods}
    for number, class_name in enumerate(data.class_names):
        generator = np.random.default_rng(number)
        pool, rest = (np.flatnonzero(split.labels == number) for split in (train, held_out))
        if len(pool) < shots or len(rest) == 0:
            continue
        names = np.unique(np.concatenate([train.part_labels(int(i)) for i in pool]))
        for _ in range(draws):
            targets = generator.permutation(rest)[:objects].tolist()
            clouds = [turned(held_out.points(i)[:points], (1, i)) for i in targets]
            truth = [held_out.part_labels(i)[:points] for i in targets]
            encodings = model.encode_many(clouds)
            chosen = generator.choice(pool, shots, replace=False).tolist()
            given = [turned(train.points(i)[:points], (2, i)) for i in chosen]
            labels = [train.part_labels(i)[:points] for i in chosen]
            known = [Reference(one, tags) for one, tags in zip(model.encode_many(given), labels, strict=True)]
            majority = np.bincount(np.concatenate(labels)).argmax()
            for cloud, encoding, true in zip(clouds, encodings, truth, strict=True):
                found = {"geocaps": labelled_by(known, encoding).labels, "majority": np.full(len(true), majority)}
                if "pca_flips" in methods:
                    tried = [by_pca(a, tags, cloud) for a, tags in zip(given, labels, strict=True)]
                    found["pca_flips"] = min(tried, key=lambda one: one[1])[0]
                if "align" in methods:
                    tried = [by_align(a, tags, cloud) for a, tags in zip(given, labels, strict=True)]
                    found["align"] = min(tried, key=lambda one: one[1])[0]
                    near = [np.linalg.norm(one.encoding.feature - encoding.feature) for one in known]
                    found["feature_align"] = tried[int(np.argmin(near))][0]
                for name in methods:
                    scores[name][class_name].append(iou(found[name], true, names))
        print(
            class_name, {name: round(100 * float(np.mean(scores[name][class_name])), 1) for name in methods}, flush=True
        )
    return {
        name: {key: float(np.mean(values)) for key, values in by_class.items()} for name, by_class in scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--objects", type=int, default=20, help="targets of each class and draw")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, data = geocaps.load(options.weights), load(options.data)
    found = {}
    for shots in options.shots:
        figures = measure(data, model, shots, options.objects, options.draws, options.points, tuple(options.methods))
        found[f"{shots} labelled"] = figures
        for name, by_class in figures.items():
            print(f"{shots} labelled  {name:14s} {100 * np.mean(list(by_class.values())):5.1f}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
