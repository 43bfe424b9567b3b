"""Processes that are killed on purpose, with signal 9: nothing in them can tidy up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import psutil


def run_until(happened: Callable[[], bool], code: str, *arguments: object, seconds: float = 120) -> None:
    """Runs Python code and kills it once something happened; its own processes must end by themselves."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    try:
        end = time.monotonic() + seconds
        while not happened():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < end
            time.sleep(0.01)
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert psutil.wait_procs(family, timeout=20)[1] == [], "workers outlive their killed parent"


def kill_one_worker() -> psutil.Process:
    """One of the workers of this process; not the fork server, which is their parent."""
    family = psutil.Process().children(recursive=True)
    worker = next(child for child in family if child.ppid() != os.getpid())
    worker.kill()
    return worker
