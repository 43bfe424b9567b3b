"""Embedded shapes: procedural objects, unlimited and seeded, with exact surfaces, normals, parts and frames."""

from geocaps.data.synthetic.shapes import ASYMMETRIC, CLASS_NAMES, Shape, SurfaceSample, make_shape

__all__ = ["ASYMMETRIC", "CLASS_NAMES", "Shape", "SurfaceSample", "make_shape"]
