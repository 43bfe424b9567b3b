"""Geometric capsules for 3D point clouds: parts, canonical pose and pose-invariant feature, without labels, on a CPU.

>>> import geocaps
>>> model = geocaps.load()
>>> capsule = model.encode(points)          # [N, 3], [B, N, 3], a list, a path, a trimesh
>>> capsule.pose, capsule.feature, capsule.parts, capsule.labels
>>> geocaps.align(a, b).matrix              # T_b_a
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geocaps import datasets
    from geocaps.apps.align import Alignment, align
    from geocaps.apps.encode import Encoding, Model, load, untrained
    from geocaps.errors import GeocapsError
    from geocaps.se3 import Pose

__version__ = "0.1.0"

_WHERE = {
    "Alignment": "geocaps.apps.align",
    "align": "geocaps.apps.align",
    "Encoding": "geocaps.apps.encode",
    "Model": "geocaps.apps.encode",
    "load": "geocaps.apps.encode",
    "untrained": "geocaps.apps.encode",
    "GeocapsError": "geocaps.errors",
    "Pose": "geocaps.se3",
}
__all__ = ["Alignment", "Encoding", "GeocapsError", "Model", "Pose", "align", "datasets", "load", "untrained"]


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used, so that ``geocaps --help`` does not wait for torch."""
    if name == "datasets":
        return importlib.import_module("geocaps.datasets")
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'geocaps' has no attribute {name!r}")
