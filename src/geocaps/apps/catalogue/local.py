"""The local engine: shards on processes of this machine, one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from geocaps.apps.catalogue.items import Item
from geocaps.apps.catalogue.shards import Shard, encode_items, failure
from geocaps.apps.weights import Weights

Items = tuple[Item, ...]


def run_local(shards: Sequence[Items], weights: Weights, workers: int | None) -> Iterator[tuple[Items, Shard]]:
    """Every shard with its rows, in the order in which they are done.

    A file whose reader takes the process down (out of memory, a fault in a library) costs that file, not the run.
    """
    if len(shards) == 1:
        yield shards[0], encode_items(shards[0], weights)
        return
    workers = min(workers or os.cpu_count() or 1, len(shards))
    left = deque(shards)
    while left:
        running: dict[Future[Shard], Items] = {}
        with _pool(workers) as pool:
            try:
                while left or running:
                    while left and len(running) < 2 * workers:
                        running[pool.submit(encode_items, left[0], weights)] = left[0]
                        left.popleft()  # only now: a pool that is broken refuses the shard
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        shard = future.result()
                        yield running.pop(future), shard
            except BrokenProcessPool:
                pass  # handled below: the shards that were under way are still in "running"
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        for items in running.values():
            yield items, _isolated(items, weights)


def _isolated(items: Items, weights: Weights) -> Shard:
    """In a process of its own; if that ends too, in two halves, until the file is found that ends it."""
    with _pool(1) as pool:
        try:
            return pool.submit(encode_items, items, weights).result()
        except BrokenProcessPool:
            pass
    if len(items) == 1:
        return Shard((), (failure(items[0], "reading it ended the process (out of memory, or a fault in a library)"),))
    half = len(items) // 2
    return _isolated(items[:half], weights) + _isolated(items[half:], weights)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Never a fork of this process: it may run torch's threads, and then its copy can hang. A fork server has none.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _follow_parent)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # torch is imported once, not in each worker
    return ProcessPoolExecutor(workers, context, _follow_parent)


def _follow_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops the workers
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)  # a killed parent cannot say so, and its workers would wait for work for ever

    threading.Thread(target=follow, daemon=True).start()
