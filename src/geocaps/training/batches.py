"""Batches: the objects in a training step, their samplings, and augmentation.

Everything follows from the seed, the step and the object, so it is the same in a resumed run and with any number of
processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.data import EMBEDDED, PointDataset, concat, corruption, fault_of, load
from geocaps.errors import ConfigError, DatasetError, GeocapsError, UsageError
from geocaps.geometry.sampling import evenly, not_stray
from geocaps.geometry.se3 import Pose
from geocaps.training.config import Augmentation, TrainConfig

_HOLD_OUT = 10
"""If a source has no validation split, every 10th object is held out."""
_GROUP = 8
"""Number of similar objects in a group that stays together."""


def open_data(config: TrainConfig) -> tuple[PointDataset, PointDataset]:
    """The objects to train on and the held-out ones; all are read once, so that bad ones are found before training."""
    datasets = [load(source) for source in config.sources]
    if config.classes is not None:
        datasets = [dataset.of_classes(config.chosen_classes) for dataset in datasets]
    for source, dataset in zip(config.sources, datasets, strict=True):
        if source not in EMBEDDED:
            _check_objects(dataset, source)
    pairs = [_train_and_validation(dataset, config.split) for dataset in datasets]
    train, validation = (
        concat([pair[side] for pair in pairs]) if len(pairs) > 1 else pairs[0][side] for side in (0, 1)
    )
    return train, validation


def _check_objects(dataset: PointDataset, source: str) -> None:
    faults: list[str] = []
    for index, object_id in enumerate(dataset.object_ids):
        try:
            fault = fault_of(dataset.points(index))
        except GeocapsError as error:
            fault = str(error)
        if fault is not None:
            faults.append(f"{object_id}: {fault}")
    if faults:
        raise DatasetError(
            f"{len(faults)} of the {len(dataset)} objects of {source} cannot be trained on; the first is {faults[0]}; "
            f"see them all with  geocaps data info {source}  and take them out"
        )


def _train_and_validation(dataset: PointDataset, split: str) -> tuple[PointDataset, PointDataset]:
    chosen = dataset.split(split) if dataset.splits else dataset
    if "val" in dataset.splits and split != "val":
        return chosen, dataset.split("val")
    if len(chosen) < 2:
        raise DatasetError(f"{dataset.name} has {len(chosen)} objects to train on; at least 2 are needed")
    index = np.arange(len(chosen))
    held_out = index % _HOLD_OUT == min(_HOLD_OUT, len(chosen)) - 1
    return chosen.subset(index[~held_out]), chosen.subset(index[held_out])


@dataclass(frozen=True)
class Batch:
    """Clouds of some objects, and the objects' names.

    ``samplings`` corrupted samplings of each and, last, the whole object: centred, with the farthest point at 1.
    """

    points: Float[Tensor, "b views n 3"]
    object_ids: tuple[str, ...]
    objects: Int[Tensor, "b"]  # their numbers in the data
    turned: Float[Tensor, "b 3 3"]  # the rotation of each


class Batches:
    """The batches of one stage. Every epoch has each object once, in a new random order."""

    def __init__(
        self,
        dataset: PointDataset,
        *,
        points: int,
        samplings: int,
        batch: int,
        pieces: int,
        augmentation: Augmentation,
        key: tuple[int, ...],
    ) -> None:
        if len(dataset) < batch:
            raise ConfigError(
                f"a batch of {batch} objects cannot be drawn from the {len(dataset)} of {dataset.name}: "
                f"choose a batch of {len(dataset)} or fewer (--batch)"
            )
        self.dataset, self.points, self.samplings, self.batch, self.pieces = dataset, points, samplings, batch, pieces
        self.augmentation, self.key = augmentation, key
        self._orders: dict[int, np.ndarray] = {}
        self._similar: np.ndarray | None = None

    def group(self, similar: Int[Tensor, "m k"] | None) -> None:
        """From now on similar objects share batches, which makes contrastive terms harder."""
        self._similar = None if similar is None else similar.numpy()
        self._orders.clear()

    def indices(self, step: int) -> list[int]:
        """The objects of a step; a batch may extend into the next epoch."""
        places = range(step * self.batch, (step + 1) * self.batch)
        return [int(self._order(place // len(self.dataset))[place % len(self.dataset)]) for place in places]

    def piece(self, step: int, piece: int) -> Batch:
        """One of the equal pieces of a step's batch, which processes share."""
        chosen = self.indices(step)[piece :: self.pieces]
        clouds, turned = zip(*(self._object(index, step) for index in chosen), strict=True)
        names = tuple(self.dataset.object_ids[index] for index in chosen)
        return Batch(torch.stack(clouds), names, torch.tensor(chosen), torch.stack(turned))

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            generator = random_stream(*self.key, 0, epoch)
            # A batch may span two epochs, so two orders are kept.
            self._orders = {key: order for key, order in self._orders.items() if key == epoch - 1}
            order = torch.randperm(len(self.dataset), generator=generator).numpy()
            self._orders[epoch] = order if self._similar is None else self._grouped(order, self._similar, generator)
        return self._orders[epoch]

    def _grouped(self, order: np.ndarray, similar: np.ndarray, generator: torch.Generator) -> np.ndarray:
        """Groups of objects, each with the most similar ones that are left, in a random order.

        A group has at most one copy of an object that is in the data twice, as copies cannot be distinguished.
        """
        left, groups = np.ones(len(order), dtype=bool), []
        for index in order.tolist():
            if left[index]:
                names = {self.dataset.object_ids[other]: other for other in similar[index].tolist() if left[other]}
                names.pop(self.dataset.object_ids[index], None)
                groups.append([index, *names.values()][:_GROUP])
                left[groups[-1]] = False
        return np.array([index for at in torch.randperm(len(groups), generator=generator) for index in groups[at]])

    def _object(self, index: int, step: int) -> tuple[Float[Tensor, "views n 3"], Float[Tensor, "3 3"]]:
        generator = random_stream(*self.key, 1, step, index)
        return augmented_samplings(self.dataset, index, self.points, self.samplings, self.augmentation, generator)


def augmented_samplings(
    dataset: PointDataset,
    index: int,
    count: int,
    samplings: int,
    augmentation: Augmentation,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "views n 3"], Float[Tensor, "3 3"]]:
    """Independent samplings of one object in one frame: stretched and rotated together, then corrupted separately.

    The last one is the first sampling again, uncorrupted. Also returns the rotation.
    """
    spoil = [_drawn(augmentation, generator) for _ in range(samplings)]
    crops = any(one.keep < 1 or one.one_sided for one in spoil)
    drawn = math.ceil(count / augmentation.crop_keep) if crops else count
    clouds = unit_sphere(dataset, index, dataset.samplings(index, drawn, samplings, generator))
    if augmentation.stretch > 1:
        exponent = torch.rand(3, generator=generator) * 2 - 1
        clouds = clouds * augmentation.stretch**exponent
        clouds = clouds / clouds.norm(dim=-1).max()
    pose = Pose.perturbation(max_angle=math.pi, max_translation=augmentation.translation, generator=generator)
    spoilt = [one.apply(cloud, count, generator) for cloud, one in zip(clouds, spoil, strict=True)]
    return pose.apply(torch.stack([*spoilt, clouds[0, :count]])), pose.rotation_matrix()


def unit_sphere(dataset: PointDataset, index: int, clouds: Float[Tensor, "v n 3"]) -> Float[Tensor, "v n 3"]:
    """All samplings of an object moved and scaled together: their joint centroid to 0, the farthest point to 1."""
    clouds = clouds - clouds.mean(dim=(0, 1))
    radius = clouds.norm(dim=-1).max()
    if not torch.isfinite(radius) or radius <= 0:
        what = "coordinates that are not finite" if not torch.isfinite(radius) else "all its points in one place"
        raise DatasetError(
            f"{dataset.name}: the object {dataset.object_ids[index]!r} has {what}; "
            "find such objects with  geocaps data info  and remove them"
        )
    return clouds / radius


@dataclass(frozen=True)
class Spoiling:
    """Corruption of one sampling: how strong each kind of it is."""

    noise: float = 0.0  # standard deviation
    outliers: float = 0.0  # share of the points
    keep: float = 1.0  # share of the points on one side of a random plane
    density: float = 0.0
    one_sided: bool = False  # only what is visible from a random side

    def apply(self, cloud: Float[Tensor, "m 3"], count: int, generator: torch.Generator) -> Float[Tensor, "n 3"]:
        if self.keep < 1:
            cloud, _ = corruption.crop_half_space(cloud[: math.ceil(count / self.keep)], self.keep, generator)
        if self.one_sided:
            seen, _ = corruption.visible_from(cloud, generator)
            cloud = seen[evenly(count, len(seen))] if len(seen) < count else seen
        cloud = cloud[:count]
        if self.density:
            cloud, _ = corruption.vary_density(cloud, generator, self.density)
        if self.noise:
            cloud = corruption.gaussian_noise(cloud, self.noise, generator)
        if self.outliers:
            cloud, _ = corruption.outliers(cloud, self.outliers, generator)
            # As in the preparation of the model's input, stray points are replaced by copies of others.
            kept = cloud[torch.from_numpy(not_stray(cloud.numpy()))]
            cloud = kept[evenly(count, len(kept))]
        return cloud


def _drawn(augmentation: Augmentation, generator: torch.Generator) -> Spoiling:
    """Random choice of the five kinds of corruption, and of their strengths."""
    happens, strength = torch.rand(2, 5, generator=generator).tolist()
    one_sided = happens[4] < augmentation.one_sided_share
    crop = happens[2] < augmentation.crop_share and not one_sided
    return Spoiling(
        noise=strength[0] * augmentation.noise_std if happens[0] < augmentation.noise_share else 0.0,
        outliers=strength[1] * augmentation.outlier_fraction if happens[1] < augmentation.outlier_share else 0.0,
        keep=augmentation.crop_keep + strength[2] * (1 - augmentation.crop_keep) if crop else 1.0,
        density=strength[3] * augmentation.density_strength if happens[3] < augmentation.density_share else 0.0,
        one_sided=one_sided,
    )


def random_stream(*key: int) -> torch.Generator:
    """A generator that depends only on the key, so that resumed and distributed runs draw the same numbers."""
    words = np.random.SeedSequence(list(key)).generate_state(2)
    return torch.Generator().manual_seed((int(words[0]) << 31) ^ int(words[1]))


def pieces_of(batch: int, accumulate: int, processes: int) -> int:
    """The number of pieces in which a batch is processed, at least one per process."""
    pieces = max(accumulate, processes)
    if pieces % processes or batch % pieces:
        raise ConfigError(
            f"a batch of {batch} in {pieces} pieces cannot be shared evenly by {processes} processes: "
            "choose a batch (--batch) that they divide"
        )
    return pieces


def fitted_batches(
    config: TrainConfig, dataset: PointDataset, processes: int, *, reduce: bool
) -> tuple[TrainConfig, list[str]]:
    """The configuration, with batches that can be drawn from the data and shared by the processes, in all stages.

    A batch that is too large is reduced to the largest that fits, with a message; without ``reduce`` it is an error.
    """
    said = []
    for stage in config.stages:
        settings = config.stage_config(stage)
        reuse = config.reuse(stage)
        if settings.batch > len(dataset):
            unit = math.lcm(settings.accumulate, max(settings.accumulate, processes))
            # In a very small set, objects are repeated in a batch, in different views.
            largest = len(dataset) // (unit * reuse) * unit * reuse or len(dataset) // unit * unit * reuse
            largest = min(largest, settings.batch)
            too_large = f"a batch of {settings.batch} objects cannot be drawn from the {len(dataset)} of {dataset.name}"
            if not largest:
                raise ConfigError(f"{too_large}, nor can one that {unit} processes or pieces share: use fewer of them")
            if not reduce:
                raise UsageError(f"{too_large}: give --batch {largest} or less, or leave --batch out for one that fits")
            said.append(
                f"stage {stage}: a batch of {largest} objects, not {settings.batch}: the data have {len(dataset)}"
            )
            settings = replace(settings, batch=largest)
            changed: dict[str, Any] = {stage: settings}
            config = replace(config, **changed)
        pieces_of(settings.batch // reuse, settings.accumulate, processes)
    return config, said
