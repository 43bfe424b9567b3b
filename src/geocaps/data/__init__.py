"""Data sets of point clouds behind one interface: ``load`` opens, ``concat`` joins, ``survey`` looks for problems."""

from geocaps.data.base import SPLIT_NAMES, PointDataset, concat
from geocaps.data.loading import EMBEDDED, load, open_path
from geocaps.data.survey import Problem, Survey, fault_of, survey

__all__ = [
    "EMBEDDED",
    "SPLIT_NAMES",
    "PointDataset",
    "Problem",
    "Survey",
    "concat",
    "fault_of",
    "load",
    "open_path",
    "survey",
]
