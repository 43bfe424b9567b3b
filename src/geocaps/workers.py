"""A pool of single-threaded processes that survives the death of any of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from geocaps.errors import GeocapsError

ENDED = "reading it crashed the process (out of memory, or a bug in a library)"
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workers(Generic[Task, Result]):
    """Processes that run ``work``, a module-level function, which is pickled with its arguments.

    A task that crashes its process (out of memory, a bug in a library) fails alone, without the run.
    """

    work: Callable[..., Result]
    """Called with a task and ``arguments``."""
    arguments: tuple[object, ...]
    on_death: Callable[[Task], Result]
    """Result of a task that crashed even a process of its own; called in this process."""

    def run(self, tasks: Sequence[Task], workers: int | None) -> Iterator[tuple[Task, Result]]:
        """Every task with its result, in order of completion; by default with one process per core."""
        workers = workers or os.cpu_count() or 1
        left = deque(tasks)
        while left:
            running: dict[Future[Result], Task] = {}
            with self._pool(min(workers, len(left))) as pool:
                try:
                    while left or running:
                        while left and len(running) < 2 * workers:
                            running[pool.submit(self.work, left[0], *self.arguments)] = left[0]
                            left.popleft()  # only now, because a broken pool rejects the task
                        for future in wait(running, return_when=FIRST_COMPLETED).done:
                            result = future.result()
                            yield running.pop(future), result
                except BrokenProcessPool:
                    pass  # handled below: unfinished tasks are still in "running"
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
            for task in running.values():
                yield task, self.alone(task)

    def alone(self, task: Task) -> Result:
        """The result of one task, in a process of its own."""
        with self._pool(1) as pool:
            try:
                return pool.submit(self.work, task, *self.arguments).result()
            except BrokenProcessPool:
                pass
        return self.on_death(task)

    def _pool(self, workers: int) -> ProcessPoolExecutor:
        # Never a fork of this process, which may have torch's threads and then hang; a fork server has none.
        if "forkserver" not in multiprocessing.get_all_start_methods():
            return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _prepare_worker)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([self.work.__module__])  # torch is imported once, not in each worker
        return ProcessPoolExecutor(workers, context, _prepare_worker)


def reason_of(error: Exception) -> str:
    """The reason why a task failed, with the type of the error unless it is one of ours."""
    return str(error) if isinstance(error, (GeocapsError, OSError)) else f"{type(error).__name__}: {error}"


def _prepare_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which stops the workers
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)  # or the workers of a killed parent would wait forever

    threading.Thread(target=follow, daemon=True).start()
