"""A training that takes seconds: a small model and a few clouds. Also runs as a process of its own:

``python -m tests.training.tiny OUT DATA [--resume] [--set name=value ...]``
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geocaps.errors import GeocapsError
from geocaps.model.config import AgreementWeights, ModelConfig, ObjectConfig, PaperObjectConfig, PartsConfig
from geocaps.training import AgreementObjective, Augmentation, PaperObjective, StageConfig, TrainConfig, train

MODEL = ModelConfig(
    points=64,
    parts=PartsConfig(parts=8, width=16, blocks=1, decoder_width=16, decoded=16, iterations=2, views=2),
    object=ObjectConfig(feature=16, percept=8, width=16, channels=4, decoder_width=16, decoder_blocks=1),
)
PAPER_MODEL = replace(
    MODEL,
    parts=replace(MODEL.parts, start="random"),
    object=PaperObjectConfig(
        feature=16, width=16, blocks=1, decoder_width=16, decoder_blocks=1, views=2, voting_steps=2
    ),
)
AUGMENTATION = Augmentation(
    stretch=1.2,
    noise_share=0.5,
    outlier_share=0.5,
    crop_share=0.5,
    one_sided_share=0.2,
    density_share=0.5,
)


def write_data(path: Path, objects: int = 20, seed: int = 0, held_out: int = 0) -> Path:
    """Ellipsoids of 200 points, and so many more in a split for validation."""
    random = np.random.default_rng(seed)
    split = {"split": np.repeat([0, 1], [objects, held_out]).astype(np.int8)} if held_out else {}
    objects += held_out
    points = random.normal(size=(objects, 200, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    points *= random.uniform(0.2, 1, size=(objects, 1, 3))
    np.savez(path, points=points.astype(np.float32), object_ids=[f"ellipsoid{i}" for i in range(objects)], **split)
    return path


def config(out: Path | str, data: Path | str, **changes: Any) -> TrainConfig:
    """Ten steps of each stage with everything past the paper switched on."""
    schedule = {"steps": 10, "batch": 4, "schedule": "cosine", "warmup": 2, "clip": 1.0}
    values: dict[str, Any] = {
        "data": str(data),
        "out": str(out),
        "model": MODEL,
        "parts": StageConfig(learning_rate=2e-3, **schedule),
        "object": StageConfig(learning_rate=1e-3, best_by="rotation_resampled", **schedule),
        "objective": AgreementObjective(AgreementWeights(chamfer=1.0), reuse=1, target_points=32),
        "object_augmentation": AUGMENTATION,
        "validations": 2,
        "validation_objects": 16,
        "save_every": 3,
        "log_every": 1,
        "tensorboard": False,
    }
    return TrainConfig(**(values | changes))


def paper_config(out: Path | str, data: Path | str, **changes: Any) -> TrainConfig:
    """The same with the paper's objective and random starts."""
    objective = PaperObjective(noise_to=180.0, ramp_from=0.2, ramp_to=0.8, reuse=2)
    return replace(config(out, data, **changes), model=PAPER_MODEL, objective=objective)


def records(out: Path | str, kind: str, stage: str) -> list[dict[str, Any]]:
    lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    return [one for one in map(json.loads, lines) if one["kind"] == kind and one["stage"] == stage]


def main(out: str, data: str, *options: str) -> int:
    torch.set_num_threads(1)
    stages = {}
    for option in options:
        if "=" in option:
            name, value = option.split("=")
            stages[name] = int(value)
    base = config(out, data)
    base = replace(base, parts=replace(base.parts, **stages), object=replace(base.object, **stages))
    try:
        train(base, resume="--resume" in options)
    except GeocapsError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
