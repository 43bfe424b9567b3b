"""PartsToObject, ours: viewpoints look at the parts' surfaces, vote, are led on, and agree.

The paper starts at a random pose and finds one of several attractors. Here the starts are all 24 ways to put a frame on
the axes that the surfaces' normals lie along: a deterministic set that turns exactly with the parts, and that a crop
hardly moves. From each, a look at the parts' surfaces gives a score and a vote: a rotation, and where the *whole*
object's centre is and how large it is, which a crop's own centre and radius do not tell. The best starts are led on by
further looks and scored again from there. Two views of one object must choose the same viewpoint. Encoding never
shows this layer the points of the cloud.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geocaps.geometry.frames import local_frames, surface_axes
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.model.blocks import ParallelDecoders, grid_square, projection, random_square, start_decided
from geocaps.model.capsules import Capsules, Parts, Perception
from geocaps.model.config import AgreementWeights, ObjectConfig, PartsConfig
from geocaps.model.look import CUBE, Look, Shown, Viewpoints, cube_rotations, seen_from, turned_grids
from geocaps.model.losses import (
    Terms,
    chamfer,
    choice_agreement,
    contrast,
    late_interaction,
    length,
    near_frames,
    nearest_frame,
    trusted_agreement,
)
from geocaps.model.parts import PointsToParts

SHOWN = 16
"""Points that a part's surface is shown by, a grid of four by four: they lie closer than the cells of a look."""
DECODED = 16
"""Points that a decoded part is compared by in training."""
PERCEIVED = 10
"""Parts of each view that are seen from in a step of training."""
LEADING = 6
"""Of the scored starts, so many are led on."""
START_WIDTH = 1.05
"""Half width of what a start sees: the cloud's own radius is 1, and surfaces reach a little beyond."""
PART_WIDTH = 0.8
"""Half width of what is seen from a part, in radii of the whole object."""
NEIGHBOURHOOD = 0.35
"""Around a part's place, how far the surfaces lie that say how it is turned."""
MOST_SHIFT, MOST_GROWTH = 0.6, 1.0
"""Limits of one vote, in half widths and in nats: a free vote can run away in the first steps of training."""
SAME = math.radians(20)
"""Viewpoints closer than about this are the same."""
RIGHT = math.radians(15)
"""Two views that choose viewpoints closer than this agree."""


@dataclass(frozen=True)
class Led:
    """What became of the starts: all ``voted`` once, the best of them ``led`` on."""

    voted: Viewpoints  # [b, 24]
    log_first: Float[Tensor, "b 24"]  # probability of each start
    steps: list[Viewpoints]  # [b, 6] after each further look
    log_last: Float[Tensor, "b 6"]  # probability of each that was led on, from where it was led
    look: Float[Tensor, "b 6 width"]  # the last look from each

    @property
    def led(self) -> Viewpoints:
        return self.steps[-1]


@dataclass(frozen=True)
class Whole:
    """What a training knows of the objects behind its views: the uncropped clouds ``[b]``, centred, with radius 1,
    turned as both views are; and where they are in the frame of each view ``[2b]``."""

    points: Float[Tensor, "b n 3"]
    center: Float[Tensor, "v 3"]
    scale: Float[Tensor, "v"]


class AgreeingObject(nn.Module):
    """Our second layer: Q and F, each a head on a look at the parts' surfaces, and the J part decoders G."""

    square: Tensor
    cube: Tensor

    def __init__(self, config: ObjectConfig, parts: PartsConfig) -> None:
        super().__init__()
        self.config = config
        width, blocks = config.width, config.blocks
        self.pose_look = Look(width, config.channels)
        self.pose_head = projection(width, width, blocks, 10)  # two scores, centre, rotation, size
        self.trust_head = projection(width + 2, 64, blocks, 1)
        self.feature_look = Look(width, config.channels)
        self.feature_head = projection(width, width, blocks, config.feature)
        self.percept_head = projection(width, width, blocks, config.percept)
        self.decoder = ParallelDecoders(
            parts.parts, config.feature, config.decoder_width, config.decoder_blocks, parts.feature + 7
        )
        self.log_scale = nn.Parameter(torch.tensor([math.log(10.0), math.log(20.0)]))  # of the two contrasts
        _start_staying(self.pose_head)
        self.register_buffer("square", grid_square(SHOWN), persistent=False)
        self.register_buffer("cube", cube_rotations(), persistent=False)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def shown(self, layer: PointsToParts, parts: Parts) -> Shown:
        """The surfaces that part capsules ``[b, j]`` decode to, weighted by the share of the cloud in each part."""
        surface = layer.decoder.decode(parts.capsules, self.square)
        weight = parts.share / parts.share.sum(dim=-1, keepdim=True).clamp(min=1e-6) / SHOWN
        return Shown(surface.flatten(1, 2), weight.repeat_interleave(SHOWN, dim=1))

    @torch.no_grad()
    def starts(self, shown: Shown, turn: Pose | None = None) -> Viewpoints:
        """All 24 frames on the surface's axes, at the centre: ``[b, 24]``. ``turn [b]`` perturbs them (training)."""
        axes, center = surface_axes(shown.points, shown.weight)
        if turn is not None:
            axes = axes @ turn.rotation_matrix()
        pose = Pose.from_rotation(axes[:, None] @ self.cube, center[:, None].expand(-1, len(CUBE), -1))
        return Viewpoints(pose, torch.full_like(pose.wxyz[..., 0], START_WIDTH))

    def lead(self, shown: Shown, starts: Viewpoints) -> Led:
        """Q: every start is scored and votes; the best are led on and scored again.

        Each vote answers for its own step: no gradient goes from what a viewpoint sees to the vote that led it there.
        """
        # CUBE's first rotation is the identity: the other grids are this one, transposed and flipped.
        grid = seen_from(shown, starts[:, :1])[:, 0]
        out = self.pose_head(self.pose_look(turned_grids(grid)))
        voted, log_first = _voted(starts, out), torch.log_softmax(out[..., 0], dim=1)
        best = log_first.topk(LEADING, dim=1).indices
        at = voted[torch.arange(len(best), device=best.device)[:, None], best]
        steps = []
        for _ in range(self.config.voting_steps - 1):
            at, out, look = self.vote(shown, at.detach())
            steps.append(at)
        # The last look adds to what the first one said: alone it chose less well on whole objects.
        score = log_first.gather(1, best) + out[..., 1]
        return Led(voted, log_first, steps, torch.log_softmax(score, dim=1), look)

    def vote(
        self, shown: Shown, viewpoints: Viewpoints
    ) -> tuple[Viewpoints, Float[Tensor, "b k 10"], Float[Tensor, "b k width"]]:
        """``z ∘ Q(V|z)``, all that Q says (two scores come first), and the look that it says it from."""
        look = self.pose_look(seen_from(shown, viewpoints))
        out = self.pose_head(look)
        return _voted(viewpoints, out), out, look

    def trust(self, seen: Led) -> Float[Tensor, "b"]:
        """The logit of how far the most probable viewpoint can be trusted, from its look and the two best scores.

        Scores alone are as sure of a crop's viewpoint as of a whole object's.
        """
        log_best, best = seen.log_last.topk(2, dim=1)
        look = seen.look[torch.arange(len(best), device=best.device), best[:, 0]]
        return self.trust_head(torch.cat([look, log_best], dim=-1).detach()).squeeze(-1)

    def feature(self, shown: Shown, canonical: Viewpoints, weight: Float[Tensor, "b k"]) -> Float[Tensor, "b d"]:
        """F: the percept from the canonical viewpoints, their mean by probability, with a root mean square of 1.

        On a symmetric object the percepts agree, on another the winner dominates.
        """
        percepts = self.feature_head(self.feature_look(seen_from(shown, canonical)))
        mean = (weight[..., None] * percepts).sum(dim=1)
        return mean / mean.square().mean(dim=-1, keepdim=True).add(1e-12).sqrt()

    def places(self, shown: Shown) -> Pose:
        """Each part's own viewpoint ``z_j``: in the middle of its surface, turned as the surfaces lie there.

        Not as the capsule is turned: a flat part looks the same from many sides, and its capsule takes one of them.
        """
        centers = shown.points.unflatten(1, (-1, SHOWN)).mean(dim=2)
        return Pose.from_rotation(local_frames(shown.points, centers, NEIGHBOURHOOD), centers)

    def percepts(self, shown: Shown, places: Pose, scale: Float[Tensor, "b"]) -> Float[Tensor, "b j d"]:
        """F from viewpoints ``z_j`` on the object, those of its parts: unit vectors."""
        viewpoints = Viewpoints(places, (PART_WIDTH * scale)[:, None].expand(places.shape))
        return nn.functional.normalize(self.percept_head(self.feature_look(seen_from(shown, viewpoints))), dim=-1)

    def perceive(self, layer: PointsToParts, parts: Parts) -> Perception:
        """The object capsule ``[b]``, the candidates for its pose, and a percept for each part (0 for one without
        points). What the candidates' probabilities lack of 1 is that of none of them."""
        shown = self.shown(layer, parts)
        seen = self.lead(shown, self.starts(shown))
        probability = merged(seen.led.pose, seen.log_last.exp())
        rows = torch.arange(len(probability), device=probability.device)
        canonical = seen.led[rows, probability.argmax(dim=1)]
        capsule = Capsules(canonical.pose, self.feature(shown, *_most_probable(seen, LEADING)))
        percept = self.percepts(shown, self.places(shown), canonical.width) * (parts.share > 0)[..., None]
        trusted = torch.sigmoid(self.trust(seen))[:, None] * probability
        return Perception(capsule, canonical.width, seen.led.pose, trusted, percept)

    def decode(self, capsule: Capsules) -> Capsules:
        """``(u_q|h_q, u_f) = G(h_f)``, then ``u_q = h_q ∘ (u_q|h_q)``: objects ``[b]`` to parts ``[b, j]``.

        Of an object with radius 1, whatever its pose.
        """
        out = self.decoder(capsule.feature)
        return Capsules(Pose.from_network(out[..., :7]), out[..., 7:]).placed_at(capsule.pose[:, None])

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────────

    def loss(
        self,
        layer: PointsToParts,
        shown: Shown,
        places: Pose,
        whole: Whole,
        weights: AgreementWeights,
        noise_degrees: float,
        generator: torch.Generator,
        target_points: int | None = None,
    ) -> Terms:
        """Two views A and B of each object, alternating in ``shown`` ``[2b]`` and ``places`` ``[2b, j]`` (its parts').

        Each is cropped, noisy or strewn with strays on its own. Both go the way of inference, from starts that are
        turned a little at random. They must choose the same one of the whole object's frames, first and last
        (``choice``), and be led to it (``pose``), find the whole's centre and size (``place``), know whether they agree
        (``trust``), look more alike than other objects do, from the canonical viewpoint (``feature``) and from the
        parts (``percept``); and what A sees must decode to the whole object (``chamfer``).
        """
        turn = Pose.perturbation(len(shown.points), max_angle=math.radians(noise_degrees), generator=generator)
        seen = self.lead(shown, self.starts(shown, turn.to(shown.points.device)))
        frames = self._frames(whole)
        terms: Terms = {
            "choice": choice_agreement(seen.log_first, near_frames(seen.voted.pose, frames, SAME))
            + choice_agreement(seen.log_last, near_frames(seen.led.pose, frames, SAME)),
        }
        ways = (seen.voted, *seen.steps)
        terms["pose"] = _of_both(torch.stack([nearest_frame(at.pose, frames) for at in ways]).sum(dim=0))
        misplaced = [misplacement(at, whole.center, whole.scale) for at in ways]
        terms["place"] = _of_both(torch.stack(misplaced).sum(dim=0))
        canonical, weight = _most_probable(seen, 2)  # enough to learn from
        agreed = canonical.pose[0::2, 0].angle_to(canonical.pose[1::2, 0]) < RIGHT
        terms["trust"] = trusted_agreement(self.trust(seen), agreed)
        feature = self.feature(shown, canonical, weight)
        likeness = nn.functional.normalize(feature, dim=-1)
        terms["feature"] = contrast(likeness[0::2] @ likeness[1::2].mT, self.log_scale[0].exp())
        some = torch.randperm(places.shape[1], generator=generator)[:PERCEIVED]
        percept = self.percepts(shown, places[:, some], canonical.width[:, 0])
        terms["percept"] = (
            contrast(late_interaction(percept[1::2], percept[0::2]), self.log_scale[1].exp())
            + contrast(late_interaction(percept[0::2], percept[1::2]), self.log_scale[1].exp())
        ) / 2
        count = whole.points.shape[1]
        target = whole.points if target_points is None else whole.points[:, evenly(target_points, count)]
        rotation = Pose(torch.zeros_like(canonical.pose.translation[0::2, 0]), canonical.pose.wxyz[0::2, 0])
        decoded = self.decode(Capsules(rotation, feature[0::2]))
        square = random_square(*decoded.pose.shape, DECODED, generator=generator).to(target)
        surface = layer.decoder.decode(decoded, square).flatten(1, 2)
        return terms | {"chamfer": chamfer(target, surface)}

    @torch.no_grad()
    def _frames(self, whole: Whole) -> Pose:
        """The 24 frames on each whole object's axes, for both of its views: ``[2b, 24]``.

        Which of them is canonical is for the views to agree on; all that is known is that a view must be led to one.
        """
        count = whole.points.shape[1]
        axes, _ = surface_axes(whole.points, whole.points.new_full((len(whole.points), count), 1 / count))
        rotation = (axes[:, None] @ self.cube).repeat_interleave(2, dim=0)
        return Pose.from_rotation(rotation, torch.zeros_like(rotation[..., 0]))


def _of_both(values: Float[Tensor, "v"]) -> Float[Tensor, "b"]:
    """The mean over the two views of each object."""
    return values.unflatten(0, (-1, 2)).mean(dim=1)


def _voted(viewpoints: Viewpoints, out: Float[Tensor, "b k 10"]) -> Viewpoints:
    """``z ∘ Q(V|z)``: each viewpoint moved by its vote."""
    shift = MOST_SHIFT * torch.tanh(out[..., 2:5]) * viewpoints.width[..., None]
    pose = viewpoints.pose @ Pose.from_network(torch.cat([shift, out[..., 5:9]], dim=-1))
    return Viewpoints(pose, viewpoints.width * torch.exp(MOST_GROWTH * torch.tanh(out[..., 9])))


def misplacement(at: Viewpoints, center: Float[Tensor, "b 3"], scale: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    """How far votes are from the whole object's centre, in its radii, and from its size, in nats."""
    shift = length(at.pose.translation - center[:, None]) / scale[:, None]
    return (shift + (at.width.log() - scale.log()[:, None]).abs()).mean(dim=1)


def _most_probable(seen: Led, count: int) -> tuple[Viewpoints, Float[Tensor, "b k"]]:
    weight, best = seen.log_last.exp().topk(count, dim=1)
    rows = torch.arange(len(best), device=best.device)[:, None]
    return seen.led.detach()[rows, best], weight / weight.sum(dim=1, keepdim=True)


@torch.no_grad()
def merged(poses: Pose, probability: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
    """Viewpoints that were led to the same pose are one: the most probable of them takes it all."""
    same = poses[:, :, None].angle_to(poses[:, None, :]) < SAME
    owner = torch.where(same, probability[:, None, :], -1.0).argmax(dim=2)
    return torch.zeros_like(probability).scatter_add(1, owner, probability)


def _start_staying(head: nn.Sequential) -> None:
    """Makes untrained votes nearly "stay", and untrained scores differ.

    Arbitrary half turns would only be unlearnt, and equal scores are a saddle point of the agreement loss.
    """
    last = head[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight[2:].mul_(0.1)
        last.bias[2:] = torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0])
    for output in (0, 1):
        start_decided(head, output)
