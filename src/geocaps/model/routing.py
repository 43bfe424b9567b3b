"""Which point belongs to which part (section 3.3): ``R_ij = softmax_j b_ij``, kept only where it matters.

With σ ≈ e⁻⁶ the routing is nearly one-hot. The pairs that are left out have R below 1e-6, so what they could add to a
max-pool of non-negative embeddings is below any tolerance: the same numbers as the dense R for a fraction of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geocaps.model.nearest import min_square_distance, pair_square_distance

_KEEP = 1e-6
# Parts whose log-likelihood lies within this of a point's best are looked at exactly: ln(1e-6) = -13.8, and room for
# the inexact first pass.
_WINDOW = 18.0
_PAIR_BLOCK = 1 << 19


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
