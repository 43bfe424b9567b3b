"""Networks of appendices A.1 and B.1: ResNet blocks, embedding and projection, the folding and the part decoders.

The paper writes the blocks without biases; these have them, as PyTorch's linear layers do by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.model.capsules import Capsules


class ResBlock(nn.Module):
    """``Res_D(x) = Relu(x + W₂ Relu(W₁ x))`` (appendix A.1)."""

    def __init__(self, width: int, linear: Callable[[int, int], nn.Module] = nn.Linear) -> None:
        super().__init__()
        self.first = linear(width, width)
        self.second = linear(width, width)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        # In place, because memory dominates the cost, and no gradient needs the values that are overwritten.
        return self.second(self.first(x).relu_()).add_(x).relu_()


def embedding(inputs: int, width: int, blocks: int) -> nn.Sequential:
    """``inputs → width → Relu → Res × blocks``: Q_embed and F_embed. The output is non-negative."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(inplace=True), *(ResBlock(width) for _ in range(blocks)))


def projection(inputs: int, width: int, blocks: int, outputs: int) -> nn.Sequential:
    """``inputs → width → Relu → Res × blocks → outputs``: Q_project, F_project, and the decoders."""
    return nn.Sequential(*embedding(inputs, width, blocks), nn.Linear(width, outputs))


def start_at_identity(projecting: nn.Sequential) -> None:
    """Makes untrained pose votes nearly the identity: small weights, and a quaternion bias of w = 1 (output 3).

    Otherwise the first votes are arbitrary rotations, which training would have to unlearn.
    """
    last = projecting[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias.zero_()
        last.bias[3] = 1


class ParallelLinear(nn.Module):
    """J linear layers side by side, as one batched product: ``[..., J, n] → [..., J, d]``."""

    def __init__(self, layers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(layers, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(layers, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "j b n"]) -> Float[Tensor, "j b d"]:
        return torch.baddbmm(self.bias, x, self.weight)


class ParallelDecoders(nn.Module):
    """``G_1 … G_J`` of appendix B.1, separate weights, one batched product per layer: ``[B, n] → [B, J, outputs]``."""

    def __init__(self, decoders: int, inputs: int, width: int, blocks: int, outputs: int) -> None:
        super().__init__()
        self.decoders, linear = decoders, partial(ParallelLinear, decoders)
        self.layers = nn.Sequential(
            linear(inputs, width), nn.ReLU(), *(ResBlock(width, linear) for _ in range(blocks)), linear(width, outputs)
        )

    def forward(self, x: Float[Tensor, "b n"]) -> Float[Tensor, "b j outputs"]:
        return self.layers(x.expand(self.decoders, *x.shape)).transpose(0, 1)


def random_square(*shape: int, generator: torch.Generator) -> Float[Tensor, "*shape 2"]:
    """Samples of ``Unif([-0.5, 0.5]²)`` (Algorithm 1, line 20)."""
    return torch.rand(*shape, 2, generator=generator) - 0.5


def grid_square(count: int) -> Float[Tensor, "count 2"]:
    """The fixed grid (cell centres) that replaces the random sample at inference, which makes it deterministic."""
    side = math.isqrt(count)
    # Always on the CPU: on the device "meta", on which weights are checked, arange imports a compiler.
    line = (torch.arange(side, dtype=torch.float32, device="cpu") + 0.5) / side - 0.5
    return torch.cartesian_prod(line, line)


def grid_triangles(side: int) -> Int[Tensor, "t 3"]:
    """Two triangles for each cell of the grid of :func:`grid_square`, to connect decoded points to a surface."""
    corner = (torch.arange(side - 1)[:, None] * side + torch.arange(side - 1)).flatten()
    upper = torch.stack([corner, corner + side, corner + 1], dim=-1)
    lower = torch.stack([corner + 1, corner + side, corner + side + 1], dim=-1)
    return torch.cat([upper, lower])


class FoldingDecoder(nn.Module):
    """``G: [D + 2] → width → Relu → Res × blocks → 3`` (appendix A.1).

    The appendix writes ``[64 + 2]`` for the input although part features are 8-D; the input here is D + 2. With
    ``learn_sigma`` a second head gives each part's log σ.
    """

    def __init__(self, feature: int, width: int, blocks: int, log_sigma: float, learn_sigma: bool = False) -> None:
        super().__init__()
        # The first layer on the concatenation [feature, s], in two pieces, because the product with the feature is the
        # same for all M points of a part and is computed only once.
        self.from_feature = nn.Linear(feature, width)
        self.from_square = nn.Linear(2, width, bias=False)
        self.blocks = nn.Sequential(*(ResBlock(width) for _ in range(blocks)))
        self.to_point = nn.Linear(width, 3)
        self.constant = log_sigma
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

    def log_sigma(self, feature: Float[Tensor, "*parts d"]) -> Float[Tensor, "*parts"]:
        """log σ_j of each part: the constant, plus an offset computed from the feature if σ is learned."""
        if self.to_log_sigma is None:
            return torch.full(feature.shape[:-1], self.constant, dtype=feature.dtype, device=feature.device)
        return self.constant + self.to_log_sigma(feature).squeeze(-1)
