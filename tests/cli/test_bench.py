import json

import pytest

from geocaps.cli import models as commands
from geocaps.cli import run
from geocaps.evaluation import bench as measure


@pytest.mark.slow
def test_bench_prints_every_measurement(capsys, monkeypatch):
    """The real measurements on less: one object, few steps to settle and one repeat, small clouds.

    Of times only what they are divided by is asserted, as they are those of a machine that others use too.
    """
    step, rate, steps = measure.layer1_step, measure.encode_rate, {}
    monkeypatch.setattr(measure, "encode_rate", lambda model, batch: rate(model, batch, points=100, repeats=1))

    def smaller_step(kind, batch, repeats):
        steps[kind] = step(kind, 1, repeats=1, warm_steps=2)
        return steps[kind]

    monkeypatch.setattr(measure, "layer1_step", smaller_step)
    monkeypatch.setattr(commands, "BENCH_POINTS", (200, 3000))
    assert run(["bench", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["layer1_step_ratio"] == pytest.approx(steps["literal"][0] / steps["product"][0])
    assert result["layer1_memory_ratio"] == pytest.approx(steps["literal"][1] / steps["product"][1])
    assert result["layer1_memory_ratio"] > 2
    assert min(steps["literal"][0], steps["product"][0]) > 0
    assert result["layer2_decoder_ratio"] > 0
    assert result["encode_per_s_1"] > 0
    assert result["encode_per_s_64"] > 0
    assert set(result["encode_seconds"]) == {"200", "3000"}
    assert result["gemm_share"] > 0


@pytest.mark.parametrize("count", ["0", "-1"])
def test_no_objects_is_a_wrong_call(capsys, count):
    assert run(["bench", "--literal-batch", count]) == 2
    assert capsys.readouterr().err == f"geocaps: --literal-batch must be at least 1, not {count}\n"
