from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from geocaps.errors import CheckpointError
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.checkpoint import find_checkpoint, load_checkpoint, load_training_state, save_checkpoint
from tests.training.tiny import MODEL


def filled(value: float) -> GeometricCapsuleAutoencoder:
    """A model all of whose weights are one number, so that a mixture of two saves would show."""
    model = GeometricCapsuleAutoencoder(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def save(folder: Path, value: int) -> None:
    save_checkpoint(folder, filled(float(value)), card=f"{value}", training_state={"value": value})


def saved_value(folder: Path) -> int:
    """The number of a save, which all four files must agree on."""
    model = load_checkpoint(folder)
    values = {x for p in model.parameters() for x in p.flatten().tolist()}
    (value,) = values
    assert load_training_state(folder) == {"value": int(value)}
    assert (find_checkpoint(folder) / "card.md").read_text() == f"{int(value)}"
    return int(value)


def test_round_trip_is_exact(tmp_path: Path) -> None:
    model = GeometricCapsuleAutoencoder(MODEL)
    save_checkpoint(tmp_path / "c", model, card="a card")
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.config == MODEL
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    assert not loaded.training
    with pytest.raises(CheckpointError, match="not resumed"):
        load_training_state(tmp_path / "c")


def killed_at(folder: Path, value: int, instant: int) -> bool:
    """Saves in a process that is killed before its ``instant``-th touch of the file system; False: it got through."""
    child = os.fork()
    if child == 0:
        left = instant

        def hook(event: str, _: tuple) -> None:
            nonlocal left
            if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.scandir"):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        save(folder, value)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_kill_at_every_instant_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    save(folder, 0)
    seen, instant, value = set(), 0, 1
    while killed_at(folder, value, instant):
        kept = saved_value(folder)
        assert kept in (value - 1, value), f"killed at instant {instant}"
        seen.add(kept - value)
        save(folder, value)  # the next save clears what the kill left
        assert sorted(one.name for one in tmp_path.iterdir()) == ["last"]
        instant, value = instant + 1, value + 1
    assert instant > 10
    assert seen == {-1, 0}
    assert saved_value(folder) == value


def test_kill_during_the_recovery_too(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    for instant in range(40):
        save(folder, 0)
        os.rename(folder, tmp_path / ".last.previous")  # where a kill between the two moves leaves it
        assert saved_value(folder) == 0
        if not killed_at(folder, 1, instant):
            break
        assert saved_value(folder) in (0, 1), f"killed at instant {instant}"
    else:
        pytest.fail("the save never got through")
    assert saved_value(folder) == 1


def test_full_disk_keeps_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    save(folder, 1)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            save(folder, 2)
        except CheckpointError as error:
            os._exit(42 if "untouched" in str(error) and "too large" in str(error) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert saved_value(folder) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["last"]


def test_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "run", Path("/proc/geocaps")):
        with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
            save(place, 1)


def edit_config(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["model"]["parts"].update(changes)
    (folder / "config.json").write_text(json.dumps(values))


def edit_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    weights = load_file(folder / "model.safetensors") | changes
    save_file({k: v for k, v in weights.items() if v is not None}, folder / "model.safetensors")


NAME = "object.log_scale"

DAMAGE = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "missing"),
    "cut off": (lambda f: os.truncate(f / "model.safetensors", 3000), "damaged or cut off"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "damaged or cut off"),
    "a huge header": (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64), "damaged or cut off"),
    "a pickle": (lambda f: (f / "model.safetensors").write_bytes(pickle.dumps([1])), "damaged or cut off"),
    "config gone": (lambda f: (f / "config.json").unlink(), "missing"),
    "config not JSON": (lambda f: (f / "config.json").write_bytes(b"\xff{"), "not valid JSON"),
    "config nested": (lambda f: (f / "config.json").write_text("[" * 100_000), "not valid JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "not a configuration"),
    "config of another format": (lambda f: (f / "config.json").write_text('{"format": 9}'), "format"),
    "config too large": (lambda f: (f / "config.json").write_text(" " * 2_000_000), "bytes"),
    "unknown name": (lambda f: edit_config(f, colour=1), "colour"),
    "a string for a size": (lambda f: edit_config(f, width="wide"), "width"),
    "all the memory": (lambda f: edit_config(f, width=10**9), "exceeds the limit of"),
    "endless blocks": (lambda f: edit_config(f, blocks=10**6), "exceeds the limit of"),
    "another width": (lambda f: edit_config(f, width=17), "config.json asks for"),
    "a weight too few": (lambda f: edit_weights(f, **{NAME: None}), "lacks 'object.log_scale'"),
    "a weight too many": (lambda f: edit_weights(f, extra=torch.zeros(1)), "unknown 'extra'"),
    "another type": (lambda f: edit_weights(f, **{NAME: torch.zeros((), dtype=torch.float64)}), "float64"),
    "not finite": (lambda f: edit_weights(f, **{NAME: torch.full((3,), torch.nan)}), "not finite"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_and_hostile_files(name: str, tmp_path: Path) -> None:
    damage, says = DAMAGE[name]
    save(tmp_path / "c", 1)
    damage(tmp_path / "c")
    with pytest.raises(CheckpointError, match=says):
        load_checkpoint(tmp_path / "c")


class Evil:
    def __reduce__(self) -> tuple:
        return (os.mkdir, ("/tmp/geocaps-was-hacked",))


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"", b"PK\x03\x04 not a zip", b"\x80\x04."])
def test_hostile_training_state_is_not_executed(content: bytes, tmp_path: Path) -> None:
    save(tmp_path / "c", 1)
    (tmp_path / "c" / "training.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load_training_state(tmp_path / "c")
    assert not Path("/tmp/geocaps-was-hacked").exists()


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_a_training_state_that_was_cut_short_is_one_sentence(share: float, tmp_path: Path) -> None:
    save(tmp_path / "c", 1)
    path = tmp_path / "c" / "training.pt"
    torch.save({"optimizer": torch.arange(10_000.0)}, path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(CheckpointError, match=r"training\.pt is damaged"):
        load_training_state(tmp_path / "c")


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        load_checkpoint(tmp_path / "file")


def test_a_model_of_another_size_is_not_loaded_partly(tmp_path: Path) -> None:
    save(tmp_path / "c", 1)
    other = replace(MODEL, object=replace(MODEL.object, blocks=2))
    values = json.loads((tmp_path / "c" / "config.json").read_text()) | {"model": other.to_dict()}
    (tmp_path / "c" / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="weights missing"):
        load_checkpoint(tmp_path / "c")
