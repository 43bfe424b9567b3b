"""What the second layer is trained on: the paper's Algorithm 2, and the agreement of two samplings (ours).

Both give unreduced terms ``[b]`` by name; :func:`total` weighs and adds them. The first layer is frozen: it only makes
part capsules, targets and points from capsules.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.geometry.sampling import evenly
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules, agree, perturbed_viewpoints
from geocaps.model.losses import (
    chamfer,
    choice_agreement,
    contrast,
    matching_starts,
    part_regression,
    pose_agreement,
)
from geocaps.model.objects import scaled_to_one
from geocaps.model.viewpoints import principal_starts, random_starts

Terms = dict[str, Tensor]

MATCH_WIDTH = math.radians(20)
"""Starts of two samplings closer than about this are the same start: sign choices lie at least 90° apart."""


@dataclass(frozen=True)
class ObjectiveWeights:
    """How the terms add up. ``part`` and ``chamfer`` are the paper's ``L_part + λ·Chamfer``; the others are ours."""

    part: float = 1.0
    chamfer: float = 0.01
    choice: float = 0.0
    pose: float = 0.0
    contrast: float = 0.0


def total(terms: Terms, weights: ObjectiveWeights) -> Float[Tensor, ""]:
    """The weighted sum, averaged over the batch. A term of weight zero is not computed, so it may be absent."""
    scale = asdict(weights)
    return torch.stack([scale[name] * term.mean() for name, term in terms.items()]).sum()


def paper_objective(
    model: GeometricCapsuleAutoencoder,
    points: Float[Tensor, "b n 3"],
    parts: Capsules,
    weights: ObjectiveWeights,
    noise_degrees: float,
    generator: torch.Generator,
    target_points: int | None = None,
) -> Terms:
    """Algorithm 2, lines 2–14, from part capsules V ``[b, j]``: one random pose, K perturbed viewpoints."""
    config = model.config.object
    start = random_starts(points, 1, generator).pose[:, 0]
    viewpoints = perturbed_viewpoints(
        start, config.views, math.radians(noise_degrees), config.noise_translation, generator
    )
    observed = model.object.observe(parts[:, None], points[:, None])
    capsule = agree(
        viewpoints,
        lambda z: model.object.pose_vote(observed, z),
        lambda z: model.object.percept_vote(observed, z),
        steps=config.voting_steps,
        generator=generator,
    )
    return reconstruction_terms(
        model, points, Capsules(capsule.pose, capsule.feature), weights, generator, target_points
    )


def reconstruction_terms(
    model: GeometricCapsuleAutoencoder,
    points: Float[Tensor, "b n 3"],
    capsule: Capsules,
    weights: ObjectiveWeights,
    generator: torch.Generator,
    target_points: int | None = None,
) -> Terms:
    """Lines 10–14 of Algorithm 2: decode U, refine it to the targets T, decode U to points Y.

    No more than ``target_points`` evenly chosen points are needed to refine and to compare with (all, as in the paper,
    if None).
    """
    terms: Terms = {}
    decoded = model.object.decode(capsule)
    seen = points if target_points is None else points[:, evenly(target_points, points.shape[1])]
    if weights.part:
        with torch.no_grad():
            refined = model.parts(seen, decoded.detach())
        terms["part"] = part_regression(decoded, refined.capsules, refined.routing.reached())
    if weights.chamfer:
        surface = model.parts.decode(decoded, generator)
        terms["chamfer"] = chamfer(seen, surface.flatten(1, 2))
    return terms


def agreement_objective(
    model: GeometricCapsuleAutoencoder,
    points: Float[Tensor, "b 2 n 3"],
    parts: Capsules,
    weights: ObjectiveWeights,
    noise_degrees: float,
    generator: torch.Generator,
    target_points: int | None = None,
) -> Terms:
    """Two independent samplings A and B of each object, in one world frame, with their decompositions ``[m, 2, j]``.

    Where m < b only the first m objects were decomposed: they alone are reconstructed, the others seen by points alone.

    Both go the way of inference, from every principal start, turned a little at random: principal axes are not exact
    either, and the paper's perturbed viewpoints are what Q learns to bring together. Their choices must agree
    (``choice``), matching starts must be led to one pose (``pose``), the two features must be closer than those of
    other objects (``contrast``), and from A's pose their mean must reconstruct the object (``part``, ``chamfer``): the
    two samplings are the views of Multi-View Agreement. The mean, not the paper's noisy sample: the noise is as large
    as the percepts' spread squared, ``contrast`` wants percepts of different objects far apart, and the two together
    diverge (measured).
    """
    layer = model.object
    clouds = points.flatten(0, 1)
    starts = principal_starts(clouds, tie_ratio=1.0)
    viewpoints = perturbed_viewpoints(starts.pose, 1, math.radians(noise_degrees), 0.0, generator)[..., 0]
    observed = layer.observe(parts.map(lambda t: t.flatten(0, 1)[:, None]), clouds[:, None])
    seen = layer.perceive(observed, replace(starts, pose=viewpoints))

    rows = torch.arange(len(clouds), device=points.device)[:, None]
    (start_a, start_b), (voted_a, voted_b), (led_from_a, led_from_b), (led_a, led_b) = (
        (pose[0::2], pose[1::2]) for pose in (starts.pose, seen.voted, starts.pose[rows, seen.leading], seen.led)
    )
    log_p_a, log_p_b = seen.log_probability[0::2], seen.log_probability[1::2]
    feature_a, feature_b = seen.feature[0::2], seen.feature[1::2]
    same = matching_starts(start_a, start_b, MATCH_WIDTH)
    same_led = matching_starts(led_from_a, led_from_b, MATCH_WIDTH)

    terms: Terms = {
        "choice": choice_agreement(log_p_a, log_p_b, same),
        "pose": pose_agreement(voted_a, voted_b, same) + pose_agreement(led_a, led_b, same_led),
    }
    if weights.contrast:
        terms["contrast"] = contrast(feature_a, feature_b, layer.contrast_log_scale.exp())
    capsule = Capsules(led_a[:, 0], scaled_to_one((feature_a + feature_b) / 2))[: len(parts.feature)]
    cloud = points[: len(parts.feature), 0]
    return terms | reconstruction_terms(model, cloud, capsule, weights, generator, target_points)
