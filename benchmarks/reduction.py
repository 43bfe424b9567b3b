"""Time of reducing a large cloud to the model's 1,024 points, beside the order by radius that 0.1.0 used.

    python benchmarks/reduction.py
    git show 9e3d846:src/geocaps/geometry/sampling.py > before.py && python benchmarks/reduction.py before.py

Prints CPU milliseconds, best of five, in one process: of 0.1.0, of now, and of now where a twentieth of the points is
stray. With another version's file, the same of it, and now as a share of it.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable

import numpy as np

from geocaps.geometry.sampling import evenly, reduced

COUNT = 1024


def main() -> None:
    other = reduced_of(sys.argv[1]) if len(sys.argv) > 1 else None
    print(
        f"{'points':>9} {'0.1.0':>9} {'now':>9} {'ratio':>6} {'strays':>9}"
        + " other: now, strays, ratios" * bool(other)
    )
    for points in (2_048, 10_000, 100_000, 1_000_000):
        draw = np.random.default_rng(0)
        cloud = draw.normal(size=(points, 3))
        cloud = (cloud / np.linalg.norm(cloud, axis=1, keepdims=True) * [1.0, 0.6, 0.3]).astype(np.float32)
        strewn = cloud.copy()
        strewn[: points // 20] = draw.uniform(-1, 1, size=(points // 20, 3))
        before = best(lambda c=cloud: by_radius(c))
        now, strays = (best(lambda c=c: reduced(c, COUNT)) for c in (cloud, strewn))
        line = f"{points:>9,} {1e3 * before:>8.2f}m {1e3 * now:>8.2f}m {now / before:>6.2f} {1e3 * strays:>8.2f}m"
        if other:
            one, two = (best(lambda c=c: other(c, COUNT)) for c in (cloud, strewn))
            line += f" {1e3 * one:>8.2f}m {1e3 * two:>8.2f}m {now / one:>6.2f} {strays / two:>6.2f}"
        print(line)


def reduced_of(path: str) -> Callable[[np.ndarray, int], np.ndarray]:
    """``reduced`` of another version of the module."""
    spec = importlib.util.spec_from_file_location("other_sampling", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.reduced


def by_radius(points: np.ndarray) -> np.ndarray:
    """What 0.1.0 did: every n-th point by rounded distance from the centroid; coordinates, so the pose, broke ties."""
    exact = points.astype(np.float64)
    radius = np.linalg.norm(exact - np.sort(exact, axis=0).mean(axis=0), axis=1)
    key = np.round(radius / radius.max(), 9)
    order = np.argsort(key)
    ascending = key[order]
    same = ascending[1:] == ascending[:-1]
    tied = np.append(same, False) | np.insert(same, 0, False)
    among = order[tied]
    order[tied] = among[np.lexsort((among, exact[among, 2], exact[among, 1], exact[among, 0], ascending[tied]))]
    return points[order[evenly(COUNT, len(points))]]


def best(function: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    main()
