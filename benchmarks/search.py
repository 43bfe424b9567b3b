"""Search for objects from whole clouds, crops and one-sided scans: who is found, where, how fast, and what is refused.

    python benchmarks/search.py modelnet40_dev.npz [--queries 150] [--left-out 200] [--ransac 5] [--json search.json]
    python benchmarks/search.py modelnet40_dev.npz --fit     the threshold of the confidence, after new weights

The gallery has one cloud of every object of the set, the queries are other samplings of some of them (a fixed random
choice), all turned at random, under the protocols of ``geocaps eval``. First some objects are left out of the index,
and their queries should be refused; then these are added. A refusal is ``not result.found``: the confidence is below
0.5. ``--fit`` prints the ``_TIE`` of ``geocaps/index/verify.py`` at which 5 % of the right answers are refused, on
queries of objects that are neither among those measured nor left out. ``wrongly`` is the share of right first hits that
were refused. ``twins`` is the share of the objects left out for which another one is named that is the same shape: laid
on each other they are no farther apart than two samplings of one, to a quarter. Times are of the processor, the median
over queries.

Baselines on the first ``--baselines`` queries: the mean FPFH, Chamfer in principal frames, and Open3D's FPFH + RANSAC
against the 20 best of the mean FPFH, by fitness (slow, so on the first ``--ransac`` only). Features of geocaps 0.1.0
cannot be measured any more: its weights do not load.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

import geocaps
from geocaps.evaluation.baselines import BASELINES, ransac
from geocaps.evaluation.pairs import Pair, Pairs
from geocaps.index import Index, verify
from geocaps.index.hits import FOUND

PROTOCOLS = ("resampled", "partial", "partial50", "scan")
SHORTLIST = 20
TWIN = 1.25
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="data set: a name, an .npz file, a folder")
    parser.add_argument("--queries", type=int, default=150, help="of each protocol")
    parser.add_argument("--left-out", type=int, default=200, help="objects that are not in the index at first")
    parser.add_argument("--ransac", type=int, default=5, help="queries of each protocol for Open3D; 0 for none")
    parser.add_argument("--protocols", nargs="+", default=PROTOCOLS, choices=PROTOCOLS)
    parser.add_argument("--baselines", type=int, default=60, help="queries of each protocol for the others; 0 for none")
    parser.add_argument("--fit", action="store_true", help="print the threshold of the confidence instead")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()

    dataset, model = geocaps.datasets.load(args.data), geocaps.load()
    pairs = Pairs(dataset, model.config.points, seed=0)
    count = len(pairs)
    order = np.random.default_rng(1).permutation(count)
    left_out, queries = sorted(order[: args.left_out].tolist()), order[-args.queries :].tolist()
    if args.fit:
        left_out, queries = [], order[args.left_out : args.left_out + args.queries].tolist()
    gallery = [pairs.first(index).double().numpy() for index in range(count)]
    print(f"{count} objects of {dataset.name}, {len(queries)} queries of each protocol, {len(left_out)} left out")
    table: dict[str, dict[str, Figures]] = {protocol: {} for protocol in args.protocols}
    with tempfile.TemporaryDirectory() as folder:
        index = Index(Path(folder) / "gallery.lance", model)
        present = sorted(set(range(count)) - set(left_out))
        index.add([gallery[one] for one in present], names=[str(one) for one in present])
        if args.fit:
            fit(index, queries, {name: [pairs.pair(one, name) for one in queries] for name in args.protocols})
            return
        unknown = left_out[: args.queries]
        refused = {protocol: refusals(index, pairs, unknown, protocol, gallery) for protocol in args.protocols}
        index.add([gallery[one] for one in left_out], names=[str(one) for one in left_out])
        for protocol in args.protocols:
            found = [pairs.pair(one, protocol) for one in queries]
            figures, sure = ours(index, queries, found)
            wrongly = float(np.mean(np.array(sure) < FOUND))
            table[protocol]["geocaps"] = figures | refused[protocol] | {"wrongly": wrongly}
            show(protocol, f"geocaps ({len(queries)} queries)", table[protocol]["geocaps"])
            if args.baselines:
                some = slice(args.baselines)
                for name, figures in baselines(gallery, queries[some], found[some], args.ransac).items():
                    table[protocol][name] = figures
                    show(protocol, name, figures)
    if args.json is not None:
        args.json.write_text(json.dumps({"objects": count, "queries": len(queries), "figures": table}, indent=1) + "\n")


def refusals(index: Index, pairs: Pairs, objects: list[int], protocol: str, gallery: list[np.ndarray]) -> Figures:
    """The share of queries of objects that are not in the index that is refused, and that finds a twin instead."""
    refused, twins = [], []
    for one in objects:
        result = index.search(pairs.pair(one, protocol).second)
        refused.append(not result.found)
        twins.append(result.found and is_twin(pairs.pair(one, "resampled"), gallery[int(result[0].name)]))
    return {"refused": float(np.mean(refused)), "twins": float(np.mean(twins))}


def is_twin(pair: Pair, other: np.ndarray) -> bool:
    """Whether another object is as near to the first cloud as another sampling of the same object is, to a quarter."""
    first = pair.first.double().numpy()
    again = pair.turn.inverse().apply(pair.second.double()).numpy()
    return gap(first, geocaps.align(other, first).apply(other)) <= TWIN * gap(first, again)


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """Mean distance to the nearest point, of the cloud that is farther from the other."""
    return float(max(cKDTree(b).query(a)[0].mean(), cKDTree(a).query(b)[0].mean()))


def ours(index: Index, queries: list[int], pairs: list[Pair]) -> tuple[Figures, list[float]]:
    """Figures, and the confidence of the right first hits."""
    index.search(pairs[0].second)  # the first one opens files
    places, errors, sure, seconds = [], [], [], []
    for one, pair in zip(queries, pairs, strict=True):
        started = time.process_time()
        result = index.search(pair.second)
        seconds.append(time.process_time() - started)
        names = [int(hit.name) for hit in result]
        places.append(names.index(one) if one in names else len(names))
        if places[-1] == 0:
            errors.append(rotation_error(result[0].pose.rotation, pair))
            assert result[0].confidence is not None
            sure.append(result[0].confidence)
    return summary(places, errors, seconds), sure


def fit(index: Index, queries: list[int], pairs: dict[str, list[Pair]]) -> None:
    """Prints the tie at which 5 % of the right answers are refused, of each protocol and on average."""
    ties = []
    for protocol, some in pairs.items():
        sure = np.clip(ours(index, queries, some)[1], 1e-12, 1 - 1e-12)
        ties.append(float(np.quantile(verify._TIE - verify._TIE_WIDTH * np.log(sure / (1 - sure)), 0.95)))
        print(f"{protocol:<10} _TIE = {ties[-1]:.3f}  of {len(sure)} right answers", flush=True)
    print(f"mean       _TIE = {np.mean(ties):.3f}")


def baselines(gallery: list[np.ndarray], queries: list[int], pairs: list[Pair], ransacs: int) -> dict[str, Figures]:
    clouds = [pair.second.double().numpy() for pair in pairs]
    rows, shortlist = {}, np.empty((0, 0), dtype=np.int64)
    for name in ("fpfh", "pca_chamfer"):
        method = BASELINES[name]
        assert method.describe is not None
        described = [method.describe(cloud) for cloud in gallery]
        started = time.process_time()
        order = np.argsort(method.compare([method.describe(cloud) for cloud in clouds], described), axis=1)
        seconds = (time.process_time() - started) / len(clouds)
        rows[name] = summary(
            [int(np.flatnonzero(o == q)[0]) for o, q in zip(order, queries, strict=True)], [], [seconds]
        )
        shortlist = order if name == "fpfh" else shortlist
    if ransacs:
        places, errors, times = [], [], []
        for query, cloud, pair, order in list(zip(queries, clouds, pairs, shortlist, strict=True))[:ransacs]:
            started = time.process_time()
            fits = [ransac(gallery[one], cloud) for one in order[:SHORTLIST]]
            best = sorted(range(SHORTLIST), key=lambda k: (-fits[k].fitness, fits[k].inlier_rmse))
            times.append(time.process_time() - started)
            names = [int(order[k]) for k in best]
            places.append(names.index(query) if query in names else SHORTLIST)
            if places[-1] == 0:
                errors.append(rotation_error(np.array(fits[best[0]].transformation)[:3, :3].T, pair))
        rows[f"FPFH + RANSAC ({len(places)} queries)"] = summary(places, errors, times)
    return rows


def rotation_error(found: np.ndarray, pair: Pair) -> float:
    """Angle/π of a rotation from the gallery's cloud to the query's."""
    return float(Rotation.from_matrix(found.T @ pair.turn.rotation_matrix().numpy()).magnitude() / np.pi)


def summary(places: list[int], errors: list[float], seconds: list[float]) -> Figures:
    return {
        "top1": float(np.mean(np.array(places) < 1)),
        "top10": float(np.mean(np.array(places) < 10)),
        "median_error": float(np.median(errors)) if errors else float("nan"),
        "milliseconds": 1000 * float(np.median(seconds)),
    }


def show(protocol: str, name: str, figures: Figures) -> None:
    more = "".join(f"  {key} {100 * figures[key]:5.1f} %" for key in ("refused", "twins", "wrongly") if key in figures)
    print(
        f"{protocol:<10} {name:<28} top-1 {100 * figures['top1']:5.1f} %  top-10 {100 * figures['top10']:5.1f} %  "
        f"error {figures['median_error']:.4f}  {figures['milliseconds']:7.1f} ms{more}",
        flush=True,
    )


if __name__ == "__main__":
    main()
