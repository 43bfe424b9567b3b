"""``geocaps eval`` as a user calls it: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import sys

import pytest

from geocaps.apps.encode import Model
from geocaps.cli import run
from geocaps.model.checkpoint import save_checkpoint
from tests.cli.command import command
from tests.evaluation.conftest import write_set
from tests.model.conftest import TINY, make_model

call = command("eval")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("w") / "tiny", Model(make_model(TINY)).network, card="untrained")


@pytest.fixture
def data(tmp_path):
    return write_set(tmp_path / "set.npz")


def test_json_has_every_promised_name(capsys, weights, data):
    code, out, err = call(
        capsys, "--weights", weights, "--data", data, "--points", 48, "--baselines", "pca,d2", "--json"
    )
    assert code == 0
    result = json.loads(out)
    assert list(result["protocols"]) == ["parts", "points", "resampled", "noisy", "partial"]
    names = {"rae_mean", "rae_median", "within_5", "within_15", "within_30", "top1", "top10", "nn1", "objects"}
    for row in result["protocols"].values():
        assert names <= row.keys()
    assert list(result["baselines"]) == ["pca", "d2"]
    assert list(result["baselines"]["pca"]) == ["points", "resampled", "noisy", "partial"]
    assert result["seconds"] > 0
    assert "protocol partial" in err


def test_for_people_and_into_folders(capsys, weights, tmp_path):
    """With a single object, which every table and figure must bear."""
    data = write_set(tmp_path / "one.npz", objects=1, class_names=("chair",))
    code, out, err = call(
        capsys, "--weights", weights, "--data", data, "--points", 48, "--protocol", "points", "--trials", 10,
        "--out", tmp_path / "out", "--report", tmp_path / "report",
    )  # fmt: skip
    assert code == 0
    assert "best of 10 by Chamfer" in out
    assert "chance: random answer" in out
    assert "Protocol points" in out
    assert "Protocol noisy" not in out
    assert "one object" in out
    assert (tmp_path / "out" / "results.md").read_text() in out
    assert (tmp_path / "report" / "report.html").stat().st_size > 50_000
    assert "wrote" in err


def test_classes_choose_objects(capsys, weights, data):
    code, out, _ = call(
        capsys, "--weights", weights, "--data", data, "--points", 48, "--protocol", "points", "--classes", "ball",
        "--json",
    )  # fmt: skip
    assert code == 0
    result = json.loads(out)
    assert result["protocols"]["points"]["objects"] == 3
    assert result["protocols"]["points"]["nn1"] is None


def test_more_than_the_memory_holds_is_one_sentence(capsys, weights):
    code, out, err = call(capsys, "--weights", weights, "--data", "shapes", "--protocol", "points", "--points", 10**11)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("geocaps: not enough memory")


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--baselines", "magic"], 2, "no baseline 'magic'"),
        (["--trials", "0"], 2, "--trials"),
        (["--points", "3"], 2, "--points 3"),
        (["--classes", "unicorn"], 1, "no class 'unicorn'"),
        (["--split", "val"], 1, "no split 'val'"),
        (["--data", "nowhere.npz"], 1, "nowhere.npz"),
        (["--weights", "nowhere"], 1, "nowhere does not exist"),
        (["--table1"], 2, "needs --out"),
        (["--table1", "--out", "x", "--trials", "10"], 2, "takes no"),
        (["--table1", "--out", "x", "--budget", "soon"], 2, "not 'soon'"),
        (["--table1", "--out", "x", "--steps", "0"], 2, "--steps must be at least 1"),
        (["--table1", "--out", "x", "--settings", "A,F"], 2, "no setting 'F': choose from A,B,C,D,E"),
        (["--table1", "--out", "x", "--weights", "nowhere"], 1, "nowhere does not exist"),
    ],
)
def test_one_sentence_for_a_wrong_call(capsys, weights, data, options, code, sentence):
    table1 = "--table1" in options
    base = {"--data": data, "--points": 48} | ({} if table1 else {"--weights": weights, "--protocol": "points"})
    given = [part for name, value in base.items() if name not in options for part in (name, value)]
    found, out, err = call(capsys, *given, *options)
    assert found == code
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("geocaps: ")]
    assert len(lines) == 1
    assert sentence in lines[0]


def test_a_missing_library_is_said(capsys, weights, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "open3d", None)
    code, _, err = call(capsys, "--weights", weights, "--data", data, "--baselines", "open3d")
    assert code == 1
    assert "pip install '.[baselines]'" in err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as exit_:
        run(["eval", "--help"])
    assert exit_.value.code == 0
    assert "geocaps eval --data furniture" in capsys.readouterr().out
