"""Functions of the step: learning rate, perturbation noise, random streams. Nothing here has a state to save."""

from __future__ import annotations

import math
import re

import numpy as np
import torch

from geocaps.errors import ConfigError
from geocaps.training.config import ObjectiveConfig, StageConfig


def learning_rate(stage: StageConfig, step: int) -> float:
    """Linear warm-up, then the paper's step decays or half a cosine down to a hundredth."""
    if step < stage.warmup:
        return stage.learning_rate * (step + 1) / stage.warmup
    if stage.schedule == "decay":
        return stage.learning_rate * stage.decay_factor ** sum(step >= at for at in stage.decay_at)
    progress = (step - stage.warmup) / max(1, stage.steps - stage.warmup)
    return stage.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def noise_degrees(objective: ObjectiveConfig, step: int, steps: int) -> float:
    """The largest perturbation angle: linear between the two ends of the ramp, constant outside."""
    share = step / steps
    if objective.ramp_to <= objective.ramp_from:
        return objective.noise_to if share >= objective.ramp_to else objective.noise_from
    along = min(1.0, max(0.0, (share - objective.ramp_from) / (objective.ramp_to - objective.ramp_from)))
    return objective.noise_from + along * (objective.noise_to - objective.noise_from)


def random_stream(*key: int) -> torch.Generator:
    """A generator that depends on the key alone, so a resumed or a distributed run draws what one run would."""
    words = np.random.SeedSequence(list(key)).generate_state(2)
    return torch.Generator().manual_seed((int(words[0]) << 31) ^ int(words[1]))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``90m``, ``5400s``, ``1.5h`` or ``1h30m`` in seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"a budget is a time such as 90m, 5400s or 1h30m, not {text!r}")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total <= 0:
        raise ConfigError(f"a budget must be longer than nothing, not {text!r}")
    return total
