"""A capsule: where (pose) and what (feature). Section 3.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from geocaps.geometry.se3 import Pose


@dataclass(frozen=True)
class Capsules:
    """A batch of capsules; the last leading dimension counts the parts where there are parts."""

    pose: Pose
    feature: Float[Tensor, "*batch d"]

    def observed_from(self, viewpoint: Pose) -> Capsules:
        """``c | z = (z⁻¹ ∘ c_q, c_f)``; the viewpoint broadcasts against the capsules."""
        return Capsules(self.pose.relative_to(viewpoint), self.feature)

    def placed_at(self, pose: Pose) -> Capsules:
        """The inverse of :meth:`observed_from`: capsules given in the frame ``pose``, brought to its parent's frame."""
        return Capsules(pose @ self.pose, self.feature)

    def detach(self) -> Capsules:
        return Capsules(self.pose.detach(), self.feature.detach())

    def map(self, function: Callable[[Tensor], Tensor]) -> Capsules:
        """The same function on all three tensors, for what only touches leading dimensions, dtype or device."""
        return Capsules(self.pose.map(function), function(self.feature))

    def __getitem__(self, index: object) -> Capsules:
        """Indexes the leading dimensions."""
        return Capsules(self.pose[index], self.feature[index])  # type: ignore[index]
