"""Candidates among 100,000 objects of synthetic percepts: processor time to write, to build, per query; recall@50.

    python benchmarks/index_search.py [--data modelnet40_dev.npz] [--objects 100000] [--queries 20]

A synthetic object has the percepts of a real one (of --data, by default the embedded shapes, ten of each class), moved
by what the object has of its own and by what each part has. A query is a third of one's parts left out and the others
moved again, until the best match has the cosine that crops of real objects have (0.84 on modelnet40_dev.npz, 0.86
here). Recall compares with exhaustive late interaction in numpy. Features are 0, so only percepts decide. Points are
random. What is timed has read all that is kept of the candidates, twice K objects, and decoded K.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import geocaps
from geocaps.geometry.similarity import Similarity
from geocaps.index.rows import KEPT_POINTS, Row
from geocaps.index.store import Filter, Store

K = 50
OWN, OF_A_PART, AGAIN, KEPT = 0.5, 0.3, 0.6, 2 / 3
BLOCK = 5000
POINTS = np.random.default_rng(0).uniform(-0.5, 0.5, size=(100, KEPT_POINTS, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="shapes", help="data set of the real percepts")
    parser.add_argument("--objects", type=int, default=100_000, help="synthetic objects")
    parser.add_argument("--queries", type=int, default=20)
    args = parser.parse_args()

    dataset = geocaps.datasets.load(args.data, **({"per_class": 10} if args.data == "shapes" else {}))
    random = np.random.default_rng(0)
    encoded = geocaps.load().encode_many([dataset.points(one) for one in range(min(len(dataset), 500))])
    real = [one.parts.percept[one.parts.share > 0] for one in encoded]
    objects = [moved(real[one], random, OWN, OF_A_PART) for one in random.integers(0, len(real), args.objects)]
    chosen = random.integers(0, len(objects), args.queries).tolist()
    queries = [moved(objects[one][: int(KEPT * len(objects[one]))], random, 0, AGAIN) for one in chosen]
    cosine = np.mean([(query @ objects[one].T).max(axis=1).mean() for query, one in zip(queries, chosen, strict=True)])
    print(f"{args.objects} objects of synthetic percepts; the best match of a query has a cosine of {cosine:.2f}")

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "bench.lance")
        store.create("none", "{}", 1, real[0].shape[1])
        started = time.process_time()
        for start in range(0, len(objects), BLOCK):
            store.write([row(start + k, percepts) for k, percepts in enumerate(objects[start : start + BLOCK])])
        print(f"write: {time.process_time() - started:.1f} s", flush=True)
        started = time.process_time()
        store.tidy()
        print(
            f"build the vector index: {time.process_time() - started:.1f} s (made: {store.is_approximate})", flush=True
        )
        candidates(store, queries[0])  # the first one opens files
        started, clock = time.process_time(), time.perf_counter()
        found = [candidates(store, query) for query in queries]
        milliseconds = 1000 * (time.process_time() - started) / len(queries)
        passed = 1000 * (time.perf_counter() - clock) / len(queries)
        recall = np.mean([len(one & exhaustive(objects, query)) / K for one, query in zip(found, queries, strict=True)])
        print(f"{milliseconds:.1f} ms of processor time a query ({passed:.1f} ms passed), recall@{K} {recall:.3f}")
        megabytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
        print(f"on disk: {megabytes:.0f} MB")


def moved(percepts: np.ndarray, random: np.random.Generator, own: float, each: float) -> np.ndarray:
    """Unit vectors, moved by one random vector for all and by one for each."""
    size = percepts.shape[1]
    shift = own * random.normal(size=(1, size)) + each * random.normal(size=percepts.shape)
    found = percepts + shift / np.sqrt(size)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def row(number: int, percepts: np.ndarray) -> Row:
    """As ``Index.add`` writes it, with random points: equal ones are packed in few bytes, and read slowly."""
    points = POINTS[number % len(POINTS)]
    one, views = Similarity.identity(), Similarity.identity(len(percepts))
    return Row(
        str(number), str(number), None, None, np.zeros(1, dtype=np.float32), percepts, views, one, one, points, points
    )


def candidates(store: Store, query: np.ndarray) -> set[str]:
    return {row.id for row in store.most_alike(query, np.zeros(1, dtype=np.float32), K, Filter())[0][:]}


def exhaustive(objects: list[np.ndarray], query: np.ndarray) -> set[str]:
    found = np.array([(query @ percepts.T).max(axis=1).mean() for percepts in objects])
    return {str(one) for one in np.argpartition(-found, K)[:K]}


if __name__ == "__main__":
    main()
