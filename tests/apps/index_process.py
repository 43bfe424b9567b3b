"""Adds a folder to an index in a process of its own: ``python -m tests.apps.index_process INDEX FOLDER``.

Prints a line for each batch that is in, so that a test knows when to kill it.
"""

from __future__ import annotations

import sys

import torch

from geocaps.apps.encode import Model
from geocaps.apps.index import Index
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.config import ModelConfig, ObjectConfig, PartsConfig

CONFIG = ModelConfig(
    points=256,
    parts=PartsConfig(parts=8, width=16, blocks=1, decoder_width=16, decoded=16, iterations=2, views=2),
    object=ObjectConfig(
        feature=16, width=16, blocks=1, decoder_width=16, decoder_blocks=1, views=2, voting_steps=2,
        part_pose="matrix", look_grid=5, look_channels=4, look_width=16,
    ),
)  # fmt: skip


def small_model(seed: int = 0) -> Model:
    """Random weights are enough: features are pose-invariant by construction."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Model(GeometricCapsuleAutoencoder(CONFIG))


def main(index: str, folder: str) -> None:
    torch.set_num_threads(1)

    def tell(done: int, of: int) -> None:
        sys.stdout.write(f"{done} of {of}\n")
        sys.stdout.flush()

    report = Index(index, small_model()).add(folder, on_object=tell)
    sys.stdout.write(f"added {report.added}, known {report.known}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
