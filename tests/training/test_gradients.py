from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from geocaps.training.batches import Batches, open_data
from geocaps.training.distributed import World
from geocaps.training.loop import SPACING, StepGradients
from geocaps.training.run import untrained
from geocaps.training.stage import stage_of
from tests.training import tiny

REUSE = 3


def made(data: Path) -> StepGradients:
    config = replace(tiny.config("unused", data), object_augmentation=tiny.AUGMENTATION)
    stage = stage_of("object", untrained(config.model, 0), config)
    batches = Batches(
        open_data(config)[0], points=64, samplings=2, batch=2, pieces=1, augmentation=tiny.AUGMENTATION, key=(0, 1)
    )
    return StepGradients(stage, stage, batches, World(0, 1, torch.device("cpu")), reuse=REUSE)


def test_every_draw_is_seen_as_often_as_said_each_time_beside_others(data: Path) -> None:
    steps = made(data)
    seen = [steps._drawn(step, 0, 1.0) for step in range(4 * SPACING)]
    assert all(len(one.points) == 2 * REUSE for one in seen)
    rows = [tuple(cloud.flatten()[:6].tolist()) for one in seen[REUSE * SPACING :] for cloud in one.points[:2]]
    everywhere = Counter(tuple(cloud.flatten()[:6].tolist()) for one in seen for cloud in one.points)
    assert {everywhere[row] for row in rows} == {REUSE}
    first, next_one = ({tuple(cloud.flatten()[:6].tolist()) for cloud in one.points} for one in seen[10:12])
    assert not first & next_one


def test_a_run_that_starts_later_sees_the_same(data: Path) -> None:
    steps = made(data)
    for step in range(20):
        earlier = steps._drawn(step, 0, 1.0)
    again = made(data)._drawn(19, 0, 1.0)
    assert torch.equal(again.points, earlier.points)
    assert again.parts is not None
    assert earlier.parts is not None
    assert torch.equal(again.parts.capsules.feature, earlier.parts.capsules.feature)
    assert again.object_ids == earlier.object_ids


def test_the_pool_does_not_grow_and_the_long_run_makes_one_draw_a_step(data: Path) -> None:
    steps = made(data)
    for step in range(6 * SPACING):
        steps._drawn(step, 0, 1.0)
        assert len(steps._pool) <= REUSE * SPACING
    made_before = set(steps._pool)
    steps._drawn(6 * SPACING, 0, 1.0)
    assert len(set(steps._pool) - made_before) == 1


def test_decompositions_of_the_two_samplings_differ(data: Path) -> None:
    seen = made(data)._drawn(0, 0, 1.0)
    assert seen.parts is not None
    assert seen.parts.share.shape == (2 * REUSE, 2, tiny.MODEL.parts.parts)
    assert not torch.allclose(seen.parts.capsules.feature[:, 0], seen.parts.capsules.feature[:, 1], atol=1e-3)
    assert not torch.allclose(seen.points[:, 0], seen.points[:, 1], atol=1e-3)


def test_the_first_steps_look_at_points_and_make_no_parts(data: Path) -> None:
    """And whether a draw has parts depends on its own number: a run that is resumed near the change makes the same."""
    steps = made(data)
    seen = steps._drawn(0, 0, 0.0)
    assert seen.parts is None
    terms = steps.stage(seen.points, None, 0.0, torch.Generator().manual_seed(0))
    assert torch.isfinite(terms["loss"])
    border = steps.stage.objective.points_share  # type: ignore[union-attr]
    total, step = 100, round(100 * border) - 2
    early = made(data)._drawn(step, 0, step / total)
    assert early.parts is None, "one of its draws has none"
    later = made(data)._drawn(step + 2, 0, (step + 2) / total)
    assert later.parts is not None
