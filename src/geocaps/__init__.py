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
    from geocaps.apps.align.many import align_many
    from geocaps.apps.canonical import Canonical, canonical
    from geocaps.apps.encode import Model, load, untrained
    from geocaps.apps.encoding import Encoding, Encodings
    from geocaps.apps.export import Exported, export_onnx
    from geocaps.apps.locate import Find, locate
    from geocaps.apps.parts import Completion, Decomposition, complete, parts
    from geocaps.apps.scene import ParsedScene, SceneObject, parse_scene
    from geocaps.apps.track import Tracked, Tracker
    from geocaps.apps.transfer import Transferred, transfer
    from geocaps.batch import EncodedFiles, encode_files
    from geocaps.errors import GeocapsError
    from geocaps.geometry.similarity import Similarity
    from geocaps.index import Index

__version__ = "0.2.0.dev0"

_WHERE = {
    "apps.align": ("Alignment", "align"),
    "apps.align.many": ("align_many",),
    "apps.canonical": ("Canonical", "canonical"),
    "apps.encode": ("Model", "load", "untrained"),
    "apps.encoding": ("Encoding", "Encodings"),
    "apps.export": ("Exported", "export_onnx"),
    "apps.locate": ("Find", "locate"),
    "apps.parts": ("Completion", "Decomposition", "complete", "parts"),
    "apps.scene": ("ParsedScene", "SceneObject", "parse_scene"),
    "apps.track": ("Tracked", "Tracker"),
    "apps.transfer": ("Transferred", "transfer"),
    "batch": ("EncodedFiles", "encode_files"),
    "errors": ("GeocapsError",),
    "geometry.similarity": ("Similarity",),
    "index": ("Index",),
}
__all__ = [
    "Alignment",
    "Canonical",
    "Completion",
    "Decomposition",
    "EncodedFiles",
    "Encoding",
    "Encodings",
    "Exported",
    "Find",
    "GeocapsError",
    "Index",
    "Model",
    "ParsedScene",
    "SceneObject",
    "Similarity",
    "Tracked",
    "Tracker",
    "Transferred",
    "align",
    "align_many",
    "canonical",
    "complete",
    "datasets",
    "encode_files",
    "export_onnx",
    "load",
    "locate",
    "parse_scene",
    "parts",
    "transfer",
    "untrained",
]


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used, so that ``geocaps --help`` does not wait for torch."""
    if name == "datasets":
        return importlib.import_module("geocaps.datasets")
    for module, names in _WHERE.items():
        if name in names:
            return getattr(importlib.import_module(f"geocaps.{module}"), name)
    raise AttributeError(f"module 'geocaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names and the module's own: what tab completion and ``help`` show."""
    return sorted({*__all__, *globals()} - {"TYPE_CHECKING", "annotations", "importlib"})
