from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from geocaps import load
from geocaps.errors import CheckpointError, ConfigError, TrainingError, UsageError
from geocaps.model.autoencoder import untrained
from geocaps.model.checkpoint import find_checkpoint, load_training_state, save_checkpoint
from geocaps.training import PRESETS, load_checkpoint, loop, preset, train
from geocaps.training import stage as stages
from geocaps.training.batches import fitted_batches, open_data
from geocaps.training.loop import fitted_steps
from geocaps.training.run import begun, saved_config
from tests.training import tiny


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of both stages."""
    out = tmp_path_factory.mktemp("run") / "out"
    train(replace(tiny.config(out, data), tensorboard=True))
    return out


@pytest.mark.slow
def test_both_stages_leave_checkpoints_and_figures(run: Path) -> None:
    for name in ("last", "best", "parts"):
        assert load_checkpoint(run / name).config == tiny.MODEL
    assert "rotation_resampled" in (run / "last" / "card.md").read_text()
    for stage in ("parts", "object"):
        steps = tiny.records(run, "train", stage)
        assert [one["step"] for one in steps] == list(range(1, 11))
        assert all(one["loss"] > 0 and one["objects_per_second"] > 0 for one in steps)
        assert [one["step"] for one in tiny.records(run, "validation", stage)] == [0, 5, 10]
    figures = tiny.records(run, "validation", "object")[-1]
    assert {"chamfer", "rotation_parts", "rotation_resampled", "top1_parts", "top1_resampled"} <= figures.keys()
    assert 0 <= tiny.records(run, "train", "object")[0]["parts_share"] < 1
    assert list((run / "tensorboard").iterdir())


@pytest.mark.slow
def test_parts_layer_is_frozen_in_the_object_stage(run: Path) -> None:
    parts, last = load_checkpoint(run / "parts"), load_checkpoint(run / "last")
    for name, value in parts.parts.state_dict().items():
        assert torch.equal(value, last.parts.state_dict()[name])
    changed = [not torch.equal(value, last.object.state_dict()[n]) for n, value in parts.object.state_dict().items()]
    assert all(changed)


@pytest.mark.slow
def test_the_first_layer_learns(data: Path, tmp_path: Path) -> None:
    long = replace(tiny.config(tmp_path, data).parts, steps=80, learning_rate=5e-3)
    train(tiny.config(tmp_path / "out", data, stage="parts", parts=long))
    first, *_, last = tiny.records(tmp_path / "out", "validation", "parts")
    assert last["chamfer"] < 0.7 * first["chamfer"]


def test_object_stage_takes_the_first_layer_from_init(run: Path, data: Path, tmp_path: Path) -> None:
    train(tiny.config(tmp_path / "out", data, stage="object", init=str(run / "parts")))
    mine, theirs = load_checkpoint(tmp_path / "out" / "last"), load_checkpoint(run / "last")
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, mine.state_dict()[name])  # the same seed: the same second stage
    wider = replace(tiny.MODEL, parts=replace(tiny.MODEL.parts, width=8))
    with pytest.raises(ConfigError, match=r"the first layer of .* has width = \d+, but this training.s has 8"):
        train(tiny.config(tmp_path / "other", data, stage="object", init=str(run / "parts"), model=wider))


def test_an_object_layer_is_trained_further(run: Path, data: Path, tmp_path: Path) -> None:
    """From the weights of the checkpoint, with a frame for similar objects from the first step on."""
    config = tiny.config(tmp_path / "out", data, stage="object", init=str(run / "last"), init_object=True)
    before = load_checkpoint(run / "last").state_dict()
    begins = begun(config).state_dict()
    assert all(torch.equal(begins[name], value) for name, value in before.items())
    train(config)
    assert all(record["common"] > 0 for record in tiny.records(tmp_path / "out", "train", "object"))
    assert sorted(load_training_state(tmp_path / "out" / "last")["found"]) == ["axes", "chance", "similar"]
    wider = replace(tiny.MODEL, object=replace(tiny.MODEL.object, width=24))
    with pytest.raises(ConfigError, match="differs from that of this training"):
        train(replace(config, out=str(tmp_path / "other"), model=wider))


def test_the_first_layer_that_ships_can_be_taken_over(tmp_path: Path) -> None:
    model = begun(preset("cpu", stage="object", init="shipped", out=str(tmp_path / "out")))
    shipped = load().network
    for name, value in shipped.parts.state_dict().items():
        assert torch.equal(value, model.parts.state_dict()[name])
    assert not torch.equal(shipped.object.decoder.layers[0].weight, model.object.decoder.layers[0].weight)


def test_the_papers_objective(data: Path, tmp_path: Path) -> None:
    train(tiny.paper_config(tmp_path / "out", data))
    assert all(0 < one["spread"] <= 180 for one in tiny.records(tmp_path / "out", "train", "object"))
    figures = tiny.records(tmp_path / "out", "validation", "object")[-1]
    assert 0 <= figures["within_15"] <= figures["within_15_modulo_signs"] <= 1
    assert figures["spread"] > 0
    noise = [one["noise_degrees"] for one in tiny.records(tmp_path / "out", "train", "object")]
    assert noise[:3] == [45, 45, 45]
    assert noise[5] == pytest.approx(45 + 135 * 0.5)
    assert noise[-1] == 180


def test_a_training_whose_votes_are_all_alike_is_stopped(data: Path, tmp_path: Path, monkeypatch) -> None:
    """A Q that turns every viewpoint by the same rotation; the same training with one that does not goes on."""
    monkeypatch.setattr(stages, "SPREAD_STEP", 3)
    made = tiny.paper_config(tmp_path / "out", data, stage="object", init="taken over below")
    lively = untrained(made.model, 0)
    save_checkpoint(tmp_path / "lively", lively, card="")
    with torch.no_grad():
        lively.object.pose_network.project[-1].weight.zero_()
    save_checkpoint(tmp_path / "constant", lively, card="")
    slow = replace(made, init_object=True, object=replace(made.object, learning_rate=1e-9))
    train(replace(slow, init=str(tmp_path / "lively"), out=str(tmp_path / "on")))
    with pytest.raises(TrainingError, match=r"have collapsed: after 3 steps .* 0\.0 degrees apart .* a rate of 1e-4"):
        train(replace(slow, init=str(tmp_path / "constant"), out=str(tmp_path / "off")))
    assert [one["spread"] for one in tiny.records(tmp_path / "off", "train", "object")] == pytest.approx(
        [0] * 3, abs=0.1
    )
    allowed = replace(slow, objective=replace(slow.objective, least_spread=0.0))
    assert train(replace(allowed, init=str(tmp_path / "constant"), out=str(tmp_path / "allowed"))).steps == 10


def test_a_run_is_never_overwritten(run: Path, data: Path) -> None:
    with pytest.raises(CheckpointError, match="already contains a run"):
        train(tiny.config(run, data))


def test_resuming_a_finished_run_changes_nothing(run: Path, data: Path) -> None:
    before = (run / "last" / "model.safetensors").read_bytes()
    result = train(tiny.config(run, data), resume=True)
    assert (run / "last" / "model.safetensors").read_bytes() == before
    assert result.figures["object"]["chamfer"] > 0


def test_a_run_that_stops_early_goes_on_to_the_same_end(run: Path, data: Path, tmp_path: Path) -> None:
    config = tiny.config(tmp_path / "out", data, stage="parts")
    assert [train(config, until=4, resume=resume).steps for resume in (False, True)] == [4, 4]
    assert not (tmp_path / "out" / "parts").exists()
    assert [one["step"] for one in tiny.records(tmp_path / "out", "validation", "parts")] == [0, 4]
    assert train(config, resume=True).steps == 10
    mine, theirs = (load_checkpoint(place / "parts").parts.state_dict() for place in (tmp_path / "out", run))
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())


def test_resume_refuses_another_configuration(run: Path, data: Path) -> None:
    other = tiny.config(run, data, seed=1)
    with pytest.raises(ConfigError, match="was started with seed = 0, not 1"):
        train(other, resume=True)
    faster = replace(other.parts, learning_rate=1.0)
    with pytest.raises(ConfigError, match=r"parts.learning_rate = 0.002, not 1.0"):
        train(tiny.config(run, data, parts=faster), resume=True)


def test_resume_refuses_other_data(run: Path, data: Path, tmp_path: Path) -> None:
    other = tiny.write_data(tmp_path / "other.npz", seed=1)
    with pytest.raises(ConfigError, match="fingerprint"):
        train(tiny.config(run, other), resume=True)
    copy = tmp_path / "copy.npz"
    copy.write_bytes(data.read_bytes())
    train(tiny.config(run, copy), resume=True)  # the same content in another place


def test_nothing_to_resume(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        train(tiny.config(tmp_path / "nowhere", data), resume=True)


def test_unwritable_out(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        train(tiny.config(tmp_path / "file" / "run", data))


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(data: Path, tmp_path: Path) -> None:
    wild = replace(tiny.config(tmp_path, data).parts, learning_rate=1e30, clip=0.0, warmup=0)
    with pytest.raises(TrainingError, match=r"at step \d+ of stage parts; the batch held ellipsoid") as caught:
        train(tiny.config(tmp_path / "out", data, parts=wild))
    assert "--learning-rate" in str(caught.value)
    model = load_checkpoint(tmp_path / "out" / "last")
    assert all(bool(torch.isfinite(value).all()) for value in model.state_dict().values())


def test_a_diverging_loss_stops(data: Path, tmp_path: Path) -> None:
    wild = replace(tiny.config(tmp_path, data).parts, learning_rate=3.0, clip=0.0, warmup=0, steps=500)
    with pytest.raises(TrainingError, match="the loss grew from"):
        train(tiny.config(tmp_path / "out", data, parts=wild))
    assert find_checkpoint(tmp_path / "out" / "last")


def test_steps_fit_into_the_time_left() -> None:
    assert fitted_steps(left=100.0, step_seconds=0.5, validation_seconds=0.5, validations=10) == (190, 19)
    # Validation gets a tenth at most: here two of five seconds in a hundred.
    assert fitted_steps(left=100.0, step_seconds=0.5, validation_seconds=5.0, validations=10) == (180, 90)
    assert fitted_steps(left=-3.0, step_seconds=0.5, validation_seconds=1.0, validations=10) == (1, 1)


def test_a_budget_ends_the_run_and_a_resumed_run_keeps_its_schedule(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a clock of its own, on which a step takes a tenth of a second on every machine."""
    now, step = [0.0], loop.StepGradients.__call__

    def look() -> float:
        now[0] += 1e-6
        return now[0]

    def timed_step(self: loop.StepGradients, *args: Any) -> dict[str, float]:
        now[0] += 0.1
        return step(self, *args)

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=look, perf_counter=look))
    monkeypatch.setattr(loop.StepGradients, "__call__", timed_step)
    endless = tiny.config(tmp_path / "out", data, budget=3.0)
    endless = replace(
        endless, parts=replace(endless.parts, steps=10**9), object=replace(endless.object, steps=10**9), log_every=1
    )
    result = train(endless)
    assert "parts 0/? validation" in capfd.readouterr().err
    # Of each stage's time, three steps go into finding how long one takes.
    assert len(tiny.records(tmp_path / "out", "train", "parts")) == pytest.approx(0.3 * 3.0 / 0.1 - 3, abs=1)
    assert len(tiny.records(tmp_path / "out", "train", "object")) == result.steps
    state = load_training_state(tmp_path / "out" / "last")["state"]
    assert 2.8 < json.loads(state)["elapsed"] <= 3.01
    assert train(endless, resume=True).steps == result.steps
    assert load_training_state(tmp_path / "out" / "last")["state"] == state


def test_a_batch_larger_than_the_data(data: Path, tmp_path: Path) -> None:
    """It is known before the first stage is trained, whichever stage asks for it."""
    config = tiny.config(tmp_path / "out", data)
    config = replace(config, parts=replace(config.parts, steps=1), object=replace(config.object, steps=1, batch=64))
    with pytest.raises(
        UsageError, match=r"a batch of 64 objects cannot be drawn from the 18 of .*give --batch 18 or less"
    ):
        train(config, reduce_batch=False)
    assert not (tmp_path / "out").exists()
    train(config)
    assert saved_config(tmp_path / "out").object.batch == 18
    assert train(config, resume=True).steps == 1


def test_batches_fit_the_data_and_the_processes(data: Path) -> None:
    config = tiny.config("unused", data)
    dataset, _ = open_data(config)
    wide = replace(config, stage="parts", parts=replace(config.parts, batch=64, accumulate=4))
    for processes, batch in ((1, 16), (4, 16), (8, 16)):
        fitted, (said,) = fitted_batches(wide, dataset, processes, reduce=True)
        assert fitted.parts.batch == batch
        assert said == f"stage parts: a batch of {batch} objects, not 64: the data have 18"
    assert fitted_batches(config, dataset, 2, reduce=True) == (config, [])
    with pytest.raises(ConfigError, match="use fewer"):
        fitted_batches(wide, dataset, 32, reduce=True)
    with pytest.raises(ConfigError, match="cannot be shared evenly by 3 processes"):
        fitted_batches(config, dataset, 3, reduce=True)


def test_few_held_out_objects_choose_no_best_checkpoint(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tiny.config(tmp_path / "out", tiny.write_data(tmp_path / "few.npz", objects=11))
    result = train(replace(config, parts=replace(config.parts, steps=1), stage="parts"))
    assert (result.best, result.last, result.validation_objects) == (None, tmp_path / "out" / "last", 1)
    said = capfd.readouterr().err
    assert "training on 10 objects of few, validating on 1" in said
    assert "no best checkpoint will be chosen: 1 held-out object is too few, 16 are needed" in said
    assert load_checkpoint(result.last).config == tiny.MODEL
    with pytest.raises(CheckpointError, match=r"too few held-out objects to choose a best checkpoint; use .*out/last"):
        load_checkpoint(tmp_path / "out" / "best")


def test_embedded_and_joined_sources(data: Path, tmp_path: Path) -> None:
    short = replace(tiny.config(tmp_path, data).parts, steps=2)
    train(tiny.config(tmp_path / "out", f"furniture, {data}", stage="parts", parts=short))
    assert "furniture + ellipsoids" in (tmp_path / "out" / "last" / "card.md").read_text()


def test_how_often_a_decomposition_is_seen_is_a_choice(data: Path, tmp_path: Path) -> None:
    small = tiny.config(tmp_path / "out", data)
    short = replace(small.object, steps=3)
    result = train(replace(small, object=short, objective=replace(small.objective, reuse=2)))
    assert math.isfinite(result.figures["object"]["chamfer"])


def test_presets_hold_the_papers_values() -> None:
    paper = PRESETS["paper"]
    assert (paper.parts.learning_rate, paper.parts.decay_at, paper.parts.batch) == (1e-3, (20_000, 100_000), 32)
    assert (paper.object.learning_rate, paper.object.decay_at, paper.object.batch) == (1e-4, (50_000, 100_000), 32)
    assert paper.parts.weight_decay == paper.object.weight_decay == 1e-7
    assert math.isclose(paper.objective.ramp_from * paper.object.steps, 10_000)
    assert math.isclose(paper.objective.ramp_to * paper.object.steps, 50_000)
    for name in "ABC":
        assert PRESETS[name].objective.noise_from == PRESETS[name].objective.noise_to == 45
    for name in "DE":
        assert (PRESETS[name].objective.noise_from, PRESETS[name].objective.noise_to) == (45, 180)
    with pytest.raises(ConfigError, match="no training preset 'gpu'"):
        preset("gpu")
    with pytest.raises(ConfigError, match="not a training configuration"):
        preset("cpu", colour=1)
