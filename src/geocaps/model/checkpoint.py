"""Checkpoint folders: ``config.json``, ``model.safetensors``, ``card.md`` and, to resume, ``training.pt``.

A folder cannot be replaced in one move, so saving writes a complete new one beside it, moves the old one aside, moves
the new one into place, and deletes the old one. If the process is killed between the two moves, the old folder is still
aside, under a name that all readers know: nothing is ever half-written, and nothing is lost.

torch is imported only where weights become tensors: a folder is found, checked and described without it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geocaps.errors import CheckpointError, ConfigError
from geocaps.model.config import ModelConfig

if TYPE_CHECKING:
    import geocaps.model.autoencoder

SHIPPED = "shipped"
"""The name of the weights that ship with the package, in place of a checkpoint folder."""

CONFIG, WEIGHTS, CARD, TRAINING = "config.json", "model.safetensors", "card.md", "training.pt"
_FORMAT = 2
_LARGEST_CONFIG = 1 << 20
_LARGEST_SIZE = 1 << 16
_MOST_BLOCKS = 100
_DAMAGED = "is not a valid safetensors file: it is damaged or cut off"


@dataclass(frozen=True)
class Weights:
    """A checkpoint folder (None: the shipped one) and the SHA-256 of its weights: the same on every machine."""

    folder: str | None
    sha256: str


def save_checkpoint(
    folder: str | os.PathLike[str],
    model: geocaps.model.autoencoder.GeometricCapsuleAutoencoder,
    *,
    card: str,
    training_state: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a checkpoint folder; a failure at any moment leaves the previous one intact."""
    folder = Path(folder)
    config = {"format": _FORMAT, "model": model.config.to_dict()}
    contents = {
        CONFIG: (json.dumps(config, indent=1) + "\n").encode(),
        WEIGHTS: _weights_bytes(model),
        CARD: card.encode(),
    }
    if training_state is not None:
        import torch

        buffer = io.BytesIO()
        torch.save(dict(training_state), buffer)
        contents[TRAINING] = buffer.getvalue()
    try:
        _replace_folder(folder, contents)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {folder}: {error.strerror or error}; what was there before is untouched: "
            "free some space or choose another folder, then resume"
        ) from error
    return folder


def load_checkpoint(
    folder: str | os.PathLike[str] | None = None,
) -> geocaps.model.autoencoder.GeometricCapsuleAutoencoder:
    """The model of a checkpoint folder (by default the shipped one), in evaluation mode.

    The file must have exactly the weights of the model.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    from geocaps.model.autoencoder import GeometricCapsuleAutoencoder

    place = find_checkpoint(folder)
    config = read_config(place)
    try:
        weights = load(_read_bytes(place / WEIGHTS))
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{place / WEIGHTS} {_DAMAGED}") from error
    with torch.device("meta"):
        expected = GeometricCapsuleAutoencoder(config).state_dict()
    # Names, shapes, types and finiteness are checked before memory is allocated for the model.
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or extra:
        what = f"lacks {missing[0]!r}" if missing else f"has an unknown {extra[0]!r}"
        raise CheckpointError(
            f"{place / WEIGHTS} {what} ({len(missing)} weights missing, {len(extra)} unknown): it does not belong to "
            f"its {CONFIG}"
        )
    for name, value in weights.items():
        want = expected[name]
        if value.shape != want.shape or value.dtype != want.dtype:
            raise CheckpointError(
                f"{place / WEIGHTS}: {name} is {value.dtype} {list(value.shape)}, but {CONFIG} asks for "
                f"{want.dtype} {list(want.shape)}"
            )
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{place / WEIGHTS}: {name} holds values that are not finite: the training diverged")
    model = GeometricCapsuleAutoencoder(config)
    model.load_state_dict(weights, strict=True)
    return model.eval()


def load_named(name: str) -> geocaps.model.autoencoder.GeometricCapsuleAutoencoder:
    """The model of a checkpoint folder, or the one that ships with the package for ``shipped``."""
    return load_checkpoint(None if name == SHIPPED else name)


def find_weights(folder: str | os.PathLike[str] | None = None) -> Weights:
    """The weights of a checkpoint folder; without one, those that ship with the package."""
    content = _read_bytes(find_checkpoint(folder) / WEIGHTS)
    return Weights(None if folder is None else os.path.abspath(folder), hashlib.sha256(content).hexdigest())


def find_checkpoint(folder: str | os.PathLike[str] | None = None) -> Path:
    """The checkpoint's folder, or the one left aside if saving was interrupted between its two moves.

    Without a folder, the checkpoint that ships with the package.
    """
    folder = Path(__file__).parents[1] / "weights" / "default" if folder is None else Path(folder)
    place = folder if folder.exists() else _aside(folder)
    if place.is_dir():
        for name in (CONFIG, WEIGHTS, CARD, TRAINING):
            # Opening a pipe or a device would block forever.
            if (place / name).exists() and not (place / name).is_file():
                raise CheckpointError(f"{place / name} is not a regular file: copy its content to one first")
        return place
    what = "is a file" if folder.exists() else "does not exist"
    if folder.name == "best" and folder.with_name("last").is_dir():
        raise CheckpointError(
            f"{folder} {what}: this training had too few held-out objects to choose a best checkpoint; "
            f"use {folder.with_name('last')}"
        )
    raise CheckpointError(f"{folder} {what}; a checkpoint is a folder with {CONFIG} and {WEIGHTS}")


def read_config(place: Path) -> ModelConfig:
    """The model's configuration. Sizes are limited, so that a hostile file cannot exhaust the memory."""
    path = place / CONFIG
    try:
        values = json.loads(_read_bytes(path, _LARGEST_CONFIG))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: the file is damaged") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds {type(values).__name__}, not a configuration")
    if values.get("format") != _FORMAT or not isinstance(values.get("model"), dict):
        raise CheckpointError(
            f"{path} is not a geocaps checkpoint of format {_FORMAT} (it says {values.get('format')!r}; "
            "0.1.0 wrote format 1: train such a model again)"
        )

    def numbers(name: str, value: Any) -> list[tuple[str, int | float]]:
        if isinstance(value, dict):
            return [found for key, item in value.items() for found in numbers(f"{name}.{key}", item)]
        return [(name, value)] if isinstance(value, (int, float)) else []

    for name, size in numbers("model", values["model"]):
        limit = _MOST_BLOCKS if name.endswith("blocks") else _LARGEST_SIZE
        if not -limit <= size <= limit:
            raise CheckpointError(f"{path}: {name} is {size}; it exceeds the limit of {limit}")
    try:
        return ModelConfig.from_dict(values["model"])
    except (ConfigError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def weights_of(model: geocaps.model.autoencoder.GeometricCapsuleAutoencoder) -> str:
    """Identity of a model's weights: the SHA-256 of the file in which they are saved."""
    return hashlib.sha256(_weights_bytes(model)).hexdigest()


def count_weights(path: Path) -> int:
    """Number of parameters in a safetensors file, from its header: the length in 8 bytes, then JSON."""
    content = _read_bytes(path)
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        header = {name: one for name, one in json.loads(content[8:end]).items() if name != "__metadata__"}
        counts = [math.prod(map(int, one["shape"])) for one in header.values()]
        whole = end + max(one["data_offsets"][1] for one in header.values()) == len(content)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CheckpointError(f"{path} {_DAMAGED}") from error
    if not whole:
        raise CheckpointError(f"{path} {_DAMAGED}")
    return sum(counts)


def load_training_state(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The state needed to resume a training, read without executing code (``weights_only``)."""
    path = find_checkpoint(folder) / TRAINING
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: this checkpoint can be used, but not resumed")
    content = _read_bytes(path)
    import torch

    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the unpickler raise nearly anything; it executes nothing
        raise CheckpointError(
            f"{path} is damaged or not a geocaps training state: restore it or start again"
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds {type(state).__name__}, not a training state")
    return state


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _weights_bytes(model: geocaps.model.autoencoder.GeometricCapsuleAutoencoder) -> bytes:
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()})


def _replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(folder)
    if aside.is_dir() and not folder.exists():
        os.rename(aside, folder)
    for left_over in folder.parent.glob(f".{folder.name}.writing-*"):
        shutil.rmtree(left_over)
    fresh = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    fresh.mkdir()
    try:
        for name, content in files.items():
            with open(fresh / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _sync_folder(fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if folder.exists():
        if aside.exists():
            shutil.rmtree(aside)
        os.rename(folder, aside)
    os.rename(fresh, folder)
    _sync_folder(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")


def _sync_folder(folder: Path) -> None:
    """Makes names durable on systems that can open a folder (Windows cannot, and need not)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_bytes(path: Path, most: int | None = None) -> bytes:
    try:
        if most is not None and path.stat().st_size > most:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes; at most {most} are expected")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; a checkpoint is a folder with {CONFIG} and {WEIGHTS}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
