"""Every size and constant of the model, checked when it is made, and the named presets.

``paper`` holds the values of appendices A and B; A–E are the rows of Table 1; ``cpu`` is what two cores can train.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from geocaps.errors import ConfigError

MAX_COORDINATE = 1e15
"""Beyond this, squared distances overflow float32 even after centring in float64 and scaling back is meaningless."""


@dataclass(frozen=True)
class PartsConfig:
    """PointsToParts (appendix A)."""

    parts: int = 16
    feature: int = 8
    width: int = 64
    blocks: int = 3
    decoder_width: int = 64
    decoder_blocks: int = 1
    decoded: int = 256  # M: points decoded per part; a square number, as inference decodes a square grid
    iterations: int = 3
    views: int = 4
    voting_steps: int = 1
    noise_degrees: float = 45.0
    noise_translation: float = 0.05  # the paper gives no figure; a quarter of a typical part's radius
    log_sigma: float = -6.0
    learn_sigma: bool = False
    start: Literal["frames", "random"] = "frames"
    frame_radius: float = 0.35

    def __post_init__(self) -> None:
        _positive(self, "parts", "feature", "width", "blocks", "decoder_width", "decoder_blocks", "decoded")
        _positive(self, "iterations", "views", "voting_steps", "frame_radius")
        _choice(self, "start", ("frames", "random"))
        if math.isqrt(self.decoded) ** 2 != self.decoded:
            raise ConfigError(f"parts.decoded must be a square number (inference decodes a grid), not {self.decoded}")


@dataclass(frozen=True)
class ObjectConfig:
    """PartsToObject (appendix B), and what goes past it."""

    feature: int = 1024
    width: int = 1024
    blocks: int = 3
    decoder_width: int = 256
    decoder_blocks: int = 4
    views: int = 4
    voting_steps: int = 3
    noise_translation: float = 0.05
    part_pose: Literal["quaternion", "matrix"] = "quaternion"
    vote: Literal["pose", "rotation"] = "pose"  # "rotation": viewpoints stay at the centroid where they start
    look_grid: int = 0  # cells along a side of the grid of points that Q and F see beside the parts; 0 is the paper
    look_channels: int = 16
    look_width: int = 256
    start: Literal["random", "principal"] = "principal"
    choice: Literal["reconstruction", "agreement"] = "agreement"
    leading: int = 2  # of the scored starts, so many are led on and seen from
    tie_ratio: float = 1.15  # principal variances closer than this ratio count as tied
    alternative_probability: float = 0.1  # starts this probable beside the chosen one are reported as alternatives

    def __post_init__(self) -> None:
        _positive(self, "feature", "width", "blocks", "decoder_width", "decoder_blocks", "views", "voting_steps")
        _positive(self, "look_channels", "look_width", "leading", "tie_ratio")
        _choice(self, "part_pose", ("quaternion", "matrix"))
        _choice(self, "vote", ("pose", "rotation"))
        _choice(self, "start", ("random", "principal"))
        _choice(self, "choice", ("reconstruction", "agreement"))
        if self.look_grid != 0 and self.look_grid < 4:
            raise ConfigError(f"object.look_grid must be 0 (parts alone) or at least 4, not {self.look_grid}")


@dataclass(frozen=True)
class ModelConfig:
    """The whole model: what ``config.json`` of a checkpoint holds."""

    points: int = 2048
    parts: PartsConfig = field(default_factory=PartsConfig)
    object: ObjectConfig = field(default_factory=ObjectConfig)

    def __post_init__(self) -> None:
        if self.points < self.parts.parts:
            raise ConfigError(f"points ({self.points}) must be at least the number of parts ({self.parts.parts})")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """The inverse of :meth:`to_dict`; an unknown or missing name is an error, never ignored."""
        for kind, inner in ((cls, values), (PartsConfig, values.get("parts")), (ObjectConfig, values.get("object"))):
            if not isinstance(inner, dict):
                raise ConfigError(f"not a model configuration: it has no values for {kind.__name__}")
            unknown = inner.keys() - {entry.name for entry in fields(kind)}
            if unknown:
                raise ConfigError(f"not a model configuration: {kind.__name__} has no {min(unknown)!r}")
        rest = {name: value for name, value in values.items() if name not in ("parts", "object")}
        try:
            return cls(parts=PartsConfig(**values["parts"]), object=ObjectConfig(**values["object"]), **rest)
        except TypeError as error:
            raise ConfigError(f"not a model configuration: {error}") from error


def _positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, (int, float)) or value <= 0:
            raise ConfigError(f"{type(config).__name__}.{name} must be positive, not {value!r}")


def _choice(config: object, name: str, allowed: tuple[str, ...]) -> None:
    value = getattr(config, name)
    if value not in allowed:
        raise ConfigError(f"{type(config).__name__}.{name} must be one of {', '.join(allowed)}, not {value!r}")


_PAPER = ModelConfig(
    points=2048,
    parts=PartsConfig(start="random"),
    object=ObjectConfig(start="random", choice="reconstruction"),
)
_CPU = ModelConfig(
    points=1024,
    parts=PartsConfig(views=2, decoded=64),
    object=ObjectConfig(
        feature=256,
        width=256,
        blocks=1,
        decoder_width=128,
        decoder_blocks=3,
        views=2,
        voting_steps=2,
        part_pose="matrix",
        vote="rotation",
        look_grid=16,
        tie_ratio=1.0,  # training leads the four sign choices alone, so no others are tried
    ),
)

PRESETS: dict[str, ModelConfig] = {
    "paper": _PAPER,
    "cpu": _CPU,
    "A": replace(_PAPER, object=replace(_PAPER.object, views=1, voting_steps=1)),
    "B": replace(_PAPER, object=replace(_PAPER.object, views=2, voting_steps=1)),
    "C": replace(_PAPER, object=replace(_PAPER.object, views=4, voting_steps=1)),
    "D": replace(_PAPER, object=replace(_PAPER.object, views=4, voting_steps=1)),
    "E": _PAPER,
}


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
