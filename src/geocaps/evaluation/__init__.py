"""Evaluation: the protocols, their metrics and chance floors, baselines under the same views, tables and figures."""
