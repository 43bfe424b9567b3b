"""``geocaps.align`` against the alternatives, over what makes it hard: the share kept, the noise, the number of points.

Methods: geocaps align; Open3D FPFH + RANSAC + ICP; Open3D FGR + ICP; PCA x 4 + ICP; KISS-Matcher + ICP. Two independent
samplings of each object, both turned by rotations uniform on SO(3), in units of the unit sphere. Every method sees the
very same pairs. RAE is the angle of the rotation error over π (a random guess has 0.703). Milliseconds are CPU time of
the whole process (all its threads) per pair, so that neither other work on the machine nor threads distort them: run it
with  OMP_NUM_THREADS=1.  Clouds of more than 4,096 points are cut to 4,096 random ones for the other methods, at no
cost to them; geocaps gets them whole.

Run:  OMP_NUM_THREADS=1 python benchmarks/align_curves.py --npz modelnet40_dev.npz --pairs 20
      OMP_NUM_THREADS=1 python benchmarks/align_curves.py --tune modelnet40_train.npz     the others' parameters

Needs the extra `baselines`.  Writes align_curves.json into --out and the curves as --png.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from geocaps.apps.align import align
from geocaps.apps.drawing import to_png
from geocaps.data import PointDataset
from geocaps.data import load as load_data
from geocaps.data.corruption import crop_half_space, gaussian_noise, outliers
from geocaps.evaluation import baselines
from geocaps.evaluation.pairs import Pairs
from geocaps.evaluation.protocols import alignment_scope
from geocaps.geometry.se3 import Pose

KEPT = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
NOISE = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05)
POINTS = (128, 256, 512, 1024, 2048, 10_000, 100_000)
THINNED = 4096
SEED = 7
PLAIN_ICP = baselines.refine_pose

Cloud = np.ndarray
Pair = tuple[Cloud, Cloud, Pose]


@dataclass(frozen=True)
class Condition:
    """How the second cloud (and with ``kept_first`` the first) differs from another sampling of the surface."""

    points: int = 1024
    kept: float = 1.0
    kept_first: float = 1.0
    noise: float = 0.0
    outliers: float = 0.0


NAMED = {
    "resampled": Condition(),
    "noisy": Condition(noise=0.01, outliers=0.05),
    "partial 70 %": Condition(kept=0.7),
    "partial 50 %": Condition(kept=0.5),
    "both cropped to 70 %": Condition(kept=0.7, kept_first=0.7),
}
CURVES = {
    "share of the second cloud kept": [(kept, Condition(kept=kept)) for kept in KEPT],
    "noise (standard deviation)": [(noise, Condition(noise=noise)) for noise in NOISE],
    "points of each cloud": [(points, Condition(points=points)) for points in POINTS],
}


@dataclass(frozen=True)
class Settings:
    """Of the other methods: radius of FPFH and distance of a match, voxel of KISS-Matcher, and the ICP of all."""

    fpfh_radius: float = baselines.FPFH_RADIUS
    match_distance: float = baselines.MATCH_DISTANCE
    voxel: float = baselines.KISS_VOXEL
    icp: str = "all points"  # or "near points": Open3D's, of partners within the distance of a match


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npz", type=Path, help="objects of this file too, beside the embedded shapes")
    parser.add_argument("--pairs", type=int, default=20, help="objects of each set, spread evenly over its classes")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-joined: " + ", ".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of align_curves.json")
    parser.add_argument("--png", type=Path, default=Path("align_curves.png"))
    parser.add_argument("--tune", type=Path, help="only search the other methods' parameters on objects of this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.tune is not None:
        tune(objects(load_data(options.tune), options.pairs))
        return
    methods = {name.strip(): METHODS[name.strip()] for name in options.methods.split(",")}
    sets = {"shapes": objects(load_data("shapes", per_class=2, seed=SEED), options.pairs)}
    if options.npz is not None:
        sets[options.npz.stem] = objects(load_data(options.npz), options.pairs)
    result: dict[str, Any] = {"settings": {name: asdict(one) for name, one in TUNED.items()}, "sets": {}}
    for name, chosen in sets.items():
        result["sets"][name] = measured_set(chosen, methods)
        report(name, result["sets"][name])
        # After each set, so that an interrupted run keeps what it has.
        (options.out / "align_curves.json").write_text(json.dumps(result, indent=1) + "\n")
        options.png.write_bytes(drawn(result["sets"], list(methods)))


def objects(dataset: PointDataset, count: int) -> PointDataset:
    """At most ``count`` objects of the asymmetric classes, spread evenly."""
    places = np.flatnonzero(alignment_scope(dataset).aligned)
    return dataset.subset(places[(np.arange(min(count, len(places))) * len(places)) // min(count, len(places))])


def measured_set(chosen: PointDataset, methods: dict[str, Callable[..., np.ndarray]]) -> dict[str, Any]:
    most = min((len(chosen.points(index)) // 2 for index in range(len(chosen))), default=0)
    fresh = chosen.name == "shapes"  # sampled anew: any number of points
    known: dict[Condition, dict[str, Any]] = {}

    def at(condition: Condition) -> dict[str, Any]:
        if condition not in known:
            made = list(pairs(chosen, condition))
            known[condition] = {name: measured(method, made) for name, method in methods.items()}
        return known[condition]

    return {
        "objects": len(chosen),
        "named": {name: at(condition) for name, condition in NAMED.items()},
        "curves": {
            name: [{"at": value, "methods": at(c)} for value, c in curve if fresh or c.points <= most]
            for name, curve in CURVES.items()
        },
    }


def pairs(chosen: PointDataset, condition: Condition) -> Iterator[Pair]:
    whole = Pairs(chosen, condition.points, SEED)
    for index in range(len(whole)):
        pair, generator = whole.pair(index, "resampled"), torch.Generator().manual_seed(1000 + index)
        first, second = pair.first.double(), pair.second.double()
        if condition.noise:
            second = gaussian_noise(second, condition.noise, generator)
        if condition.outliers:
            second = outliers(second, condition.outliers, generator)[0]
        if condition.kept < 1:
            second = crop_half_space(second, condition.kept, generator)[0]
        if condition.kept_first < 1:
            first = crop_half_space(first, condition.kept_first, generator)[0]
        yield first.numpy(), second.numpy(), pair.turn


def measured(method: Callable[[Cloud, Cloud], np.ndarray], made: list[Pair]) -> dict[str, Any]:
    errors, started = [], time.process_time()
    for first, second, turn in made:
        found = Pose.from_rotation(torch.from_numpy(np.array(method(first, second))), torch.zeros(3).double())
        errors.append(float(found.angle_to(turn)) / np.pi)
    milliseconds = 1e3 * (time.process_time() - started) / len(made)
    degrees = 180 * np.array(errors)
    return {
        "rae": float(np.mean(errors)),
        "median": float(np.median(errors)),
        "within_5": float(np.mean(degrees < 5)),
        "within_15": float(np.mean(degrees < 15)),
        "milliseconds": milliseconds,
    }


# ── methods: the rotation from the first cloud to the second ──────────────────────────────────────────────────────────


def geocaps_align(first: Cloud, second: Cloud) -> np.ndarray:
    return align(first, second).pose.rotation


def other(name: str, method: Callable[[Cloud, Cloud], np.ndarray]) -> Callable[[Cloud, Cloud], np.ndarray]:
    """A baseline with its own settings, on at most ``THINNED`` points (the samplings are in random order)."""

    def run(first: Cloud, second: Cloud) -> np.ndarray:
        use(TUNED[name])
        return method(first[:THINNED], second[:THINNED])

    return run


def use(settings: Settings) -> None:
    baselines.FPFH_RADIUS, baselines.MATCH_DISTANCE = settings.fpfh_radius, settings.match_distance
    baselines.KISS_VOXEL = settings.voxel
    baselines.refine_pose = PLAIN_ICP if settings.icp == "all points" else near_icp(settings.match_distance)


def near_icp(distance: float) -> Callable[[Cloud, Cloud, np.ndarray], np.ndarray]:
    """Open3D's point-to-plane ICP, of partners nearer than a distance: what is cropped away does not pull."""

    def refine(first: Cloud, second: Cloud, T_first_second: np.ndarray) -> np.ndarray:
        import open3d

        registration, vectors = open3d.pipelines.registration, open3d.utility.Vector3dVector
        source, target = (open3d.geometry.PointCloud(vectors(points)) for points in (second, first))
        target.estimate_normals(open3d.geometry.KDTreeSearchParamKNN(baselines.NORMAL_NEIGHBOURS))
        found = registration.registration_icp(
            source, target, distance, T_first_second, registration.TransformationEstimationPointToPlane()
        )
        return np.array(found.transformation)[:3, :3].T

    return refine


METHODS: dict[str, Callable[[Cloud, Cloud], np.ndarray]] = {
    "geocaps": geocaps_align,
    "RANSAC + ICP": other("RANSAC + ICP", baselines.open3d_ransac),
    "FGR + ICP": other("FGR + ICP", baselines.open3d_fgr),
    "PCA x 4 + ICP": other("PCA x 4 + ICP", baselines.pca_icp),
    "KISS-Matcher + ICP": other("KISS-Matcher + ICP", baselines.kiss_matcher),
}
# The best of --tune on training objects, other than those measured (of equals the quickest).
TUNED: dict[str, Settings] = {
    "RANSAC + ICP": Settings(fpfh_radius=0.5, match_distance=0.1, icp="near points"),
    "FGR + ICP": Settings(fpfh_radius=0.2, match_distance=0.05, icp="near points"),
    "PCA x 4 + ICP": Settings(icp="near points"),
    "KISS-Matcher + ICP": Settings(voxel=0.12, icp="all points"),
}


def tune(chosen: PointDataset) -> None:
    """Mean RAE over resampled, noisy and 70 % kept, for each setting of each of the other methods."""
    made = {name: list(pairs(chosen, NAMED[name])) for name in ("resampled", "noisy", "partial 70 %")}
    icps = ("all points", "near points")
    features = [
        Settings(fpfh_radius=radius, match_distance=distance, icp=icp)
        for radius, distance, icp in itertools.product((0.2, 0.35, 0.5), (0.05, 0.1), icps)
    ]
    grids = {
        "RANSAC + ICP": features,
        "FGR + ICP": features,
        "PCA x 4 + ICP": [Settings(icp=icp) for icp in icps],
        "KISS-Matcher + ICP": [Settings(voxel=v, icp=icp) for v, icp in itertools.product((0.05, 0.08, 0.12), icps)],
    }
    for name, grid in grids.items():
        for settings in grid:
            TUNED[name] = replace(settings)
            found = {kind: measured(METHODS[name], some) for kind, some in made.items()}
            errors = "  ".join(f"{kind} {one['rae']:.3f}" for kind, one in found.items())
            mean = np.mean([one["rae"] for one in found.values()])
            cost = np.mean([one["milliseconds"] for one in found.values()])
            print(f"{name:<20} {mean:.4f}   {errors}   {cost:6.0f} ms   {settings}", flush=True)


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def report(name: str, found: dict[str, Any]) -> None:
    print(f"\n{name}: {found['objects']} objects\n\n| | {' | '.join(next(iter(found['named'].values())))} |")
    print("| --- |" + " ---: |" * len(next(iter(found["named"].values()))))
    rows = list(found["named"].items())
    rows += [(f"{curve}: {one['at']:g}", one["methods"]) for curve, all_ in found["curves"].items() for one in all_]
    for row, methods in rows:
        cells = (f"{m['rae']:.4f} ({m['within_5']:.0%}, {m['milliseconds']:.0f} ms)" for m in methods.values())
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


def drawn(sets: dict[str, Any], methods: list[str]) -> bytes:
    """Rows: error on each set, and time on the first; columns: the curves."""
    figure = Figure(figsize=(4.2 * len(CURVES), 3.1 * (len(sets) + 1)), dpi=90, layout="constrained")
    names = list(sets)
    axes = figure.subplots(len(sets) + 1, len(CURVES), squeeze=False)
    for row, (set_name, what) in enumerate([(name, "rae") for name in names] + [(names[0], "milliseconds")]):
        for column, (curve, values) in enumerate(sets[set_name]["curves"].items()):
            plot = axes[row][column]
            for index, method in enumerate(methods):
                at = [one["at"] for one in values]
                height = [one["methods"][method][what] for one in values]
                width = 2.6 if method == "geocaps" else 1.2
                plot.plot(at, height, marker="o", markersize=3, linewidth=width, color=f"C{index}", label=method)
            plot.set_xlabel(curve)
            if "points" in curve:
                plot.set_xscale("log")
            if "share" in curve:
                plot.invert_xaxis()
            plot.set_yscale("log")
            plot.grid(alpha=0.3)
            plot.set_ylabel("rotation error (RAE)" if what == "rae" else "ms per pair (CPU, one thread)")
            plot.set_title(set_name, fontsize=9)
    axes[0][0].legend(fontsize=7)
    return to_png(figure)


if __name__ == "__main__":
    main()
