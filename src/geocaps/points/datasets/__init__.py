"""Data sets of point clouds behind one interface: ``load`` opens, ``concat`` joins, ``survey`` looks for problems."""

from geocaps.points.datasets.base import SPLIT_NAMES, PointDataset, concat
from geocaps.points.datasets.loading import EMBEDDED, load, open_path
from geocaps.points.datasets.survey import Problem, Survey, fault_of, survey

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
