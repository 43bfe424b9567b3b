"""How many samples per second each kind of data set gives, against what a training step needs.

A sample is two independent samplings of 2,048 points of one object. A training step takes 16 objects in about 0.3 s on
two processors, so it needs 53 samples per second; "ratio" is how many times that is given.

Run:  python benchmarks/data_loading.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import torch
import trimesh

from geocaps.data.folder import pack
from geocaps.datasets import PointDataset, load

POINTS, VIEWS = 2048, 2
STEP_OBJECTS, STEP_SECONDS = 16, 0.3
NEEDED = STEP_OBJECTS / STEP_SECONDS
OBJECTS = 200


def main() -> None:
    print(f"a training step of {STEP_OBJECTS} objects in {STEP_SECONDS} s needs {NEEDED:.0f} samples/s\n")
    print(f"{'set':<34}{'first visit':>14}{'ratio':>8}{'later':>14}{'ratio':>8}   samples/s")
    with tempfile.TemporaryDirectory() as place:
        for name, dataset in data_sets(Path(place)):
            first, later = samples_per_second(dataset), samples_per_second(dataset)
            print(f"{name:<34}{first:>14.0f}{first / NEEDED:>7.1f}x{later:>14.0f}{later / NEEDED:>7.1f}x")


def data_sets(place: Path):
    """Each kind of set, made here and opened afresh."""
    clouds = np.random.default_rng(0).uniform(-1, 1, (OBJECTS, VIEWS * POINTS, 3)).astype(np.float32)
    steps = {"points": np.round(clouds * 1000).astype(np.int16), "scale": np.float32(0.001)}
    np.savez_compressed(place / "compressed.npz", **steps)
    yield "npz int16, compressed (in memory)", load(place / "compressed.npz")
    np.savez(place / "stored.npz", **steps)
    yield "npz int16, stored (mapped)", load(place / "stored.npz")
    np.savez_compressed(place / "float16.npz", points=clouds.astype(np.float16))
    yield "npz float16", load(place / "float16.npz")
    with h5py.File(place / "set.h5", "w") as file:
        file.create_dataset("data", data=clouds, compression="gzip")
    yield "HDF5", load(place / "set.h5")
    (place / "meshes" / "sphere").mkdir(parents=True)
    for number in range(OBJECTS):
        mesh = trimesh.creation.icosphere(subdivisions=4, radius=1 + number)
        mesh.export(place / "meshes" / "sphere" / f"{number:04d}.off")
    yield "folder of meshes (5,120 triangles)", load(place / "meshes")
    pack(place / "meshes", place / "packed.npz", points=VIEWS * POINTS)
    yield "the same folder, packed", load(place / "packed.npz")
    yield "shapes (procedural)", load("shapes", per_class=OBJECTS // 20)
    yield "furniture", load("furniture")


def samples_per_second(dataset: PointDataset) -> float:
    """Over every object once, in random order."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(dataset), generator=generator).tolist()
    start = time.perf_counter()
    for index in order:
        dataset.samplings(index, POINTS, VIEWS, generator)
    return len(order) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
