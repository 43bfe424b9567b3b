"""Configuration of the model, checked on construction, and the named presets.

``paper`` has the values of appendices A and B; A–E are the rows of Table 1; ``cpu`` is small enough to train on two
cores.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

from geocaps.errors import ConfigError

MAX_COORDINATE = 1e15
"""Beyond this, squared distances overflow float32, and scaling results back is meaningless."""


class _Sizes:
    """A configuration whose integers are all sizes."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if type(entry.default) is int and (not isinstance(value, (int, float)) or value <= 0):
                raise ConfigError(f"{type(self).__name__}.{entry.name} must be positive, not {value!r}")


@dataclass(frozen=True)
class PartsConfig(_Sizes):
    """PointsToParts (appendix A)."""

    parts: int = 16
    feature: int = 8
    width: int = 64
    blocks: int = 3
    decoder_width: int = 64
    decoder_blocks: int = 1
    decoded: int = 256  # M: points decoded per part; a square number, since inference decodes a square grid
    iterations: int = 3
    views: int = 4
    noise_degrees: float = 45.0
    log_sigma: float = -6.0
    learn_sigma: bool = False
    start: Literal["frames", "random"] = "frames"  # "random" is the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in ("frames", "random"):
            raise ConfigError(f"PartsConfig.start must be frames or random, not {self.start!r}")
        if math.isqrt(self.decoded) ** 2 != self.decoded:
            raise ConfigError(f"parts.decoded must be a square number (inference decodes a grid), not {self.decoded}")


@dataclass(frozen=True)
class ObjectConfig(_Sizes):
    """Our object layer (``model/object.py``)."""

    layer: ClassVar[str] = "ours"
    voting_steps: ClassVar[int] = 2  # votes by which the best starts move

    feature: int = 256
    percept: int = 64  # size of what the object looks like from one of its parts
    width: int = 256
    channels: int = 32
    blocks: int = 1
    decoder_width: int = 128
    decoder_blocks: int = 2


@dataclass(frozen=True)
class PaperObjectConfig(_Sizes):
    """The paper's object layer (appendix B, ``model/object_paper.py``)."""

    layer: ClassVar[str] = "paper"

    feature: int = 1024
    width: int = 1024
    blocks: int = 3
    decoder_width: int = 256
    decoder_blocks: int = 4
    views: int = 4
    voting_steps: int = 3


@dataclass(frozen=True)
class AgreementWeights:
    """Weights of the terms in the loss of our object layer."""

    choice: float = 0.5
    common: float = 1.0
    frames: float = 0.5
    pose: float = 1.0
    place: float = 1.0
    trust: float = 0.3
    feature: float = 1.0
    percept: float = 1.0
    chamfer: float = 20.0


@dataclass(frozen=True)
class PaperWeights:
    """``L = L_part + λ·Chamfer`` (equation 4)."""

    part: float = 1.0
    chamfer: float = 0.01


@dataclass(frozen=True)
class ModelConfig:
    """The whole model, as stored in ``config.json`` of a checkpoint."""

    points: int = 2048
    parts: PartsConfig = field(default_factory=PartsConfig)
    object: ObjectConfig | PaperObjectConfig = field(default_factory=PaperObjectConfig)

    def __post_init__(self) -> None:
        if self.points < self.parts.parts:
            raise ConfigError(f"points ({self.points}) must be at least the number of parts ({self.parts.parts})")

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return values | {"object": {"layer": self.object.layer} | values["object"]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """The inverse of :meth:`to_dict`; an unknown or missing name is an error, never ignored."""
        if not isinstance(values, dict):
            raise ConfigError("not a model configuration: it is not a mapping of names to values")
        layer = dict(values["object"]) if isinstance(values.get("object"), dict) else {}
        kinds = {kind.layer: kind for kind in (ObjectConfig, PaperObjectConfig)}
        kind = kinds.get(layer.pop("layer", None))
        if kind is None:
            raise ConfigError(f"not a model configuration: object.layer must be one of {', '.join(kinds)}")

        def made(kind: Any, values: Any) -> Any:
            if not isinstance(values, dict):
                raise ConfigError(f"not a configuration: it has no values for {kind.__name__}")
            unknown = values.keys() - {entry.name for entry in fields(kind)}
            if unknown:
                raise ConfigError(f"not a configuration: {kind.__name__} has no {min(unknown)!r}")
            try:
                return kind(**values)
            except TypeError as error:
                raise ConfigError(f"not a configuration: {error}") from error

        return made(cls, values | {"parts": made(PartsConfig, values.get("parts")), "object": made(kind, layer)})


SETTINGS = {"A": (1, 1), "B": (2, 1), "C": (4, 1), "D": (4, 1), "E": (4, 3)}
"""The rows of Table 1: views and voting steps. D differs from C only in the noise during training."""
_PAPER = ModelConfig(points=2048, parts=PartsConfig(start="random"), object=PaperObjectConfig())
PRESETS: dict[str, ModelConfig] = {
    "cpu": ModelConfig(
        points=1024, parts=PartsConfig(parts=32, feature=16, views=2, decoded=64), object=ObjectConfig()
    ),
    "paper": _PAPER,
} | {
    letter: replace(_PAPER, object=PaperObjectConfig(views=views, voting_steps=steps))
    for letter, (views, steps) in SETTINGS.items()
}


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}: choose from {', '.join(PRESETS)}")
    return PRESETS[name]
