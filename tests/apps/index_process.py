"""Adds a folder to an index in a process of its own: ``python -m tests.apps.index_process INDEX FOLDER``.

Prints a line for each batch that is in, so that a test knows when to kill it.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from geocaps.apps.encode import Model
from geocaps.apps.index import Index
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from tests.training.tiny import MODEL

CONFIG = replace(MODEL, points=256)


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
