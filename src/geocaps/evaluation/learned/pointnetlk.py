"""PointNetLK (Aoki et al. 2019): alignment of two clouds by the Lucas-Kanade iteration on a PointNet feature.

Smaller than the original, without batch normalisation and without pre-training on class labels; its Jacobian is
analytic.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from geocaps.evaluation.learned.fitting import System
from geocaps.geometry.sampling import at_most
from geocaps.geometry.se3 import Pose
from geocaps.model.look import CUBE
from geocaps.model.losses import gather_points
from geocaps.training.config import Augmentation

_DAMPING = 1e-3
"""Share of the mean diagonal of JᵀJ that is added to it, so that an untrained feature can be inverted too."""
_POINTS = 512
_LARGEST_TURN = math.pi / 3
"""Of training pairs: the nearest of the 24 starts is at most 63° from any rotation."""


class PointNet(nn.Module):
    """``φ(P) = max_i h(p_i)``, with a perceptron h of ReLU layers, the last of them linear."""

    def __init__(self, widths: tuple[int, ...] = (64, 64, 128)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise((3, *widths)))

    def forward(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b k"]:
        """φ; the gradient passes through the points that attain the maxima, and no others are embedded with it."""
        hidden, (*layers, last) = self._winners(points), self._linear
        for layer in layers:
            hidden = layer(hidden).relu()
        return (hidden * last.weight).sum(-1) + last.bias

    def linearised(self, points: Float[Tensor, "b n 3"]) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k 6"]]:
        """φ, and its Jacobian ``J = ∂φ(exp(-ξ) ⊙ P)/∂ξ`` at ξ = 0, for twists ξ = (ω, v).

        A maximum that is attained at p, with the slope s there, changes by ``-s·(ω×p + v) = -(p×s, s)·ξ``.
        """
        winners, (*layers, last) = self._winners(points), self._linear
        hidden, slope = winners, torch.eye(3).to(winners).expand(*winners.shape[:2], 3, 3)  # ∂ hidden / ∂ p_a, in rows
        for layer in layers:
            hidden = layer(hidden)
            slope = (slope @ layer.weight.mT) * (hidden > 0)[:, :, None]
            hidden = hidden.relu()
        slope = (slope * last.weight[:, None]).sum(-1)
        value = (hidden * last.weight).sum(-1) + last.bias
        return value, -torch.cat([torch.linalg.cross(winners, slope), slope], dim=-1)

    def _winners(self, points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b k 3"]:
        """For each of the k maxima the point that attains it."""
        with torch.no_grad():
            hidden, (*layers, last) = points, self._linear
            for layer in layers:
                hidden = layer(hidden).relu_()
            index = last(hidden).argmax(dim=1)
        return gather_points(points, index)

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


class PointNetLK(System):
    """Inverse-compositional Lucas-Kanade: ``ξ = J⁺ [φ(G ⊙ S) - φ(T)]``, ``G ← exp(ξ) ∘ G``, a few times.

    J is computed only once, at the template T; G brings the source S onto it. Trained with known poses.
    """

    augmentation = Augmentation(crop_share=0.5)

    def __init__(self, iterations: int = 10, training_iterations: int = 5) -> None:
        super().__init__()
        self.feature = PointNet()
        self.iterations, self.training_iterations = iterations, training_iterations

    def forward(
        self, template: Float[Tensor, "b n 3"], source: Float[Tensor, "s m 3"], start: Pose
    ) -> tuple[Pose, Float[Tensor, "s"]]:
        """``T_template_source`` from each start ``[s]``, and the length of the residual there.

        There are as many templates as sources or only one, which is then that of all.
        """
        target, jacobian = self.feature.linearised(template)
        normal = jacobian.mT @ jacobian
        damping = _DAMPING * normal.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] + 1e-9
        inverse = torch.linalg.solve(normal + damping * torch.eye(6).to(normal), jacobian.mT)
        pose = start
        for _ in range(self.training_iterations if self.training else self.iterations):
            residual = self.feature(pose.apply(source)) - target
            pose = Pose.from_twist((inverse @ residual[..., None]).squeeze(-1)) @ pose
        return pose, (self.feature(pose.apply(source)) - target).norm(dim=-1)

    def loss(
        self, clouds: Float[Tensor, "b 2 n 3"], turned: Float[Tensor, "b 3 3"], generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """``‖G_estimated ∘ G⁻¹ - I‖²_F`` for two samplings, the second one turned by up to 60°, both centred."""
        center = clouds.mean(dim=2)
        turn = Pose.perturbation(len(clouds), max_angle=_LARGEST_TURN, generator=generator)
        template, source = clouds[:, 0] - center[:, 0, None], turn.apply(clouds[:, 1] - center[:, 1, None])
        truth = Pose(center[:, 1] - center[:, 0], turn.inverse().wxyz)
        found, _ = self(template, source, Pose.identity(len(clouds)))
        return ((found @ truth.inverse()).matrix() - torch.eye(4)).square().sum(dim=(1, 2)).mean()

    @torch.no_grad()
    def align(
        self, first: Float64[np.ndarray, "n 3"], second: Float64[np.ndarray, "m 3"], starts: Pose
    ) -> Float64[np.ndarray, "3 3"]:
        """The rotation from the first cloud, the template, to the second: from the start with the least residual."""
        template, source = (_centred(cloud) for cloud in (first, second))
        pose, residual = self(template[None], source.expand(len(starts.wxyz), -1, -1), starts)
        return pose[int(residual.argmin())].inverse().rotation_matrix().double().numpy()


def _centred(cloud: Float64[np.ndarray, "n 3"]) -> Float[Tensor, "m 3"]:
    """As many points as in training, at most, with their centroid at 0."""
    some = cloud[at_most(_POINTS, len(cloud))]
    return torch.from_numpy(some - some.mean(axis=0)).float()


def cube_rotations() -> Pose:
    """The 24 rotations that permute the axes with signs, the identity first."""
    return Pose.from_rotation(CUBE, torch.zeros(len(CUBE), 3))
