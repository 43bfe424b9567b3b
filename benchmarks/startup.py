"""How long the commands take to begin, beside ``python -c "import torch"``.

    python benchmarks/startup.py

Every command runs in a fresh process, all of them in turn, five times; the best of each counts. Ratios are to importing
torch in the same run, of the processor's time (user + system) and of the wall clock. Exits with 1 where a ratio of the
processor's time is above its target.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from geocaps.io import save_points

ROUNDS = 5
TORCH = "import torch"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        commands = _commands(Path(folder))
        best = {name: (float("inf"), float("inf")) for name in commands}
        for round_ in range(ROUNDS):
            for name, (args, _) in commands.items():
                processor, wall = _run([arg.replace("ROUND", str(round_)) for arg in args])
                best[name] = (min(best[name][0], processor), min(best[name][1], wall))
    torch_processor, torch_wall = best[TORCH]
    print(f"{'command':24} {'CPU s':>7} {'ratio':>6} {'wall s':>7} {'ratio':>6}  target")
    failed = False
    for name, (_, target) in commands.items():
        processor, wall = best[name]
        ratio = processor / torch_processor
        failed = failed or (target is not None and ratio > target)
        aim = "" if target is None else f"<= {target}{'  MISSED' if ratio > target else ''}"
        print(f"{name:24} {processor:7.2f} {ratio:6.2f} {wall:7.2f} {wall / torch_wall:6.2f}  {aim}")
    return int(failed)


def _commands(folder: Path) -> dict[str, tuple[list[str], float | None]]:
    """Name → arguments of Python, and the highest ratio that is accepted."""
    points = np.random.default_rng(0).normal(size=(800, 3)) * [1, 0.5, 0.2]
    first, second = str(folder / "first.ply"), str(folder / "second.ply")
    save_points(first, points)
    save_points(second, points[:, [1, 2, 0]] + 1)
    geocaps = ["-m", "geocaps"]
    return {
        TORCH: (["-c", TORCH], None),
        "geocaps --help": ([*geocaps, "--help"], 0.2),
        "geocaps align --help": ([*geocaps, "align", "--help"], 0.2),
        "geocaps align": ([*geocaps, "align", first, second], 0.6),
        "geocaps info": ([*geocaps, "info"], 1.3),
        "geocaps encode": ([*geocaps, "encode", first, "--out", str(folder / "capsulesROUND.npz")], 2.0),
    }


def _run(args: list[str]) -> tuple[float, float]:
    """Seconds of the processor and of the wall clock."""
    before = time.perf_counter()
    process = subprocess.Popen([sys.executable, *args], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - before
    if status != 0:
        raise RuntimeError(f"python {' '.join(args)} failed")
    return used.ru_utime + used.ru_stime, wall


if __name__ == "__main__":
    raise SystemExit(main())
