"""Metrics on cases whose answer is known."""

import itertools
import math

import numpy as np
import pytest
import torch

from geocaps.evaluation import metrics
from geocaps.geometry.se3 import Pose
from geocaps.training.validation import left_over, modulo_signs, rotation_error


def about_z(degrees):
    half = torch.deg2rad(torch.as_tensor(degrees, dtype=torch.float64)) / 2
    zero = torch.zeros_like(half)
    wxyz = torch.stack([half.cos(), zero, zero, half.sin()], dim=-1)
    return Pose(torch.zeros(*wxyz.shape[:-1], 3, dtype=torch.float64), wxyz)


def random_poses(count, seed=0):
    return Pose.random(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_axes_with_a_wrong_sign_are_told_from_wrong_axes():
    """Half turns about the canonical axes are forgiven, others are not; about principal axes likewise."""
    flips = torch.eye(4, dtype=torch.float64)  # 1, i, j, k
    found = Pose(torch.zeros(8, 3, dtype=torch.float64), flips.repeat(2, 1)) @ about_z([0.0] * 4 + [10.0] * 4)
    nothing = about_z([0.0] * 8)
    summary = metrics.sign_summary(found, nothing)
    assert summary["right_signs"] == 0.25
    assert summary["modulo_signs"] == pytest.approx(5 / 180)
    assert summary["within_15_modulo_signs"] == 1
    quarter_turn = torch.tensor([[[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]], dtype=torch.float64).expand(8, 3, 3)
    about_x = Pose.from_rotation(quarter_turn, torch.zeros(8, 3, dtype=torch.float64))
    assert metrics.sign_summary(found, about_x)["modulo_principal_signs"] == pytest.approx(5 / 180)
    turned = metrics.sign_summary(found[:4], about_z([30.0] * 4))
    assert turned["modulo_signs"] == pytest.approx(0, abs=1e-6)
    assert turned["modulo_principal_signs"] == pytest.approx((0 + 60 + 60 + 0) / 4 / 180)
    wrong = metrics.sign_summary(about_z([90.0 - 1e-6]), about_z([0.0]))
    assert wrong["modulo_signs"] == pytest.approx(0.5)
    assert wrong["within_15_modulo_signs"] == 0


def test_what_is_left_of_a_rotation_is_seen_in_the_canonical_frame():
    first, turn, off = random_poses(20), random_poses(20, seed=1), random_poses(20, seed=2)
    second = turn @ first @ off
    left = left_over(first, second, turn)
    torch.testing.assert_close(left.angle_to(off), torch.zeros(20, dtype=torch.float64), atol=1e-7, rtol=0)
    nothing = Pose.identity(20, dtype=torch.float64)
    torch.testing.assert_close(left.angle_to(nothing) / math.pi, rotation_error(first, second, turn))
    assert metrics.chance_modulo_signs() == pytest.approx(float(modulo_signs(random_poses(5000)).mean()), abs=0.01)


def test_a_perfect_model_has_no_rotation_error():
    first, turn = random_poses(20), random_poses(20, seed=1)
    errors = rotation_error(first, turn @ first, turn).numpy()
    summary = metrics.alignment_summary(errors)
    assert summary["rae_mean"] == pytest.approx(0, abs=1e-7)
    assert summary["rae_median"] == pytest.approx(0, abs=1e-7)
    assert summary["within_5"] == summary["within_15"] == summary["within_30"] == 1


def test_known_rotations_give_their_angle():
    turn = about_z([0.0, 4.0, 14.0, 29.0, 90.0, 180.0])
    identity = Pose.identity(6, dtype=torch.float64)
    errors = rotation_error(identity, identity, turn).numpy()
    assert errors * 180 == pytest.approx([0, 4, 14, 29, 90, 180], abs=1e-6)
    summary = metrics.alignment_summary(errors)
    assert [summary[f"within_{d}"] for d in (5, 15, 30)] == pytest.approx([2 / 6, 3 / 6, 4 / 6])
    assert summary["rae_mean"] == pytest.approx((4 + 14 + 29 + 90 + 180) / 6 / 180)
    assert summary["rae_median"] == pytest.approx((14 + 29) / 2 / 180)


def test_chance_floors_by_simulation():
    generator = torch.Generator().manual_seed(0)
    truth = Pose.random(40_000, generator=generator, dtype=torch.float64)
    guesses = Pose.random(40_000, 10, generator=generator, dtype=torch.float64)
    angles = guesses.angle_to(truth[:, None]) / math.pi
    floor = metrics.alignment_chance("uniform", trials=10)
    assert floor["rae_random"] == pytest.approx(float(angles[:, 0].mean()), abs=0.003)
    assert floor["rae_identity"] == floor["rae_random"]
    assert floor["rae_oracle_best_of_10"] == pytest.approx(float(angles.amin(dim=1).mean()), abs=0.003)
    within = float((angles * 180 <= 30).double().mean())
    assert floor["within_30"] == pytest.approx(within, abs=0.001)
    paper = Pose.perturbation(40_000, max_angle=math.pi, generator=generator, dtype=torch.float64)
    identity = float(paper.angle_to(Pose.identity(dtype=torch.float64)).mean()) / math.pi
    paper_floor = metrics.alignment_chance("axis_angle")
    assert paper_floor["rae_identity"] == pytest.approx(identity, abs=0.005)
    angles = paper.angle_to(Pose.identity(dtype=torch.float64)).rad2deg()
    for degrees in (5, 15, 30):
        share = float((angles <= degrees).double().mean())
        assert paper_floor[f"identity_within_{degrees}"] == pytest.approx(share, abs=0.006)


def test_published_floors():
    assert metrics.best_of_random_rae(1) == pytest.approx(0.5 + 2 / math.pi**2, abs=1e-6)
    assert [metrics.best_of_random_rae(n) for n in (10, 24, 60)] == pytest.approx([0.352, 0.262, 0.194], abs=0.003)


def test_spread_of_equal_rotations_is_nothing_and_of_two_half_their_angle():
    same = about_z([30.0] * 5)
    assert metrics.spread_degrees(same) == pytest.approx(0, abs=1e-5)
    assert metrics.spread_degrees(about_z([0.0, 40.0])) == pytest.approx(20)
    turned = random_poses(1).map(lambda t: t.expand(2, -1)) @ about_z([0.0, 40.0])
    assert metrics.spread_degrees(turned) == pytest.approx(20)


def test_spread_of_random_rotations_is_the_chance_floor():
    found = np.mean([metrics.spread_degrees(random_poses(10, seed)) for seed in range(1000, 1300)])
    assert metrics.chance_spread_degrees(10) == pytest.approx(found, abs=2.5)


def test_mean_angle_is_over_all_pairs():
    assert metrics.mean_angle_degrees(about_z([0.0, 30.0, 90.0])) == pytest.approx((30 + 90 + 60) / 3)
    assert metrics.mean_angle_degrees(about_z([10.0, 190.0])) == pytest.approx(180)
    poses = random_poses(7)
    angles = [float(poses[a].angle_to(poses[b]).rad2deg()) for a, b in itertools.combinations(range(7), 2)]
    assert metrics.mean_angle_degrees(poses) == pytest.approx(np.mean(angles))
    turned = random_poses(1, seed=5).map(lambda t: t.expand(7, -1)) @ poses
    assert metrics.mean_angle_degrees(turned) == pytest.approx(np.mean(angles))
    # Rotations that know nothing of each other are as far apart as a guess from the truth.
    assert metrics.mean_angle_degrees(random_poses(2000)) == pytest.approx(180 * metrics.best_of_random_rae(1), abs=2)


def test_identical_features_retrieve_themselves():
    features = torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    labels = np.arange(30) % 3
    summary = metrics.retrieval_summary(metrics.feature_distances(features, features), labels)
    assert summary["top1"] == summary["top10"] == summary["nn1"] == 1


def test_a_shuffled_gallery_is_at_chance():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 8, generator=generator)
    shuffled = features[torch.randperm(400, generator=generator)]
    labels = np.arange(400) % 4
    summary = metrics.retrieval_summary(metrics.feature_distances(shuffled, features), labels)
    floor = metrics.retrieval_chance(labels)
    assert floor == {"top1": 1 / 400, "top10": 10 / 400, "nn1": pytest.approx(0.25)}
    assert summary["top1"] < 0.02
    assert summary["top10"] == pytest.approx(floor["top10"], abs=0.03)
    assert summary["nn1"] == pytest.approx(floor["nn1"], abs=0.07)


def test_a_gallery_moved_on_by_one_is_found_second():
    """Query i lies nearest to object i+1 and second nearest to its own."""
    gallery = torch.arange(12.0)[:, None]
    ranks = metrics.retrieval_ranks(metrics.feature_distances(gallery[:-1] + 0.6, gallery)[:, :-1])
    assert ranks[:-1].tolist() == [1] * 10
    summary = metrics.retrieval_summary(metrics.feature_distances(gallery + 0.6, gallery), np.arange(12) // 2)
    assert summary["top1"] == pytest.approx(1 / 12)
    assert summary["top10"] == 1
    assert summary["nn1"] == pytest.approx(7 / 12)


def test_features_that_are_all_alike_retrieve_nothing():
    features = torch.ones(20, 4)
    summary = metrics.retrieval_summary(metrics.feature_distances(features, features), np.zeros(20, dtype=np.int64))
    assert summary["top1"] == 0
    assert summary["top10"] == 0


def test_late_interaction_is_the_mean_of_the_best_matches():
    generator = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(5, 3, 8, generator=generator), torch.randn(7, 4, 8, generator=generator)
    expected = np.empty((5, 7))
    for q, g in itertools.product(range(5), range(7)):
        cosines = [[float(torch.cosine_similarity(a, b, dim=0)) for b in gallery[g]] for a in queries[q]]
        expected[q, g] = 1 - np.mean([max(row) for row in cosines])
    assert metrics.percept_distances(queries, gallery) == pytest.approx(expected, abs=1e-6)
    assert metrics.percept_distances(queries, gallery, block=2) == pytest.approx(expected, abs=1e-6)


def test_half_of_the_percepts_finds_the_whole_in_any_order():
    whole = torch.randn(40, 12, 16, generator=torch.Generator().manual_seed(0))
    half = whole[:, torch.randperm(12, generator=torch.Generator().manual_seed(1))[:6]]
    distances = metrics.percept_distances(half, whole)
    assert np.diagonal(distances) == pytest.approx(0, abs=1e-6)
    assert metrics.retrieval_summary(distances, np.arange(40) % 4)["top1"] == 1


def test_nn1_counts_labelled_queries_only():
    features = torch.arange(4.0)[:, None]
    labels = np.array([0, 1, -1, -1])
    hits = metrics.retrieval_hits(metrics.feature_distances(features, features), labels)
    assert hits["nn1"].tolist() == [True, True]
    nothing = metrics.retrieval_summary(metrics.feature_distances(features, features), np.full(4, -1))
    assert nothing["nn1"] is None
    assert nothing["nn1_ci"] is None


def test_partitions_that_agree_and_that_do_not():
    truth = np.repeat([0, 1, 2], 20)
    renamed = np.repeat([7, 3, 5], 20)
    assert metrics.partition_agreement(truth, renamed) == {"nmi": pytest.approx(1), "iou": 1, "iou_merged": 1}
    crossed = metrics.partition_agreement(np.repeat([0, 1], 50), np.tile([0, 1], 50))
    assert crossed["nmi"] == pytest.approx(0, abs=1e-12)
    assert crossed["iou"] == pytest.approx(1 / 3)
    assert metrics.partition_agreement(np.zeros(5, int), np.zeros(5, int))["nmi"] == 1


def pairs_counted(first, second):
    """The adjusted Rand index by its definition: pairs of points that are together in both, beyond what is expected."""
    together = [(first[a] == first[b], second[a] == second[b]) for a, b in itertools.combinations(range(len(first)), 2)]
    both = sum(one and other for one, other in together)
    one, other = (sum(pair[side] for pair in together) for side in (0, 1))
    expected = one * other / len(together)
    return (both - expected) / ((one + other) / 2 - expected)


def test_adjusted_rand_index_counts_pairs():
    random = np.random.default_rng(0)
    for _ in range(10):
        first, second = random.integers(-1, 4, size=30), random.integers(0, 6, size=30)
        second[:15] = first[:15]
        assert metrics.adjusted_rand_index(first, second) == pytest.approx(pairs_counted(first, second))
    truth = np.repeat([0, 1, 2], 20)
    assert metrics.adjusted_rand_index(truth, np.repeat([7, 3, 5], 20)) == 1
    assert metrics.adjusted_rand_index(np.zeros(5, int), np.zeros(5, int)) == 1
    assert metrics.adjusted_rand_index(np.zeros(6, int), np.arange(6)) == 0
    labels = [random.integers(0, 8, size=5000) for _ in range(2)]
    assert metrics.adjusted_rand_index(*labels) == pytest.approx(0, abs=0.002)


def test_frame_of_the_whole_object():
    """Errors are in units of the true radius; too large and too small do not cancel."""
    errors = metrics.frame_errors(
        np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), np.array([1.1, 4.5, 1.0]),
        np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.array([1.0, 5.0, 1.0]),
    )  # fmt: skip
    assert errors[:, 0] == pytest.approx([5, 0.2, 0])
    assert errors[:, 1] == pytest.approx([1.1, 0.9, 1.0])
    summary = metrics.frame_summary(errors)
    assert summary["center_mean"] == pytest.approx(5.2 / 3)
    assert summary["center_median"] == pytest.approx(0.2)
    assert summary["scale_error_mean"] == pytest.approx(0.2 / 3)
    assert summary["scale_error_median"] == pytest.approx(0.1)
    assert summary["scale_ratio_median"] == 1


def test_nmi_of_a_part_cut_in_two():
    truth, found = np.repeat([0, 1], 40), np.repeat([0, 1, 2], [40, 20, 20])
    joint = 1.5 * math.log(2)
    expected = (math.log(2) + joint - joint) / ((math.log(2) + joint) / 2)
    agreement = metrics.partition_agreement(truth, found)
    assert agreement["nmi"] == pytest.approx(expected)
    assert agreement["iou"] == pytest.approx((1 + 0.5) / 2)
    assert agreement["iou_merged"] == 1


def test_more_true_parts_than_capsules_count_as_missed():
    assert metrics.best_match_iou(np.array([[10], [10]])) == pytest.approx(0.25)


def test_bootstrap_interval_covers_the_mean_and_repeats():
    values = np.random.default_rng(0).normal(3.0, 1.0, size=400)
    low, high = metrics.bootstrap_interval(values)
    assert low < values.mean() < high
    assert (high - low) / 2 == pytest.approx(1.96 / 20, rel=0.15)
    assert metrics.bootstrap_interval(values) == [low, high]
    assert metrics.bootstrap_interval(values[:1]) is None


def test_calibration_counts_the_right_answers_of_each_confidence():
    confidence = np.array([0.95, 0.91, 1.0, 0.9, 0.35, 0.31])
    errors = np.array([0.0, 14.9, 15.1, 0.0, 90.0, 3.0]) / 180
    found = metrics.calibration(confidence, errors)
    assert found["sure"] == 4 / 6
    assert found["right_when_sure"] == 3 / 4
    assert (found["answers"], found["answers_sure"]) == (6, 4)
    low, high = found["reliability"]
    assert low == {"confidence": pytest.approx(0.33), "right": 0.5, "answers": 2}
    assert high["answers"] == 4
    pairs = metrics.pair_calibration(np.array([[0.95, 0.91], [1.0, 0.5], [0.9, 0.9], [1, 1]]), np.array([0, 0, 1, 0]))
    assert pairs == {"sure_pairs": 3 / 4, "right_when_pair_sure": 2 / 3, "pairs": 4, "pairs_sure": 3}
    assert metrics.pair_calibration(np.array([[0.95, 0.5]]), np.array([0.0]))["right_when_pair_sure"] is None
    unsure = metrics.calibration(np.array([0.2]), np.array([0.0]))
    assert unsure["right_when_sure"] is None


def test_calibrated_answers_lie_on_the_diagonal():
    random = np.random.default_rng(0)
    confidence = random.uniform(size=200_000)
    errors = np.where(random.uniform(size=200_000) < confidence, 0.0, 0.5)
    for row in metrics.calibration(confidence, errors)["reliability"]:
        assert row["right"] == pytest.approx(row["confidence"], abs=0.02)
