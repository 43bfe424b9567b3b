"""Encodes thousands of good, degenerate and hostile clouds in one process: python scripts/soak.py --count 10000.

Sound clouds must give finite capsules, hostile ones one clear sentence, and memory must not grow after the warm-up.
Prints how often each kind did which; exit code 1 where one of these fails.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import psutil
import torch

import geocaps
from geocaps.data.synthetic import ASYMMETRIC, make_shape

Maker = Callable[[np.random.Generator], Any]

MAX_GROWTH_MB = 32.0
"""What the allocator may still take after the warm-up. At 10,000 encodes a leak of 4 KB each is more."""
BATCH = 8
HOSTILE_SHARE = 0.25


def shape(rng: np.random.Generator) -> np.ndarray:
    """An embedded object, moved and scaled by anything."""
    drawn = make_shape(str(rng.choice(sorted(ASYMMETRIC))), int(rng.integers(1000)))
    points = drawn.sample(int(rng.integers(200, 3000)), torch.Generator().manual_seed(int(rng.integers(2**31)))).points
    return points.numpy() * rng.uniform(0.1, 100) + rng.normal(size=3) * 10


def cloud(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(int(rng.integers(100, 2000)), 3))


def line(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(300, 1)) * rng.normal(size=3)


def plane(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(300, 2)) @ rng.normal(size=(2, 3))


GOOD: dict[str, Maker] = {
    "object, float64": shape,
    "object, float32": lambda rng: shape(rng).astype(np.float32),
    "object, a tensor": lambda rng: torch.from_numpy(shape(rng)),
    "Gaussian": cloud,
    "cube surface": lambda rng: np.clip(rng.normal(size=(500, 3)) * 3, -1, 1),
}
DEGENERATE: dict[str, Maker] = {
    "planar": plane,
    "duplicates": lambda rng: np.repeat(rng.normal(size=(60, 3)), 30, axis=0),
    "few points": lambda rng: rng.uniform(size=(64, 3)),
    "tiny": lambda rng: cloud(rng) * 1e-30,
    "huge": lambda rng: np.clip(cloud(rng) * 1e14, -1e15, 1e15),
    "far away": lambda rng: cloud(rng) + 1e6 * rng.normal(size=3),
    "whole numbers": lambda rng: rng.integers(-100, 100, (200, 3)).astype(np.int16),
}
HOSTILE: dict[str, Maker] = {
    "one point repeated": lambda rng: np.tile(rng.normal(size=3), (64, 1)),
    "the origin repeated": lambda rng: np.zeros((64, 3)),
    "collinear": line,
    "two clusters": lambda rng: rng.normal(size=(200, 3)) * 1e-6 + rng.integers(0, 2, (200, 1)),
    "two points repeated": lambda rng: np.repeat(rng.normal(size=(2, 3)), 50, axis=0),
    "so far away that it is a point": lambda rng: cloud(rng) + 1e14,
    "one far outlier": lambda rng: np.concatenate([cloud(rng), [[1e9, 0.0, 0.0]]]),
    "three points repeated": lambda rng: np.repeat(rng.normal(size=(3, 3)), 50, axis=0),
    "NaN": lambda rng: np.full((64, 3), np.nan),
    "one NaN": lambda rng: np.concatenate([rng.normal(size=(200, 3)), [[0.0, np.nan, 0.0]]]),
    "infinite": lambda rng: np.full((64, 3), np.inf),
    "one infinity": lambda rng: np.concatenate([rng.normal(size=(200, 3)), [[0.0, 0.0, -np.inf]]]),
    "denormal": lambda rng: cloud(rng) * 1e-320,
    "1e30": lambda rng: cloud(rng) * 1e30,
    "1e300": lambda rng: cloud(rng) * 1e300,
    "too few points": lambda rng: rng.normal(size=(int(rng.integers(1, 32)), 3)),
    "no points": lambda rng: np.zeros((0, 3)),
    "an empty batch": lambda rng: np.zeros((0, 64, 3)),
    "an empty list": lambda rng: [],
    "two columns": lambda rng: rng.normal(size=(64, 2)),
    "four columns": lambda rng: rng.normal(size=(64, 4)),
    "transposed": lambda rng: rng.normal(size=(3, 64)),
    "four axes": lambda rng: rng.normal(size=(2, 2, 64, 3)),
    "a number": lambda rng: float(rng.normal()),
    "None": lambda rng: None,
    "strings": lambda rng: np.array([["a", "b", "c"]] * 64),
    "bytes": lambda rng: rng.bytes(100),
    "objects": lambda rng: np.array([[object()] * 3] * 64),
    "numbers as objects": lambda rng: rng.normal(size=(64, 3)).astype(object),
    "complex": lambda rng: rng.normal(size=(64, 3)) + 1j,
    "Booleans": lambda rng: rng.normal(size=(64, 3)) > 0,
    "uneven lists": lambda rng: [[1.0, 2.0], [3.0]],
    "a dictionary": lambda rng: {"points": rng.normal(size=(64, 3))},
    "a file that is not there": lambda rng: f"nowhere/{rng.integers(100)}.ply",
    "a name that cannot be": lambda rng: "a\0b.ply",
    "a bad one among good ones": lambda rng: [cloud(rng), np.full((64, 3), np.nan), cloud(rng)],
}


def items(rng: np.random.Generator) -> Iterator[tuple[str, str, Any]]:
    """Group, kind and cloud, without end: every kind once first, then drawn at random."""
    groups = {"good": GOOD, "degenerate": DEGENERATE, "hostile": HOSTILE}
    for group, makers in groups.items():
        for kind, make in makers.items():
            yield group, kind, make(rng)
    sound = (1 - HOSTILE_SHARE) / 2
    while True:
        group = str(rng.choice(list(groups), p=[sound, sound, HOSTILE_SHARE]))
        kind = str(rng.choice(list(groups[group])))
        yield group, kind, groups[group][kind](rng)


class Soak:
    """What came of every cloud so far, and what went wrong."""

    def __init__(self, model: geocaps.Model) -> None:
        self.model = model
        self.came: Counter[tuple[str, str, str]] = Counter()
        self.wrong: list[str] = []

    def run(self, drawn: Iterator[tuple[str, str, Any]]) -> None:
        """Sound clouds in lists, every second list one by one; hostile ones alone."""
        waiting: list[tuple[str, str, Any]] = []
        lists = 0
        for group, kind, source in drawn:
            if group == "hostile":
                self._encode([(group, kind)], source, expected="refused")
                continue
            waiting.append((group, kind, source))
            if len(waiting) == BATCH:
                lists += 1
                self._sound(waiting, together=lists % 2 == 1)
                waiting = []
        self._sound(waiting, together=False)

    def _sound(self, waiting: list[tuple[str, str, Any]], together: bool) -> None:
        if together:
            self._encode([one[:2] for one in waiting], [source for *_, source in waiting], expected="finite")
        else:
            for group, kind, source in waiting:
                self._encode([(group, kind)], source, expected="finite")

    def _encode(self, kinds: list[tuple[str, str]], source: Any, expected: str) -> None:
        try:
            found = list(self.model.encode_many(source)) if isinstance(source, list) else [self.model.encode(source)]
            came, said = ("finite" if all(map(is_finite, found)) else "not finite"), ""
        except geocaps.GeocapsError as error:
            came, said = "refused", str(error)
            if not said or "\n" in said or len(said) > 500:
                came = "refused unclearly"
        except Exception:
            came, said = "crashed", traceback.format_exc()
        for kind in kinds:
            self.came[(*kind, came)] += 1
        if came != expected:
            self.wrong.append(f"{', '.join(kind for _, kind in kinds)}: {came} instead of {expected}. {said}")


def is_finite(found: geocaps.Encoding) -> bool:
    """Everything that an encoding holds, and what it computes when asked."""
    surfaces = found.reconstruct("object").points, found.reconstruct("parts").points
    values = [found.feature, found.pose.matrix(), found.confidence, found.parts.feature, found.parts.pose.matrix()]
    in_range = bool(((found.labels >= -1) & (found.labels < len(found.parts))).all())
    return in_range and all(bool(np.isfinite(value).all()) for value in [*values, *surfaces, found.canonical()])


def resident_mb() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="clouds in all")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other clouds")
    options = parser.parse_args(args)
    started, drawn = time.monotonic(), items(np.random.default_rng(options.seed))
    soak = Soak(geocaps.load())
    warm_up = max(len(GOOD) + len(DEGENERATE) + len(HOSTILE), min(options.count // 2, 2000))
    soak.run(islice(drawn, min(warm_up, options.count)))
    before = resident_mb()
    soak.run(islice(drawn, max(0, options.count - warm_up)))
    after = resident_mb()

    for (group, kind, came), times in soak.came.items():
        print(f"{times:7,}  {group:<10}  {kind:<34}  {came}")
    totals: Counter[tuple[str, str]] = Counter()
    for (group, _, came), times in soak.came.items():
        totals[group, came] += times
    print("in all:", ", ".join(f"{times:,} {group} {came}" for (group, came), times in totals.items()))
    print(f"{totals.total():,} encodes in {time.monotonic() - started:.0f} s")
    print(f"memory: {before:.0f} MB after the warm-up, {after:.0f} MB at the end")
    if after - before > MAX_GROWTH_MB:
        soak.wrong.append(f"memory grew by {after - before:.0f} MB, more than {MAX_GROWTH_MB:.0f}")
    for sentence in soak.wrong:
        print(f"WRONG: {sentence}", file=sys.stderr)
    print("FAILED" if soak.wrong else "passed: no crash, no growth, every result finite or a clear sentence")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
