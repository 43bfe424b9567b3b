"""Routing of points to parts (lines 2–5 of Algorithm 1), the pooling of what is routed (equations 1 and 2), distances.

Routing is nearly hard at σ ≈ e⁻⁶: R is kept as a list of (part, point) pairs. Nearest neighbours are found without
gradient; the caller gathers and differentiates the gathered distances.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose

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


_KEEP = 1e-6
# Parts whose log-likelihood lies within this of a point's best are looked at exactly: ln(1e-6) = -13.8, and room for
# the inexact first pass.
_WINDOW = 18.0
_PAIR_BLOCK = 1 << 19


@runtime_checkable
class MaxPool(Protocol):
    """R, however it is kept: as pairs (:class:`Routing`), or dense in an exported graph."""

    def max_pool(self, embed: nn.Module, points: Tensor, viewpoints: Pose) -> Tensor: ...


@dataclass(frozen=True)
class Routing:
    """R of Algorithm 1 as a sorted list of (part, point) pairs with their weight."""

    objects: int
    parts: int
    points: int
    part: Int[Tensor, "p"]  # object · J + j, ascending
    point: Int[Tensor, "p"]  # object · N + i
    weight: Float[Tensor, "p"]  # R_ij

    @classmethod
    def from_dense(cls, routing: Float[Tensor, "b n j"]) -> Routing:
        b, n, j = routing.shape
        flat = routing.mT.reshape(b * j, n)
        part, index = (flat > _KEEP).nonzero(as_tuple=True)
        point = part.div(j, rounding_mode="floor") * n + index
        return cls(b, j, n, part, point, flat[part, index])

    def dense(self) -> Float[Tensor, "b n j"]:
        dense = self.weight.new_zeros(self.objects * self.parts, self.points)
        dense[self.part, self.point % self.points] = self.weight
        return dense.view(self.objects, self.parts, self.points).mT

    def labels(self) -> Int[Tensor, "b n"]:
        """The most probable part of each point."""
        return self.dense().argmax(dim=-1)

    @cached_property
    def counts(self) -> Int[Tensor, "bj"]:
        """Points per part."""
        return torch.bincount(self.part, minlength=self.objects * self.parts)

    def max_pool(
        self, embed: nn.Module, points: Float[Tensor, "b n 3"], viewpoints: Pose
    ) -> Float[Tensor, "b j k width"]:
        """``maxpool_i R_ij · embed(x_i | z_jk)`` of equations 1 and 2."""
        return routed_max_pool(embed, points, self, viewpoints)

    def share(self) -> Float[Tensor, "b j"]:
        """The share of the points that is routed to each part."""
        total = torch.zeros(self.objects * self.parts, dtype=self.weight.dtype, device=self.weight.device)
        return total.index_add(0, self.part, self.weight).view(self.objects, self.parts) / self.points

    def reached(self) -> Bool[Tensor, "b j"]:
        """Which parts have a point."""
        return self.counts.view(self.objects, self.parts) > 0


def log_likelihood(
    square_distance: Float[Tensor, "*shape"], log_sigma: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """``b_ij = -(min_y ||x - y||²/σ² + log σ)``."""
    return -(square_distance * torch.exp(-2 * log_sigma) + log_sigma)


@torch.no_grad()
def route(
    points: Float[Tensor, "b n 3"], surfaces: Float[Tensor, "b j m 3"], log_sigma: Float[Tensor, "b j"]
) -> Routing:
    """Lines 3–5 of Algorithm 1: log-likelihoods of each point under each decoded surface, softmax over parts."""
    b, n, _ = points.shape
    j = surfaces.shape[1]
    rough = log_likelihood(min_square_distance(points, surfaces), log_sigma[..., None].expand(b, j, n))
    possible = rough > rough.amax(dim=1, keepdim=True) - _WINDOW
    object_index, part_index, index = possible.nonzero(as_tuple=True)
    part, point = object_index * j + part_index, object_index * n + index
    # A point with one possible part has R = 1 whatever its distance: only contested points need exact ones.
    contested = (possible.sum(dim=1) > 1)[object_index, index]
    logits = torch.zeros(len(part), dtype=points.dtype, device=points.device)
    square = exact_square_distance(points, surfaces, part[contested], point[contested])
    logits[contested] = log_likelihood(square, log_sigma.flatten()[part[contested]])
    weight = _softmax_by(logits, point, b * n)
    keep = weight > _KEEP
    return Routing(b, j, n, part[keep], point[keep], weight[keep])


def exact_square_distance(
    points: Float[Tensor, "b n 3"],
    surfaces: Float[Tensor, "b j m 3"],
    part: Int[Tensor, "p"],
    point: Int[Tensor, "p"],
) -> Float[Tensor, "p"]:
    """Exact squared distances of the listed (part, point) pairs, in blocks that stay small."""
    flat_points, flat_surfaces = points.flatten(0, 1), surfaces.flatten(0, 1)
    rows = max(1, _PAIR_BLOCK // surfaces.shape[2])
    blocks = [
        pair_square_distance(flat_points[point[i : i + rows]], flat_surfaces[part[i : i + rows]])
        for i in range(0, len(part), rows)
    ]
    return torch.cat(blocks) if blocks else points.new_zeros(0)


def _softmax_by(logits: Tensor, group: Tensor, groups: int) -> Tensor:
    top = torch.full((groups,), -torch.inf, dtype=logits.dtype, device=logits.device)
    top = top.scatter_reduce(0, group, logits, "amax")
    exponential = torch.exp(logits - top[group])
    total = torch.zeros_like(top).index_add(0, group, exponential)
    return exponential / total[group]


_ROWS = 4096


def routed_max_pool(
    embed: nn.Module, points: Float[Tensor, "b n 3"], routing: Routing, viewpoints: Pose
) -> Float[Tensor, "b j k width"]:
    """The pooled embedding of each part from each of its viewpoints ``[b, j, k]``; zero for a part without points."""
    b, j, k = viewpoints.shape
    cloud = points.flatten(0, 1)
    rotation, origin = viewpoints.rotation_matrix().flatten(0, 2), viewpoints.translation.flatten(0, 2)

    def embed_rows(pair: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        """Rows are (pair, view); gives R·embed(x|z) and the slot (object, part, view) that each row is pooled into."""
        slot = routing.part[pair] * k + view
        local = torch.einsum("pc,pcd->pd", cloud[routing.point[pair]] - origin[slot], rotation[slot])
        return embed(local) * routing.weight[pair, None], slot

    differentiate = torch.is_grad_enabled()
    with torch.no_grad():
        pooled, winners = _scan(embed_rows, routing, b * j * k, k, find_winners=differentiate)
    if not differentiate:
        return pooled.view(b, j, k, -1)

    slot, channel = (winners >= 0).nonzero(as_tuple=True)
    rows, picks = torch.unique(winners[slot, channel], return_inverse=True)
    values, _ = embed_rows(rows.div(k, rounding_mode="floor"), rows % k)
    pooled = torch.zeros_like(pooled).index_put((slot, channel), values[picks, channel])
    return pooled.view(b, j, k, -1)


def _scan(
    embed_rows: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    routing: Routing,
    slots: int,
    views: int,
    find_winners: bool,
) -> tuple[Float[Tensor, "slots width"], Int[Tensor, "slots width"]]:
    """Maximum over each slot, and the row (pair · views + view) that attains it, -1 where nothing positive does."""
    device = routing.part.device
    pooled, winners = torch.empty(0), torch.empty(0, dtype=torch.int64)
    for first, last in _blocks(routing, _ROWS // views):
        row = torch.arange(first * views, last * views, device=device)
        values, slot = embed_rows(row.div(views, rounding_mode="floor"), row % views)
        if len(pooled) == 0:
            pooled = values.new_zeros(slots, values.shape[1])
            winners = torch.full(pooled.shape, -1, dtype=torch.int64, device=device)
        pooled.scatter_reduce_(0, slot[:, None].expand_as(values), values, "amax")
        if find_winners:
            at, channel = ((values == pooled[slot]) & (values > 0)).nonzero(as_tuple=True)
            # Of equal values the first row wins: deterministic.
            winners.view(-1).scatter_reduce_(
                0, slot[at] * pooled.shape[1] + channel, row[at], "amin", include_self=False
            )
    return pooled, winners


def _blocks(routing: Routing, pairs: int) -> list[tuple[int, int]]:
    """Ranges of about ``pairs`` pairs that never split a part, so that each block settles its own maxima."""
    ends = routing.counts.cumsum(0).tolist()
    edges = [0]
    for end in ends:
        if end - edges[-1] >= pairs:
            edges.append(end)
    if edges[-1] != ends[-1] or len(edges) == 1:
        edges.append(ends[-1])
    return list(pairwise(edges))
