"""Configuration of a training: one frozen value, checked on construction and stored with every checkpoint.

Presets: ``paper`` and A–E follow appendices A.2 and B.2; ``cpu`` takes about an hour on two cores.
"""

from __future__ import annotations

import math
import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from geocaps.errors import ConfigError
from geocaps.model.config import SETTINGS, AgreementWeights, ModelConfig, ObjectConfig, PaperWeights
from geocaps.model.config import preset as model_preset

STAGES = ("parts", "object")


@dataclass(frozen=True)
class StageConfig:
    """The optimisation of one stage: Adam with L2 decay, and the schedule of the learning rate."""

    steps: int = 100_000
    batch: int = 32
    learning_rate: float = 1e-3
    schedule: Literal["decay", "cosine"] = "decay"
    hold: int = 0  # steps at hold_rate, at the very start
    hold_rate: float = 1e-4
    warmup: int = 0  # steps in which the rate rises, from 0 or from hold_rate
    decay_at: tuple[int, ...] = ()
    decay_factor: float = 0.1
    weight_decay: float = 1e-7
    clip: float = 0.0  # largest gradient norm; 0 does not clip
    accumulate: int = 1  # number of pieces of a batch, processed one after the other or shared by processes
    best_by: str = "chamfer"  # the validation figure whose smallest value chooses OUT/best

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        _require(0 < self.learning_rate < math.inf, "learning_rate must be positive and finite", self.learning_rate)
        _require(0 < self.hold_rate < math.inf, "hold_rate must be positive and finite", self.hold_rate)
        _require(self.schedule in ("decay", "cosine"), "schedule must be decay or cosine", self.schedule)
        _require(0 < self.decay_factor <= 1, "decay_factor must lie in (0, 1]", self.decay_factor)
        for name in ("hold", "warmup", "weight_decay", "clip"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative", getattr(self, name))
        _require(
            self.batch % self.accumulate == 0, f"accumulate must divide the batch of {self.batch}", self.accumulate
        )
        _require(self.best_by in FIGURES, f"best_by must be one of {', '.join(FIGURES)}", self.best_by)

    def fitted(self, steps: int) -> StageConfig:
        """The same schedule, stretched or squeezed to another number of steps."""
        ratio = steps / self.steps
        decay_at = tuple(round(at * ratio) for at in self.decay_at)
        hold, warmup = round(self.hold * ratio), round(self.warmup * ratio)
        return replace(self, steps=steps, hold=hold, warmup=warmup, decay_at=decay_at)


FIGURES = ("chamfer", "rotation_parts", "rotation_resampled")
"""Validation figures by which the best checkpoint can be chosen."""


@dataclass(frozen=True)
class AgreementObjective:
    """The objective of our object layer: two views of each object must agree."""

    weights: AgreementWeights = field(default_factory=AgreementWeights)
    noise_degrees: float = 10.0  # the largest perturbation of the starts
    reuse: int = 4  # steps that use a view and its parts; a batch has batch / reuse fresh objects
    target_points: int | None = 512  # points with which a reconstruction is compared; None: all
    common_from: float = 0.1  # share of the steps after which similar objects get a common frame; 1: never

    def __post_init__(self) -> None:
        _require_weights(self.weights)
        _require(0 <= self.common_from <= 1, "objective.common_from must lie in 0 to 1", self.common_from)
        _require(0 <= self.noise_degrees <= 180, "objective.noise_degrees must lie in 0 to 180", self.noise_degrees)
        _require(self.reuse >= 1, "objective.reuse must be at least 1", self.reuse)
        _require_target(self.target_points)


@dataclass(frozen=True)
class PaperObjective:
    """The objective of the paper's object layer: Algorithm 2, with noise that may grow."""

    weights: PaperWeights = field(default_factory=PaperWeights)
    noise_from: float = 45.0  # degrees, at the start
    noise_to: float = 45.0  # degrees, at the end of the ramp
    ramp_from: float = 0.0  # shares of the stage's steps
    ramp_to: float = 1.0
    reuse: int = 1  # steps that use a sampling and its decomposition; a batch has batch / reuse fresh objects
    target_points: int | None = None  # points with which a reconstruction is compared; None: all, as in the paper
    decoded_points: int | None = None  # points to which each part is decoded, a square number; None: M
    least_spread: float = 5.0  # degrees; a training whose votes spread less after 600 steps stops; 0: none does

    def __post_init__(self) -> None:
        _require_weights(self.weights)
        if not self.weights.part and not self.weights.chamfer:
            raise ConfigError("objective.weights.part and .chamfer are both 0, so nothing would train the decoders")
        for name in ("noise_from", "noise_to"):
            _require(0 <= getattr(self, name) <= 180, f"objective.{name} must lie in 0 to 180", getattr(self, name))
        _require(0 <= self.ramp_from <= self.ramp_to <= 1, "objective.ramp_from must not pass ramp_to", self.ramp_from)
        _require(self.reuse >= 1, "objective.reuse must be at least 1", self.reuse)
        _require(0 <= self.least_spread <= 180, "objective.least_spread must lie in 0 to 180", self.least_spread)
        _require_target(self.target_points)
        decoded = self.decoded_points
        square = decoded is None or (decoded >= 1 and math.isqrt(decoded) ** 2 == decoded)
        _require(square, "objective.decoded_points must be a square number (targets are decoded on a grid)", decoded)

    def noise_degrees(self, share: float) -> float:
        """The largest perturbation angle after a share of the steps: linear on the ramp, constant outside."""
        if self.ramp_to <= self.ramp_from:
            return self.noise_to if share >= self.ramp_to else self.noise_from
        along = min(1.0, max(0.0, (share - self.ramp_from) / (self.ramp_to - self.ramp_from)))
        return self.noise_from + along * (self.noise_to - self.noise_from)


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of a stage's clouds. Each ``..._share`` is a probability per sampling."""

    translation: float = 0.0  # the whole object, within a cube of this half side
    stretch: float = 1.0  # x, y and z each by a factor in [1/stretch, stretch], the same for all samplings
    noise_share: float = 0.0
    noise_std: float = 0.02  # the largest; each draw is uniform below it
    outlier_share: float = 0.0
    outlier_fraction: float = 0.05  # the largest
    crop_share: float = 0.0
    crop_keep: float = 0.7  # the smallest
    one_sided_share: float = 0.0  # only what is visible from one side; such a sampling is not cropped
    density_share: float = 0.0
    density_strength: float = 4.0  # the largest

    def __post_init__(self) -> None:
        shares = ("noise_share", "outlier_share", "crop_share", "one_sided_share", "density_share", "outlier_fraction")
        for name in shares:
            value = getattr(self, name)
            _require(0 <= value <= 1, f"augmentation.{name} must lie in 0 to 1", value)
        for name in ("translation", "noise_std", "density_strength"):
            _require(getattr(self, name) >= 0, f"augmentation.{name} must not be negative", getattr(self, name))
        _require(self.stretch >= 1, "augmentation.stretch must be at least 1", self.stretch)
        _require(0 < self.crop_keep <= 1, "augmentation.crop_keep must lie in (0, 1]", self.crop_keep)


@dataclass(frozen=True)
class TrainConfig:
    """A whole training. Take one from :func:`geocaps.training.preset`, and replace values as needed."""

    data: str = "shapes"  # sources, separated by commas
    out: str = "runs/train"
    preset: str = "cpu"
    stage: Literal["parts", "object", "all"] = "all"
    split: str = "train"  # of the sources that have splits
    classes: str | None = None  # only these of each source, separated by commas; None: all
    init: str | None = None  # a checkpoint from which the first layer is taken, or "shipped"
    init_object: bool = False  # start from its object layer too
    seed: int = 0
    device: str = "auto"
    budget: float | None = None  # seconds; the number of steps of each stage then follows from measured step times
    model: ModelConfig = field(default_factory=ModelConfig)
    parts: StageConfig = field(default_factory=StageConfig)
    object: StageConfig = field(default_factory=StageConfig)
    objective: AgreementObjective | PaperObjective = field(default_factory=PaperObjective)
    parts_augmentation: Augmentation = field(default_factory=Augmentation)
    object_augmentation: Augmentation = field(default_factory=Augmentation)
    validations: int = 10  # in each stage, evenly spread
    validation_objects: int = 128
    save_every: int = 200
    log_every: int = 10
    tensorboard: bool = True

    def __post_init__(self) -> None:
        _require(bool(self.sources), "data must name at least one source", self.data)
        _require(
            self.classes is None or bool(self.chosen_classes), "classes must name at least one class", self.classes
        )
        _require(self.stage in (*STAGES, "all"), "stage must be parts, object or all", self.stage)
        _require(0 <= self.seed < 2**63, "seed must be from 0 to 2**63 - 1", self.seed)
        _require(self.budget is None or self.budget > 0, "budget must be positive", self.budget)
        for name in ("validations", "validation_objects", "save_every", "log_every"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        if self.init is not None and self.stage != "object":
            raise ConfigError(f"init provides a trained first layer, so stage must be object, not {self.stage!r}")
        if self.stage == "object" and self.init is None:
            raise ConfigError(
                "stage object needs a trained first layer: name a checkpoint with init (--init DIR, or --init shipped)"
            )
        if self.init_object and self.init is None:
            raise ConfigError("init_object starts from the object layer of a checkpoint: name that with init")
        _require(self.parts.best_by == "chamfer", "parts.best_by must be chamfer", self.parts.best_by)
        ours = isinstance(self.model.object, ObjectConfig)
        if ours != isinstance(self.objective, AgreementObjective):
            raise ConfigError(
                f"the objective is {type(self.objective).__name__} but model.object is "
                f"{type(self.model.object).__name__}: each object layer has its own objective"
            )
        target, least, most = self.objective.target_points, self.model.parts.parts, self.model.points
        _require(
            target is None or least <= target <= most,
            f"objective.target_points must lie in {least} (one for each part) to {most} (all)",
            target,
        )

    @property
    def sources(self) -> tuple[str, ...]:
        return _listed(self.data)

    @property
    def chosen_classes(self) -> tuple[str, ...]:
        return _listed(self.classes or "")

    @property
    def stages(self) -> tuple[str, ...]:
        return STAGES if self.stage == "all" else (self.stage,)

    def stage_config(self, stage: str) -> StageConfig:
        return self.parts if stage == "parts" else self.object

    def augmentation(self, stage: str) -> Augmentation:
        return self.parts_augmentation if stage == "parts" else self.object_augmentation

    def reuse(self, stage: str) -> int:
        """The number of steps that use a draw: the objective's, or its largest divisor that fits a smaller batch."""
        return math.gcd(self.objective.reuse, self.object.batch // self.object.accumulate) if stage == "object" else 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """The inverse of :meth:`to_dict`, also after a round trip through JSON; an unknown name is an error."""
        made = _made(cls, values)
        assert isinstance(made, cls)
        return made


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def differences(old: TrainConfig, new: TrainConfig) -> list[tuple[str, Any, Any]]:
    """All values that differ, with their dotted names."""
    return _differences("", old.to_dict(), new.to_dict())


def _differences(prefix: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [(prefix, old, new)]
    found = []
    for name, value in old.items():
        found += _differences(f"{prefix}.{name}" if prefix else name, value, new[name])
    return found


def _made(kind: Any, value: Any) -> Any:
    """A nested dataclass from plain values, according to the types of its fields."""
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{kind.__name__} must be a mapping, not {type(value).__name__}")
        unknown = value.keys() - {entry.name for entry in fields(kind)}
        if unknown:
            raise ConfigError(f"{kind.__name__} has no {sorted(unknown)[0]!r}")
        hints = get_type_hints(kind)
        try:
            return kind(**{name: _made(hints[name], item) for name, item in value.items()})
        except TypeError as error:
            raise ConfigError(f"not a {kind.__name__}: {error}") from error
    if get_origin(kind) is tuple:
        return tuple(_made(get_args(kind)[0], item) for item in value)
    if get_origin(kind) in (Union, types.UnionType):
        if not isinstance(value, dict):
            return value if value is None else _made(get_args(kind)[0], value)
        # Of two layers or objectives, the one that has all these names: all are always written, but some may be new.
        kinds = [one for one in get_args(kind) if is_dataclass(one)]
        known = [one for one in kinds if value.keys() <= {entry.name for entry in fields(one)}]
        return _made((known or kinds)[0], value)
    return value


def _require(holds: bool, sentence: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{sentence}, not {value!r}")


def _require_weights(weights: AgreementWeights | PaperWeights) -> None:
    for name, value in asdict(weights).items():
        _require(value >= 0, f"objective.weights.{name} must not be negative", value)


def _require_target(target_points: int | None) -> None:
    _require(target_points is None or target_points >= 1, "objective.target_points must be at least 1", target_points)


# ── the named trainings ───────────────────────────────────────────────────────────────────────────────────────────────

_PAPER = TrainConfig(
    preset="paper",
    model=model_preset("paper"),
    parts=StageConfig(steps=100_000, batch=32, learning_rate=1e-3, decay_at=(20_000, 100_000)),
    object=StageConfig(steps=500_000, batch=32, learning_rate=1e-4, decay_at=(50_000, 100_000)),
    # 45° until 10,000 updates, then up to 180° at 50,000, of 500,000.
    objective=PaperObjective(noise_from=45.0, noise_to=180.0, ramp_from=0.02, ramp_to=0.1),
    parts_augmentation=Augmentation(translation=1.0),
    object_augmentation=Augmentation(translation=1.0),
    validations=100,
    save_every=1000,
)
_CONSTANT = replace(_PAPER, objective=PaperObjective())

_SCANS = Augmentation(
    stretch=1.25,
    noise_share=0.2,
    outlier_share=0.2,
    crop_share=0.4,
    crop_keep=0.5,
    one_sided_share=0.1,
    density_share=0.1,
)
_CPU = TrainConfig(
    preset="cpu",
    model=model_preset("cpu"),
    parts=StageConfig(steps=2_600, batch=16, learning_rate=2e-3, schedule="cosine", warmup=100, clip=1.0),
    object=StageConfig(
        steps=2_450,
        batch=64,
        learning_rate=2e-3,
        schedule="cosine",
        warmup=150,
        clip=5.0,
        best_by="rotation_resampled",
    ),
    objective=AgreementObjective(),
    parts_augmentation=_SCANS,
    object_augmentation=replace(_SCANS, noise_share=0.15, outlier_share=0.15),
)

PRESETS: dict[str, TrainConfig] = {"cpu": _CPU, "paper": _PAPER} | {
    letter: replace(_PAPER if letter in "DE" else _CONSTANT, preset=letter, model=model_preset(letter))
    for letter in SETTINGS
}


def preset(name: str, **changes: Any) -> TrainConfig:
    """A named training with some values changed: ``preset("cpu", data="shapes", out="runs/shapes")``."""
    if name not in PRESETS:
        raise ConfigError(f"there is no training preset {name!r}: choose from {', '.join(PRESETS)}")
    try:
        return replace(PRESETS[name], **changes)
    except TypeError as error:
        raise ConfigError(f"not a training configuration: {error}") from error
