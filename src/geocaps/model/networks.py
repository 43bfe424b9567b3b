"""The building blocks of appendices A.1 and B.1: ResNet blocks, embedding and projection networks.

The paper writes the blocks with matrices only; these have biases, as PyTorch's linear layers do by default.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ResBlock(nn.Module):
    """``Res_D(x) = Relu(x + W₂ Relu(W₁ x))`` (appendix A.1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        # In place on fresh results: no gradient needs what is overwritten, and memory is what this costs.
        return self.second(self.first(x).relu_()).add_(x).relu_()


def embedding(inputs: int, width: int, blocks: int) -> nn.Sequential:
    """``inputs → width → Relu → Res × blocks``: Q_embed and F_embed. Its output is never negative."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(inplace=True), *(ResBlock(width) for _ in range(blocks)))


def projection(inputs: int, width: int, blocks: int, outputs: int) -> nn.Sequential:
    """``inputs → width → Relu → Res × blocks → outputs``: Q_project, F_project, and the decoders."""
    return nn.Sequential(*embedding(inputs, width, blocks), nn.Linear(width, outputs))


def start_at_identity(projecting: nn.Sequential) -> None:
    """Makes an untrained pose vote nearly "stay": small weights, and a quaternion bias of w = 1.

    Without it the first votes are arbitrary half turns, which the first steps of training only unlearn. Only the seven
    outputs of the vote are touched.
    """
    last = projecting[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight[:7].mul_(0.1)
        last.bias[:7] = torch.tensor([0.0, 0, 0, 1, 0, 0, 0])


def start_decided(projecting: nn.Sequential, output: int, scale: float = 10.0) -> None:
    """Makes untrained scores differ: equal ones are a saddle point of the agreement loss, which is slow to leave."""
    last = projecting[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight[output].mul_(scale)


class ParallelLinear(nn.Module):
    """J linear layers side by side, as one batched product: ``[..., J, n] → [..., J, d]``."""

    def __init__(self, layers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(layers, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(layers, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "j b n"]) -> Float[Tensor, "j b d"]:
        return torch.baddbmm(self.bias, x, self.weight)


class ParallelResBlock(nn.Module):
    """J separate ``Res_D`` blocks as two batched products."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.first = ParallelLinear(layers, width, width)
        self.second = ParallelLinear(layers, width, width)

    def forward(self, x: Float[Tensor, "j b d"]) -> Float[Tensor, "j b d"]:
        return self.second(self.first(x).relu_()).add_(x).relu_()


class ParallelDecoders(nn.Module):
    """``G_1 … G_J`` of appendix B.1, separate weights, one batched product per layer: ``[B, n] → [B, J, outputs]``."""

    def __init__(self, decoders: int, inputs: int, width: int, blocks: int, outputs: int) -> None:
        super().__init__()
        self.decoders = decoders
        self.layers = nn.Sequential(
            ParallelLinear(decoders, inputs, width),
            nn.ReLU(),
            *(ParallelResBlock(decoders, width) for _ in range(blocks)),
            ParallelLinear(decoders, width, outputs),
        )

    def forward(self, x: Float[Tensor, "b n"]) -> Float[Tensor, "b j outputs"]:
        return self.layers(x.expand(self.decoders, *x.shape)).transpose(0, 1)
