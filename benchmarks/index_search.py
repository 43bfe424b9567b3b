"""Search among 100,000 random and the real features of a data set: time to write and to build, per query, recall@10.

    python benchmarks/index_search.py [--data modelnet40_dev.npz] [--random 100000] [--queries 50]

Real features are those of --data (by default the embedded shapes, ten of each class); random ones are normal with the
mean and spread of the real ones in each number. A query is a new random feature, or a real object sampled again and
rotated. Recall compares with all distances, computed by numpy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import geocaps
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.index import KEPT_POINTS
from geocaps.index.store import Filter, Row, Store
from geocaps.model.checkpoint import weights_of

K = 10
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="shapes", help="data set of the real features")
    parser.add_argument("--random", type=int, default=100_000, help="random features beside the real ones")
    parser.add_argument("--queries", type=int, default=50, help="of each kind")
    args = parser.parse_args()

    model = geocaps.load()
    dataset = geocaps.datasets.load(args.data, **({"per_class": 10} if args.data == "shapes" else {}))
    generator = torch.Generator().manual_seed(0)
    real, encode_ms = encoded(model, dataset, range(len(dataset)), generator)
    chosen = np.linspace(0, len(dataset) - 1, args.queries).astype(int).tolist()
    again, _ = encoded(model, dataset, chosen, generator)

    random = np.random.default_rng(0)
    mean, spread = real.mean(axis=0), real.std(axis=0)
    drawn = (mean + spread * random.normal(size=(args.random + args.queries, len(mean)))).astype(np.float32)
    features = np.concatenate([drawn[: args.random], real])
    queries = {"random": drawn[args.random :], "real, sampled again and turned": again}
    truth = {name: nearest_by_numpy(features, some) for name, some in queries.items()}

    print(f"{len(real)} features of {dataset.name} ({encode_ms:.0f} ms each to encode) and {args.random} random ones")
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "bench.lance")
        store.create(weights_of(model.network), "{}", features.shape[1])
        started = time.perf_counter()
        write(store, features)
        print(f"write: {time.perf_counter() - started:.1f} s")
        for name, some in queries.items():
            report("exact", name, store, some[:10], truth[name])
        started, worked = time.perf_counter(), time.process_time()
        store.tidy()
        built, worked = time.perf_counter() - started, time.process_time() - worked
        print(f"build the vector index: {built:.1f} s ({worked:.1f} s of processor; made: {store.is_approximate})")
        for name, some in queries.items():
            report("approximate" if store.is_approximate else "exact, tidied", name, store, some, truth[name])
        megabytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
        print(f"on disk: {megabytes:.0f} MB")


def encoded(
    model: geocaps.Model, dataset: geocaps.datasets.PointDataset, chosen: range | list[int], generator: torch.Generator
) -> tuple[np.ndarray, float]:
    """Features of new samplings, turned at random, and milliseconds for each."""
    found, seconds = [], 0.0
    for start in range(0, len(chosen), BATCH):
        clouds = [dataset.samplings(i, 1024, 1, generator)[0] for i in chosen[start : start + BATCH]]
        turned = [Pose.random(generator=generator).apply(cloud) for cloud in clouds]
        started = time.perf_counter()
        found.append(model.encode_many(turned).feature)
        seconds += time.perf_counter() - started
    return np.concatenate(found), 1000 * seconds / len(chosen)


def nearest_by_numpy(features: np.ndarray, queries: np.ndarray) -> list[set[str]]:
    exact = features.astype(np.float64)
    return [
        {str(i) for i in np.argpartition(((exact - query) ** 2).sum(axis=1), K)[:K]}
        for query in queries.astype(np.float64)
    ]


def write(store: Store, features: np.ndarray, batch: int = 5000) -> None:
    """Rows as ``Index.add`` writes them, points and all, in larger commits."""
    points = np.random.default_rng(1).uniform(-0.5, 0.5, size=(KEPT_POINTS, 3))
    identity = Similarity.identity()
    for start in range(0, len(features), batch):
        store.write(
            [
                Row(str(i), f"object {i}", None, None, features[i], identity, identity, points)
                for i in range(start, min(start + batch, len(features)))
            ]
        )


def report(how: str, name: str, store: Store, queries: np.ndarray, truth: list[set[str]]) -> None:
    store.nearest(queries[0], K, Filter())  # the first one opens files
    started, worked = time.perf_counter(), time.process_time()
    found = [{row.id for row, _ in store.nearest(query, K, Filter())} for query in queries]
    milliseconds = 1000 * (time.perf_counter() - started) / len(queries)
    processor = 1000 * (time.process_time() - worked) / len(queries)
    recall = np.mean([len(one & true) / K for one, true in zip(found, truth, strict=False)])
    print(f"{how}, {name}: {milliseconds:.1f} ms a query ({processor:.1f} of processor), recall@{K} {recall:.3f}")


if __name__ == "__main__":
    main()
