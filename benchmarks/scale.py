"""What one core does, from which docs/scale.md computes what many do: objects encoded a second, and percepts searched.

    OMP_NUM_THREADS=1 python benchmarks/scale.py [--objects 192] [--percepts 200000] [--json scale.json]

Percepts (one for each part of an object, unit vectors of 64 numbers) are random: real ones gather, which makes an
index smaller and a search easier.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfPq

import geocaps

QUERIES, K, BATCH = 32, 20, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=192)
    parser.add_argument("--percepts", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {**encoding(args.objects), **searching(args.percepts)}
    for name, value in found.items():
        print(f"{name:36} {value:,.4g}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def encoding(count: int) -> dict[str, float]:
    """Objects of 1,024 points, in batches, without reading files."""
    model, furniture = geocaps.load(), geocaps.datasets.load("furniture")
    clouds = [furniture.points(index % len(furniture))[:1024] for index in range(count)]
    model.encode_many(clouds[:BATCH])  # what is made once
    started = time.process_time()
    for at in range(0, count, BATCH):
        model.encode_many(clouds[at : at + BATCH])
    return {"objects encoded a second": count / (time.process_time() - started)}


def searching(count: int) -> dict[str, float]:
    """A LanceDB table of percepts on this machine's disk: size, time to index, time of a query."""
    random = np.random.default_rng(0)
    percepts = random.normal(size=(count, 64)).astype(np.float32)
    percepts /= np.linalg.norm(percepts, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        vectors = pa.FixedSizeListArray.from_arrays(percepts.ravel(), 64)
        rows = pa.table({"object": pa.array(np.arange(count) // 32, pa.int64()), "percept": vectors})
        started = time.perf_counter()
        table = lancedb.connect(folder).create_table("percepts", rows)
        written = time.perf_counter() - started
        started = time.perf_counter()
        table.create_index("percept", config=IvfPq(distance_type="cosine", num_sub_vectors=16))
        indexed = time.perf_counter() - started
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        queries = percepts[random.integers(count, size=QUERIES)]
        started = time.perf_counter()
        for query in queries:
            table.search(query, vector_column_name="percept").nprobes(20).limit(K).to_arrow()
        latency = (time.perf_counter() - started) / QUERIES
    return {
        "percepts": count,
        "bytes a percept, with its index": size / count,
        "seconds to write": written,
        "seconds to index": indexed,
        "milliseconds a percept's query": 1000 * latency,
    }


if __name__ == "__main__":
    main()
