"""The pairs of a protocol: what differs, by how much, and that they repeat."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.spatial import cKDTree

from geocaps.datasets import load
from geocaps.evaluation.pairs import PROTOCOLS, ROTATION, Pairs
from tests.model.conftest import clouds


@pytest.fixture(scope="module")
def pairs():
    return Pairs(load("shapes", per_class=1).subset([0, 6, 12]), 300, seed=3)


@pytest.fixture
def stored(tmp_path):
    """A data set that stores these points of each object."""

    def made(points):
        np.savez(tmp_path / "set.npz", points=points.numpy())
        return load(tmp_path / "set.npz")

    return made


def back(pair):
    """The second cloud turned back onto the first."""
    return pair.turn.inverse().apply(pair.second.double()).numpy()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pairs_repeat_and_do_not_depend_on_the_other_objects(pairs, protocol):
    alone = Pairs(pairs.dataset.subset([1]), 300, seed=3).pair(0, protocol)
    pair = pairs.pair(1, protocol)
    assert torch.equal(pair.first, alone.first)
    assert torch.equal(pair.second, alone.second)
    assert torch.equal(pair.turn.wxyz, alone.turn.wxyz)
    other = Pairs(pairs.dataset, 300, seed=4).pair(1, protocol)
    assert not torch.equal(pair.first, other.first)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_first_cloud_is_the_same_in_every_protocol(pairs, protocol):
    assert torch.equal(pairs.pair(0, protocol).first, pairs.first(0))


def test_points_are_the_same_points_turned(pairs):
    for protocol in ("parts", "points"):
        pair = pairs.pair(0, protocol)
        assert back(pair) == pytest.approx(pair.first.numpy(), abs=1e-6)


def test_resampled_are_other_points_of_the_same_surface(pairs):
    pair = pairs.pair(0, "resampled")
    assert pair.second.shape == (300, 3)
    distance = cKDTree(pair.first.numpy()).query(back(pair))[0]
    assert distance.min() > 1e-6
    assert np.median(distance) < 0.08


def test_noisy_cloud_has_the_noise_and_outliers_of_the_protocol(pairs):
    clean, noisy = back(pairs.pair(0, "resampled")), back(pairs.pair(0, "noisy"))
    moved = np.linalg.norm(noisy - clean, axis=1)
    assert np.median(moved) == pytest.approx(0.01 * 1.538, rel=0.15)  # the median of a 3D Gaussian's length
    assert (moved > 0.06).sum() == pytest.approx(15, abs=2)


def test_stray_points_lie_in_a_cube_that_does_not_turn_with_the_object():
    pairs = Pairs(load("shapes", per_class=1).subset([0]), 4000, seed=3)
    clean, strays = (pairs.pair(0, name).second.numpy() for name in ("resampled", "outliers"))
    moved = np.linalg.norm(strays - clean, axis=1)
    assert np.median(moved) == pytest.approx(0.01 * 1.538, rel=0.1)
    far = strays[moved > 0.06]
    assert len(far) == pytest.approx(200, abs=4)
    assert 0.9 < np.abs(far).max() <= 1
    assert (np.linalg.norm(far, axis=1) > 1).mean() == pytest.approx(1 - math.pi / 6, abs=0.1)


@pytest.mark.parametrize(("protocol", "drawn", "expected"), [("partial", 300, 210), ("partial50", 600, 300)])
def test_partial_cloud_keeps_one_side(pairs, protocol, drawn, expected):
    clean, kept = back(pairs.pair(0, "resampled")), back(pairs.pair(0, protocol))
    assert len(kept) == expected
    distance, which = cKDTree(clean).query(kept)
    which = which[distance < 1e-6]
    assert len(set(which.tolist())) == pytest.approx(expected * 300 / drawn, rel=0.2)
    lost = np.delete(clean, which, axis=0)
    # A plane separates them: a linear programme finds one.
    sides = np.concatenate([np.ones(len(kept)), -np.ones(len(lost))])
    points = np.concatenate([kept, lost])
    constraints = -sides[:, None] * np.concatenate([points, np.ones((len(points), 1))], axis=1)
    assert linprog(np.zeros(4), A_ub=constraints, b_ub=-1e-6 * np.ones(len(points)), bounds=(None, None)).success


def test_a_scan_shows_one_side_only(stored):
    points = torch.randn(1, 4096, 3, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(stored(points / points.norm(dim=-1, keepdim=True)), 1024, seed=0)
    pair = pairs.pair(0, "scan")
    assert 650 < len(pair.second) <= 1024
    towards = torch.nn.functional.normalize(pair.second.mean(dim=0), dim=0)
    assert float((pair.second @ towards).min()) > -0.1
    # The sphere through the points: |x|² = 2 c·x + r² - |c|².
    exact = pair.second.double()
    fit = torch.linalg.lstsq(torch.cat([2 * exact, torch.ones(len(exact), 1)], dim=1), exact.square().sum(dim=1))
    spread = (exact - fit.solution[:3]).norm(dim=1).std()
    assert float(spread) == pytest.approx(0.005, rel=0.1)


@pytest.mark.parametrize(("count", "expected"), [(400, 100), (300, 100), (200, 50), (150, 50)])
def test_a_crop_leaves_as_many_points_as_the_set_has(stored, count, expected):
    """Twice the points are drawn where they are other ones than the first cloud's; the first cloud stays the same."""
    pairs = Pairs(stored(clouds(1, count)), 100, seed=0)
    pair = pairs.pair(0, "partial50")
    assert torch.equal(pair.first, pairs.first(0))
    assert len(pair.second) == expected
    nearest = cKDTree(pair.first.numpy()).query(back(pair))[0]
    assert (nearest.min() > 1e-5) == (count >= 200)
    assert len(np.unique(back(pair).round(6), axis=0)) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_whole_objects_frame_is_known_in_the_second_cloud(pairs, protocol):
    pair, whole = pairs.pair(1, protocol), pairs.pair(1, protocol if protocol in ("parts", "points") else "resampled")
    clean = whole.second.double()
    tolerance = 0.1 if protocol in ("partial50", "scan") else 1e-6  # there of twice the points
    assert float((pair.center - clean.mean(dim=0)).norm()) < tolerance
    assert pair.radius == pytest.approx(float((clean - clean.mean(dim=0)).norm(dim=1).max()), abs=tolerance)
    crop = pair.second.double().mean(dim=0)
    if protocol in ("partial", "partial50", "scan"):
        assert float((pair.center - crop).norm()) > 0.1


def test_rotations_follow_their_law():
    dataset = load("shapes", per_class=1)
    seeds = [Pairs(dataset.subset([0]), 20, seed) for seed in range(200)]
    identity = torch.tensor([1.0, 0, 0, 0]).double()
    for protocol, expected in (("points", 0.5), ("resampled", 0.5 + 2 / math.pi**2)):
        turns = torch.stack([one.pair(0, protocol).turn.wxyz for one in seeds])
        mean = float((2 * torch.acos((turns @ identity).abs().clamp(max=1))).mean()) / math.pi
        assert mean == pytest.approx(expected, abs=0.06)
    assert set(ROTATION) == set(PROTOCOLS)


def test_further_clouds_are_turned_resamplings(pairs):
    seen = pairs.more(0, 4)
    assert len(seen) == 4
    stored = [pose.inverse().apply(points.double()).numpy() for points, pose in seen]
    assert np.median(cKDTree(stored[0]).query(stored[1])[0]) < 0.08
    assert cKDTree(stored[0]).query(stored[1])[0].min() > 1e-6


def test_clouds_have_unit_size_whatever_the_units(tmp_path):
    points = np.random.default_rng(0).normal(size=(1, 200, 3)) * [1000, 300, 200] + 5000
    np.savez(tmp_path / "large.npz", points=points.astype(np.float32))
    pair = Pairs(load(tmp_path / "large.npz"), 100, seed=0).pair(0, "resampled")
    assert 0.5 < float(pair.first.norm(dim=1).max()) <= 1.0001
