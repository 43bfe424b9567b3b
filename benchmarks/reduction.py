"""Time of reducing a large cloud to the model's 1,024 points, beside the order by radius that 0.1.0 used.

    python benchmarks/reduction.py

Prints CPU milliseconds of both, best of five, in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from geocaps.geometry.sampling import evenly, reduced

COUNT = 1024


def main() -> None:
    print(f"{'points':>9} {'0.1.0':>9} {'now':>9} {'ratio':>6}")
    for points in (2_048, 10_000, 100_000, 1_000_000):
        cloud = np.random.default_rng(0).normal(size=(points, 3))
        cloud = (cloud / np.linalg.norm(cloud, axis=1, keepdims=True) * [1.0, 0.6, 0.3]).astype(np.float32)
        before, now = best(lambda c=cloud: by_radius(c)), best(lambda c=cloud: reduced(c, COUNT))
        print(f"{points:>9,} {1e3 * before:>8.2f}m {1e3 * now:>8.2f}m {now / before:>6.2f}")


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
