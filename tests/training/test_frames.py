"""Common frames: similar objects get one frame, without labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from geocaps.data import concat, load
from geocaps.geometry.se3 import Pose
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.config import preset
from geocaps.model.look import CUBE, cube_products
from geocaps.model.ties import Ties, smoothed, synchronised, ties
from geocaps.training.config import AgreementObjective
from geocaps.training.distributed import World
from geocaps.training.frames import CommonFrames, common_frames
from geocaps.training.stage import ObjectStage


def products() -> np.ndarray:
    return cube_products().numpy()


def test_products_are_those_of_the_rotations() -> None:
    table, cube = products(), CUBE
    for g, k in itertools.product(range(24), repeat=2):
        assert torch.equal(cube[g] @ cube[k], cube[int(table[g, k])])


def kinds(per_kind: int, noise: float) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Descriptors of objects of two kinds, each with its frames in an order of its own; its kind and its order.

    An object that is turned by C_g has at k what one that is not has at g·k.
    """
    generator = torch.Generator().manual_seed(0)
    table = products()
    templates = torch.nn.functional.normalize(torch.randn(2, 24, 16, generator=generator), dim=-1)
    kind = np.repeat([0, 1], per_kind)
    turned = torch.randint(24, (2 * per_kind,), generator=generator).numpy()
    rows = torch.stack([templates[c][torch.from_numpy(table[g])] for c, g in zip(kind, turned, strict=True)])
    return (
        torch.nn.functional.normalize(rows + noise * torch.randn(rows.shape, generator=generator), dim=-1),
        kind,
        turned,
    )


def test_ties_are_between_similar_objects_with_their_turn() -> None:
    described, kind, turned = kinds(20, noise=0.05)
    tied = ties(described, neighbours=5, candidates=12)
    table = products()
    assert (kind[tied.neighbour] == kind[:, None]).all()
    for i, (others, turns) in enumerate(zip(tied.neighbour, tied.turn, strict=True)):
        for j, g in zip(others, turns, strict=True):
            # Frame k of i shows the template at turned_i·k, and g·k of j the one at turned_j·g·k.
            assert (table[turned[i]] == table[turned[j]][table[g]]).all()


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_objects_of_a_kind_share_a_frame(noise: float) -> None:
    described, kind, turned = kinds(40, noise)
    chance = synchronised(ties(described, neighbours=6, candidates=30))
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    shown = products()[turned, chance.argmax(axis=1)]  # which side of the template the common frame shows
    for one in (0, 1):
        assert len(set(shown[kind == one])) == 1


def test_false_ties_are_outvoted_group_against_group() -> None:
    """Two groups, each of one mind; most ties between them tell one turn, the strongest of them another."""
    size, rng = 12, np.random.default_rng(0)
    neighbour, turn, similarity = [], [], []
    for i in range(2 * size):
        own = [j for j in range(2 * size) if j // size == i // size and j != i]
        picked = list(rng.choice(own, 4, replace=False))
        other = (i + size) % (2 * size)
        neighbour.append([*picked, other])
        wrong = i % size == 0
        turn.append([0, 0, 0, 0, 5 if wrong else 0])
        similarity.append([0.95, 0.95, 0.95, 0.95, 0.9 if wrong else 0.8])
    tied = Ties(np.array(neighbour), np.array(turn), np.array(similarity))
    chosen = synchronised(tied).argmax(axis=1)
    assert len(set(chosen)) == 1


def test_a_symmetric_object_keeps_its_chances() -> None:
    """Neighbours that know an object only up to a half turn leave it both ways."""
    neighbour = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    half = next(g for g in range(1, 24) if products()[g, g] == 0)
    turn = np.array([[0, 0, half], [0, 0, half], [0, 0, 0], [half, 0, 0]])
    chance = synchronised(Ties(neighbour, turn, np.full((4, 3), 0.9)))
    assert 0.2 < np.sort(chance[3])[-2] <= np.sort(chance[3])[-1] < 0.8


def test_chances_follow_an_object_that_is_turned_and_measured_anew() -> None:
    """Axes found on a turned object lie on the old ones up to order and sign: each gets the chance of its frame."""
    generator = torch.Generator().manual_seed(1)
    axes = Pose.random(5, generator=generator).rotation_matrix()
    chance = torch.rand(5, 24, generator=generator)
    common = CommonFrames(axes, chance / chance.sum(dim=1, keepdim=True), torch.zeros(5, 1, dtype=torch.int64))
    objects = torch.tensor([3, 0, 4])
    turned = Pose.random(3, generator=generator).rotation_matrix()
    cube, table = CUBE, products()
    reordered = torch.tensor([7, 0, 19])
    little = Pose.perturbation(3, max_angle=0.1, generator=generator).rotation_matrix()
    found = (turned @ axes[objects] @ cube[reordered] @ little)[:, None] @ cube
    got = common.chance_of(found, objects, turned)
    for row, (one, g) in enumerate(zip(objects.tolist(), reordered.tolist(), strict=True)):
        # Frame f of the new axes is g·f of the old.
        assert torch.equal(got[row], common.chance[one][torch.from_numpy(table[g])])


def test_what_a_layer_chooses_is_smoothed_over_similar_objects() -> None:
    """One in five chooses another frame than its kind: it is outvoted, and the others keep what they chose."""
    described, kind, turned = kinds(40, noise=0.3)
    table = products()
    inverse = table.argmin(axis=1)
    canonical = np.where(kind == 0, 3, 11)  # of the two templates, the side that the layer has learnt to choose
    right = table[inverse[turned], canonical]  # turned · right = canonical
    wrong = np.arange(len(right)) % 5 == 0
    chosen = np.full((len(right), 24), 0.01)
    chosen[np.arange(len(right)), np.where(wrong, table[7, right], right)] = 1
    chosen /= chosen.sum(axis=1, keepdims=True)
    chance = smoothed(ties(described, neighbours=6, candidates=30), chosen)
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    assert (chance.argmax(axis=1) == right).all()
    assert (chosen.argmax(axis=1) != right).sum() == wrong.sum() > 10


def test_what_the_data_name_twice_is_described_once() -> None:
    shapes = load("shapes", per_class=1)
    count = len(shapes)
    described: list[torch.Tensor] = []

    def describe(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        described.append(points)
        about = points.flatten(1)[:, : 24 * 16].unflatten(1, (24, 16))
        axes = torch.eye(3).expand(len(points), 3, 3) * points[:, :1, :1]
        return axes, torch.nn.functional.normalize(about, dim=-1), about.square().mean(dim=-1)

    alone = World(0, 1, torch.device("cpu"))
    both = common_frames(concat([shapes, shapes]), describe, 128, alone, trained=True)
    assert sum(len(points) for points in described) == count
    assert torch.equal(both.axes[:count], both.axes[count:])
    assert len(set(both.axes[:count, 0, 0].tolist())) == count  # each object has its own
    assert both.chance.shape == (2 * count, 24)


@pytest.mark.parametrize("trained", [False, True])
def test_common_frames_may_never_be_looked_for(trained: bool) -> None:
    model = GeometricCapsuleAutoencoder(preset("cpu"))
    never = ObjectStage(model, AgreementObjective(common_from=1.0), trained=trained)
    assert not any(never.survey_is_due(share) for share in (0.0, 0.5, 1.0))
    some_day = ObjectStage(model, AgreementObjective(common_from=0.5), trained=trained)
    assert [some_day.survey_is_due(share) for share in (0.0, 0.5, 1.0)] == [trained, True, False]
