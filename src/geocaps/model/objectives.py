"""What the second layer is trained on: the paper's Algorithm 2, and the agreement of two samplings (ours).

Both give unreduced terms ``[b]`` by name; :func:`total` weighs and adds them. The first layer is frozen: it only makes
part capsules, targets and points from capsules.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from geocaps.model.agreement import agree, consensus, perturbed_viewpoints, vote_pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Capsules
from geocaps.model.losses import (
    chamfer,
    choice_agreement,
    contrast,
    matching_starts,
    part_regression,
    pose_agreement,
)
from geocaps.model.objects import evenly_chosen
from geocaps.model.viewpoints import principal_starts, random_starts
from geocaps.se3 import Pose, stack

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

    The targets need no more than ``target_points`` evenly chosen points (all, as in the paper, if None).
    """
    terms: Terms = {}
    decoded = model.object.decode(capsule)
    if weights.part:
        with torch.no_grad():
            seen = points if target_points is None else evenly_chosen(points, target_points)
            target = model.parts(seen, decoded.detach()).capsules
        terms["part"] = part_regression(decoded, target)
    if weights.chamfer:
        surface = model.parts.decode(decoded, generator)
        terms["chamfer"] = chamfer(points, surface.flatten(1, 2))
    return terms


def agreement_objective(
    model: GeometricCapsuleAutoencoder,
    points: Float[Tensor, "b 2 n 3"],
    parts: Capsules,
    weights: ObjectiveWeights,
    generator: torch.Generator,
    target_points: int | None = None,
) -> Terms:
    """Two independent samplings A and B of each object, in one world frame, with their decompositions ``[b, 2, j]``.

    Every principal start of both is scored and voted from; the choice must agree (``choice``) and matching starts must
    land on one pose (``pose``). The winner of A and its match in B are the two views of Multi-View Agreement: they see
    different points and parts, and their percepts must agree (``contrast``) and their mean must reconstruct the object
    (``part``, ``chamfer``). The mean, not the paper's noisy sample: the noise is as large as the percepts' spread
    squared, ``contrast`` wants percepts of different objects far apart, and the two together diverge (measured).
    """
    layer, steps = model.object, model.config.object.voting_steps
    cloud_a, cloud_b = points.unbind(1)
    starts_a, starts_b = (principal_starts(cloud, tie_ratio=1.0) for cloud in (cloud_a, cloud_b))
    observed = [layer.observe(parts[:, v, None], points[:, v, None]) for v in (0, 1)]
    raw_a, score_a = layer.scored_pose_vote(observed[0], starts_a.pose)
    raw_b, score_b = layer.scored_pose_vote(observed[1], starts_b.pose)
    voted_a, voted_b = starts_a.pose @ Pose.from_network(raw_a), starts_b.pose @ Pose.from_network(raw_b)

    kernel = matching_starts(starts_a.pose, starts_b.pose, MATCH_WIDTH)
    log_p_a, log_p_b = starts_a.log_probabilities(score_a), starts_b.log_probabilities(score_b)
    rows = torch.arange(len(points), device=points.device)
    best_a = log_p_a.argmax(dim=1)
    best_b = kernel[rows, best_a].argmax(dim=1)

    both = layer.observe(parts, points)
    first = stack([voted_a[rows, best_a], voted_b[rows, best_b]], dim=1)
    views = vote_pose(first, lambda z: layer.pose_vote(both, z), steps - 1)
    percepts = layer.percept_vote(both, views)
    feature, _, _ = consensus(percepts, generator=None)

    terms: Terms = {
        "choice": choice_agreement(log_p_a, log_p_b, kernel),
        "pose": pose_agreement(voted_a, voted_b, kernel)
        + pose_agreement(views[:, :1], views[:, 1:], torch.ones_like(kernel[:, :1, :1])),
    }
    if weights.contrast:
        terms["contrast"] = contrast(percepts[:, 0], percepts[:, 1], layer.contrast_log_scale.exp())
    capsule = Capsules(views[:, 0], feature)
    return terms | reconstruction_terms(model, cloud_a, capsule, weights, generator, target_points)
