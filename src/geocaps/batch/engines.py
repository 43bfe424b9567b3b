"""Engines that encode shards: processes of this machine, or Ray Data on this machine or on every machine of a cluster.

For Ray, the files must be readable under the same paths on every machine, and the weights must be the same there (they
are compared by checksum). Rows travel back to this process, which alone writes: the output needs no shared disk.
"""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from geocaps.batch.shards import Item, Shard, encode_items, skipped
from geocaps.errors import EncodingError, MissingExtraError
from geocaps.model.checkpoint import Weights
from geocaps.workers import ENDED, Workers

Items = tuple[Item, ...]
_RETRIES = 5  # a shard whose worker dies is given to another one; one that ends this many workers is at fault itself


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
            return Shard((), (skipped(items[0], ENDED),))
        half = len(items) // 2
        return processes.alone(items[:half]) + processes.alone(items[half:])

    processes = Workers(encode_items, (weights,), on_death=halved)
    yield from processes.run(shards, workers)


def run_ray(shards: Sequence[Items], weights: Weights, workers: int | None) -> Iterator[tuple[Items, Shard]]:
    """Every shard with its rows, in the order in which they are done.

    On the Ray that is connected already, else on the cluster that ``RAY_ADDRESS`` names, else on a Ray started here
    for this run with ``workers`` processes.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("the engine 'ray'", "ray") from error

    # As bytes: Ray would look into Python objects to find columns for them.
    tasks = [{"index": index, "items": pickle.dumps(items)} for index, items in enumerate(shards)]
    with _connected(workers), _quiet():
        # A block for each shard: shards are given out one by one, to whoever is free.
        data = ray.data.from_items(tasks, override_num_blocks=len(tasks))
        results = data.map(partial(_encode, weights), num_cpus=1, max_retries=_RETRIES)
        try:
            for result in results.iter_rows():
                yield shards[result["index"]], pickle.loads(result["shard"])
        except ray.exceptions.RayError as error:
            raise EncodingError(
                f"Ray gave up ({_reason(error)}); what is done is kept: re-run to resume, "
                "or with the engine 'local', which finds a file that ends its reader"
            ) from error


def _encode(weights: Weights, task: dict[str, Any]) -> dict[str, Any]:
    """One shard, in a Ray worker."""
    shard = encode_items(pickle.loads(task["items"]), weights)
    return {"index": task["index"], "shard": pickle.dumps(shard)}


@contextmanager
def _connected(workers: int | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere without being asked for
    on_cluster = "RAY_ADDRESS" in os.environ
    own: dict[str, Any] = {} if on_cluster else {"num_cpus": workers, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray Data's own progress bars and log: ours is the one that is shown."""
    from ray.data import DataContext

    context, log = DataContext.get_current(), logging.getLogger("ray.data")
    bars, level = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Ray 2.64 will want another spelling of max_retries, which older ones do not know.
            warnings.filterwarnings("ignore", message=".*ray_remote_args.*")
            yield
    finally:
        context.enable_progress_bars = bars
        log.setLevel(level)


def _reason(error: Exception) -> str:
    """Of a traceback from another machine, and Ray's advice around it, the line that names the error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ([line for line in lines if "Error: " in line] or lines)[-1].strip()[:500]
