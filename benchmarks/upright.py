"""Upright: the share of objects that ``geocaps canonical --up`` stands within 20° of their set's own up.

    python benchmarks/upright.py --data modelnet40_dev.npz     folders of five classes, all turned at random
    python benchmarks/upright.py --data furniture              one folder of everything
    python benchmarks/upright.py --fit                         the weights of the evidence, from the embedded objects

Beside it each object alone (its support), and a direction that is drawn from the six. The data have y up.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import geocaps
from geocaps.apps import orient
from geocaps.data import load
from geocaps.geometry.frames import surface_axes
from geocaps.geometry.se3 import Pose
from geocaps.training.batches import random_stream

CLASSES = ("bed", "chair", "monitor", "sofa", "toilet")
UP = np.array([0.0, 1.0, 0.0])
NEAR = np.cos(np.radians(20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="furniture")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.fit:
        print(np.array2string(fitted(), separator=", ", precision=3, max_line_width=112))
    else:
        measure(options.data)


def measure(data: str) -> None:
    model, everything = geocaps.load(), load(data)
    present = [name for name in CLASSES if name in everything.class_names]
    folders = {"all": everything} if data == "furniture" else {name: everything.of_classes(name) for name in present}
    rows: dict[str, list[float]] = {"together": [], "each alone": []}
    sure = []
    for name, some in folders.items():
        turns = [
            Pose.random(generator=random_stream(9, i)).rotation_matrix().double().numpy() for i in range(len(some))
        ]
        clouds = [some.points(i)[:1024].astype(np.float64) @ turn.T for i, turn in enumerate(turns)]
        standing = [orient.Standing.of(one) for one in model.encode_many(clouds)]
        found = {
            "together": orient.stood_up(standing, "z"),
            "each alone": [orient.stood_up([one], "z")[0] for one in standing],
        }
        for method, oriented in found.items():
            right = [one.pose.rotation[:, 2] @ turn @ UP > NEAR for one, turn in zip(oriented, turns, strict=True)]
            rows[method].append(float(np.mean(right)))
            print(f"{name:8s} {method:12s} upright {100 * np.mean(right):5.1f} %  of {len(right)}", flush=True)
            if method == "together":
                sure += [ok for one, ok in zip(oriented, right, strict=True) if one.confidence >= 0.9]
    for method, shares in rows.items():
        print(f"{'mean':8s} {method:12s} upright {100 * np.mean(shares):5.1f} %")
    print(
        f"chance 16.7 %; with a confidence of 0.9 or more {len(sure)} objects, {100 * np.mean(sure or [0]):.1f} % right"
    )


def fitted() -> np.ndarray:
    """Weights that make the known up of the embedded objects likely, shapes and furniture counting the same."""
    values, true, share = [], [], []
    for name in ("shapes", "furniture"):
        dataset = load(name)
        of_set = 0
        for index in range(len(dataset)):
            points = dataset.points(index).astype(np.float64)
            points = points[torch.randperm(len(points), generator=random_stream(5, index))[:768].numpy()]
            points = points - points.mean(axis=0)
            points /= np.linalg.norm(points, axis=1).max()
            even = torch.full((1, len(points)), 1 / len(points), dtype=torch.float64)
            axes = surface_axes(torch.from_numpy(points)[None], even)[0][0].numpy()
            six = np.concatenate([axes.T, -axes.T])
            if (six @ UP).max() > NEAR:
                values.append([orient.evidence(points, up) for up in six])
                true.append(int((six @ UP).argmax()))
                of_set += 1
        share += [1 / of_set] * of_set
    x = torch.tensor(np.array(values))
    size = x.std(dim=(0, 1)) + 1e-6
    weight = torch.zeros(x.shape[2], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        each = torch.nn.functional.cross_entropy((x / size) @ weight, torch.tensor(true), reduction="none")
        found = (each * torch.tensor(share)).sum() / 2 + 1e-3 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    return (weight.detach() / size).numpy()


if __name__ == "__main__":
    main()
