"""A known object in cluttered scans: what is found, what is found that is not there, and how long it takes.

    python benchmarks/locate.py --scenes 46 --methods geocaps,ransac

Scenes are `geocaps.data.scenes.search_scene`: 100,000 points from one side, five to ten other objects, one to three
instances or none. Right is within 10 degrees and 5 % of the size, modulo the object's rotational symmetry
(`geocaps.evaluation.tracking.symmetries`). `ransac` is Open3D's: the floor is removed, FPFH features, RANSAC, ICP; what
is found is taken out of the scan and the search is repeated. Needs the extra `baselines` for it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geocaps
from geocaps.data.scenes import Member, search_scene
from geocaps.evaluation import tracking
from geocaps.geometry.similarity import Similarity

ANGLE, SHIFT = 10.0, 0.05
MODEL_POINTS = 30000
BINS = ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01))
FITNESS = 0.3  # share of the model's points with a partner in the scan from which RANSAC has found it
MOST = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=46)
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-joined: " + ", ".join(METHODS))
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.methods.split(",")
    results: dict[str, Any] = {name: {"instances": [], "finds": [], "seconds": []} for name in names}
    for number in range(options.first, options.first + options.scenes):
        wanted, size, scene = search_scene(number)
        drawn = wanted.sample(MODEL_POINTS, torch.Generator().manual_seed(number)).points.double().numpy()
        model = size * drawn
        members = [one for one in scene.members if one.shape is wanted]
        same = tracking.symmetries(model[:: MODEL_POINTS // 3000])
        for name in names:
            started = time.process_time()
            poses = METHODS[name](model, scene.points)
            results[name]["seconds"].append(time.process_time() - started)
            right = np.array([[is_right(pose, one, model, same) for one in members] for pose in poses], dtype=bool)
            right = right.reshape(len(poses), len(members))
            results[name]["finds"] += right.any(axis=1).tolist()
            results[name]["instances"] += [
                (number, wanted.class_name, one.visible, one.unhidden, bool(right[:, place].any()))
                for place, one in enumerate(members)
            ]
    report(results, options.scenes)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def is_right(pose: Similarity, member: Member, model: np.ndarray, same: np.ndarray) -> bool:
    center = model.mean(axis=0)
    reach = 2 * float(np.linalg.norm(model - center, axis=1).max())
    shift = pose.apply(center) - (member.pose.rotation @ center + member.pose.translation)
    trace = float(np.einsum("sij,ij->s", member.pose.rotation @ same, pose.rotation).max())
    angle = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
    return bool(angle <= ANGLE and np.linalg.norm(shift) <= SHIFT * reach)


def located(model: np.ndarray, scan: np.ndarray) -> list[Similarity]:
    return [find.pose for find in geocaps.locate(model, scan)]


def ransac(model: np.ndarray, scan: np.ndarray) -> list[Similarity]:
    import open3d

    open3d.utility.set_verbosity_level(open3d.utility.VerbosityLevel.Error)
    open3d.utility.random.seed(0)
    registration = open3d.pipelines.registration
    size = float(np.ptp(model, axis=0).max())
    voxel = 0.025 * size

    def cloud_of(points: np.ndarray) -> Any:
        cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
        return cloud.voxel_down_sample(voxel)

    def featured(cloud: Any, towards: np.ndarray, outward: bool) -> Any:
        cloud.estimate_normals(open3d.geometry.KDTreeSearchParamHybrid(3 * voxel, 30))
        cloud.orient_normals_towards_camera_location(towards)
        if outward:
            cloud.normals = open3d.utility.Vector3dVector(-np.asarray(cloud.normals))
        return registration.compute_fpfh_feature(cloud, open3d.geometry.KDTreeSearchParamHybrid(6 * voxel, 150))

    source = cloud_of(model)
    source_features = featured(source, model.mean(axis=0), True)
    target = cloud_of(scan)
    _, floor = target.segment_plane(voxel, 3, 500)
    target = target.select_by_index(floor, invert=True)
    found: list[Similarity] = []
    while len(found) < MOST and len(target.points) > 100:
        target_features = featured(target, np.zeros(3), False)
        result = registration.registration_ransac_based_on_feature_matching(
            source,
            target,
            source_features,
            target_features,
            True,
            1.5 * voxel,
            registration.TransformationEstimationPointToPoint(False),
            3,
            [
                registration.CorrespondenceCheckerBasedOnEdgeLength(0.9),
                registration.CorrespondenceCheckerBasedOnDistance(1.5 * voxel),
            ],
            registration.RANSACConvergenceCriteria(100_000, 0.999),
        )
        result = registration.registration_icp(
            source, target, 1.5 * voxel, result.transformation, registration.TransformationEstimationPointToPlane()
        )
        if result.fitness < FITNESS:
            break
        matrix = np.array(result.transformation)
        left, _, right = np.linalg.svd(matrix[:3, :3])
        found.append(Similarity(left @ right, matrix[:3, 3]))
        explained = np.unique(np.asarray(result.correspondence_set)[:, 1])
        target = target.select_by_index(explained, invert=True)
    return found


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], list[Similarity]]] = {"geocaps": located, "ransac": ransac}


def report(results: dict[str, Any], count: int) -> None:
    print(f"\n{count} scenes; found, by the share that is not hidden of what that side shows\n")
    heads = [f"{low:.0%} to {min(high, 1):.0%}" for low, high in BINS]
    print("| method | " + " | ".join(heads) + " | 50 % and more | false finds | seconds (median, slowest tenth) |")
    print("| --- |" + " ---: |" * (len(BINS) + 3))
    for name, one in results.items():
        share = np.array([instance[3] for instance in one["instances"]])
        found = np.array([instance[4] for instance in one["instances"]], dtype=bool)
        cells = []
        for low, high in (*BINS, (0.5, 1.01)):
            among = (share >= low) & (share < high)
            cells.append(f"{found[among].sum()} of {among.sum()} ({found[among].mean():.0%})" if among.any() else "–")
        wrong = len(one["finds"]) - sum(one["finds"])
        cells.append(f"{wrong} of {len(one['finds'])} ({wrong / max(len(one['finds']), 1):.0%})")
        cells.append(f"{np.median(one['seconds']):.2f}, {np.quantile(one['seconds'], 0.9):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
