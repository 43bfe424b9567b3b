"""Baselines: other methods to align two clouds or to retrieve an object, measured on the same pairs as the model.

Lengths are in units of an object inside the unit sphere, where 1024 points lie about 0.05 apart.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
from jaxtyping import Bool, Float64
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, pdist

from geocaps.apps.align import align
from geocaps.errors import MissingExtraError, UsageError
from geocaps.evaluation.pairs import Pair
from geocaps.evaluation.protocols import Measured
from geocaps.geometry.sampling import thinned
from geocaps.geometry.se3 import Pose

Cloud = Float64[np.ndarray, "_ 3"]
Rotation = Float64[np.ndarray, "3 3"]

ICP_ITERATIONS = 50
ICP_TOLERANCE = 1e-8
_TINY = 1e-4

NORMAL_NEIGHBOURS = 30
FPFH_RADIUS = 0.35
FPFH_NEIGHBOURS = 200
MATCH_DISTANCE = 0.1
RANSAC_ITERATIONS = 100_000
RANSAC_CONFIDENCE = 0.999
EDGE_LENGTH_RATIO = 0.9
KISS_VOXEL = 0.08

CHAMFER_POINTS = 256
D2_POINTS = 512
D2_BINS = 64
D2_REACH = 3.0
"""D2 distances are in units of their mean; nearly all are below three times the mean."""

PROPER_FLIPS = np.array([np.diag(s) for s in itertools.product((1.0, -1.0), repeat=3) if np.prod(s) > 0])
"""The four sign changes of three axes that keep a frame right-handed."""


# ── alignment by principal axes and ICP: the rotation from the first cloud to the second ──────────────────────────────


def principal_frame(points: Cloud) -> Rotation:
    """Columns: axes of decreasing variance, right-handed, with signs as the eigensolver gives them."""
    centered = points - points.mean(axis=0)
    axes = np.linalg.eigh(centered.T @ centered)[1][:, ::-1].copy()
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
    return axes


def pca(first: Cloud, second: Cloud) -> Rotation:
    """Principal frame to principal frame."""
    return principal_frame(second) @ principal_frame(first).T


def pca_flips(first: Cloud, second: Cloud) -> Rotation:
    """The same, with the signs that give the smallest Chamfer distance between the centred clouds."""
    first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    frame_first, frame_second = principal_frame(first), principal_frame(second)
    tree = cKDTree(second)

    def chamfer(rotation: Rotation) -> float:
        moved = first @ rotation.T
        return float((tree.query(moved)[0] ** 2).mean() + (cKDTree(moved).query(second)[0] ** 2).mean())

    return min((frame_second @ flip @ frame_first.T for flip in PROPER_FLIPS), key=chamfer)


def pca_icp(first: Cloud, second: Cloud) -> Rotation:
    """The same, then ICP."""
    return refine(first, second, pca_flips(first, second))


def trimesh_register(first: Cloud, second: Cloud) -> Rotation:
    """``trimesh.registration.mesh_other`` (what ``mesh.register`` calls), without mirrored answers.

    It takes a mesh, so each point of the first cloud becomes a tiny triangle; and it tries sign flips about the world
    axes, so that cloud is put into its principal frame first. Without both it does far worse.
    """
    frame = principal_frame(first)
    corners = ((first - first.mean(axis=0)) @ frame)[:, None] + _TINY * np.eye(3)
    faces = np.arange(3 * len(first)).reshape(-1, 3)
    mesh = trimesh.Trimesh(corners.reshape(-1, 3), faces, process=False)
    matrix = trimesh.registration.mesh_other(mesh, second, reflection=False)[0]
    return matrix[:3, :3] @ frame.T


def refine(first: Cloud, second: Cloud, rotation: Rotation) -> Rotation:
    """ICP from a rotation about the centroids."""
    start = np.eye(4)
    start[:3, :3] = rotation.T
    start[:3, 3] = first.mean(axis=0) - rotation.T @ second.mean(axis=0)
    return refine_pose(first, second, start)


def refine_pose(first: Cloud, second: Cloud, T_first_second: Float64[np.ndarray, "4 4"]) -> Rotation:
    """Point-to-point ICP (trimesh) from a pose.

    The second cloud is aligned to the first, of which it may be a part, so that all of its points have a partner.
    """
    matrix = trimesh.registration.icp(
        second,
        first,
        initial=T_first_second,
        threshold=ICP_TOLERANCE,
        max_iterations=ICP_ITERATIONS,
        reflection=False,
        scale=False,
    )[0]
    return matrix[:3, :3].T


# ── alignment by local features: Open3D and KISS-Matcher ──────────────────────────────────────────────────────────────


def open3d_ransac(first: Cloud, second: Cloud) -> Rotation:
    """FPFH, RANSAC on mutual matches, ICP. Open3D's RANSAC is multithreaded and may differ from run to run."""
    return refine_pose(first, second, np.array(ransac(first, second).transformation))


def ransac(first: Cloud, second: Cloud) -> Any:
    """Open3D's result of FPFH and RANSAC: ``transformation`` from the second cloud to the first, ``fitness``."""
    registration = _open3d().pipelines.registration
    return registration.registration_ransac_based_on_feature_matching(
        *_source_and_target(first, second),
        True,
        MATCH_DISTANCE,
        registration.TransformationEstimationPointToPoint(False),
        3,
        [
            registration.CorrespondenceCheckerBasedOnEdgeLength(EDGE_LENGTH_RATIO),
            registration.CorrespondenceCheckerBasedOnDistance(MATCH_DISTANCE),
        ],
        registration.RANSACConvergenceCriteria(RANSAC_ITERATIONS, RANSAC_CONFIDENCE),
    )


def open3d_fgr(first: Cloud, second: Cloud) -> Rotation:
    """FPFH, fast global registration (Zhou, Park and Koltun), ICP."""
    registration = _open3d().pipelines.registration
    option = registration.FastGlobalRegistrationOption(maximum_correspondence_distance=MATCH_DISTANCE)
    result = registration.registration_fgr_based_on_feature_matching(*_source_and_target(first, second), option)
    return refine_pose(first, second, np.array(result.transformation))


def kiss_matcher(first: Cloud, second: Cloud) -> Rotation:
    """KISS-Matcher, ICP."""
    library = _library("kiss_matcher")
    matcher = library.KISSMatcher(library.KISSMatcherConfig(KISS_VOXEL))
    found = matcher.estimate(second.astype(np.float32), first.astype(np.float32))
    pose = np.eye(4)
    pose[:3, :3] = np.asarray(found.rotation)
    pose[:3, 3] = np.asarray(found.translation).ravel()
    return refine_pose(first, second, pose)


def _source_and_target(first: Cloud, second: Cloud) -> tuple[Any, Any, Any, Any]:
    """The second cloud, which is aligned to the first, and the first; then the features of both."""
    _open3d().utility.random.seed(0)
    (source, source_features), (target, target_features) = _featured(second), _featured(first)
    return source, target, source_features, target_features


def _featured(points: Cloud) -> tuple[Any, Any]:
    """The cloud with outward normals (away from the centroid, so that they rotate with it), and its FPFH."""
    library = _open3d()
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(points))
    cloud.estimate_normals(library.geometry.KDTreeSearchParamKNN(NORMAL_NEIGHBOURS))
    cloud.orient_normals_towards_camera_location(points.mean(axis=0))
    cloud.normals = library.utility.Vector3dVector(-np.asarray(cloud.normals))
    search = library.geometry.KDTreeSearchParamHybrid(FPFH_RADIUS, FPFH_NEIGHBOURS)
    return cloud, library.pipelines.registration.compute_fpfh_feature(cloud, search)


def _open3d() -> Any:
    library = _library("open3d")
    # Open3D prints warnings on standard output, which is for results.
    library.utility.set_verbosity_level(library.utility.VerbosityLevel.Error)
    return library


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: a system library that it needs is missing
        raise MissingExtraError(f"the baseline of {name}", "baselines") from error


# ── completion without learning ───────────────────────────────────────────────────────────────────────────────────────


def with_mirror_image(points: Cloud) -> Cloud:
    """A cloud and its mirror image, in a plane through its centroid that is orthogonal to one of its principal axes.

    Of the three planes, the one whose image is nearest to the cloud is taken.
    """
    center = points.mean(axis=0)
    images = [points - 2 * np.outer((points - center) @ axis, axis) for axis in principal_frame(points).T]
    tree = cKDTree(points)
    return np.concatenate([points, min(images, key=lambda image: float((tree.query(image)[0] ** 2).mean()))])


# ── retrieval without learning ────────────────────────────────────────────────────────────────────────────────────────


class Posed(NamedTuple):
    """A cloud in its principal frame: its four sign changes, concatenated, and a tree of the first."""

    flipped: Cloud
    tree: cKDTree


def posed(points: Cloud) -> Posed:
    points = points[thinned(points, CHAMFER_POINTS)]
    local = (points - points.mean(axis=0)) @ principal_frame(points)
    return Posed((local @ PROPER_FLIPS).reshape(-1, 3), cKDTree(local))


def posed_chamfer(queries: Sequence[Posed], gallery: Sequence[Posed]) -> Float64[np.ndarray, "q g"]:
    """Chamfer distance in the principal frames, the smallest over the four proper sign changes."""

    def mean_square(tree: cKDTree, flipped: Cloud) -> Float64[np.ndarray, "4"]:
        return (tree.query(flipped)[0].reshape(len(PROPER_FLIPS), -1) ** 2).mean(axis=1)

    found = np.empty((len(queries), len(gallery)))
    for (q, query), (g, entry) in itertools.product(enumerate(queries), enumerate(gallery)):
        # A flip is its own inverse, so flipping the gallery's points is the same as flipping the query's.
        found[q, g] = (mean_square(entry.tree, query.flipped) + mean_square(query.tree, entry.flipped)).min()
    return found


def d2_histogram(points: Cloud) -> Float64[np.ndarray, "bins"]:
    """The D2 shape distribution (Osada et al. 2002): a histogram of the distances between points."""
    distances = pdist(points[thinned(points, D2_POINTS)])
    counts = np.histogram(distances / max(distances.mean(), 1e-300), bins=D2_BINS, range=(0, D2_REACH))[0]
    return counts / len(distances)


def mean_fpfh(points: Cloud) -> Float64[np.ndarray, "33"]:
    """The mean over the points of Open3D's fast point feature histograms."""
    return np.asarray(_featured(points)[1].data).mean(axis=1)


# ── the baselines by name ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Baseline:
    """A method that aligns two clouds, or that describes each one and compares descriptions; ``what`` explains it."""

    what: str
    align: Callable[[Cloud, Cloud], Rotation] | None = None
    describe: Callable[[Cloud], Any] | None = None
    compare: Callable[[Sequence[Any], Sequence[Any]], np.ndarray] = cdist
    library: str | None = None
    """The optional library that it needs."""

    @property
    def available(self) -> bool:
        if self.library is None:
            return True
        try:
            _library(self.library)
        except MissingExtraError:
            return False
        return True


BASELINES: dict[str, Baseline] = {
    "align": Baseline(
        "geocaps align, which sees both clouds (ours; the first row sees one at a time)",
        lambda first, second: align(first, second).pose.rotation,
    ),
    "pca": Baseline("principal axes, signs as they come", pca),
    "pca_flips": Baseline("principal axes, best of the 4 proper sign choices by Chamfer", pca_flips),
    "pca_icp": Baseline("pca_flips, then point-to-point ICP", pca_icp),
    "trimesh": Baseline(
        "trimesh register of the points as tiny triangles, no reflections", trimesh_register, library="rtree"
    ),
    "open3d": Baseline("Open3D FPFH + RANSAC, then ICP", open3d_ransac, library="open3d"),
    "open3d_fgr": Baseline("Open3D FPFH + fast global registration, then ICP", open3d_fgr, library="open3d"),
    "kiss_matcher": Baseline("KISS-Matcher, then ICP", kiss_matcher, library="kiss_matcher"),
    "pca_chamfer": Baseline(
        "Chamfer in principal frames, best of 4 sign choices", describe=posed, compare=posed_chamfer
    ),
    "d2": Baseline("D2 shape distribution, L2", describe=d2_histogram),
    "fpfh": Baseline("mean of Open3D's FPFH, L2", describe=mean_fpfh, library="open3d"),
}


def chosen_baselines(text: str) -> tuple[list[str], list[str]]:
    """The names in a comma-separated list, and those left out of ``all`` because they are not installed.

    A baseline asked for by name must be installed.
    """
    if text == "all":
        available = [name for name, baseline in BASELINES.items() if baseline.available]
        return available, [name for name in BASELINES if name not in available]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"there is no baseline {name!r}: choose from {', '.join(BASELINES)}, or all")
        if not BASELINES[name].available:
            raise MissingExtraError(f"the baseline {name} ({BASELINES[name].library})", "baselines")
    if not names:
        raise UsageError(f"--baselines is empty: choose from {', '.join(BASELINES)}, or all")
    return list(dict.fromkeys(names)), []


def measure_baseline(baseline: Baseline, pairs: Sequence[Pair], aligned: Bool[np.ndarray, "n"]) -> Measured:
    """A baseline on the pairs of a protocol; only the objects over which alignment is averaged are aligned."""
    first = [pair.first.double().numpy() for pair in pairs]
    second = [pair.second.double().numpy() for pair in pairs]
    if baseline.describe is not None:
        gallery = [baseline.describe(points) for points in first]
        started = time.perf_counter()
        distances = baseline.compare([baseline.describe(points) for points in second], gallery)
        return Measured(None, distances, None, 1000 * (time.perf_counter() - started) / len(pairs))
    assert baseline.align is not None
    started = time.perf_counter()
    found = {int(index): baseline.align(first[index], second[index]) for index in np.flatnonzero(aligned)}
    milliseconds = 1000 * (time.perf_counter() - started) / len(found)
    errors = np.full(len(pairs), np.nan)
    for index, rotation in found.items():
        pose = Pose.from_rotation(torch.from_numpy(np.array(rotation)), torch.zeros(3).double())
        errors[index] = float(pose.angle_to(pairs[index].turn)) / np.pi
    return Measured(errors, None, milliseconds, None)
