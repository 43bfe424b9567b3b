"""PartsToObject, ours: viewpoints on the principal axes, scored and led on, chosen by learned agreement.

The paper starts at a random pose and finds one of several attractors, which lie on the object's principal axes. Here
those axes are the starts: the four proper sign choices, a deterministic set that turns exactly with the points. Q gives
each start a score beside its vote; two samplings of one object must choose the same one. Beside the part capsules, Q
and F see how all points fill a grid around the viewpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from geocaps.geometry.frames import principal_axes
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import ParallelDecoders, embedding, projection, start_at_identity, start_decided
from geocaps.model.capsules import Capsules, Perception, perturbed_viewpoints
from geocaps.model.config import AgreementWeights, ObjectConfig, PartsConfig
from geocaps.model.look import Look
from geocaps.model.losses import Terms, chamfer, choice_agreement, contrast, matching_starts, pose_agreement
from geocaps.model.parts import PointsToParts

GRID, CHANNELS, LOOK_WIDTH = 16, 16, 256
"""Sizes of the look at the points: cells along a side of the grid, channels of the first convolution, outputs."""
LEADING = 2
"""Of the scored starts, so many are led on and seen from."""
MATCH_WIDTH = math.radians(20)
"""Starts of two samplings closer than about this are the same start: sign choices lie at least 90° apart."""
SIGNS = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
"""The proper changes of the principal axes' signs."""


class ObjectVote(nn.Module):
    """Q or F: ``project([maxpool_j embed(v_j | z), look])``; part poses enter as matrices, without a sign to flip."""

    def __init__(self, config: ObjectConfig, part_feature: int, outputs: int) -> None:
        super().__init__()
        self.embed = embedding(part_feature + 12, config.width, config.blocks)
        self.project = projection(config.width + LOOK_WIDTH, config.width, config.blocks, outputs)

    def forward(self, parts: Capsules, viewpoints: Pose, look: Float[Tensor, "b k w"]) -> Float[Tensor, "b k outputs"]:
        """Part capsules ``[m, j]`` of the first m objects; the others (in training) are seen by their points alone."""
        decomposed, objects = len(parts.feature), len(viewpoints.wxyz)
        seen = parts[:, None].observed_from(viewpoints[:decomposed, :, None])
        pose = torch.cat([seen.pose.translation, seen.pose.rotation_matrix().flatten(-2)], dim=-1)
        feature = seen.feature.expand(*pose.shape[:-1], -1)
        pooled = self.embed(torch.cat([pose, feature], dim=-1)).amax(dim=-2)
        # Embeddings are not negative: no part adds 0 to the maximum, as one with R = 0 does in the first layer.
        pooled = nn.functional.pad(pooled, (0, 0, 0, 0, 0, objects - decomposed))
        return self.project(torch.cat([pooled, look], dim=-1))


@dataclass(frozen=True)
class Led:
    """What the starts came to: all ``voted`` once, the most probable ones ``led`` to the end, and one feature."""

    voted: Pose  # [b, s]
    log_probability: Float[Tensor, "b s"]
    leading: Int[Tensor, "b l"]  # the starts that were led on, most probable first
    led: Pose  # [b, l]
    feature: Float[Tensor, "b d"]


class AgreeingObject(nn.Module):
    """Our second layer: voting networks Q and F, which share one look at the points, and the J part decoders G."""

    def __init__(self, config: ObjectConfig, parts: PartsConfig) -> None:
        super().__init__()
        self.config = config
        self.look = Look(GRID, CHANNELS, LOOK_WIDTH)
        self.pose_network = ObjectVote(config, parts.feature, 8)  # the vote, and the score of the viewpoint
        self.feature_network = ObjectVote(config, parts.feature, config.feature)
        self.decoder = ParallelDecoders(
            parts.parts, config.feature, config.decoder_width, config.decoder_blocks, parts.feature + 7
        )
        self.contrast_log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        start_at_identity(self.pose_network.project)
        start_decided(self.pose_network.project, output=7)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def starts(self, points: Float[Tensor, "b n 3"], generator: torch.Generator | None = None, count: int = 4) -> Pose:
        """Four viewpoints on the principal axes, at the centroid: ``[b, 4]``. Nothing is drawn."""
        axes, _ = principal_axes(points)
        centroid = points.mean(dim=1, keepdim=True).expand(-1, len(SIGNS), -1)
        return Pose.from_rotation(axes[:, None] @ torch.diag_embed(SIGNS).to(points), centroid)

    def scored_votes(
        self, points: Float[Tensor, "b n 3"], parts: Capsules, viewpoints: Pose
    ) -> tuple[Pose, Float[Tensor, "b s"]]:
        """``z ∘ Q(V|z)`` and the score of each viewpoint.

        Only rotations are voted on. The starts already stand at the centroid; a free translation in a repeated vote
        can run away, and a percept taken from far off spoils the training (measured).
        """
        out = self.pose_network(parts, viewpoints, self.look(viewpoints.observe(points[:, None])))
        vote = Pose.from_network(torch.cat([torch.zeros_like(out[..., :3]), out[..., 3:7]], dim=-1))
        return viewpoints @ vote, out[..., 7]

    def votes(self, points: Float[Tensor, "b n 3"], parts: Capsules, viewpoints: Pose) -> Pose:
        """One vote of every viewpoint ``[b, s]``."""
        return self.scored_votes(points, parts, viewpoints)[0]

    def lead(self, points: Float[Tensor, "b n 3"], parts: Capsules, starts: Pose) -> Led:
        """Every start is scored and voted from; the leading ones are led on by Q and seen from by F.

        The consensus is the percepts' mean weighted by the starts' probabilities: on a symmetric object they agree, on
        another the winner dominates. It is scaled to a root mean square of 1, so that L2 distances between features
        are those between directions. Each vote answers for its own step: no gradient goes from what a viewpoint sees
        to the vote that led it there, which would cost as much as all the rest.
        """
        voted, scores = self.scored_votes(points, parts, starts)
        log_probability = torch.log_softmax(scores, dim=1)
        weight, leading = log_probability.exp().topk(LEADING, dim=1)
        led = voted[torch.arange(len(leading), device=leading.device)[:, None], leading]
        for _ in range(self.config.voting_steps - 1):
            led = self.votes(points, parts, led.detach())
        seen_from = led.detach()
        percepts = self.feature_network(parts, seen_from, self.look(seen_from.observe(points[:, None])))
        feature = scaled_to_one((weight[..., None] * percepts).sum(dim=1))
        return Led(voted, log_probability, leading, led, feature)

    def perceive(
        self, layer: PointsToParts, points: Float[Tensor, "b n 3"], parts: Capsules, starts: Pose
    ) -> Perception:
        """The object capsule ``[b]`` from the most probable start, and where the others were led."""
        seen = self.lead(points, parts, starts)
        rows = torch.arange(len(points), device=points.device)[:, None]
        candidates = Pose(
            seen.voted.translation.index_put((rows, seen.leading), seen.led.translation),
            seen.voted.wxyz.index_put((rows, seen.leading), seen.led.wxyz),
        )
        return Perception(Capsules(seen.led[:, 0], seen.feature), candidates, seen.log_probability.exp())

    def decode(self, capsule: Capsules) -> Capsules:
        """``(u_q|h_q, u_f) = G(h_f)``, then ``u_q = h_q ∘ (u_q|h_q)``: objects ``[b]`` to parts ``[b, j]``."""
        out = self.decoder(capsule.feature)
        return Capsules(Pose.from_network(out[..., :7]), out[..., 7:]).placed_at(capsule.pose[:, None])

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────────

    def loss(
        self,
        layer: PointsToParts,
        points: Float[Tensor, "b 2 n 3"],
        parts: Capsules,
        weights: AgreementWeights,
        noise_degrees: float,
        generator: torch.Generator,
        target_points: int | None = None,
    ) -> Terms:
        """Two independent samplings A and B of each object, in one world frame, and their decompositions ``[m, 2, j]``.

        Where m < b only the first m objects were decomposed: they alone are reconstructed.

        Both go the way of inference, from every start, turned a little at random: principal axes are not exact either,
        and the paper's perturbed viewpoints are what Q learns to bring together. Their choices must agree (``choice``),
        matching starts must be led to one pose (``pose``), the two features must be closer than those of other objects
        (``contrast``), and from A's pose their mean must reconstruct the object (``chamfer``): the two samplings are
        the views of Multi-View Agreement. The mean, not the paper's noisy sample: the noise is as large as the
        percepts' spread squared, ``contrast`` wants percepts of different objects far apart, and the two together
        diverge (measured).
        """
        clouds = points.flatten(0, 1)
        starts = self.starts(clouds)
        viewpoints = perturbed_viewpoints(starts, 1, math.radians(noise_degrees), 0.0, generator)[..., 0]
        seen = self.lead(clouds, parts.map(lambda t: t.flatten(0, 1)), viewpoints)

        rows = torch.arange(len(clouds), device=points.device)[:, None]
        (start_a, start_b), (voted_a, voted_b), (led_from_a, led_from_b), (led_a, led_b) = (
            (pose[0::2], pose[1::2]) for pose in (starts, seen.voted, starts[rows, seen.leading], seen.led)
        )
        feature_a, feature_b = seen.feature[0::2], seen.feature[1::2]
        same = matching_starts(start_a, start_b, MATCH_WIDTH)
        same_led = matching_starts(led_from_a, led_from_b, MATCH_WIDTH)
        terms: Terms = {
            "choice": choice_agreement(seen.log_probability[0::2], seen.log_probability[1::2], same),
            "pose": pose_agreement(voted_a, voted_b, same) + pose_agreement(led_a, led_b, same_led),
        }
        if weights.contrast:
            terms["contrast"] = contrast(feature_a, feature_b, self.contrast_log_scale.exp())
        decomposed = len(parts.feature)
        capsule = Capsules(led_a[:, 0], scaled_to_one((feature_a + feature_b) / 2))[:decomposed]
        cloud = points[:decomposed, 0]
        target = cloud if target_points is None else cloud[:, evenly(target_points, cloud.shape[1])]
        surface = layer.decode(self.decode(capsule), generator)
        return terms | {"chamfer": chamfer(target, surface.flatten(1, 2))}


def scaled_to_one(feature: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """The feature scaled to a root mean square of 1."""
    return feature / feature.square().mean(dim=-1, keepdim=True).add(1e-12).sqrt()
