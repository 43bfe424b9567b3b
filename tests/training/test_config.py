from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from geocaps.errors import ConfigError
from geocaps.model.config import AgreementWeights, PaperWeights
from geocaps.training import (
    PRESETS,
    AgreementObjective,
    Augmentation,
    PaperObjective,
    StageConfig,
    TrainConfig,
    preset,
)
from geocaps.training.batches import random_stream
from geocaps.training.config import differences
from geocaps.training.loop import learning_rate
from geocaps.training.run import seconds


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_json(name: str) -> None:
    config = preset(name, init=None, budget=90.0)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_value_that_is_newer_than_the_file_is_the_default() -> None:
    for name in ("cpu", "E"):
        values = preset(name, init=None).to_dict()
        del values["objective"]["reuse"]
        assert TrainConfig.from_dict(values).objective == replace(
            PRESETS[name].objective, reuse=type(PRESETS[name].objective)().reuse
        )


def test_differences_are_named() -> None:
    a = preset("cpu")
    b = replace(a, seed=3, model=replace(a.model, points=512))
    assert differences(a, b) == [("seed", 0, 3), ("model.points", 1024, 512)]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (StageConfig, {"steps": 0}, "steps must be at least 1, not 0"),
    (StageConfig, {"learning_rate": -1.0}, "learning_rate must be positive"),
    (StageConfig, {"learning_rate": float("inf")}, "learning_rate must be positive and finite"),
    (StageConfig, {"batch": 10, "accumulate": 3}, "accumulate must divide the batch of 10"),
    (StageConfig, {"decay_factor": 2.0}, "decay_factor must lie"),
    (StageConfig, {"best_by": "beauty"}, "best_by must be one of"),
    (PaperObjective, {"decoded_points": 15}, "decoded_points must be a square number"),
    (PaperObjective, {"noise_to": 200.0}, "noise_to must lie in 0 to 180"),
    (PaperObjective, {"ramp_from": 0.5, "ramp_to": 0.1}, "ramp_from must not pass ramp_to"),
    (PaperObjective, {"weights": PaperWeights(part=0.0, chamfer=0.0)}, "nothing would train the decoders"),
    (AgreementObjective, {"weights": AgreementWeights(choice=-1.0)}, "weights.choice must not be negative"),
    (Augmentation, {"stretch": 0.5}, "stretch must be at least 1"),
    (Augmentation, {"crop_share": 2.0}, "crop_share must lie in 0 to 1"),
    (Augmentation, {"crop_keep": 0.0}, "crop_keep must lie"),
    (TrainConfig, {"data": " , "}, "data must name at least one source"),
    (TrainConfig, {"seed": -1}, "seed must be from 0"),
    (TrainConfig, {"seed": 2**63}, "seed must be from 0"),
    (TrainConfig, {"budget": 0.0}, "budget must be positive"),
    (TrainConfig, {"validations": 0}, "validations must be at least 1"),
]


@pytest.mark.parametrize(("kind", "values", "says"), WRONG)
def test_wrong_values_are_full_sentences(kind: Any, values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**values)


def test_values_that_do_not_fit_each_other() -> None:
    with pytest.raises(ConfigError, match="needs a trained first layer"):
        preset("cpu", stage="object")
    with pytest.raises(ConfigError, match="stage must be object"):
        preset("cpu", init="somewhere")
    with pytest.raises(ConfigError, match="each object layer has its own objective"):
        preset("cpu", objective=PaperObjective())
    with pytest.raises(ConfigError, match=r"target_points must lie in 32 .* to 1024"):
        preset("cpu", objective=replace(PRESETS["cpu"].objective, target_points=8))
    with pytest.raises(ConfigError, match="has no 'colour'"):
        TrainConfig.from_dict({"colour": 1})


def test_a_rate_that_is_held_before_it_rises() -> None:
    stage = StageConfig(steps=20, hold=8, hold_rate=0.1, warmup=2, learning_rate=0.7, schedule="cosine")
    rates = [learning_rate(stage, step) for step in range(20)]
    assert rates[:8] == [0.1] * 8
    assert rates[8:11] == pytest.approx([0.4, 0.7, 0.7])
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert [learning_rate(stage.fitted(200), step) for step in (79, 80)] == pytest.approx([0.1, 0.1 + 0.6 / 20])


def test_the_papers_learning_rates() -> None:
    parts = PRESETS["paper"].parts
    assert [learning_rate(parts, step) for step in (0, 19_999, 20_000, 99_999, 100_000)] == pytest.approx(
        [1e-3, 1e-3, 1e-4, 1e-4, 1e-5]
    )
    half = parts.fitted(50_000)
    assert half.decay_at == (10_000, 50_000)
    assert learning_rate(half, 10_000) == pytest.approx(1e-4)


def test_warm_up_and_cosine() -> None:
    stage = StageConfig(steps=110, warmup=10, learning_rate=1.0, schedule="cosine")
    rates = [learning_rate(stage, step) for step in range(110)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.505)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.02


def test_the_papers_noise() -> None:
    objective = PRESETS["E"].objective
    found = [objective.noise_degrees(step / 500_000) for step in (0, 10_000, 30_000, 50_000, 400_000)]
    assert found == pytest.approx([45, 45, 112.5, 180, 180])
    assert PRESETS["A"].objective.noise_degrees(0.8) == 45


def test_budgets() -> None:
    assert [seconds(text) for text in ("90m", "45s", "1h30m", "1.5h", "2h0m5s")] == [5400, 45, 5400, 5400, 7205]
    for text in ("", "90", "m", "90 m", "-5m", "5d", "0s", "1e3s"):
        with pytest.raises(ConfigError, match="a budget"):
            seconds(text)


def test_streams_depend_on_their_key_alone() -> None:
    keys = [(0, 0, 1, 5, 7), (0, 0, 1, 7, 5), (0, 1, 1, 5, 7), (1, 0, 1, 5, 7), (0, 0, 2, 5, 7)]
    draws = [random_stream(*key).initial_seed() for key in keys]
    assert len(set(draws)) == len(keys)
    assert random_stream(*keys[0]).initial_seed() == draws[0]
