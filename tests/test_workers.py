"""Processes that die: each task has its result, and only the one that kills costs anything."""

import os
import signal

import torch

from geocaps.workers import Workers

DEADLY = 3


def work(task: int, factor: int) -> tuple[int, int]:
    if task == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * factor, torch.get_num_threads()


def test_a_task_that_ends_its_process_costs_only_itself():
    asked = []

    def on_death(task: int) -> tuple[int, int]:
        asked.append(task)
        return -1, 0

    found = dict(Workers(work, (10,), on_death).run(range(8), workers=2))
    assert found == {task: (-1, 0) if task == DEADLY else (10 * task, 1) for task in range(8)}
    assert asked == [DEADLY]
