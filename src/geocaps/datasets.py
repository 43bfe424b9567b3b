"""Data sets: ``geocaps.datasets.load("shapes")``, ``load("furniture")``, ``load("my_folder")``, ``load("set.npz")``."""

from geocaps.data import EMBEDDED, SPLIT_NAMES, PointDataset, Problem, Survey, concat, load, survey

__all__ = ["EMBEDDED", "SPLIT_NAMES", "PointDataset", "Problem", "Survey", "concat", "load", "survey"]
