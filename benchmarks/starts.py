"""How far the nearest start lies from the one that another view of the object starts from: two kinds of axes.

    python benchmarks/starts.py --data modelnet40_dev.npz

Both views of each pair of ``geocaps eval`` (asymmetric classes) are encoded into parts. The axes of the parts' surfaces
give 24 frames; the angle between the nearest two of the two views, over π, is what votes have to make up for.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch

import geocaps
from geocaps.apps.clouds import as_cloud
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope
from geocaps.geometry.frames import principal_axes, surface_axes
from geocaps.model.look import CUBE

AXES = {"principal axes": principal_axes, "surface axes": surface_axes}


def main() -> None:
    parser = argparse.ArgumentParser(description="Nearest of 24 starts, principal axes against surface axes.")
    parser.add_argument("--data", default="shapes")
    parser.add_argument("--objects", type=int, default=250)
    options = parser.parse_args()
    model, data = geocaps.load(), geocaps.datasets.load(options.data)
    places = np.flatnonzero(alignment_scope(data).aligned)[: options.objects]
    pairs, cube = Pairs(data, model.config.points, 0), CUBE

    @torch.no_grad()
    def frames(cloud: torch.Tensor) -> dict[str, torch.Tensor]:
        points = model.prepare(as_cloud(cloud.numpy(), 32, "a view")).points[None]
        shown = model.network.object.shown(model.network.parts, model.network.parts(points).parts)
        return {name: axes(shown.points, shown.weight)[0][0] for name, axes in AXES.items()}

    for protocol in ("resampled", "partial"):
        off: dict[str, list[float]] = {name: [] for name in AXES}
        for place in places:
            pair = pairs.pair(int(place), protocol)
            first, second = frames(pair.first), frames(pair.second)
            turn = pair.turn.rotation_matrix().to(cube)
            for name in AXES:
                between = (turn @ first[name]).mT @ second[name]
                cosine = (torch.einsum("nij,ij->n", cube, between) - 1) / 2
                off[name].append(float(torch.arccos(cosine.clamp(-1, 1)).min() / math.pi))
        for name, values in off.items():
            print(f"{protocol:>10} {name:>15}: mean {np.mean(values):.3f}, median {np.median(values):.4f}")


if __name__ == "__main__":
    main()
