"""Training: ``train(preset("cpu", data="shapes", out="runs/shapes"))``, and checkpoints."""

from geocaps.training.checkpoint import load_checkpoint, save_checkpoint
from geocaps.training.config import Augmentation, ObjectiveConfig, StageConfig, TrainConfig
from geocaps.training.loop import TrainResult, train
from geocaps.training.presets import PRESETS, preset

__all__ = [
    "PRESETS",
    "Augmentation",
    "ObjectiveConfig",
    "StageConfig",
    "TrainConfig",
    "TrainResult",
    "load_checkpoint",
    "preset",
    "save_checkpoint",
    "train",
]
