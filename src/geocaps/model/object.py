"""PartsToObject, ours: viewpoints look at the surfaces of the parts, vote, move, and agree.

The paper starts at a random pose and finds one of several attractors. Here the starts are all 24 frames on the axes
along which the normals of the surfaces lie: a deterministic set that rotates exactly with the parts, and that a crop
hardly changes. A look at the surfaces scores each start. From the best, further looks vote for a rotation, and for the
centre and the size of the *whole* object, which differ from those of a crop. The viewpoints move as they voted, and are
scored again. Two views of one object must choose the same viewpoint. During encoding, this layer never sees the points
of the cloud.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from geocaps.geometry.frames import local_frames, surface_axes
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import ParallelDecoders, grid_square, projection, random_square, start_at_identity
from geocaps.model.capsules import Capsules, Frames, Parse, Parts
from geocaps.model.config import ObjectConfig, PartsConfig
from geocaps.model.look import CUBE, Look, Shown, Viewpoints, seen_from, turned_grids
from geocaps.model.losses import (
    Terms,
    chamfer,
    choice_agreement,
    chosen_frames,
    common_choice,
    contrast,
    fitted_trust,
    frame_contrast,
    late_interaction,
    near_frames,
    nearest_frame,
    trusted_agreement,
)
from geocaps.model.parts import PointsToParts

SHOWN = 16
"""Points on the surface of each part, a grid of four by four: denser than the cells of a look."""
DECODED = 16
"""Points to which a part is decoded for the comparison in training."""
PERCEIVED = 10
"""Parts of each view whose percepts are used in a training step."""
DESCRIPTOR = 64
"""Size of the descriptor of what an object looks like from a start."""
LEADING = 6
"""Number of starts, those with the best scores, that are moved by votes."""
START_WIDTH = 1.05
"""Half width of the cube seen from a start: the cloud's radius is 1, and surfaces reach a little beyond."""
PART_WIDTH = 0.8
"""Half width of the cube seen from a part, in radii of the whole object."""
NEIGHBOURHOOD = 0.35
"""Radius of the neighbourhood that determines the orientation of a part's viewpoint."""
MOST_SHIFT, MOST_GROWTH = 0.6, 1.0
"""Limits of one vote, in half widths and in nats: unlimited votes can diverge in the first steps of training."""
SAME = math.radians(20)
"""Viewpoints within about this angle are treated as the same."""
NEAR_ENOUGH = 0.05
"""Errors of the centre and the size below this have little weight."""
RIGHT = math.radians(15)
"""Two views agree if the viewpoints that they choose are within this angle."""


@dataclass(frozen=True)
class Led:
    """The starts, all scored, and the best of them, moved by votes and scored again."""

    start_look: Float[Tensor, "b 24 width"]  # the first look from each start
    log_first: Float[Tensor, "b 24"]  # log probability of each start
    steps: list[Viewpoints]  # [b, 6] after each vote
    led: Viewpoints  # after the last vote
    log_last: Float[Tensor, "b 6"]  # log probability of each of these, from its last position
    look: Float[Tensor, "b 6 width"]  # the last look from each


@dataclass(frozen=True)
class Views:
    """Two views ``[b, 2]`` of each object, as needed in a training step, and the whole objects ``[b]``.

    Each view is in its own frame, in which its radius is 1; all are rotated like the whole object. Nothing here depends
    on the weights of this layer, so it is computed once for all steps that use it.
    """

    points: Float[Tensor, "b 2 n 3"]  # of the parts' surfaces
    weight: Float[Tensor, "b 2 n"]
    axes: Float[Tensor, "b 2 3 3"]  # of the surface, and its centre: they define the starts
    middle: Float[Tensor, "b 2 3"]
    turns: Float[Tensor, "b 2 j 3 3"]  # orientations of the parts' viewpoints
    center: Float[Tensor, "b 2 3"]  # of the whole object, in the frame of each view
    scale: Float[Tensor, "b 2"]
    frames: Float[Tensor, "b 3 3"]  # axes of the whole object's surface
    chance: Float[Tensor, "b 24"]  # of each frame on them to be the common frame; 0 if that is unknown
    whole: Float[Tensor, "b m 3"]  # points of the whole object, centred, with radius 1

    @property
    def shown(self) -> Shown:
        """All views ``[2b]``, alternating."""
        return Shown(self.points.flatten(0, 1), self.weight.flatten(0, 1))


class AgreeingObject(nn.Module):
    """Our second layer: Q and F, heads on looks at the surfaces of the parts, and the J part decoders G."""

    square: Tensor
    cube: Tensor
    trust_fit: Tensor

    def __init__(self, config: ObjectConfig, parts: PartsConfig) -> None:
        super().__init__()
        self.config = config
        width, blocks = config.width, config.blocks
        # Choosing a viewpoint and moving one have separate looks; benchmarks/ablations.py has a row with a shared one.
        self.score_look = Look(width, config.channels)
        self.score_head = projection(width, width, blocks, 2)  # of a start, and after its votes
        self.pose_look = Look(width, config.channels)
        self.pose_head = projection(width, width, blocks, 8)  # centre, rotation, size
        self.descriptor_head = projection(width, DESCRIPTOR, blocks, DESCRIPTOR)  # of what a start sees
        self.trust_head = projection(width + 2, 64, blocks, 1)
        self.feature_look = Look(width, config.channels)
        self.feature_head = projection(width, width, blocks, config.feature)
        self.percept_head = projection(width, width, blocks, config.percept)
        self.decoder = ParallelDecoders(
            parts.parts, config.feature, config.decoder_width, config.decoder_blocks, parts.feature + 7
        )
        self.log_scale = nn.Parameter(torch.tensor([math.log(10.0), math.log(20.0), math.log(10.0)]))  # contrasts
        start_at_identity(self.pose_head)
        with torch.no_grad():
            # Untrained scores must differ: equal ones are a saddle point of the agreement loss, slow to escape.
            self.score_head[-1].weight.mul_(10.0)  # type: ignore[operator]
        self.register_buffer("square", grid_square(SHOWN), persistent=False)
        self.register_buffer("cube", CUBE, persistent=False)
        self.register_buffer("trust_fit", torch.tensor([1.0, 0.0]))  # factor and offset of the logit of the trust

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def shown(self, layer: PointsToParts, parts: Parts) -> Shown:
        """The surfaces that part capsules ``[b, j]`` decode to, weighted by the share of the cloud in each part."""
        surface = layer.decoder.decode(parts.capsules, self.square)
        weight = parts.share / parts.share.sum(dim=-1, keepdim=True).clamp(min=1e-6) / SHOWN
        return Shown(surface.flatten(1, 2), weight.repeat_interleave(SHOWN, dim=1))

    def starts(self, shown: Shown) -> Viewpoints:
        """All 24 frames on the axes of the surface, at its centre: ``[b, 24]``."""
        return self.starts_on(*surface_axes(shown.points, shown.weight))

    @torch.no_grad()
    def starts_on(self, axes: Float[Tensor, "b 3 3"], center: Float[Tensor, "b 3"]) -> Viewpoints:
        pose = Pose.from_rotation(axes[:, None] @ self.cube, center[:, None].expand(-1, len(CUBE), -1))
        return Viewpoints(pose, torch.full_like(pose.wxyz[..., 0], START_WIDTH))

    def lead(self, shown: Shown, starts: Viewpoints) -> Led:
        """Q: scores every start, moves the best by votes, and scores them again.

        No gradient passes from what a viewpoint sees to the earlier vote that moved it there.
        """
        # The first rotation of CUBE is the identity; the other grids are this one, transposed and flipped.
        start_look = self.score_look(turned_grids(seen_from(shown, starts[:, :1])[:, 0]))
        log_first = torch.log_softmax(self.score_head(start_look)[..., 0], dim=1)
        best = log_first.topk(LEADING, dim=1).indices
        at = starts[torch.arange(len(best), device=best.device)[:, None], best]
        steps = []
        for _ in range(self.config.voting_steps):
            at = self.vote(shown, at.detach())
            steps.append(at)
        again, look = self.score(shown, at.detach())
        # The last score is added to the first: alone it was less accurate on whole objects.
        log_last = torch.log_softmax(log_first.gather(1, best) + again[..., 1], dim=1)
        return Led(start_look, log_first, steps, at, log_last, look)

    def descriptors(self, look: Float[Tensor, "b 24 width"]) -> Float[Tensor, "b 24 d"]:
        """What an object looks like from each start: unit vectors, from which the rotation between objects follows."""
        return nn.functional.normalize(self.descriptor_head(look), dim=-1)

    def vote(self, shown: Shown, viewpoints: Viewpoints) -> Viewpoints:
        """``z ∘ Q(V|z)``: each viewpoint ``[b, k]`` moved by its vote."""
        out = self.pose_head(self.pose_look(seen_from(shown, viewpoints)))
        shift = MOST_SHIFT * torch.tanh(out[..., :3]) * viewpoints.width[..., None]
        pose = viewpoints.pose @ Pose.from_network(torch.cat([shift, out[..., 3:7]], dim=-1))
        return Viewpoints(pose, viewpoints.width * torch.exp(MOST_GROWTH * torch.tanh(out[..., 7])))

    def score(self, shown: Shown, viewpoints: Viewpoints) -> tuple[Float[Tensor, "b k 2"], Float[Tensor, "b k width"]]:
        """Logits for each viewpoint to be the canonical one, as a start and as a final viewpoint; and the look."""
        look = self.score_look(seen_from(shown, viewpoints))
        return self.score_head(look), look

    def trust(self, seen: Led) -> Float[Tensor, "b"]:
        """Logit of the trust in the most probable viewpoint, from its look and the two best scores.

        Scores alone are as confident for a crop as for a whole object.
        """
        log_best, best = seen.log_last.topk(2, dim=1)
        look = seen.look[torch.arange(len(best), device=best.device), best[:, 0]]
        return self.trust_head(torch.cat([look, log_best], dim=-1).detach()).squeeze(-1)

    def feature(self, shown: Shown, canonical: Viewpoints, weight: Float[Tensor, "b k"]) -> Float[Tensor, "b d"]:
        """F: the mean percept of the most probable viewpoints, weighted by probability, scaled to a mean square of 1.

        For a symmetric object their percepts agree; otherwise the most probable viewpoint dominates.
        """
        percepts = self.feature_head(self.feature_look(seen_from(shown, canonical)))
        mean = (weight[..., None] * percepts).sum(dim=1)
        return mean / mean.square().mean(dim=-1, keepdim=True).add(1e-12).sqrt()

    def places(self, shown: Shown) -> Pose:
        """Each part's own viewpoint ``z_j``: in the middle of its surface, oriented like the surfaces around it.

        The orientation of the capsule is not used: that of a flat part is ambiguous.
        """
        centers = middles(shown)
        return Pose.from_rotation(local_frames(shown.points, centers, NEIGHBOURHOOD), centers)

    def percepts(self, shown: Shown, places: Pose, scale: Float[Tensor, "b"]) -> Float[Tensor, "b j d"]:
        """F from the viewpoints ``z_j`` of the parts, as unit vectors."""
        viewpoints = Viewpoints(places, (PART_WIDTH * scale)[:, None].expand(places.shape))
        return nn.functional.normalize(self.percept_head(self.feature_look(seen_from(shown, viewpoints))), dim=-1)

    def perceive(self, layer: PointsToParts, parts: Parts) -> Parse:
        """The object capsule ``[b]``, the candidates for its pose, and a percept for each part (0 if it has no points).

        What the probabilities of the candidates lack of 1 is the probability that none of them is right.
        """
        shown = self.shown(layer, parts)
        starts = self.starts(shown)
        seen = self.lead(shown, starts)
        probability = merged(seen.led.pose, seen.log_last.exp())
        rows = torch.arange(len(probability), device=probability.device)
        canonical = seen.led[rows, probability.argmax(dim=1)]
        capsule = Capsules(canonical.pose, self.feature(shown, *_most_probable(seen, LEADING)))
        places = self.places(shown)
        percept = self.percepts(shown, places, canonical.width) * (parts.share > 0)[..., None]
        trusted = torch.sigmoid(self.trust_fit[0] * self.trust(seen) + self.trust_fit[1])[:, None] * probability
        frames = Frames(starts.pose, self.descriptors(seen.start_look))
        return Parse(
            parts.capsules, parts.share, capsule, canonical.width, seen.led.pose, trusted, percept, frames, places
        )

    def decode(self, capsule: Capsules) -> Capsules:
        """``(u_q|h_q, u_f) = G(h_f)``, then ``u_q = h_q ∘ (u_q|h_q)``: objects ``[b]`` to parts ``[b, j]``.

        For an object of radius 1, in any pose.
        """
        out = self.decoder(capsule.feature)
        return Capsules(Pose.from_network(out[..., :7]), out[..., 7:]).placed_at(capsule.pose[:, None])

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def views(
        self,
        layer: PointsToParts,
        parts: Parts,
        whole: Float[Tensor, "b n 3"],
        target: Float[Tensor, "b m 3"],
        center: Float[Tensor, "b 2 3"],
        scale: Float[Tensor, "b 2"],
    ) -> Views:
        """The input of the loss, from views with parts ``[b, 2, j]`` and the points of the whole objects."""
        shown = self.shown(layer, parts.map(lambda tensor: tensor.flatten(0, 1)))
        axes, middle = surface_axes(shown.points, shown.weight)
        turns = self.places(shown).rotation_matrix()
        weight = whole.new_full(whole.shape[:2], 1 / whole.shape[1])
        # All its normals, because these frames are the targets of votes.
        frames, _ = surface_axes(whole, weight, normals=whole.shape[1])
        points, share, axes, middle, turns = (
            tensor.unflatten(0, (-1, 2)) for tensor in (shown.points, shown.weight, axes, middle, turns)
        )
        unknown = frames.new_zeros(len(frames), len(CUBE))
        return Views(points, share, axes, middle, turns, center, scale, frames, unknown, target)

    def loss(self, layer: PointsToParts, views: Views, noise_degrees: float, generator: torch.Generator) -> Terms:
        """The loss of two views A and B of each object, each with its own crop, noise or stray points.

        Both are processed as in inference, from slightly perturbed starts. They must choose the same frame of the whole
        object, at first and at last (``choice``), and the common frame of similar objects if it is known (``common``);
        they must distinguish the starts (``frames``), move viewpoints to a frame (``pose``), find the centre and size
        of the whole object (``place``), and predict whether they agree (``trust``); they must be more similar than
        views of different objects, from the canonical viewpoint (``feature``) and from the parts (``percept``); and A
        must decode to the whole object (``chamfer``).
        """
        shown = views.shown
        turn = Pose.perturbation(len(shown.points), max_angle=math.radians(noise_degrees), generator=generator)
        axes = views.axes.flatten(0, 1) @ turn.rotation_matrix().to(views.axes)
        starts = self.starts_on(axes, views.middle.flatten(0, 1))
        seen = self.lead(shown, starts)
        # The views have to agree which of them is canonical; a view must only be led to one of them.
        frames = self._frames_on(views.frames).map(lambda tensor: tensor.repeat_interleave(2, dim=0))
        first = chosen_frames(seen.log_first, near_frames(starts.pose, frames, SAME))
        last = chosen_frames(seen.log_last, near_frames(seen.led.pose, frames, SAME))
        terms: Terms = {
            "choice": choice_agreement(first) + choice_agreement(last),
            "common": common_choice(first, views.chance) + common_choice(last, views.chance),
            "frames": self._described_alike(seen, starts),
        }
        terms["pose"] = _of_both(torch.stack([nearest_frame(at.pose, frames) for at in seen.steps]).sum(dim=0))
        center, scale = views.center.flatten(0, 1), views.scale.flatten(0, 1)
        terms["place"] = _of_both(torch.stack([misplacement(at, center, scale) for at in seen.steps]).sum(dim=0))
        canonical, weight = _most_probable(seen, 2)  # enough to learn from
        terms["trust"] = trusted_agreement(self.trust(seen), _agreed(canonical.pose[:, 0]))
        feature = self.feature(shown, canonical, weight)
        likeness = nn.functional.normalize(feature, dim=-1)
        terms["feature"] = contrast(likeness[0::2] @ likeness[1::2].mT, self.log_scale[0].exp())
        some = torch.randperm(views.turns.shape[2], generator=generator)[:PERCEIVED]
        places = Pose.from_rotation(views.turns.flatten(0, 1)[:, some], middles(shown)[:, some])
        percept = self.percepts(shown, places, canonical.width[:, 0])
        terms["percept"] = (
            contrast(late_interaction(percept[1::2], percept[0::2]), self.log_scale[1].exp())
            + contrast(late_interaction(percept[0::2], percept[1::2]), self.log_scale[1].exp())
        ) / 2
        rotation = Pose(torch.zeros_like(canonical.pose.translation[0::2, 0]), canonical.pose.wxyz[0::2, 0])
        decoded = self.decode(Capsules(rotation, feature[0::2]))
        square = random_square(*decoded.pose.shape, DECODED, generator=generator).to(views.whole)
        surface = layer.decoder.decode(decoded, square).flatten(1, 2)
        return terms | {"chamfer": chamfer(views.whole, surface)}

    def chosen(self, seen: Led, axes: Float[Tensor, "b 3 3"]) -> Float[Tensor, "b 24"]:
        """``log P_f`` of each of the 24 frames on these axes, after all votes."""
        return chosen_frames(seen.log_last, near_frames(seen.led.pose, self._frames_on(axes), SAME))

    def _frames_on(self, axes: Float[Tensor, "b 3 3"]) -> Pose:
        rotations = axes[:, None] @ self.cube
        return Pose.from_rotation(rotations, torch.zeros_like(rotations[..., 0]))

    def _described_alike(self, seen: Led, starts: Viewpoints) -> Float[Tensor, "b"]:
        """Contrast between descriptors: each start of view A must match the nearest start of view B, and no other."""
        described = self.descriptors(seen.start_look)
        turned = starts.pose.rotation_matrix()
        same = torch.einsum("bfij,bgij->bfg", turned[0::2], turned[1::2]).argmax(dim=2)
        return frame_contrast(described[0::2], described[1::2], same, self.log_scale[2].exp())

    @torch.no_grad()
    def fit_trust(self, views: Views) -> None:
        """Calibrates the trust on how often the views of held-out objects agree (Platt scaling)."""
        shown = views.shown
        seen = self.lead(shown, self.starts_on(views.axes.flatten(0, 1), views.middle.flatten(0, 1)))
        self.trust_fit.copy_(fitted_trust(self.trust(seen), _agreed(_most_probable(seen, 1)[0].pose[:, 0])))


def middles(shown: Shown) -> Float[Tensor, "b j 3"]:
    """The middle of each part's surface."""
    return shown.points.unflatten(1, (-1, SHOWN)).mean(dim=2)


def _agreed(chosen: Pose) -> Bool[Tensor, "b"]:
    """Whether the two views of each object, alternating, chose the same viewpoint."""
    return chosen[0::2].angle_to(chosen[1::2]) < RIGHT


def _of_both(values: Float[Tensor, "v"]) -> Float[Tensor, "b"]:
    """The mean over the two views of each object."""
    return values.unflatten(0, (-1, 2)).mean(dim=1)


def misplacement(at: Viewpoints, center: Float[Tensor, "b 3"], scale: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Distance of votes from the centre of the whole object, in its radii, and from its size, in nats.

    Quadratic below ``NEAR_ENOUGH``, so that the many small errors of whole objects do not dominate those of crops.
    """
    shift = (at.pose.translation - center[:, None]).square().sum(dim=-1) / scale[:, None].square()
    growth = (at.width.log() - scale.log()[:, None]).square()
    softened = [(square + NEAR_ENOUGH**2).sqrt() - NEAR_ENOUGH for square in (shift, growth)]
    return (softened[0] + softened[1]).mean(dim=1)


def _most_probable(seen: Led, count: int) -> tuple[Viewpoints, Float[Tensor, "b k"]]:
    weight, best = seen.log_last.exp().topk(count, dim=1)
    rows = torch.arange(len(best), device=best.device)[:, None]
    return seen.led.detach()[rows, best], weight / weight.sum(dim=1, keepdim=True)


@torch.no_grad()
def merged(poses: Pose, probability: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
    """Merges viewpoints that ended at the same pose: the most probable of them gets the whole probability."""
    same = poses[:, :, None].angle_to(poses[:, None, :]) < SAME
    owner = torch.where(same, probability[:, None, :], -1.0).argmax(dim=2)
    return torch.zeros_like(probability).scatter_add(1, owner, probability)
