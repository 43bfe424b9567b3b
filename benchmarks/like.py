"""Orientation by one example: the share of objects that end within 15° and 30° of their set's own upright pose.

    python benchmarks/like.py --data modelnet40_dev.npz [--weights FOLDER] [--examples 5]

All objects of a class are turned at random and brought to the orientation of one example of the class, which is not
among them (``geocaps canonical folder/ --like example``); beside it, each compared with the example alone, and the
canonical frames of both laid on each other.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geocaps
from geocaps.apps.encoding import Encoding
from geocaps.apps.orient import Described, oriented_like
from geocaps.data import load
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

CLASSES = ("bed", "chair", "monitor", "sofa", "toilet")


def angle(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip((np.trace(found.T @ true) - 1) / 2, -1, 1))))


def by_canonical(example: Encoding, one: Encoding) -> np.ndarray:
    return one.pose.rotation @ example.pose.rotation.T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--examples", type=int, default=5)
    options = parser.parse_args()
    model, data = geocaps.load(options.weights), load(options.data)
    rows: dict[str, list[list[float]]] = {"all together": [], "example alone": [], "canonical frames": []}
    sure: list[tuple[float, bool]] = []
    for class_name in CLASSES:
        some = data.of_classes(class_name)
        clouds = [some.points(i)[:1024] for i in range(len(some))]
        turns = [
            Pose.random(generator=random_stream(9, i)).rotation_matrix().double().numpy() for i in range(len(some))
        ]
        turned = model.encode_many([cloud @ turn.T for cloud, turn in zip(clouds, turns, strict=True)])
        described = [Described.of(one) for one in turned]
        figures: dict[str, list[float]] = {name: [] for name in rows}
        for number in torch.randperm(len(some), generator=random_stream(3))[: options.examples].tolist():
            example = model.encode(clouds[number])
            others = [i for i in range(len(some)) if i != number]
            together = oriented_like(Described.of(example), [described[i] for i in others])
            for i, found in zip(others, together, strict=True):
                error = angle(found.pose.rotation, turns[i])
                figures["all together"].append(error)
                sure.append((found.confidence, error < 15))
                (alone,) = oriented_like(Described.of(example), [described[i]])
                figures["example alone"].append(angle(alone.pose.rotation, turns[i]))
                figures["canonical frames"].append(angle(by_canonical(example, turned[i]), turns[i]))
        for name, errors in figures.items():
            within = [100 * float(np.mean(np.array(errors) < limit)) for limit in (15, 30)]
            rows[name].append(within)
            print(
                f"{class_name:8s} {name:16s} within 15° {within[0]:5.1f} %  within 30° {within[1]:5.1f} %", flush=True
            )
    for name, figures_of in rows.items():
        fifteen, thirty = np.mean(figures_of, axis=0)
        print(f"{'mean':8s} {name:16s} within 15° {fifteen:5.1f} %  within 30° {thirty:5.1f} %")
    certain = [right for confidence, right in sure if confidence >= 0.9]
    print(f"confidence of 0.9 or more: {len(certain)} of {len(sure)}, right {100 * np.mean(certain or [0]):.1f} %")


if __name__ == "__main__":
    main()
