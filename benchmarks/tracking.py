"""``geocaps.Tracker`` beside other trackers, on seeded sequences of a moving object that is covered for a while.

A sequence has 60 frames of about 1,024 points with noise, seen from one side; a wall hides up to 80 % for 10 to 15
frames, and in one sequence of ten the object is gone for 10 frames (``geocaps.data.sequences``). Embedded objects, and
with --npz as many objects of a file. Errors are modulo the object's symmetry (``geocaps.evaluation.tracking``).

ICP and GICP start from the true pose of the first frame; geocaps, and what searches in every frame, start from nothing.
A frame of fewer than 10 points leaves their pose as it was. "without reference" is geocaps whose reference the first
frames build up; "without recognition" and "without motion" are geocaps with one mechanism taken away.

Run:  OMP_NUM_THREADS=1 python benchmarks/tracking.py --sequences 100 --out runs/tracking
      OMP_NUM_THREADS=1 python benchmarks/tracking.py --sequences 10 --methods geocaps,icp

Needs the extra `baselines`. The poses of each method and sequence are kept in --out: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geocaps
from geocaps.apps.track import Tracker
from geocaps.atomic import written_whole
from geocaps.data import load as load_data
from geocaps.data.sequences import Sequence, sequence, sequence_of
from geocaps.evaluation import tracking
from geocaps.geometry.similarity import Similarity

REACH = 0.2  # of partners in ICP and GICP: twice the largest motion from frame to frame
FEW = 10

Method = Callable[[Sequence], list[np.ndarray]]
"""The poses T_frame_reference of all frames; one call of ``next`` for each frame, so that frames are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first sequence")
    parser.add_argument("--npz", type=Path, help="half of the sequences are of objects of this file")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-joined: " + ", ".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("tracking"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    names = [name.strip() for name in options.methods.split(",")]
    runs: dict[str, list[tracking.Run]] = {name: [] for name in names}
    seconds: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for number in range(options.first, options.first + options.sequences):
        made = made_sequence(number, options.npz)
        same = tracking.symmetries(made.reference)
        for name in names:
            poses, taken = kept(options.out / f"{name.replace(' ', '_')}_{number}.npz", METHODS[name], made)
            runs[name].append(tracking.measured(made, Similarity.from_matrix(poses), same))
            seconds[name].append(taken)
    found: dict[str, Any] = {
        name: tracking.summary(of) | times(np.concatenate(seconds[name])) for name, of in runs.items()
    }
    (options.out / "tracking.json").write_text(json.dumps(found, indent=1) + "\n")
    report(found, options.sequences)


def made_sequence(number: int, npz: Path | None) -> Sequence:
    if npz is None or number % 4 in (0, 3):
        return sequence(number)
    dataset = opened(npz)
    place = (number * 7919) % len(dataset)
    return sequence_of(f"{npz.stem} {place}", np.asarray(dataset.points(place), dtype=np.float64), number)


@functools.cache
def opened(npz: Path) -> Any:
    return load_data(npz)


def kept(place: Path, method: Any, made: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Poses and seconds of processor time of each frame, from the file of an earlier run where there is one."""
    if not place.exists():
        step = method(made)
        poses, taken = [], []
        for frame in made.frames:
            started = time.process_time()
            poses.append(step(frame))
            taken.append(time.process_time() - started)
        with written_whole(place) as beside, beside.open("wb") as file:
            np.savez(file, poses=np.stack(poses), seconds=np.array(taken))
    with np.load(place) as archive:
        return archive["poses"], archive["seconds"]


def times(seconds: np.ndarray) -> dict[str, float]:
    return {"frames_per_second": float(1 / seconds.mean()), "slowest_tenth_ms": float(1000 * np.quantile(seconds, 0.9))}


# ── methods: each is given a sequence and returns the function that takes its frames one by one ───────────────────────


def tracker(made: Sequence, kind: type[Tracker] = Tracker) -> Callable[[np.ndarray], np.ndarray]:
    track = kind(made.reference, model=shipped())
    return lambda frame: track.update(frame).pose.matrix()


def building(made: Sequence) -> Callable[[np.ndarray], np.ndarray]:
    """Without a reference: poses against the first frame, put where the object truly is in it."""
    track, first = Tracker(model=shipped()), made.poses[0].matrix()
    return lambda frame: track.update(frame).pose.matrix() @ first


class Unrecognising(Tracker):
    """Finds the object once; after that it only follows."""

    def _must_recognise(self, tracks: Any) -> bool:
        return not tracks


class Motionless(Tracker):
    """Expects the object where it was last."""

    def _predicted(self, track: Any) -> Similarity:
        return track.pose


@functools.cache
def shipped() -> geocaps.Model:
    return geocaps.load()


def remembering(made: Sequence, step: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """A method that starts at the true pose and gets the last one with each frame; with few points it stays."""
    pose = made.poses[0].matrix()

    def next_pose(frame: np.ndarray) -> np.ndarray:
        nonlocal pose
        if len(frame) >= FEW:
            pose = step(frame, pose)
        return pose

    return next_pose


def icp_frames(made: Sequence) -> Callable[[np.ndarray], np.ndarray]:
    before = made.frames[0]

    def step(frame: np.ndarray, pose: np.ndarray) -> np.ndarray:
        nonlocal before
        motion = icp(before, frame, np.eye(4))
        before = frame
        return motion @ pose

    return remembering(made, step)


def icp_reference(made: Sequence) -> Callable[[np.ndarray], np.ndarray]:
    return remembering(made, lambda frame, pose: rigid_inverse(icp(frame, made.reference, rigid_inverse(pose))))


def gicp_reference(made: Sequence, kind: str) -> Callable[[np.ndarray], np.ndarray]:
    import small_gicp

    target, tree = small_gicp.preprocess_points(made.reference, downsampling_resolution=0.01, num_threads=1)

    def step(frame: np.ndarray, pose: np.ndarray) -> np.ndarray:
        source, _ = small_gicp.preprocess_points(frame, downsampling_resolution=0.01, num_threads=1)
        found = small_gicp.align(
            target,
            source,
            tree,
            rigid_inverse(pose),
            registration_type=kind,
            max_correspondence_distance=REACH,
            num_threads=1,
        )
        return rigid_inverse(np.array(found.T_target_source))

    return remembering(made, step)


def ransac(made: Sequence) -> Callable[[np.ndarray], np.ndarray]:
    """FPFH, RANSAC and ICP in every frame, with the settings of ``geocaps.evaluation.baselines``."""
    from geocaps.evaluation import baselines

    registration = open3d().pipelines.registration
    reference = baselines._featured(made.reference)

    def step(frame: np.ndarray, _: np.ndarray) -> np.ndarray:
        source = baselines._featured(frame)
        open3d().utility.random.seed(0)
        result = registration.registration_ransac_based_on_feature_matching(
            source[0],
            reference[0],
            source[1],
            reference[1],
            True,
            baselines.MATCH_DISTANCE,
            registration.TransformationEstimationPointToPoint(False),
            3,
            [
                registration.CorrespondenceCheckerBasedOnEdgeLength(baselines.EDGE_LENGTH_RATIO),
                registration.CorrespondenceCheckerBasedOnDistance(baselines.MATCH_DISTANCE),
            ],
            registration.RANSACConvergenceCriteria(baselines.RANSAC_ITERATIONS, baselines.RANSAC_CONFIDENCE),
        )
        return rigid_inverse(icp(frame, made.reference, np.array(result.transformation)))

    return remembering(made, step)


def align_every(made: Sequence) -> Callable[[np.ndarray], np.ndarray]:
    return remembering(made, lambda frame, _: geocaps.align(made.reference, frame).matrix)


def icp(source: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Open3D's point-to-point ICP of near points: T_target_source."""
    library = open3d()
    clouds = [library.geometry.PointCloud(library.utility.Vector3dVector(one)) for one in (source, target)]
    return np.array(library.pipelines.registration.registration_icp(*clouds, REACH, start).transformation)


@functools.cache
def open3d() -> Any:
    import open3d as library

    library.utility.set_verbosity_level(library.utility.VerbosityLevel.Error)
    return library


def rigid_inverse(matrix: np.ndarray) -> np.ndarray:
    """Rounded to a rotation again: hundreds of products of float matrices drift."""
    left, _, right = np.linalg.svd(matrix[:3, :3])
    return Similarity(left @ right, matrix[:3, 3]).inverse().matrix()


METHODS: dict[str, Any] = {
    "geocaps": tracker,
    "without reference": building,
    "without recognition": functools.partial(tracker, kind=Unrecognising),
    "without motion": functools.partial(tracker, kind=Motionless),
    "icp frames": icp_frames,
    "icp": icp_reference,
    "gicp": functools.partial(gicp_reference, kind="GICP"),
    "plane icp": functools.partial(gicp_reference, kind="PLANE_ICP"),
    "ransac": ransac,
    "align": align_every,
}


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def report(found: dict[str, Any], count: int) -> None:
    print(f"\n{count} sequences\n")
    print("| method | right, < 60 % hidden | right, 60 % and more | lost | recovered in 3 | jitter | frames/s |")
    print("| --- |" + " ---: |" * 6)
    for name, one in found.items():
        print(
            f"| {name} | {one['right']:.1%} | {one['right_much_hidden']:.1%} | {one['lost']:.0%} | "
            f"{one['recovered']:.0%} | {one['jitter_degrees']:.2f}°, {one['jitter_shift']:.2%} | "
            f"{one['frames_per_second']:.0f} |"
        )


if __name__ == "__main__":
    main()
