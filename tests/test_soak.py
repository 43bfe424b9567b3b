"""A short soak in a process of its own, and proof that a soak can fail."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import geocaps

SCRIPT = Path(__file__).parents[1] / "scripts" / "soak.py"


@pytest.mark.slow
def test_a_short_soak_passes():
    done = subprocess.run([sys.executable, str(SCRIPT), "--count", "120"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "120 encodes" in done.stdout
    assert "passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("group", "source", "says"),
    [
        ("good", np.full((64, 3), np.nan), "refused instead of finite"),
        ("hostile", np.random.default_rng(0).normal(size=(64, 3)), "finite instead of refused"),
    ],
)
def test_an_unexpected_result_is_counted_and_named(group, source, says):
    soak = runpy.run_path(str(SCRIPT))["Soak"](geocaps.untrained())
    soak.run(iter([(group, "a kind", source)]))
    assert soak.came.total() == 1
    (sentence,) = soak.wrong
    assert sentence.startswith(f"a kind: {says}")


def test_a_crash_and_a_result_that_is_not_finite_are_named():
    model = geocaps.untrained()
    soak = runpy.run_path(str(SCRIPT))["Soak"](model)
    cloud = np.random.default_rng(0).normal(size=(64, 3))
    soak.run(iter([("good", "sound", cloud)]))
    assert soak.wrong == []
    for parameter in model.network.object.feature_head.parameters():
        parameter.data.fill_(float("nan"))
    soak.run(iter([("good", "broken weights", cloud)]))
    model.network = None
    soak.run(iter([("good", "no network", cloud)]))
    broken, absent = soak.wrong
    assert broken.startswith("broken weights: not finite")
    assert absent.startswith("no network: crashed")
