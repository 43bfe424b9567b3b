"""Baselines under the same protocols, on the very same views."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from scipy.spatial.distance import cdist

from geocaps.apps.align.align import align
from geocaps.errors import MissingExtraError, UsageError
from geocaps.evaluation.baselines import classic, matching, retrieval
from geocaps.evaluation.baselines.classic import Cloud, Rotation
from geocaps.evaluation.protocols import Measured
from geocaps.evaluation.views import Views
from geocaps.geometry.se3 import Pose


@dataclass(frozen=True)
class Baseline:
    """A method that aligns two clouds, or that describes each and compares descriptions; ``what`` explains it."""

    what: str
    align: Callable[[Cloud, Cloud], Rotation] | None = None
    describe: Callable[[Cloud], Any] | None = None
    compare: Callable[[Sequence[Any], Sequence[Any]], np.ndarray] = cdist
    library: str | None = None
    """An optional library that it needs."""

    @property
    def available(self) -> bool:
        if self.library is None:
            return True
        try:
            importlib.import_module(self.library)
        except (ImportError, OSError):  # OSError: it is installed, but a system library that it needs is not
            return False
        return True


def _geocaps_align(first: Cloud, second: Cloud) -> Rotation:
    return align(first, second).pose.rotation


BASELINES: dict[str, Baseline] = {
    "align": Baseline("geocaps align, which sees both clouds (ours; the first row sees one at a time)", _geocaps_align),
    "pca": Baseline("principal axes, signs as they come", align=classic.pca),
    "pca_flips": Baseline("principal axes, best of the 4 proper sign choices by Chamfer", align=classic.pca_flips),
    "pca_icp": Baseline("pca_flips, then point-to-point ICP", align=classic.pca_icp),
    "trimesh": Baseline(
        "trimesh register of the points as tiny triangles, no reflections",
        align=classic.trimesh_register,
        library="rtree",
    ),
    "open3d": Baseline("Open3D FPFH + RANSAC, then ICP", align=matching.open3d_ransac, library="open3d"),
    "open3d_fgr": Baseline(
        "Open3D FPFH + fast global registration, then ICP", align=matching.open3d_fgr, library="open3d"
    ),
    "kiss_matcher": Baseline("KISS-Matcher, then ICP", align=matching.kiss_matcher, library="kiss_matcher"),
    "pca_chamfer": Baseline(
        "Chamfer in principal frames, best of 4 sign choices", describe=retrieval.posed, compare=retrieval.posed_chamfer
    ),
    "d2": Baseline("D2 shape distribution, L2", describe=retrieval.d2_histogram),
    "fpfh": Baseline("mean of Open3D's FPFH, L2", describe=retrieval.mean_fpfh, library="open3d"),
}


def chosen_baselines(text: str) -> tuple[list[str], list[str]]:
    """The names in a comma-joined list, and those left out: ``all`` takes what is installed.

    A baseline asked for by name must be there.
    """
    if text == "all":
        return [n for n, b in BASELINES.items() if b.available], [n for n, b in BASELINES.items() if not b.available]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"there is no baseline {name!r}: choose from {', '.join(BASELINES)}, or all")
        if not BASELINES[name].available:
            raise MissingExtraError(f"the baseline {name} ({BASELINES[name].library})", "baselines")
    if not names:
        raise UsageError(f"--baselines names none: choose from {', '.join(BASELINES)}, or all")
    return list(dict.fromkeys(names)), []


def measure_baseline(baseline: Baseline, views: Views, protocol: str, aligned: Bool[np.ndarray, "n"]) -> Measured:
    """A baseline under a protocol of points; only the objects that are averaged over are aligned."""
    pairs = [views.pair(index, protocol) for index in range(len(views))]
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
        pose = Pose.from_rotation(torch.from_numpy(np.ascontiguousarray(rotation)), torch.zeros(3).double())
        errors[index] = float(pose.angle_to(pairs[index].turn)) / np.pi
    return Measured(errors, None, milliseconds, None)
