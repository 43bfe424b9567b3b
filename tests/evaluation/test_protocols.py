"""A model under the protocols: equivariant by construction where it must be, at chance where it knows nothing."""

import json

import numpy as np
import pytest
import torch

from geocaps.apps.encode import Model
from geocaps.cli.output import _plain
from geocaps.datasets import load
from geocaps.errors import DatasetError, UsageError
from geocaps.evaluation import protocols
from geocaps.evaluation.answers import best_by_chamfer, candidates, decoded, encode_all
from geocaps.evaluation.pairs import KEPT, PROTOCOLS, Pairs
from geocaps.evaluation.protocols import (
    BOTH,
    HALF_OF_THE_PARTS,
    MODEL,
    OTHER_PARTS,
    PAPER_CLASSES,
    SINGLE_FEATURE,
    alignment_scope,
    measure,
    measure_rows,
    views_of,
)
from geocaps.evaluation.report import markdown, tables
from geocaps.evaluation.run import STABILITY_CLOUDS, Settings, completion, evaluate
from geocaps.geometry.se3 import Pose, concatenate
from geocaps.model.losses import FEATURE_SHARE, chamfer
from geocaps.training.validation import rotation_error
from tests.model.conftest import clouds

SMALL = Settings(points=48, protocols=("parts", "points", "resampled"))


def timeless(value):
    """Everything but the clock."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if "seconds" not in k}
    return value


@pytest.fixture(scope="module")
def shapes():
    return load("shapes", per_class=1).subset([1, 2, 3, 6, 7, 12])


@pytest.fixture(scope="module")
def result(model, shapes):
    return evaluate(model, shapes, Settings(points=48))


def test_turned_parts_and_points_are_found_exactly_even_untrained(result):
    figures = result.to_dict()["protocols"]
    for protocol in ("parts", "points"):
        assert figures[protocol]["rae_mean"] < 1e-4  # float32: a hundredth of a degree
        assert figures[protocol]["within_5"] == figures[protocol]["top1"] == figures[protocol]["nn1"] == 1


def test_every_protocol_has_the_promised_figures(result):
    figures = result.to_dict()
    assert list(figures["protocols"]) == list(PROTOCOLS)
    for row in figures["protocols"].values():
        for name in ("rae_mean", "within_5", "within_15", "within_30", "top1", "top10", "nn1"):
            assert 0 <= row[name] <= 1
            low, high = row[f"{name}_ci"]
            assert low <= row[name] <= high
        assert 0 <= row["rae_median"] <= 1
        assert row["objects"] == 6
        assert row["aligned_objects"] == 5  # all but the bottle
        assert row["chance"]["top1"] == pytest.approx(1 / 6)
        assert 0 <= row["sure"] <= 1
        assert row["answers"] == 2 * row["pairs"] == 10
        assert row["answers_sure"] == round(10 * row["sure"])
        assert 2 * row["pairs_sure"] <= row["answers_sure"]
    assert list(figures["completion"]) == ["partial", "partial50", "scan"]
    assert all(row["objects"] == 6 for row in figures["completion"].values())
    assert figures["seconds"] > 0
    assert figures["reconstruction"]["chamfer_one_layer"] > 0
    assert figures["reconstruction"]["chamfer_two_layer"] > 0
    assert 0 <= figures["canonicalisation"]["stability"]["degrees"] <= 180
    assert 0 < figures["labels"]["labels"] < 1
    assert 0 <= figures["labels"]["canonical_labels"] <= 1
    assert 0 < figures["parts"]["nmi"] < 1
    assert figures["parts"]["chance"]["nmi"] < figures["parts"]["nmi"]


def test_confidence_and_completion_are_tables_with_the_number_of_answers(result):
    found = {table.title.split(",")[0]: table for table in tables(result)}
    figures = result.to_dict()
    trust, completed = found["Stated confidence"], found["Completion: Chamfer × 10³ to the whole object"]
    assert [row[0] for row in trust.rows] == list(PROTOCOLS)
    for name, sure, right, sure_pairs, right_pairs, *_ in trust.rows:
        row = figures["protocols"][name]
        assert (sure.split(" of ")[1], sure_pairs.split(" of ")[1]) == ("10", "5")
        assert right.split(" of ")[1] == str(row["answers_sure"])
        assert right_pairs.split(" of ")[1] == str(row["pairs_sure"])
    assert [row[0] for row in completed.rows] == ["partial", "partial50", "scan"]
    expected = f"{1000 * figures['completion']['partial']['chamfer_as_given']:.2f} ["
    assert completed.rows[0][2].startswith(expected)


def test_a_cloud_that_nothing_was_cut_from_is_the_whole_but_for_its_sampling(model, shapes, monkeypatch):
    """Crops are far from the whole, a mirror image of something whole is not nearer, and the model's is its own."""
    pairs = Pairs(shapes, 300, seed=0)
    first = encode_all(model, [pairs.first(index) for index in range(len(pairs))])
    cropped = completion(model, views_of(model, pairs, first, "partial"))
    monkeypatch.setitem(KEPT, "partial", 1.0)
    views = views_of(model, pairs, first, "partial")
    whole = completion(model, views)
    noise = [
        float(chamfer(pair.turn.apply(pair.first.double())[None], pair.second.double()[None]))
        for pair in (pairs.pair(index, "resampled") for index in range(len(pairs)))
    ]
    assert 0 < whole["chamfer_as_given"] == pytest.approx(np.mean(noise))
    assert cropped["chamfer_as_given"] > 3 * whole["chamfer_as_given"]
    assert whole["objects"] == 6
    own = [
        float(chamfer(pair.turn.apply(pair.first.double())[None], torch.from_numpy(one.complete())[None]))
        for pair, one in zip(views.pairs, views.second.encodings, strict=True)
    ]
    assert whole["chamfer_completed"] == pytest.approx(np.mean(own), rel=1e-4)


def test_each_cloud_is_encoded_once(model, shapes, monkeypatch):
    """First views once for all protocols, second views once each; more only for the stability."""
    seen = []
    encode_many = Model.encode_many

    def spy(self, sources, **options):
        seen.extend(sources)
        return encode_many(self, sources, **options)

    monkeypatch.setattr(Model, "encode_many", spy)
    unlabelled = shapes.subset(range(6))
    monkeypatch.setattr(unlabelled, "part_labels", lambda index: None)
    evaluate(model, unlabelled, Settings(points=48, protocols=("parts", "resampled", "partial")))
    assert len(seen) == 3 * 6 + 5 * STABILITY_CLOUDS
    assert len({cloud.numpy().tobytes() for cloud in seen}) == len(seen)


@pytest.mark.parametrize("layer", ["parts", "object"])
def test_surfaces_of_many_are_those_of_each(model, shapes, layer):
    pairs = Pairs(shapes, 48, seed=0)
    seen = encode_all(model, [pairs.pair(index, "scan").second for index in range(len(pairs))]).encodings
    expected = np.stack([one.reconstruct(layer).points.reshape(-1, 3) for one in seen])
    assert decoded(model, seen, layer).numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_figures_repeat_to_the_last_digit(model, shapes, result):
    again = evaluate(model, shapes, Settings(points=48))
    assert timeless(again.to_dict()) == timeless(result.to_dict())
    other = evaluate(model, shapes, Settings(points=48, seed=1, protocols=("resampled",)))
    assert other.to_dict()["protocols"]["resampled"] != result.to_dict()["protocols"]["resampled"]


def test_best_of_trials_is_always_labelled(model, shapes, result):
    chosen = evaluate(model, shapes, Settings(points=48, trials=10, protocols=("resampled",)))
    figures = chosen.to_dict()
    assert figures["selection"] == "best of 10 by Chamfer"
    assert "best of 10 by Chamfer" in tables(chosen)[0].rows[0][0]
    assert figures["protocols"]["resampled"]["chance"]["rae_oracle_best_of_10"] == pytest.approx(0.354, abs=0.001)
    assert figures["protocols"]["resampled"]["top1"] == result.to_dict()["protocols"]["resampled"]["top1"]


def test_trials_undo_a_wrong_choice_of_start(model):
    """The first cloud got a start that the second does not choose: among all starts of the second is the same one."""
    points = clouds(5, 64)
    turn = Pose.random(5, generator=torch.Generator().manual_seed(1))
    one, other = model.network.parse(points), model.network.parse(turn.apply(points))
    chosen_second = turn.inverse() @ other.object.pose
    farthest = one.candidates.angle_to(chosen_second[:, None]).argmax(dim=1)
    wrong = one.candidates[torch.arange(5), farthest]

    def errors(trials):
        pairs = zip(points, turn.apply(points), strict=True)
        chosen = best_by_chamfer(wrong, other.candidates, other.probability, pairs, trials)
        return rotation_error(wrong, chosen, turn)

    # Starts lie half a turn apart, and untrained votes do not bring them together.
    assert errors(1).min() > 0.2
    assert errors(10).max() < 0.01


def test_a_model_with_random_starts_gains_nothing_from_equal_draws(paper_model):
    """Untrained votes barely move a random start, so its answer is a random rotation: 0.70, not the identity's 0.5."""
    pairs = Pairs(load("shapes", per_class=6).of_classes(["chair", "car", "bed", "mug"]), 32, seed=0)
    first = encode_all(paper_model, [pairs.first(index) for index in range(len(pairs))])
    for protocol in ("parts", "points"):
        assert measure(paper_model, pairs, first, protocol).errors.mean() > 0.55


def test_trials_choose_the_candidate_that_brings_the_clouds_together():
    points = clouds(1, 100)[0].double()
    generator = torch.Generator().manual_seed(0)
    first, turn = (
        Pose.random(1, generator=generator).to(torch.float64),
        Pose.random(generator=generator).to(torch.float64),
    )
    wrong = Pose.random(1, 4, generator=generator).to(torch.float64)
    poses = concatenate([wrong, (turn @ first)[:, None]], dim=1)
    probability = torch.tensor([[0.4, 0.3, 0.2, 0.0, 0.1]])
    pair = [(points, turn.apply(points))]
    errors = [
        float(rotation_error(first, best_by_chamfer(first, poses, probability, pair, n), turn)) for n in (1, 3, 4, 10)
    ]
    assert errors[0] == pytest.approx(float(rotation_error(first, poses[:, 0], turn)))
    assert min(errors[:2]) > 0.05
    assert errors[2:] == pytest.approx([0, 0], abs=1e-6)


def test_a_candidate_whose_probability_underflows_is_tried():
    points = clouds(1, 100)[0].double()
    generator = torch.Generator().manual_seed(0)
    first, turn = (Pose.random(*shape, generator=generator).to(torch.float64) for shape in ((1,), ()))
    wrong, right = Pose.random(1, 1, generator=generator).to(torch.float64), (turn @ first)[:, None]
    poses = concatenate([wrong, right], dim=1)
    pair = [(points, turn.apply(points))]
    errors = [
        float(rotation_error(first, best_by_chamfer(first, poses, torch.zeros(1, 2), pair, n), turn)) for n in (1, 10)
    ]
    assert errors[0] > 0.05
    assert errors[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("protocol", ["parts", "points", "resampled"])
def test_trials_choose_poses_and_never_features(paper_model, shapes, protocol):
    pairs = Pairs(shapes, 48, seed=0)
    first = encode_all(paper_model, [pairs.first(index) for index in range(len(pairs))])
    one, ten = (measure(paper_model, pairs, first, protocol, trials) for trials in (1, 10))
    assert (ten.distances == one.distances).all()
    assert (ten.errors != one.errors).any()


def test_random_starts_give_as_many_candidates_as_trials(paper_model, shapes):
    seen = encode_all(paper_model, [Pairs(shapes, 48, 0).first(0)]).batches[0]
    parse = candidates(paper_model, seen, 7, torch.Generator().manual_seed(0))
    assert parse.candidates.shape == (1, 7)
    assert len(torch.unique(parse.candidates.wxyz[0], dim=0)) == 7


@pytest.mark.parametrize("protocol", ["parts", "points", "resampled"])
def test_percepts_retrieve_and_the_single_feature_stands_beside(model, shapes, protocol):
    pairs = Pairs(shapes, 48, seed=0)
    first = encode_all(model, [pairs.first(index) for index in range(len(pairs))])
    rows = measure_rows(model, views_of(model, pairs, first, protocol))
    assert list(rows) == [MODEL, SINGLE_FEATURE, BOTH]
    by_feature = rows[SINGLE_FEATURE].summary(shapes, alignment_scope(shapes))
    assert "rae_mean" not in by_feature
    assert not np.allclose(rows[MODEL].distances, rows[SINGLE_FEATURE].distances)
    if protocol != "resampled":  # the features of both clouds are the same then
        feature = torch.nn.functional.normalize(first.answers.feature, dim=-1)
        cosine = (feature @ feature.mT).double().numpy()
        joint = rows[MODEL].distances + FEATURE_SHARE * (1 - cosine)
        np.testing.assert_allclose(rows[BOTH].distances, joint, atol=1e-3)
        assert np.diagonal(rows[MODEL].distances) == pytest.approx(0, abs=1e-4)
        assert by_feature["top1"] == 1


def test_without_percepts_there_is_one_row(paper_model, shapes):
    pairs = Pairs(shapes, 48, seed=0)
    first = encode_all(paper_model, [pairs.first(index) for index in range(len(pairs))])
    assert list(measure_rows(paper_model, views_of(paper_model, pairs, first, "points"))) == [MODEL]


@pytest.mark.parametrize("papers", [False, True])
def test_rows_with_other_parts_give_the_second_layer_what_they_say(model, paper_model, shapes, monkeypatch, papers):
    """Another's parts: everyone's once, nobody's own. Half: no share, or (the paper's layer) no capsule."""
    given = []
    model = paper_model if papers else model
    second_layer = protocols.second_layer

    def spy(model, seen, parts, generator, trials=1, turn=None):
        given.append(parts)
        return second_layer(model, seen, parts, generator, trials, turn)

    monkeypatch.setattr(protocols, "second_layer", spy)
    pairs = Pairs(shapes, 48, seed=0)
    first = encode_all(model, [pairs.first(index) for index in range(len(pairs))])
    views = views_of(model, pairs, first, "resampled")
    own = views.second.batches[0].parse
    rows = measure_rows(model, views, ablate_parts=True)
    assert set(rows) - {SINGLE_FEATURE, BOTH} == {MODEL, OTHER_PARTS, HALF_OF_THE_PARTS}
    (others,) = (one for one in given if torch.equal(one.share.sort(dim=0).values, own.share.sort(dim=0).values))
    (half,) = (one for one in given if one is not others)
    owner = [[torch.equal(got, mine) for mine in own.parts.feature].index(True) for got in others.capsules.feature]
    assert sorted(owner) == list(range(6))
    assert all(who != index for index, who in enumerate(owner))
    assert half.share.shape[1] == (3 if papers else 6)
    if not papers:
        kept = half.share > 0
        assert (kept.sum(dim=1) <= 3).all()
        assert torch.equal(half.share[kept], own.share[kept])
        assert len(torch.unique(kept, dim=0)) > 1


def test_ablations_are_rows_of_the_tables(model, shapes):
    result = evaluate(model, shapes, Settings(points=48, protocols=("parts", "scan"), ablate_parts=True))
    figures = result.to_dict()["variants"]
    assert set(figures) == {SINGLE_FEATURE, BOTH, OTHER_PARTS, HALF_OF_THE_PARTS}
    assert all(list(figures[name]) == ["scan"] for name in (OTHER_PARTS, HALF_OF_THE_PARTS))
    assert 0 <= figures[OTHER_PARTS]["scan"]["rae_mean"] <= 1
    assert f"| {OTHER_PARTS}" in markdown(result)


def test_the_papers_layer_takes_a_cloud_for_the_whole(paper_model, shapes):
    """Its radius is the cloud's own: right for whole clouds, wrong for crops."""
    found = evaluate(paper_model, shapes, Settings(points=48, protocols=("parts", "resampled", "partial", "partial50")))
    figures = found.to_dict()["protocols"]
    assert "center_mean" not in figures["parts"]
    assert figures["resampled"]["scale_error_mean"] < 0.05
    assert figures["partial"]["scale_error_mean"] > 0.05
    assert figures["partial50"]["scale_ratio_median"] < 1


def test_alignment_is_over_asymmetric_classes(make_set):
    dataset = make_set(objects=6, class_names=("chair", "ball"))
    scope = alignment_scope(dataset)
    assert scope.classes == ("chair",)
    assert scope.aligned.tolist() == [True, False] * 3
    missing = [note for note in scope.notes if "without objects here" in note]
    assert len(missing) == 1
    assert all(name in missing[0] for name in PAPER_CLASSES if name != "chair")


def test_without_asymmetric_classes_all_are_averaged_and_it_is_said(make_set):
    scope = alignment_scope(make_set(objects=4, class_names=("ball", "cone")))
    assert scope.aligned.all()
    assert any("averaged over all 4" in note for note in scope.notes)


def test_unlabelled_data(model, make_set):
    result = evaluate(model, make_set(objects=3, class_names=()), SMALL)
    figures = result.to_dict()
    assert figures["protocols"]["resampled"]["nn1"] is None
    assert figures["canonicalisation"]["consistency"]["degrees"] is None
    assert figures["parts"] is None
    notes = " ".join(figures["notes"])
    assert "no labels" in notes
    assert "no part labels" in notes
    assert "–" in markdown(result)


def test_some_labels_are_enough(model, make_set):
    figures = evaluate(model, make_set(objects=5, labels=[0, 1, -1, -1, 0]), SMALL).to_dict()
    assert 0 <= figures["protocols"]["resampled"]["nn1"] <= 1
    assert "3 of 5 objects that have a label" in " ".join(figures["notes"])


def test_one_object(model, make_set):
    result = evaluate(model, make_set(objects=1, class_names=("chair",)), SMALL)
    figures = result.to_dict()
    row = figures["protocols"]["resampled"]
    assert row["objects"] == row["aligned_objects"] == row["top1"] == 1
    assert row["rae_mean_ci"] is None
    assert row["nn1"] is None
    assert "one object" in " ".join(figures["notes"])
    json.dumps(_plain(figures), allow_nan=False)
    assert "Protocol resampled" in markdown(result)


def test_part_labels_of_a_file_are_compared(model, make_set):
    figures = evaluate(model, make_set(part_labels=True), SMALL).to_dict()
    assert figures["parts"]["objects"] == 6
    assert figures["parts"]["iou_merged"] > figures["parts"]["chance"]["iou_merged"]


def test_nothing_to_evaluate(model, make_set):
    with pytest.raises(DatasetError, match="no objects to evaluate"):
        evaluate(model, make_set().subset(np.zeros(0, dtype=np.int64)), SMALL)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"trials": 0}, "trials"), ({"seed": -1}, "seed"), ({"points": 5}, "give at least 20")],
)
def test_wrong_settings(model, make_set, changes, sentence):
    with pytest.raises(UsageError, match=sentence):
        evaluate(model, make_set(), Settings(**changes))
