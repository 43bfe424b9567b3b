"""Embedded shapes: procedural objects, unlimited and seeded, with exact surfaces, normals, parts and frames."""

from geocaps.data.synthetic.catalogue import (
    ASYMMETRIC,
    CLASS_NAMES,
    BasicName,
    Shape,
    SurfaceSample,
    basic_shape,
    make_shape,
)

__all__ = ["ASYMMETRIC", "CLASS_NAMES", "BasicName", "Shape", "SurfaceSample", "basic_shape", "make_shape"]
