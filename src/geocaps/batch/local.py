"""The local engine: shards on processes of this machine, one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geocaps.apps.weights import Weights
from geocaps.batch.items import Item
from geocaps.batch.shards import Shard, encode_items, failure
from geocaps.workers import Workers

Items = tuple[Item, ...]


def run_local(shards: Sequence[Items], weights: Weights, workers: int | None) -> Iterator[tuple[Items, Shard]]:
    """Every shard with its rows, in the order in which they are done.

    A file whose reader takes the process down (out of memory, a fault in a library) costs that file, not the run.
    """
    if len(shards) == 1:
        yield shards[0], encode_items(shards[0], weights)
        return

    def halved(items: Items) -> Shard:
        """Of a shard that ends its process: in two halves, until the file is found that does."""
        if len(items) == 1:
            reason = "reading it ended the process (out of memory, or a fault in a library)"
            return Shard((), (failure(items[0], reason),))
        half = len(items) // 2
        return processes.alone(items[:half]) + processes.alone(items[half:])

    processes = Workers(encode_items, (weights,), on_death=halved)
    yield from processes.run(shards, workers)
