"""Adds a folder to an index in a process of its own: ``python -m tests.index.index_process INDEX FOLDER HOLD``.

Says on its standard output what it has come to, a line for each event: ``creating``, ``created``, then ``writing 1``,
``written 1`` for the first batch, and so on. At the event ``HOLD`` it waits until a line comes in: a test decides what
happens in between.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch

from geocaps import index as adding
from geocaps.apps.encode import Model
from geocaps.index import Index
from geocaps.index.rows import Row
from geocaps.index.store import Store
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from tests.training.tiny import MODEL

CONFIG = replace(MODEL, points=256)
BATCH = 8


def small_model(seed: int = 0) -> Model:
    """Random weights are enough: features are pose-invariant by construction."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Model(GeometricCapsuleAutoencoder(CONFIG))


def main(index: str, folder: str, hold: str) -> None:
    torch.set_num_threads(1)
    adding._BATCH = BATCH
    create, write, batches = Store.create, Store.write, 0

    def tell(event: str) -> None:
        sys.stdout.write(event + "\n")
        sys.stdout.flush()
        if event == hold:
            sys.stdin.readline()

    def telling_create(store: Store, weights: str, config: str, dimension: int, percept: int) -> None:
        tell("creating")
        create(store, weights, config, dimension, percept)
        tell("created")

    def telling_write(store: Store, rows: Sequence[Row]) -> None:
        nonlocal batches
        batches += 1
        tell(f"writing {batches}")
        write(store, rows)
        tell(f"written {batches}")

    Store.create, Store.write = telling_create, telling_write  # type: ignore[method-assign]
    report = Index(index, small_model()).add(folder)
    tell(f"added {report.added}, known {report.known}")


if __name__ == "__main__":
    main(*sys.argv[1:])
