"""The named trainings: ``paper`` and A–E follow appendices A.2 and B.2; ``cpu`` is what two cores can do in an hour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from geocaps.errors import ConfigError
from geocaps.model.config import preset as model_preset
from geocaps.model.objectives import ObjectiveWeights
from geocaps.training.config import Augmentation, ObjectiveConfig, StageConfig, TrainConfig

_PAPER = TrainConfig(
    preset="paper",
    model=model_preset("paper"),
    parts=StageConfig(steps=100_000, batch=32, learning_rate=1e-3, decay_at=(20_000, 100_000)),
    object=StageConfig(steps=500_000, batch=32, learning_rate=1e-4, decay_at=(50_000, 100_000)),
    # 45° until 10,000 updates, then up to 180° at 50,000, of 500,000.
    objective=ObjectiveConfig(noise_from=45.0, noise_to=180.0, ramp_from=0.02, ramp_to=0.1),
    parts_augmentation=Augmentation(translation=1.0),
    object_augmentation=Augmentation(translation=1.0),
    validations=100,
    save_every=1000,
)
_CONSTANT = replace(_PAPER, objective=ObjectiveConfig(noise_from=45.0, noise_to=45.0))

_CPU = TrainConfig(
    preset="cpu",
    model=model_preset("cpu"),
    parts=StageConfig(steps=3_000, batch=16, learning_rate=2e-3, schedule="cosine", warmup=100, clip=1.0),
    object=StageConfig(
        steps=4_500,
        batch=64,
        learning_rate=2e-3,
        schedule="cosine",
        warmup=150,
        clip=5.0,
        best_by="rotation_resampled",
    ),
    objective=ObjectiveConfig(
        kind="agreement",
        weights=ObjectiveWeights(part=0.0, chamfer=10.0, choice=1.0, pose=1.0, contrast=1.0),
        noise_from=15.0,
        noise_to=15.0,
        decomposed=0.125,
        target_points=256,
    ),
    object_augmentation=Augmentation(
        stretch=1.25, noise_share=0.15, outlier_share=0.1, crop_share=0.05, density_share=0.1
    ),
)

PRESETS: dict[str, TrainConfig] = {
    "cpu": _CPU,
    "paper": _PAPER,
    "A": replace(_CONSTANT, preset="A", model=model_preset("A")),
    "B": replace(_CONSTANT, preset="B", model=model_preset("B")),
    "C": replace(_CONSTANT, preset="C", model=model_preset("C")),
    "D": replace(_PAPER, preset="D", model=model_preset("D")),
    "E": replace(_PAPER, preset="E", model=model_preset("E")),
}


def preset(name: str, **changes: Any) -> TrainConfig:
    """A named training with some values changed: ``preset("cpu", data="shapes", out="runs/shapes")``."""
    if name not in PRESETS:
        raise ConfigError(f"no training preset is called {name!r}; there are {', '.join(PRESETS)}")
    try:
        return replace(PRESETS[name], **changes)
    except TypeError as error:
        raise ConfigError(f"a training has no such value: {error}") from error
