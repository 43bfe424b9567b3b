"""Baselines on pairs whose rotation is known, and through the same evaluation as the model."""

import sys

import numpy as np
import pytest
import torch

from geocaps.datasets import load
from geocaps.errors import MissingExtraError, UsageError
from geocaps.evaluation import baselines
from geocaps.evaluation.baselines import BASELINES, chosen_baselines, measure_baseline
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.report import markdown
from geocaps.evaluation.run import Settings, evaluate
from geocaps.geometry.se3 import Pose
from geocaps.model.losses import chamfer

ALIGNERS = [name for name, baseline in BASELINES.items() if baseline.align]
RETRIEVERS = [name for name, baseline in BASELINES.items() if baseline.describe]


@pytest.fixture(scope="module")
def pairs():
    """Clearly asymmetric objects, two samplings of 600 points."""
    return Pairs(load("shapes", per_class=1).of_classes(["chair", "mug", "car"]), 600, seed=0)


def degrees_off(rotation, turn):
    pose = Pose.from_rotation(torch.from_numpy(np.ascontiguousarray(rotation)), torch.zeros(3).double())
    return float(torch.rad2deg(pose.angle_to(turn)))


def clouds_of(pair):
    return pair.first.double().numpy(), pair.second.double().numpy()


@pytest.mark.parametrize("name", [name for name in ALIGNERS if name not in ("pca", "trimesh", "kiss_matcher")])
def test_the_same_points_turned_are_aligned(pairs, name):
    for index in range(len(pairs)):
        pair = pairs.pair(index, "points")
        assert degrees_off(BASELINES[name].align(*clouds_of(pair)), pair.turn) < 1


@pytest.mark.parametrize("name", ALIGNERS)
def test_answers_are_proper_rotations(pairs, name):
    rotation = BASELINES[name].align(*clouds_of(pairs.pair(0, "partial")))
    assert rotation @ rotation.T == pytest.approx(np.eye(3), abs=1e-5)
    assert np.linalg.det(rotation) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["trimesh", "kiss_matcher"])
def test_most_pairs_are_aligned(pairs, name):
    turned = [pairs.pair(index, "points") for index in range(len(pairs))]
    assert sum(degrees_off(BASELINES[name].align(*clouds_of(pair)), pair.turn) < 15 for pair in turned) >= 2


def test_plain_pca_is_right_but_for_signs(pairs):
    pair = pairs.pair(0, "points")
    first, second = clouds_of(pair)
    frame = baselines.principal_frame(first)
    assert np.linalg.det(frame) == pytest.approx(1)
    found = baselines.pca(first, second)
    flips = [found @ (frame @ flip @ frame.T) for flip in baselines.PROPER_FLIPS]
    assert min(degrees_off(rotation, pair.turn) for rotation in flips) < 0.01


def test_icp_improves_a_rough_answer(pairs):
    pair = pairs.pair(0, "resampled")
    first, second = clouds_of(pair)
    axis = torch.tensor([0.0, 0.0, np.sin(np.radians(5))]).double()
    rough = Pose(torch.zeros(3).double(), torch.cat([torch.tensor([np.cos(np.radians(5))]).double(), axis])) @ pair.turn
    start = rough.rotation_matrix().numpy()
    assert degrees_off(start, pair.turn) == pytest.approx(10)
    assert degrees_off(baselines.refine(first, second, start), pair.turn) < 4


@pytest.mark.parametrize("name", RETRIEVERS)
def test_turned_objects_are_found(pairs, name):
    turned = [pairs.pair(index, "points") for index in range(len(pairs))]
    measured = measure_baseline(BASELINES[name], turned, np.ones(3, dtype=bool))
    assert measured.distances.argmin(axis=1).tolist() == [0, 1, 2]
    assert measured.errors is None
    assert measured.query_milliseconds > 0


def winged(random):
    """A heavy body in the plane x = 0, an L that no other plane mirrors onto itself; two light wings beside it."""
    upright = np.stack([np.zeros(1200), random.uniform(0, 1, 1200), random.uniform(0, 0.1, 1200)], axis=1)
    foot = np.stack([np.zeros(600), random.uniform(0, 0.1, 600), random.uniform(0, 0.5, 600)], axis=1)
    wing = np.stack([random.uniform(0, 0.5, 100), random.uniform(0.4, 0.6, 100), np.full(100, 0.05)], axis=1)
    return np.concatenate([upright, foot, wing, wing * [-1, 1, 1]])


@pytest.mark.parametrize("seed", range(3))
def test_a_mirror_image_brings_back_what_is_lost_of_a_symmetric_shape(seed):
    """All but a wing is left; one of three planes is right, and only the crop says which."""
    random = np.random.default_rng(seed)
    turn = Pose.random(generator=torch.Generator().manual_seed(seed), dtype=torch.float64).rotation_matrix().numpy()
    whole, crop = winged(random), winged(random)
    whole, crop = whole @ turn.T, crop[crop[:, 0] < 0.05] @ turn.T
    joined = baselines.with_mirror_image(crop)
    assert len(joined) == 2 * len(crop)
    assert joined[: len(crop)] == pytest.approx(crop)
    as_given, mirrored = (float(chamfer(*(torch.from_numpy(one)[None] for one in (whole, b)))) for b in (crop, joined))
    assert mirrored < 0.5 * as_given


def test_d2_is_blind_to_scale_and_pose():
    points = np.random.default_rng(0).normal(size=(100, 3)) * [1, 2, 3]
    turned = (points * 7 + 3)[:, [1, 2, 0]]
    assert baselines.d2_histogram(turned) == pytest.approx(baselines.d2_histogram(points), abs=1e-12)


def test_baselines_share_a_run_with_the_model(model):
    dataset = load("shapes", per_class=1).of_classes(["chair", "mug", "bottle"])
    settings = Settings(points=64, protocols=("parts", "resampled"), baselines=("pca_icp", "d2"))
    result = evaluate(model, dataset, settings)
    figures = result.to_dict()["baselines"]
    assert list(figures["pca_icp"]) == list(figures["d2"]) == ["resampled"]
    assert figures["pca_icp"]["resampled"]["aligned_objects"] == 2
    assert figures["pca_icp"]["resampled"]["pair_milliseconds"] > 0
    assert "top1" not in figures["pca_icp"]["resampled"]
    assert "rae_mean" not in figures["d2"]["resampled"]
    assert figures["d2"]["resampled"]["top10"] == 1
    text = markdown(result)
    assert "pca_icp" in text
    assert "D2 shape distribution" in text


def test_names_are_checked():
    assert chosen_baselines("pca, d2,pca") == (["pca", "d2"], [])
    with pytest.raises(UsageError, match="no baseline 'icp'"):
        chosen_baselines("icp")
    with pytest.raises(UsageError, match="is empty"):
        chosen_baselines(",")


def test_a_missing_library_is_said_when_asked_for_and_left_out_of_all(monkeypatch):
    for name in ("open3d", "kiss_matcher", "rtree"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"open3d.*'\.\[baselines\]"):
        chosen_baselines("pca,open3d")
    names, left_out = chosen_baselines("all")
    assert left_out == ["trimesh", "open3d", "open3d_fgr", "kiss_matcher", "fpfh"]
    assert "pca_icp" in names
