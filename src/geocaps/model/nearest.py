"""Nearest neighbours: where, never the distance matrix of a whole batch.

Indices are found without gradient; the caller gathers and differentiates the gathered distances. On a CPU a k-d tree
per object is the fastest exact way; elsewhere an exhaustive search in blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_BLOCK = 1 << 20


@torch.no_grad()
def nearest_indices(queries: Float[Tensor, "b n 3"], targets: Float[Tensor, "b m 3"]) -> Int[Tensor, "b n"]:
    """For each query the index of the nearest target of the same object."""
    if queries.device.type != "cpu":
        return torch.stack([_nearest_exhaustive(q, t) for q, t in zip(queries, targets, strict=True)])
    pairs = list(zip(queries.detach().numpy(), targets.detach().numpy(), strict=True))
    return torch.from_numpy(np.stack(_map_threads(_nearest_tree, pairs)))


def _nearest_tree(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    queries, targets = pair
    # Building a balanced tree costs more than it saves at a thousand queries.
    from scipy.spatial import cKDTree  # slow to import, and encoding a cloud does not need it

    tree = cKDTree(targets, balanced_tree=False, compact_nodes=False)
    return tree.query(queries)[1]


def _nearest_exhaustive(queries: Tensor, targets: Tensor) -> Tensor:
    rows = max(1, _BLOCK // len(targets))
    return torch.cat([torch.cdist(block, targets).argmin(dim=1) for block in queries.split(rows)])


def _map_threads(function: Callable, items: list) -> list:
    if len(items) == 1:
        return [function(items[0])]
    return list(_threads(torch.get_num_threads()).map(function, items))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="geocaps-nearest")


@torch.no_grad()
def min_square_distance(points: Float[Tensor, "b n 3"], surfaces: Float[Tensor, "b j m 3"]) -> Float[Tensor, "b j n"]:
    """``min_y ||x_i - y||²`` over each part's own points, by one matrix product an object.

    Fast and only about 1e-6 exact (the product form cancels): good for saying which parts a point may belong to;
    :func:`pair_square_distance` then gives exact values for those.
    """
    b, j, m, _ = surfaces.shape
    center = points.mean(dim=1, keepdim=True)
    x, y = points - center, (surfaces.flatten(1, 2) - center)
    left = torch.cat([-2 * y, y.square().sum(-1, keepdim=True), torch.ones_like(y[..., :1])], dim=-1)
    right = torch.cat([x, torch.ones_like(x[..., :1]), x.square().sum(-1, keepdim=True)], dim=-1).mT
    out = x.new_empty(b, j, x.shape[1])
    for index in range(b):
        torch.amin((left[index] @ right[index]).view(j, m, -1), dim=1, out=out[index])
    return out.clamp_(min=0)


@torch.no_grad()
def pair_square_distance(points: Float[Tensor, "p 3"], surfaces: Float[Tensor, "p m 3"]) -> Float[Tensor, "p"]:
    """``min_y ||x - y||²``, exact, for pairs of a point and a surface."""
    return (surfaces - points[:, None]).square().sum(-1).amin(-1)
