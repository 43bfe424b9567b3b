"""Evaluation: protocols, their metrics and chance floors, baselines on the same pairs, tables and figures."""
