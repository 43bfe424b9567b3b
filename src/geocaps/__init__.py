"""Geometric capsules for 3D point clouds: parts, canonical pose and pose-invariant feature, without labels, on a CPU.

>>> import geocaps
>>> model = geocaps.load()
>>> capsule = model.encode(points)          # [N, 3], a path, a trimesh; model.encode_many([...]) for many
>>> capsule.pose, capsule.feature, capsule.parts, capsule.labels
>>> geocaps.align(a, b).matrix              # T_b_a
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geocaps import datasets
    from geocaps.apps.align import Alignment, align
    from geocaps.apps.canonical import Canonical, canonical
    from geocaps.apps.encode import Model, load, untrained
    from geocaps.apps.encode_files import EncodedFiles, encode_files
    from geocaps.apps.encoding import Encoding, Encodings
    from geocaps.apps.export import Exported, export_onnx
    from geocaps.apps.index import Index
    from geocaps.apps.parts import Decomposition, parts
    from geocaps.errors import GeocapsError
    from geocaps.se3 import Pose
    from geocaps.similarity import Similarity

__version__ = "0.1.0"

_WHERE = {
    "Alignment": "geocaps.apps.align",
    "align": "geocaps.apps.align",
    "Canonical": "geocaps.apps.canonical",
    "canonical": "geocaps.apps.canonical",
    "EncodedFiles": "geocaps.apps.encode_files",
    "encode_files": "geocaps.apps.encode_files",
    "Exported": "geocaps.apps.export",
    "export_onnx": "geocaps.apps.export",
    "Encoding": "geocaps.apps.encoding",
    "Encodings": "geocaps.apps.encoding",
    "Model": "geocaps.apps.encode",
    "load": "geocaps.apps.encode",
    "untrained": "geocaps.apps.encode",
    "Decomposition": "geocaps.apps.parts",
    "parts": "geocaps.apps.parts",
    "Index": "geocaps.apps.index",
    "GeocapsError": "geocaps.errors",
    "Pose": "geocaps.se3",
    "Similarity": "geocaps.similarity",
}
__all__ = [
    "Alignment",
    "Canonical",
    "Decomposition",
    "EncodedFiles",
    "Encoding",
    "Encodings",
    "Exported",
    "GeocapsError",
    "Index",
    "Model",
    "Pose",
    "Similarity",
    "align",
    "canonical",
    "datasets",
    "encode_files",
    "export_onnx",
    "load",
    "parts",
    "untrained",
]


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used, so that ``geocaps --help`` does not wait for torch."""
    if name == "datasets":
        return importlib.import_module("geocaps.datasets")
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'geocaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names and the module's own: what tab completion and ``help`` show."""
    return sorted({*__all__, *globals()} - {"TYPE_CHECKING", "annotations", "importlib"})
