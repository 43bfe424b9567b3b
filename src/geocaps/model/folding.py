"""The FoldingNet decoder G of PointsToParts: a feature says how a unit square folds into a surface (section 3.3)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.model.capsules import Capsules
from geocaps.model.networks import ResBlock


def random_square(*shape: int, generator: torch.Generator) -> Float[Tensor, "*shape 2"]:
    """Samples of ``Unif([-0.5, 0.5]²)`` (Algorithm 1, line 20)."""
    return torch.rand(*shape, 2, generator=generator) - 0.5


def grid_square(count: int) -> Float[Tensor, "count 2"]:
    """The fixed grid that stands for the random sample at inference, cell centres: same input, same output."""
    side = math.isqrt(count)
    # On the CPU wherever the model is made: on the device "meta", where weights are checked, arange imports a compiler.
    line = (torch.arange(side, dtype=torch.float32, device="cpu") + 0.5) / side - 0.5
    return torch.cartesian_prod(line, line)


def grid_triangles(side: int) -> Int[Tensor, "t 3"]:
    """Two triangles for each cell of :func:`grid_square`'s grid: the decoded points become a surface."""
    corner = (torch.arange(side - 1)[:, None] * side + torch.arange(side - 1)).flatten()
    upper = torch.stack([corner, corner + side, corner + 1], dim=-1)
    lower = torch.stack([corner + 1, corner + side, corner + side + 1], dim=-1)
    return torch.cat([upper, lower])


class FoldingDecoder(nn.Module):
    """``G: [D + 2] → width → Relu → Res × blocks → 3`` (appendix A.1).

    The appendix writes ``[64 + 2]`` for the input although part features are 8-D; the input here is D + 2. With
    ``learn_sigma`` a second head gives each part's log σ.
    """

    def __init__(self, feature: int, width: int, blocks: int, learn_sigma: bool) -> None:
        super().__init__()
        # The first layer on the concatenation [feature, s], in two pieces: the feature's product is the same for all
        # of a part's M points and is computed once.
        self.from_feature = nn.Linear(feature, width)
        self.from_square = nn.Linear(2, width, bias=False)
        self.blocks = nn.Sequential(*(ResBlock(width) for _ in range(blocks)))
        self.to_point = nn.Linear(width, 3)
        self.to_log_sigma = nn.Linear(feature, 1) if learn_sigma else None
        if self.to_log_sigma is not None:
            nn.init.zeros_(self.to_log_sigma.weight)
            nn.init.zeros_(self.to_log_sigma.bias)

    def forward(self, feature: Float[Tensor, "*parts d"], square: Float[Tensor, "*parts_m 2"]) -> Tensor:
        """``G(v_f, s)`` in the part's own frame: ``[..., D]`` and ``[(..., )M, 2]`` to ``[..., M, 3]``."""
        hidden = (self.from_feature(feature)[..., None, :] + self.from_square(square)).relu_()
        return self.to_point(self.blocks(hidden))

    def decode(self, parts: Capsules, square: Float[Tensor, "*parts_m 2"]) -> Float[Tensor, "*parts m 3"]:
        """PartsToPointsDecoder (Algorithm 1, lines 18–22): ``Y^j = {v_q ⊙ G(v_f, s)}``."""
        return parts.pose.apply(self(parts.feature, square))

    def log_sigma(self, feature: Float[Tensor, "*parts d"], constant: float) -> Float[Tensor, "*parts"]:
        """log σ_j of each part: the constant, plus what the feature says when σ is learned."""
        if self.to_log_sigma is None:
            return torch.full(feature.shape[:-1], constant, dtype=feature.dtype, device=feature.device)
        return constant + self.to_log_sigma(feature).squeeze(-1)
