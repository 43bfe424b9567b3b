"""The 3D Point Capsule Network (Zhao et al. 2019): an autoencoder of clouds with parts, but without poses.

Smaller than the original and without batch normalisation. Unsupervised.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.evaluation.learned.fitting import System
from geocaps.model.blocks import ParallelLinear, grid_square, random_square
from geocaps.model.losses import chamfer
from geocaps.training.config import Augmentation


def squash(capsules: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """``‖s‖²/(1 + ‖s‖²) · s/‖s‖``: the same direction, a length below 1."""
    square = capsules.square().sum(-1, keepdim=True)
    return square / (1 + square) * capsules / (square + 1e-9).sqrt()


def dynamic_routing(
    votes: Float[Tensor, "b j i d"], iterations: int = 3
) -> tuple[Float[Tensor, "b j d"], Float[Tensor, "b j i"]]:
    """Routing by agreement (Sabour et al. 2017): output capsules, and coefficients that sum to 1 over the outputs.

    ``c_ij = softmax_j b_ij``, ``v_j = squash(Σ_i c_ij u_ij)``, ``b_ij ← b_ij + ⟨u_ij, v_j⟩``. The gradient passes
    through the last iteration only.
    """
    logit = torch.zeros_like(votes[..., 0])
    fixed = votes.detach()
    for _ in range(iterations - 1):
        output = squash((logit.softmax(dim=1)[..., None, :] @ fixed).squeeze(-2))
        logit = logit + (fixed @ output[..., None]).squeeze(-1)
    coefficient = logit.softmax(dim=1)
    return squash((coefficient[..., None, :] @ votes).squeeze(-2)), coefficient


class PointCapsules(System):
    """Points → primary capsules (maxima over points) → latent capsules by routing → a folded patch for each.

    Trained on objects in their stored orientation, as in the original. A point belongs to the latent capsule whose
    patch is nearest to it.
    """

    augmentation = Augmentation()
    grid: Tensor

    def __init__(
        self, primary: int = 128, primary_size: int = 8, latent: int = 32, latent_size: int = 32, width: int = 64
    ) -> None:
        super().__init__()
        self.primary, self.latent = primary, latent
        self.embed = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.to_primary = nn.Linear(128, primary * primary_size)
        # Scaled so that the votes, sums over all primary capsules, are neither squashed to 0 nor all to length 1.
        self.transform = nn.Parameter(torch.randn(latent, primary, latent_size, primary_size) * 0.1)
        self.fold = nn.Sequential(
            ParallelLinear(latent, latent_size + 2, width),
            nn.ReLU(),
            ParallelLinear(latent, width, width),
            nn.ReLU(),
            ParallelLinear(latent, width, 3),
        )
        self.register_buffer("grid", grid_square(36), persistent=False)

    def encode(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j d"]:
        """The latent capsules of a cloud."""
        primary = squash(self.to_primary(self.embed(points)).amax(dim=1).unflatten(-1, (self.primary, -1)))
        return dynamic_routing(torch.einsum("jide,bie->bjid", self.transform, primary))[0]

    def decode(self, latent: Float[Tensor, "b j d"], square: Float[Tensor, "b j m 2"]) -> Float[Tensor, "b j m 3"]:
        """The patches: each capsule's own network folds the points of a square."""
        inputs = torch.cat([latent[:, :, None].expand(*square.shape[:3], -1), square], dim=-1)
        folded = self.fold(inputs.transpose(0, 1).flatten(1, 2))
        return folded.unflatten(1, (len(latent), -1)).transpose(0, 1)

    @torch.no_grad()
    def patches(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b j m 3"]:
        """The reconstruction of a cloud, from a fixed grid: deterministic."""
        return self.decode(self.encode(points), self.grid.expand(len(points), self.latent, -1, -1))

    def loss(
        self, clouds: Float[Tensor, "b 2 n 3"], turned: Float[Tensor, "b 3 3"], generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The Chamfer distance, in thousandths, of a reconstruction from random samples of the square.

        The first sampling is encoded, and both are compared with, turned back into the stored orientation.
        """
        points = clouds @ turned[:, None]
        square = random_square(len(points), self.latent, len(self.grid), generator=generator)
        decoded = self.decode(self.encode(points[:, 0]), square).flatten(1, 2)
        return 1000 * chamfer(points.flatten(1, 2), decoded).mean()
