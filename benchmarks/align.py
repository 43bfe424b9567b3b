"""``geocaps.align``: how often it is right, how long it takes, and what its confidence is worth.

Cases, each with a known pose: the protocols of `geocaps eval` and both clouds cropped to 70 % on the asymmetric objects
of an .npz; the embedded furniture (`noisy`, `partial`); embedded shapes sampled with the density 1/r⁴ about a scanner,
one for each cloud; and rooms, two scans each by a spinning LiDAR at 60 % overlap (geocaps.data.rooms). Right is within
8°; in a room within 5° and 0.2 m. RAE is the angle of the rotation error over π. Milliseconds are CPU time a pair.

Run:  OMP_NUM_THREADS=1 python benchmarks/align.py --npz modelnet40_dev.npz
      OMP_NUM_THREADS=1 python benchmarks/align.py --npz modelnet40_dev.npz --methods align,kiss_matcher,open3d
      OMP_NUM_THREADS=1 python benchmarks/align.py --fit modelnet40_train.npz     the constants of the confidence

Writes align.json into --out. The other methods need the extra `baselines`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.optimize import minimize

from geocaps.apps.align import Found, align, search
from geocaps.apps.align.confidence import SIGNS, WIDTH, weights
from geocaps.data import PointDataset
from geocaps.data import load as load_data
from geocaps.data.corruption import crop_half_space
from geocaps.data.rooms import room_scans
from geocaps.data.synthetic import ASYMMETRIC, make_shape
from geocaps.evaluation import baselines
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope
from geocaps.geometry.similarity import Similarity

SEED, POINTS, ROOMS = 0, 1024, 50
PROTOCOLS = ("resampled", "noisy", "partial", "both70", "partial50", "scan")
SURE = 0.9
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Case:
    """Two clouds, the true pose ``T_second_first``, and how far an answer may be off: degrees, and a distance."""

    name: str
    first: np.ndarray
    second: np.ndarray
    truth: Similarity
    degrees: float = 8.0
    shift: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npz", type=Path, help="objects of this file")
    parser.add_argument("--pairs", type=int, default=250, help="at most so many objects of it")
    parser.add_argument("--rooms", type=int, default=ROOMS)
    parser.add_argument("--cases", default="", help="comma-joined names; all when left out")
    parser.add_argument("--methods", default="align", help="comma-joined: " + ", ".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of align.json")
    parser.add_argument("--fit", type=Path, help="only fit the confidence, to objects of this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.fit is not None:
        fit(options.fit, options.pairs, options.rooms)
        return
    wanted = [name for name in options.cases.split(",") if name]
    result: dict[str, Any] = {}
    for name, made in all_cases(options.npz, options.pairs, options.rooms).items():
        if wanted and name not in wanted:
            continue
        cases = list(made())
        result[name] = {method: measured(METHODS[method], cases) for method in options.methods.split(",")}
        report(name, result[name])
        (options.out / "align.json").write_text(json.dumps(result, indent=1) + "\n")


# ── cases ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def all_cases(npz: Path | None, pairs: int, rooms: int) -> dict[str, Callable[[], Iterator[Case]]]:
    made: dict[str, Callable[[], Iterator[Case]]] = {}
    if npz is not None:
        objects = asymmetric(load_data(npz), pairs)
        made |= {protocol: lambda protocol=protocol: of_objects(objects, protocol) for protocol in PROTOCOLS}
    furniture = asymmetric(load_data("furniture"), pairs)
    made |= {f"furniture {kind}": lambda kind=kind: of_objects(furniture, kind) for kind in ("noisy", "partial")}
    made["density 1/r⁴"] = of_scanners
    made["rooms"] = lambda: of_rooms(range(rooms))
    return made


def asymmetric(dataset: PointDataset, count: int) -> PointDataset:
    """At most ``count`` objects of the asymmetric classes, spread evenly."""
    places = np.flatnonzero(alignment_scope(dataset).aligned)
    kept = min(count, len(places))
    return dataset.subset(places[(np.arange(kept) * len(places)) // kept])


def of_objects(dataset: PointDataset, protocol: str) -> Iterator[Case]:
    pairs = Pairs(dataset, POINTS, SEED)
    for index in range(len(dataset)):
        pair = pairs.pair(index, "partial" if protocol == "both70" else protocol)
        first, second = pair.first.double(), pair.second.double()
        if protocol == "both70":
            first = crop_half_space(first, 0.7, torch.Generator().manual_seed(1000 + index))[0]
        truth = Similarity(pair.turn.rotation_matrix().numpy())
        yield Case(dataset.object_ids[index], first.numpy(), second.numpy(), truth)


def of_scanners(each: int = 4, start: int = 0) -> Iterator[Case]:
    """Whole embedded shapes, denser towards a place near by: chance of a point 1/r⁴ about it."""
    for name in sorted(ASYMMETRIC):
        for seed in range(start, start + each):
            generator = torch.Generator().manual_seed(seed)
            clouds = [_near_scanner(name, seed, generator) for _ in range(2)]
            truth = Similarity.from_wxyz(torch.randn(4, generator=generator).double().numpy())
            yield Case(f"{name} {seed}", clouds[0], truth.apply(clouds[1]), truth)


def _near_scanner(name: str, seed: int, generator: torch.Generator) -> np.ndarray:
    dense = make_shape(name, seed).sample(60_000, generator).points.double()
    place = torch.randn(3, generator=generator).double()
    chance = (dense - 1.5 * place / place.norm()).norm(dim=1) ** -4
    return dense[torch.multinomial(chance, 2 * POINTS, generator=generator)].numpy()


def of_rooms(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        scans = room_scans(seed)
        yield Case(f"room {seed}", scans.first, scans.second, scans.pose, 5.0, 0.2)


# ── methods ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Answer:
    pose: Similarity
    confidence: float | None = None
    overlap: float | None = None


def ours(case: Case) -> Answer:
    found = align(case.first, case.second)
    return Answer(found.pose, found.confidence, float(np.mean(found.overlap)))


def open3d(case: Case) -> Answer:
    """FPFH, RANSAC and ICP, of a room thinned to one point a voxel, as its documentation advises."""
    if case.shift is None:
        return Answer(Similarity(baselines.open3d_ransac(case.first, case.second)))
    import open3d as library

    registration, voxel = library.pipelines.registration, 0.1
    library.utility.random.seed(0)
    clouds, features = [], []
    for points in (case.first, case.second):
        cloud = library.geometry.PointCloud(library.utility.Vector3dVector(points)).voxel_down_sample(voxel)
        cloud.estimate_normals(library.geometry.KDTreeSearchParamHybrid(2 * voxel, 30))
        radius = library.geometry.KDTreeSearchParamHybrid(5 * voxel, 100)
        clouds.append(cloud)
        features.append(registration.compute_fpfh_feature(cloud, radius))
    found = registration.registration_ransac_based_on_feature_matching(
        *clouds,
        *features,
        True,
        1.5 * voxel,
        registration.TransformationEstimationPointToPoint(False),
        3,
        [
            registration.CorrespondenceCheckerBasedOnEdgeLength(baselines.EDGE_LENGTH_RATIO),
            registration.CorrespondenceCheckerBasedOnDistance(1.5 * voxel),
        ],
        registration.RANSACConvergenceCriteria(baselines.RANSAC_ITERATIONS, baselines.RANSAC_CONFIDENCE),
    )
    polished = registration.registration_icp(
        *clouds, voxel, found.transformation, registration.TransformationEstimationPointToPlane()
    )
    return Answer(_rigid(np.array(polished.transformation)))


def kiss_matcher(case: Case) -> Answer:
    if case.shift is None:
        return Answer(Similarity(baselines.kiss_matcher(case.first, case.second)))
    import kiss_matcher as library

    matcher = library.KISSMatcher(library.KISSMatcherConfig(0.1))
    found = matcher.estimate(case.first.astype(np.float32), case.second.astype(np.float32))
    return Answer(Similarity(np.asarray(found.rotation), np.asarray(found.translation).ravel()))


def _rigid(matrix: np.ndarray) -> Similarity:
    return Similarity(matrix[:3, :3], matrix[:3, 3])


METHODS: dict[str, Callable[[Case], Answer]] = {"align": ours, "kiss_matcher": kiss_matcher, "open3d": open3d}


# ── the constants of the confidence ───────────────────────────────────────────────────────────────────────────────────


def fit(npz: Path, pairs: int, rooms: int) -> None:
    """Most likely constants, on objects and rooms other than those measured; pairs of unlike objects have no pose."""
    objects = asymmetric(load_data(npz), pairs)
    cases = [case for protocol in PROTOCOLS for case in of_objects(objects, protocol)]
    whole, cut = list(of_objects(objects, "resampled")), list(of_objects(objects, "both70"))
    step = max(1, len(whole) // 10)  # another of its class, mostly
    nowhere = Similarity.identity()
    for kind in (whole, cut):
        cases += [Case("unlike", one.first, kind[i - step].second, nowhere, -1.0) for i, one in enumerate(kind)]
    cases += [*of_scanners(1, start=100), *of_rooms(range(1000, 1000 + rooms))]
    costs, signs, right = [], [], []
    for case in cases:
        found, pose = searched(case)
        costs.append((found.cost, found.floor))
        signs.append(found.signs)
        right.append(is_right(case, pose))
    table, truth = np.array(signs), np.array(right)

    def stated(constants: np.ndarray) -> np.ndarray:
        share = np.array([1 / weights(cost, floor, np.exp(constants[0])).sum() for cost, floor in costs])
        return share / (1 + np.exp(-(constants[1] + table @ constants[2:])))

    def loss(constants: np.ndarray) -> float:
        chance = np.clip(stated(constants), 1e-6, 1 - 1e-6)
        return float(-np.where(truth, np.log(chance), np.log1p(-chance)).mean() + 1e-3 * (constants[2:] ** 2).mean())

    start = np.array([np.log(WIDTH), 2.0, *np.zeros(len(SIGNS))])
    best = minimize(loss, start, method="L-BFGS-B").x
    print(f"{len(cases)} pairs, {truth.mean():.1%} right; log loss {loss(start):.4f} before, {loss(best):.4f} after")
    print(f"WIDTH = {np.exp(best[0]):.3f}")
    print("WEIGHTS = (" + ", ".join(f"{value:.2f}" for value in best[1:]) + ")   # constant, " + ", ".join(SIGNS))
    chance = stated(best)
    for low, high in itertools.pairwise((0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)):
        among = (chance >= low) & (chance < high)
        if among.any():
            print(f"  stated {low:.2f} to {high:.2f}: {among.sum():>5} pairs, {truth[among].mean():.1%} right")


def searched(case: Case) -> tuple[Found, Similarity]:
    """What the search knew of the pose that it chose, and the pose."""
    known: list[Found] = []

    def noted(*arguments: Any) -> Found:
        known.append(search(*arguments))
        return known[-1]

    with patch("geocaps.apps.align.search", noted):
        pose = align(case.first, case.second).pose
    return known[0], pose


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_right(case: Case, pose: Similarity) -> bool:
    near = float(np.degrees(pose.angle_to(case.truth))) < case.degrees
    middle = case.first.mean(axis=0)
    off = float(np.linalg.norm(pose.apply(middle) - case.truth.apply(middle)))
    return near and (case.shift is None or off < case.shift)


def measured(method: Callable[[Case], Answer], cases: list[Case]) -> dict[str, Any]:
    started = time.process_time()
    answers = [method(case) for case in cases]
    spent = time.process_time() - started
    right = np.array([is_right(case, one.pose) for case, one in zip(cases, answers, strict=True)])
    errors = [float(one.pose.angle_to(case.truth)) / np.pi for case, one in zip(cases, answers, strict=True)]
    found: dict[str, Any] = {
        "pairs": len(cases),
        "rae": float(np.mean(errors)),
        "right": float(right.mean()),
        "milliseconds": 1e3 * spent / len(cases),
        "wrong": [case.name for case, fine in zip(cases, right, strict=True) if not fine],
    }
    if answers[0].confidence is not None:
        stated = np.array([one.confidence for one in answers])
        found["confidence"] = {
            f"{level:g}": {
                "share": float((stated >= level).mean()),
                "right": float(right[stated >= level].mean()) if (stated >= level).any() else None,
            }
            for level in LEVELS
        }
        found["wrong_confidence"] = sorted(stated[~right].tolist(), reverse=True)
    return found


def report(name: str, found: dict[str, Any]) -> None:
    for method, one in found.items():
        line = f"{name:<18} {method:<13} {one['pairs']:>4} pairs  RAE {one['rae']:.4f}  right {one['right']:6.1%}  "
        line += f"{one['milliseconds']:6.1f} ms"
        if "confidence" in one:
            sure = one["confidence"][f"{SURE:g}"]
            right = "–" if sure["right"] is None else f"{sure['right']:.1%}"
            worst = ", ".join(f"{value:.2f}" for value in one["wrong_confidence"][:3])
            line += f"   ≥ {SURE}: {sure['share']:.0%} of them, {right} right; wrong at most {worst or '–'}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
