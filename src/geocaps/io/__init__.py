"""Files to points and back: meshes, scans, text columns and arrays, with damaged and hostile files refused."""

from geocaps.io.load import SUFFIXES, PointCloud, describe, finite_only, is_supported, load_points
from geocaps.io.meshes import sample_surface
from geocaps.io.save import save_points

__all__ = [
    "SUFFIXES", "PointCloud", "describe", "finite_only", "is_supported", "load_points", "sample_surface", "save_points",
]  # fmt: skip
