"""Two real processes under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geocaps.errors import ConfigError
from geocaps.training import load_checkpoint
from geocaps.training.batches import pieces_of
from geocaps.training.distributed import World, choose_device
from tests.training import gradients_worker, tiny

ROOT = Path(__file__).parents[2]


def torchrun(*arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_averaged_gradients_are_those_of_one_process(data: Path, tmp_path: Path) -> None:
    torchrun("tests.training.gradients_worker", str(data), str(tmp_path / "gradients"))
    first, second = (torch.load(tmp_path / f"gradients.{rank}", weights_only=True) for rank in (0, 1))
    alone = World(0, 1, torch.device("cpu"))
    for name, config in gradients_worker.configs(str(data)).items():
        for stage in ("parts", "object"):
            found, _ = gradients_worker.gradients(config, stage, alone)
            theirs, ids = first[f"{name} {stage}"]
            others, other_ids = second[f"{name} {stage}"]
            assert len(ids) == len(other_ids) == 4
            assert not set(ids) & set(other_ids)
            assert found.keys() == theirs.keys()
            assert any(value.abs().max() > 1e-3 for value in found.values())
            for key, value in found.items():
                torch.testing.assert_close(theirs[key], value, atol=1e-5, rtol=1e-4, msg=f"{name} {stage} {key}")
                assert torch.equal(theirs[key], others[key])


@pytest.mark.slow
def test_a_whole_training_has_one_writer(data: Path, tmp_path: Path) -> None:
    torchrun("tests.training.tiny", str(tmp_path / "out"), str(data), "steps=4")
    for stage in ("parts", "object"):
        assert [one["step"] for one in tiny.records(tmp_path / "out", "train", stage)] == [1, 2, 3, 4]
    assert load_checkpoint(tmp_path / "out" / "last").config == tiny.MODEL
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["best", "last", "metrics.jsonl", "parts"]


def test_pieces_are_shared_evenly() -> None:
    assert pieces_of(32, 1, 1) == 1
    assert pieces_of(32, 1, 4) == 4
    assert pieces_of(32, 8, 2) == 8
    with pytest.raises(ConfigError, match="cannot be shared evenly by 3 processes"):
        pieces_of(32, 1, 3)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("warp", "cuda:99"):
        with pytest.raises(ConfigError, match="cannot be used here"):
            choose_device(name)
