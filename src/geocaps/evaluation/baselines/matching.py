"""Global registration by local features: Open3D (FPFH with RANSAC, fast global registration) and KISS-Matcher.

Lengths are in units of an object inside the unit sphere, where 1024 points lie about 0.05 apart.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from geocaps.errors import MissingExtraError
from geocaps.evaluation.baselines.classic import Cloud, Rotation, refine_pose

NORMAL_NEIGHBOURS = 30
FPFH_RADIUS = 0.35
FPFH_NEIGHBOURS = 200
MATCH_DISTANCE = 0.1
RANSAC_ITERATIONS = 100_000
RANSAC_CONFIDENCE = 0.999
EDGE_LENGTH_RATIO = 0.9
KISS_VOXEL = 0.08


def open3d_ransac(first: Cloud, second: Cloud) -> Rotation:
    """FPFH, RANSAC on mutual matches, ICP. Open3D's RANSAC runs in threads and may differ from run to run."""
    registration = _open3d().pipelines.registration
    _open3d().utility.random.seed(0)
    (source, source_features), (target, target_features) = _featured(second), _featured(first)
    result = registration.registration_ransac_based_on_feature_matching(
        source,
        target,
        source_features,
        target_features,
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
    return refine_pose(first, second, np.array(result.transformation))


def open3d_fgr(first: Cloud, second: Cloud) -> Rotation:
    """FPFH, fast global registration (Zhou, Park and Koltun), ICP."""
    registration = _open3d().pipelines.registration
    _open3d().utility.random.seed(0)
    (source, source_features), (target, target_features) = _featured(second), _featured(first)
    result = registration.registration_fgr_based_on_feature_matching(
        source,
        target,
        source_features,
        target_features,
        registration.FastGlobalRegistrationOption(maximum_correspondence_distance=MATCH_DISTANCE),
    )
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


def fpfh(points: Cloud) -> Float64[np.ndarray, "33 n"]:
    """Open3D's fast point feature histograms of every point."""
    return np.asarray(_featured(points)[1].data)


def _featured(points: Float[np.ndarray, "n 3"]) -> tuple[Any, Any]:
    """The cloud with outward normals (away from the centroid, so that they turn with it), and its FPFH."""
    library = _open3d()
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(points))
    cloud.estimate_normals(library.geometry.KDTreeSearchParamKNN(NORMAL_NEIGHBOURS))
    cloud.orient_normals_towards_camera_location(points.mean(axis=0))
    cloud.normals = library.utility.Vector3dVector(-np.asarray(cloud.normals))
    search = library.geometry.KDTreeSearchParamHybrid(FPFH_RADIUS, FPFH_NEIGHBOURS)
    return cloud, library.pipelines.registration.compute_fpfh_feature(cloud, search)


def _open3d() -> Any:
    library = _library("open3d")
    # Its warnings go to standard output, where our results are.
    library.utility.set_verbosity_level(library.utility.VerbosityLevel.Error)
    return library


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: it is installed, but a system library that it needs is not
        raise MissingExtraError(f"the baseline of {name}", "baselines") from error
