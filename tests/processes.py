"""Processes that are killed on purpose, with signal 9: nothing in them can tidy up."""

from __future__ import annotations

import subprocess
import sys

import psutil

HOLD = """
import sys
def hold_at(count):
    def hold(done, of):
        if done == count:
            print("held", flush=True)
            sys.stdin.readline()
    return hold
"""


def killed_when_held(code: str, *arguments: object) -> None:
    """Runs Python code that gives ``hold_at(n)`` as the function to be told of progress, and kills it there.

    Its own processes must end by themselves.
    """
    command = [sys.executable, "-c", HOLD + code, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n", "the run ended before it could be killed"
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()
    assert psutil.wait_procs(family, timeout=300)[1] == [], "workers outlive their killed parent"


def kill_one_worker() -> psutil.Process:
    """One of the workers of this process: a child of its fork server, not of anything else that it has started."""
    (server,) = (child for child in psutil.Process().children() if "multiprocessing.forkserver" in str(child.cmdline()))
    worker = server.children()[0]
    worker.kill()
    return worker
