"""Ties between similar objects, along which a common frame is propagated without labels.

Descriptors of what an object looks like from each of the 24 frames on its axes give the rotation (turn) between two
objects (``AgreeingObject.descriptors``). Each object is tied to those that it resembles, with the turn between them;
groups with a common frame are merged by all ties between them; and finally each object takes the frame that most of its
neighbours vote for. In this way training objects get a common frame, and folders of objects the orientation of one
example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from torch import Tensor

from geocaps.model.look import CUBE, cube_products, turn_similarity

CANDIDATES = 64
"""Number of objects with the most similar mean descriptors that are compared frame by frame."""
NEIGHBOURS = 12
"""Number of these that are tied to an object."""
_SHARPNESS = 8.0
"""Weight of a close neighbour over a distant one, in nats for a difference of 1 in similarity."""
_SWEEPS = 40
_DOUBT = 0.02
"""Added to the probabilities of an object's own choice, so that its neighbours can always outvote it."""


@dataclass(frozen=True)
class Ties:
    """The objects most similar to each, and the turns between them.

    Frame k of an object looks like frame ``product[turn, k]`` of its neighbour, product as in ``cube_products``.
    """

    neighbour: Int[np.ndarray, "m k"]
    turn: Int[np.ndarray, "m k"]
    similarity: Float[np.ndarray, "m k"]


@torch.no_grad()
def ties(descriptors: Float[Tensor, "m 24 d"], neighbours: int = NEIGHBOURS, candidates: int = CANDIDATES) -> Ties:
    """The objects most similar to each, by the mean over the 24 frames, at the best of the 24 turns."""
    count = len(descriptors)
    candidates = min(candidates, count - 1)
    means = torch.nn.functional.normalize(descriptors.mean(dim=1), dim=-1)
    rows = []
    for some in torch.arange(count, device=descriptors.device).split(32):
        likeness = means[some] @ means.mT
        likeness[torch.arange(len(some)), some] = -torch.inf
        others = likeness.topk(candidates, dim=1).indices
        ours = descriptors[some][:, None].expand(-1, candidates, -1, -1)
        similarity, turn = turn_similarity(ours, descriptors[others]).max(dim=2)
        best = similarity.topk(min(neighbours, candidates), dim=1)
        rows.append((others.gather(1, best.indices), turn.gather(1, best.indices), best.values))
    return Ties(*(torch.cat(column).cpu().numpy() for column in zip(*rows, strict=True)))


def synchronised(tied: Ties) -> Float[np.ndarray, "m 24"]:
    """The probability of each frame of each object to be the common one, according to its neighbours.

    First along the tree of the strongest ties, from an arbitrary frame of one object; then by repeated majority votes.
    """
    count = len(tied.neighbour)
    table = cube_products().numpy()
    inverse = table.argmin(axis=1)  # C_g C_k = C_0, the identity
    source, target, turn, weight = _both_ways(tied, inverse)

    frame = _merged(source, target, turn, weight, count, table)
    for sweep in range(_SWEEPS):
        said = _votes(source, target, turn, weight, frame, table[inverse])
        better = said.argmax(axis=1)
        gains = said[np.arange(count), better] > said[np.arange(count), frame] + 1e-9
        if not gains.any():
            break
        gains &= np.arange(count) % 2 == sweep % 2  # not all at once, or two neighbours could alternate forever
        frame = np.where(gains, better, frame)
    said = _votes(source, target, turn, weight, frame, table[inverse])
    return said / said.sum(axis=1, keepdims=True)


def smoothed(tied: Ties, chosen: Float[np.ndarray, "m 24"]) -> Float[np.ndarray, "m 24"]:
    """The probability of each frame of each object to be the common one, from the choices of a trained layer.

    The choice for each object is repeatedly multiplied by the votes of its neighbours, so that the few objects that
    choose differently from similar ones are outvoted, and the rest stay as they are.
    """
    count, frames = chosen.shape
    table = cube_products().numpy()
    inverse = table.argmin(axis=1)
    source, target, turn, weight = _both_ways(tied, inverse)
    share = weight / np.bincount(source, weight, minlength=count)[source]
    rows = source[:, None] * frames + table[inverse][turn]
    columns = target[:, None] * frames + np.arange(frames)
    said_by = csr_array(
        (np.repeat(share, frames), (rows.ravel(), columns.ravel())), shape=(count * frames, count * frames)
    )
    own = np.sqrt(chosen + _DOUBT)
    chance = chosen
    for _ in range(_SWEEPS):
        said = (said_by @ chance.ravel()).reshape(count, frames)
        new = said**2 * own
        chance = (
            chance + new / new.sum(axis=1, keepdims=True)
        ) / 2  # half a step, so that two neighbours cannot alternate
    return chance


def _both_ways(
    tied: Ties, inverse: Int[np.ndarray, "24"]
) -> tuple[Int[np.ndarray, "e"], Int[np.ndarray, "e"], Int[np.ndarray, "e"], Float[np.ndarray, "e"]]:
    """Source, target, turn and weight of every tie, in both directions."""
    source = np.repeat(np.arange(len(tied.neighbour)), tied.neighbour.shape[1])
    target, turn = tied.neighbour.ravel(), tied.turn.ravel()
    weight = np.exp(_SHARPNESS * (tied.similarity.ravel() - 1))
    return (
        np.concatenate([source, target]),
        np.concatenate([target, source]),
        np.concatenate([turn, inverse[turn]]),
        np.concatenate([weight, weight]),
    )


def _merged(
    source: Int[np.ndarray, "e"],
    target: Int[np.ndarray, "e"],
    turn: Int[np.ndarray, "e"],
    weight: Float[np.ndarray, "e"],
    count: int,
    table: Int[np.ndarray, "24 24"],
) -> Int[np.ndarray, "m"]:
    """Groups of objects with a common frame, merged by all ties between two groups, the clearest first.

    In each round every group joins the one to which it is tied most clearly, that is, with the largest margin of one
    turn over all others. (Borůvka's algorithm for a spanning tree, with ties added up.)
    """
    inverse = table.argmin(axis=1)
    frame, group = np.zeros(count, dtype=np.int64), np.arange(count)
    while True:
        between = group[source] != group[target]
        if not between.any():
            return frame
        s, t, w = source[between], target[between], weight[between]
        # The turn of the target's group for which this tie would hold.
        needed = table[inverse[frame[t]], table[turn[between], frame[s]]]
        pair, at = np.unique(group[s] * count + group[t], return_inverse=True)
        said = np.zeros((len(pair), len(CUBE)))
        np.add.at(said, (at, needed), w)
        second, first = np.partition(said, -2, axis=1)[:, -2:].T
        ours, theirs, clear = pair // count, pair % count, first - second + 1e-6 * first
        clearest = np.lexsort((theirs, -clear, ours))
        chosen = clearest[np.unique(ours[clearest], return_index=True)[1]]
        forest = minimum_spanning_tree(
            csr_array((1 / clear[chosen], (ours[chosen], theirs[chosen])), shape=(count, count))
        )
        turns = {(int(a), int(b)): int(said[row].argmax()) for row, (a, b) in enumerate(zip(ours, theirs, strict=True))}
        _, joint = connected_components(forest, directed=False)
        moved = np.zeros(count, dtype=np.int64)  # the turn by which each group moves
        for root in np.unique(joint, return_index=True)[1]:
            reached, before = breadth_first_order(forest, root, directed=False)
            for one in reached[1:].tolist():
                # Their group, turned, fits ours as it was, but ours has been turned as well.
                moved[one] = table[turns[int(before[one]), one], moved[before[one]]]
        frame = table[frame, moved[group]]
        group = joint[group]


def _votes(
    source: Int[np.ndarray, "e"],
    target: Int[np.ndarray, "e"],
    turn: Int[np.ndarray, "e"],
    weight: Float[np.ndarray, "e"],
    frame: Int[np.ndarray, "m"],
    back: Int[np.ndarray, "24 24"],
) -> Float[np.ndarray, "m 24"]:
    """The votes of the neighbours' frames for each object's."""
    said = np.zeros((len(frame), len(CUBE)))
    np.add.at(said, (source, back[turn, frame[target]]), weight)
    return said
