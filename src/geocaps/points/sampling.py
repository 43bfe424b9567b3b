"""Choosing points of a cloud: farthest points, and an order that depends on the shape alone."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@torch.no_grad()
def farthest_points(points: Float[Tensor, "b n 3"], count: int) -> Int[Tensor, "b count"]:
    """Farthest-point sampling, started at the point farthest from the centroid: the choice turns with the cloud."""
    batch = torch.arange(len(points), device=points.device)
    nearest_squared = (points - points.mean(dim=1, keepdim=True)).square().sum(-1)
    chosen = [nearest_squared.argmax(dim=1)]
    nearest_squared = torch.full_like(nearest_squared, torch.inf)
    while len(chosen) < count:
        last = points[batch, chosen[-1]][:, None]
        nearest_squared = torch.minimum(nearest_squared, (points - last).square().sum(-1))
        chosen.append(nearest_squared.argmax(dim=1))
    return torch.stack(chosen, dim=1)


def canonical_order(points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
    """An order of the points that does not depend on the order they came in, nor (but for rounding) on their pose.

    By distance from the centroid; coordinates break ties. Everything after it may sum, sample and break ties in index
    order, and still give the same bits for a permuted cloud and the same choice for a rotated one.
    """
    exact = points.astype(np.float64)
    # A sum over sorted values: np.mean over the given order would already depend on it in the last bit.
    centroid = np.sort(exact, axis=0).mean(axis=0)
    radius = np.linalg.norm(exact - centroid, axis=1)
    # Rounded, so that the rounding of a rotated copy moves few points past each other.
    key = np.round(radius / max(radius.max(), 1e-300), 9)
    order = np.argsort(key)
    ascending = key[order]
    same = ascending[1:] == ascending[:-1]
    tied = np.append(same, False) | np.insert(same, 0, False)
    among = order[tied]
    # The given order decides last, between copies of one point: the first sort was not a stable one.
    order[tied] = among[np.lexsort((among, exact[among, 2], exact[among, 1], exact[among, 0], ascending[tied]))]
    return order


def evenly(count: int, available: int) -> Int[np.ndarray, "count"]:
    """``count`` indices spread evenly over ``available`` ones."""
    return (np.arange(count) * available) // max(count, 1)
