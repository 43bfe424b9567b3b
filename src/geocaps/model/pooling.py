"""``maxpool_i R_ij · embed(x_i | z_jk)`` of equations 1 and 2, for the points that matter.

Two facts make it cheap. A point with R ≈ 0 adds nothing to the maximum of non-negative embeddings, so only routed pairs
are embedded. And a maximum passes gradient to its winners alone, so a first pass without gradient, in blocks that stay
in cache, finds the winners, and only they are embedded again with gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.routing import Routing

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
