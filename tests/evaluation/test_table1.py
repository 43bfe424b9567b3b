"""Table 1 trained for seconds: the settings differ as they must, runs are kept and read again."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from geocaps.apps.clouds import to_user
from geocaps.apps.encode import Model
from geocaps.datasets import load
from geocaps.errors import ConfigError
from geocaps.evaluation import figures
from geocaps.evaluation import table1 as module
from geocaps.evaluation.answers import decomposed_anew, encode_all, seen_by
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.table1 import (
    OBJECTIVES,
    PAPER,
    SETTINGS,
    configuration,
    first_layer_configuration,
    table1,
)
from geocaps.evaluation.table1_report import paper_table, write_table1
from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Parts
from geocaps.model.checkpoint import read_config, save_checkpoint
from geocaps.model.config import PaperObjectConfig
from geocaps.model.config import preset as model_preset
from geocaps.training import preset
from geocaps.training.config import PaperObjective, StageConfig
from geocaps.training.loop import learning_rate
from tests.model.conftest import TINY_PAPER, make_model
from tests.training.tiny import MODEL, write_data

PARTS = model_preset("cpu").parts


@pytest.mark.parametrize("letter", SETTINGS)
def test_settings_at_small_sizes_keep_the_papers_choices(letter):
    small, paper = (configuration(letter, PARTS, "paper", paper_sizes) for paper_sizes in (False, True))
    assert paper.model.object.width == 1024
    assert small.model.object.width < 1024
    assert isinstance(small.objective, PaperObjective)
    assert isinstance(small.model.object, PaperObjectConfig)
    assert small.model.parts == paper.model.parts == PARTS
    for name in ("weights", "noise_from", "noise_to"):
        assert getattr(small.objective, name) == getattr(paper.objective, name)
    for name in ("views", "voting_steps"):
        assert getattr(small.model.object, name) == getattr(paper.model.object, name)


def test_settings_differ_as_in_the_paper():
    configs = {letter: configuration(letter, PARTS, "paper", paper_sizes=False) for letter in SETTINGS}
    assert [config.model.object.views for config in configs.values()] == [1, 2, 4, 4, 4]
    assert [config.model.object.voting_steps for config in configs.values()] == [1, 1, 1, 1, 3]
    assert [config.objective.noise_to for config in configs.values()] == [45, 45, 45, 180, 180]


def test_the_rate_starts_at_the_papers_and_rises_before_the_noise():
    config = configuration("E", PARTS, "paper", paper_sizes=False)
    stage = config.object.fitted(2_000)
    rates = [learning_rate(stage, step) for step in range(stage.steps)]
    paper = preset("E").object.learning_rate
    assert rates[0] == rates[int(0.08 * stage.steps) - 1] == paper
    ramp = int(config.objective.ramp_from * stage.steps)
    assert rates[ramp] == pytest.approx(7 * paper, rel=0.02)
    assert rates[-1] < 0.1 * paper
    assert config.objective.noise_degrees(0.15) == 45
    assert config.objective.noise_degrees(0.55) == 180


def test_a_setting_whose_votes_collapse_is_measured_too():
    assert configuration("A", PARTS, "paper", paper_sizes=False).objective.least_spread == 0
    assert configuration("A", PARTS, "paper", paper_sizes=True).objective.least_spread > 0


def test_objectives_are_the_papers_and_one_departure():
    paper, ours = (configuration("E", PARTS, name, paper_sizes=False).objective.weights for name in OBJECTIVES)
    assert paper == preset("E").objective.weights
    assert (ours.part, ours.chamfer) == (0, 10)


def test_another_layer_sees_the_same_parts_from_new_starts(paper_model, make_set):
    """Neither the first cloud's features nor its poses tell those of the second: encoding starts both alike."""
    data = make_set(objects=4)
    pairs = [Pairs(data, 48, 0).pair(index, "points") for index in range(4)]
    encoded = encode_all(paper_model, [pair.first for pair in pairs])
    other = Model(make_model(TINY_PAPER, seed=1))
    other.network.parts.load_state_dict(paper_model.network.parts.state_dict())
    first, second = (seen_by(other, encoded, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    again = seen_by(other, encoded, torch.Generator().manual_seed(1))
    assert torch.equal(first.answers.feature, again.answers.feature)
    assert not torch.isclose(first.answers.feature, second.answers.feature).all()
    for seen in (first, second):
        torch.testing.assert_close(
            seen.encodings.parse.parts.pose.vector(), encoded.encodings.parse.parts.pose.vector()
        )
    poses = to_user(first.encodings.parse.object.pose[0], first.encodings[0].normalization)
    assert np.allclose(poses.matrix(), first.encodings[0].pose.matrix())
    parse = other.network.parse_parts(
        Parts(encoded.encodings.parse.parts, encoded.encodings.parse.share),
        torch.stack([other.prepare(one.cloud)[0].float() for one in encoded.encodings]),
        torch.Generator().manual_seed(1),
    )
    torch.testing.assert_close(parse.object.feature, first.answers.feature)


def test_parts_found_anew_from_random_starts_are_others(paper_model, make_set):
    """In the cloud's own frame a rotated cloud would have the same parts, rotated; in the paper it has others."""
    data = make_set(objects=4)
    pairs = [Pairs(data, 48, 0).pair(index, "points") for index in range(4)]
    first, second = (encode_all(paper_model, [getattr(pair, view) for pair in pairs]) for view in ("first", "second"))
    repeated = [one.encodings.parse.parts.feature for one in (first, second)]
    torch.testing.assert_close(*repeated, atol=1e-4, rtol=1e-4)
    anew = [decomposed_anew(paper_model, first, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    features = [one.encodings.parse.parts.feature for one in anew]
    assert torch.equal(features[0], features[1])
    assert not torch.isclose(features[0], features[2], atol=1e-4).all()
    assert not torch.isclose(features[0], repeated[0], atol=1e-4).all()
    capsules = anew[0].encodings[0].parts
    assert np.array_equal(capsules.feature, features[0][0].numpy())
    assert capsules.share.sum() == pytest.approx(1)


def test_a_layer_that_does_not_start_at_random_finds_no_other_parts(model, make_set):
    encoded = encode_all(model, [Pairs(make_set(objects=1), 48, 0).pair(0, "points").first])
    assert decomposed_anew(model, encoded, torch.Generator().manual_seed(1)) is encoded


def test_the_picture_shows_where_random_starts_lead(paper_model, make_set):
    """An untrained layer finds another frame from every start; one that had found the canonical one would not."""
    cloud = make_set(objects=1).samplings(0, 48, 1, torch.Generator().manual_seed(0))[0]
    turns = Pose.random(5, generator=torch.Generator().manual_seed(1))
    frames = figures.canonical_of_turned_parts(paper_model, cloud, turns, torch.Generator().manual_seed(2))
    apart = (frames[:, :1] - frames).norm(dim=2)
    torch.testing.assert_close(apart, apart[:1].expand_as(apart), atol=1e-4, rtol=0)
    assert (frames[1:] - frames[0]).abs().amax(dim=(1, 2)).min() > 0.1
    again = figures.canonical_of_turned_parts(paper_model, cloud, turns, torch.Generator().manual_seed(2))
    assert torch.equal(frames, again)


def test_the_first_layer_is_the_papers_with_fewer_points():
    small, paper = (first_layer_configuration(paper_sizes) for paper_sizes in (False, True))
    assert paper.model == preset("paper").model
    assert paper.parts == preset("paper").parts
    assert small.stages == paper.stages == ("parts",)
    assert (small.model.parts.parts, small.model.parts.feature, small.model.parts.start) == (16, 8, "random")
    assert small.model.parts == replace(paper.model.parts, views=2, decoded=64)


def made_tiny(monkeypatch):
    """The settings of the real configuration, at sizes that take seconds."""
    made, made_first = module.configuration, module.first_layer_configuration
    seconds = {"validation_objects": 2, "validations": 1, "tensorboard": False}

    def tiny(letter, first_layer, objective, paper_sizes):
        config = made(letter, first_layer, objective, paper_sizes)
        model = replace(config.model, points=64, object=replace(
            config.model.object, feature=16, width=16, blocks=1, decoder_width=16, decoder_blocks=1
        ))  # fmt: skip
        return replace(
            config,
            model=model,
            object=replace(config.object, batch=4, warmup=0),
            objective=replace(config.objective, reuse=2, target_points=32, decoded_points=4),
            **seconds,
        )

    def tiny_first(paper_sizes):
        config = made_first(paper_sizes)
        parts = replace(config.model.parts, parts=8, width=16, blocks=1, decoder_width=16, decoded=16, iterations=2)
        return replace(
            config, model=replace(config.model, points=64, parts=parts), parts=StageConfig(steps=3, batch=4), **seconds
        )

    monkeypatch.setattr(module, "configuration", tiny)
    monkeypatch.setattr(module, "first_layer_configuration", tiny_first)


@pytest.mark.slow
def test_table1_trains_a_first_layer_and_keeps_it(tmp_path, monkeypatch):
    made_tiny(monkeypatch)
    data = write_data(tmp_path / "ellipsoids.npz")
    dataset, said = load(data).subset(range(4)), []
    options = {"budget": 1.0, "steps": 2, "train_data": str(data), "points": 64, "say": said.append}
    early = table1(dataset, tmp_path / "runs", settings=["A"], until=1, **options)
    assert (early["A"].steps, early["A"].planned) == (1, 2)
    rows = table1(dataset, tmp_path / "runs", settings=["A"], **options)
    assert rows["A"].steps == 2
    assert rows["A"].figures != early["A"].figures
    first = read_config(tmp_path / "runs" / "parts" / "last").parts
    assert first.start == "random"
    assert read_config(tmp_path / "runs" / "A" / "last").parts == first
    kept = (tmp_path / "runs" / "parts" / "last" / "card.md").read_text()
    assert "step 3 of 3" in kept
    said.clear()
    table1(dataset, tmp_path / "runs", settings=["A", "E"], **options)
    assert [sentence.partition("runs/")[2] for sentence in said if "finished before" in sentence] == [
        "parts: finished before, after 3 steps",
        "A: finished before, after 2 steps",
    ]
    by_time = table1(dataset, tmp_path / "timed", settings=["A"], **options | {"steps": None, "budget": 0.05})
    assert by_time["A"].steps >= 1


@pytest.mark.slow
def test_table1_trains_then_reads(tmp_path, monkeypatch):
    """The real training loop on a tiny model: seconds instead of minutes."""
    made_tiny(monkeypatch)
    data = write_data(tmp_path / "ellipsoids.npz")
    dataset = load(data).subset(range(4))
    said = []
    first_layer = save_checkpoint(tmp_path / "first", make_model(MODEL), card="untrained")
    options = {"budget": 0.05, "weights": str(first_layer), "train_data": str(data), "points": 64, "say": said.append}
    rows = table1(dataset, tmp_path / "runs", **options)
    assert list(rows) == list(SETTINGS)
    assert sum("training" in sentence for sentence in said) == 5
    for letter, row in rows.items():
        for protocol in ("parts", "points"):
            ours = row.figures[protocol]
            assert 0 <= ours["modulo_signs"] <= ours["rae_mean"] <= 1
            assert ours["within_15"] <= ours["within_15_modulo_signs"] <= 1
            assert 0 <= ours["rae_mean_of_ten"] <= 1
            assert 0 <= ours["top1"] <= 1
        assert 0 < row.spread <= 180
        assert [point["step"] for point in row.curve] == [0, row.steps]
        assert row.steps >= 1
        assert read_config(tmp_path / "runs" / letter / "last").object.views == [1, 2, 4, 4, 4]["ABCDE".index(letter)]
    fixed = table1(dataset, tmp_path / "fixed", **options | {"steps": 2, "settings": ["A", "E"]})
    assert {letter: row.steps for letter, row in fixed.items()} == {"A": 2, "E": 2}
    said.clear()
    again = table1(dataset, tmp_path / "runs", **options)
    assert sum("finished before" in sentence for sentence in said) == 5
    assert sum("evaluated before" in sentence for sentence in said) == 5
    assert not any("training" in sentence or "evaluating" in sentence for sentence in said)
    assert {letter: _still(row) for letter, row in again.items()} == {
        letter: _still(row) for letter, row in rows.items()
    }
    some = table1(dataset, tmp_path / "runs", **options | {"settings": ["B", "D"]})
    assert list(some) == ["B", "D"]
    said.clear()
    fewer = table1(load(data).subset(range(3)), tmp_path / "runs", **options | {"settings": ["B"]})
    assert any("evaluating" in sentence for sentence in said)
    assert fewer["B"].figures["parts"]["objects"] == 3
    with pytest.raises(ConfigError, match="was started with seed = 0, not 5"):
        table1(dataset, tmp_path / "runs", **options | {"seed": 5})
    text = paper_table(rows, dataset)
    assert all(f"{PAPER[letter]['rae_mean']:.3f} → " in text for letter in SETTINGS)
    assert "0.420 → " in text
    assert "modulo signs" in text
    assert "chance" in text
    picture = figures.settings({letter: row.model for letter, row in rows.items()}, dataset, points=64, seed=0)
    assert imread(io.BytesIO(picture)).shape[1] > 6 * 100  # the inputs and a panel for each setting
    written = write_table1(rows, dataset, picture, tmp_path / "runs")
    assert (tmp_path / "runs" / "settings.png").read_bytes() == picture
    assert json.loads((tmp_path / "runs" / "table1.json").read_text()) == written
    assert written["settings"]["E"]["paper"]["top1"] == 0.943
    assert (tmp_path / "runs" / "table1.md").read_text().startswith("**Table 1")


def _still(row):
    return row.figures, row.spread, row.curve, row.steps
