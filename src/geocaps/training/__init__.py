"""Training: ``train(preset("cpu", data="shapes", out="runs/shapes"))``, and checkpoints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geocaps.model.checkpoint import load_checkpoint, save_checkpoint
    from geocaps.training.config import (
        PRESETS,
        AgreementObjective,
        Augmentation,
        PaperObjective,
        StageConfig,
        TrainConfig,
        preset,
    )
    from geocaps.training.loop import TrainResult, train

__all__ = [
    "PRESETS",
    "AgreementObjective",
    "Augmentation",
    "PaperObjective",
    "StageConfig",
    "TrainConfig",
    "TrainResult",
    "load_checkpoint",
    "preset",
    "save_checkpoint",
    "train",
]
_MODULES = ("model.checkpoint", "training.config", "training.loop")


def __getattr__(name: str) -> object:
    """Names are imported when they are first used: who reads a checkpoint does not wait for the loop."""
    for module in _MODULES if name in __all__ else ():
        found = importlib.import_module(f"geocaps.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module 'geocaps.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()} - {"TYPE_CHECKING", "annotations", "importlib"})
