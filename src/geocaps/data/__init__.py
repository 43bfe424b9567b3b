"""Data sets of point clouds behind one interface: ``load`` opens, ``concat`` joins, ``survey`` looks for problems."""

from geocaps.data.base import SPLIT_NAMES, PointDataset, concat
from geocaps.data.loading import EMBEDDED, Problem, Survey, fault_of, load, survey

__all__ = [
    "EMBEDDED",
    "SPLIT_NAMES",
    "PointDataset",
    "Problem",
    "Survey",
    "concat",
    "fault_of",
    "load",
    "survey",
]
