from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geocaps.model.autoencoder import untrained
from geocaps.training.batches import Batches, open_data
from geocaps.training.distributed import World
from geocaps.training.loop import SPACING, Draws, StepGradients
from geocaps.training.stage import stage_of
from tests.training import tiny

REUSE = 3


def made(data: Path, kept: Draws | None = None) -> StepGradients:
    config = replace(tiny.config("unused", data), object_augmentation=tiny.AUGMENTATION)
    stage = stage_of("object", untrained(config.model, 0), config)
    batches = Batches(
        open_data(config)[0], points=64, samplings=2, batch=2, pieces=1, augmentation=tiny.AUGMENTATION, key=(0, 1)
    )
    return StepGradients(stage, stage, batches, World(0, 1, torch.device("cpu")), reuse=REUSE, kept=kept)


def test_every_draw_is_seen_as_often_as_said_each_time_beside_others(data: Path) -> None:
    steps = made(data)
    seen = [steps._drawn(step, 0) for step in range(4 * SPACING)]
    clouds = [one.seen["points"] for one in seen]
    assert all(len(one) == 2 * REUSE for one in clouds)
    rows = [tuple(cloud.flatten()[:6].tolist()) for one in clouds[REUSE * SPACING :] for cloud in one[:2]]
    everywhere = Counter(tuple(cloud.flatten()[:6].tolist()) for one in clouds for cloud in one)
    assert {everywhere[row] for row in rows} == {REUSE}
    first, next_one = ({tuple(cloud.flatten()[:6].tolist()) for cloud in one} for one in clouds[10:12])
    assert not first & next_one


def test_a_run_that_starts_later_sees_the_same(data: Path) -> None:
    steps = made(data)
    for step in range(20):
        earlier = steps._drawn(step, 0)
    again = made(data)._drawn(19, 0)
    assert again.seen.keys() == earlier.seen.keys()
    for name, tensor in again.seen.items():
        assert torch.equal(tensor, earlier.seen[name]), name
    assert again.object_ids == earlier.object_ids


def test_the_pool_does_not_grow_and_the_long_run_makes_one_draw_a_step(data: Path) -> None:
    steps = made(data)
    for step in range(6 * SPACING):
        steps._drawn(step, 0)
        assert len(steps._pool) <= REUSE * SPACING
    made_before = set(steps._pool)
    steps._drawn(6 * SPACING, 0)
    assert len(set(steps._pool) - made_before) == 1


def test_kept_draws_are_the_same_and_are_not_made_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Draws = {}
    first = made(data, kept)._drawn(0, 0)
    assert set(kept) == {(0, 0), (SPACING, 0), (2 * SPACING, 0)}
    again = made(data, kept)
    monkeypatch.setattr(again.stage, "prepare", None)
    other = again._drawn(0, 0)
    alone = made(data)._drawn(0, 0)
    for name, tensor in alone.seen.items():
        assert torch.equal(tensor, first.seen[name]), name
        assert torch.equal(tensor, other.seen[name]), name


def test_the_two_views_are_decomposed_each_on_its_own(data: Path) -> None:
    seen = made(data)._drawn(0, 0).seen
    assert seen["turns"].shape == (2 * REUSE, 2, tiny.MODEL.parts.parts, 3, 3)
    for name in ("points", "axes", "turns"):
        assert not torch.allclose(seen[name][:, 0], seen[name][:, 1], atol=1e-3), name
