import json
import re

import pytest

import geocaps
from geocaps.cli import run
from geocaps.model.checkpoint import save_checkpoint


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "untrained"
    return save_checkpoint(folder, geocaps.untrained("cpu").network, card="untrained")


@pytest.mark.slow
def test_demo_measures_and_writes(weights, tmp_path, capsys):
    out = tmp_path / "demo"
    assert run(["demo", "--weights", str(weights), "--out", str(out), "--per-class", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    methods = result["methods"]
    assert result["objects"] == 23
    assert methods["geocaps align, both clouds"]["within_15"] > 0.8
    assert methods["geocaps align, both clouds"]["rae_mean"] < methods["PCA, each cloud alone"]["rae_mean"]
    assert 0 <= methods["capsules, each cloud alone"]["top1"] <= 1
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "demo.html").read_text()
    assert "data:image/png;base64," in page
    assert "geocaps align" in page
    header = re.findall(r"<th>([^<]*)</th>", page)
    assert header[-3:] == ["top-1", "1-NN class", "top-1, crop"]
    assert "The last three columns are retrieval" in page
    capsules, *others = re.findall(r"<tr><td>.*?</tr>", page)
    shown = [f"{100 * methods['capsules, each cloud alone'][name]:.1f} %" for name in ("top1", "nn1", "top1_crop")]
    assert re.findall(r"<td>([^<]*)</td>", capsules)[-3:] == shown
    assert all(re.findall(r"<td>([^<]*)</td>", row)[-3:] == ["–", "–", "–"] for row in others)
    parsed, posed, aligned, found, wrote = result["story"]
    assert parsed.startswith("parsed 23 objects into 32 parts")
    assert f" {round(15 * methods['capsules, each cloud alone']['within_15'])} of 15 rotated copies" in posed
    assert f" {round(15 * methods['geocaps align, both clouds']['within_15'])} of 15 pairs" in aligned
    assert f" {round(23 * methods['capsules, each cloud alone']['top1_crop'])} of 23 objects" in found
    assert wrote == f"wrote {out / 'demo.png'} and {out / 'demo.html'}"


def test_demo_refuses_a_wrong_call(weights, tmp_path, capsys):
    assert run(["demo", "--weights", str(weights), "--out", str(tmp_path), "--per-class", "0"]) == 2
    assert "--per-class must be at least 1" in capsys.readouterr().err
    assert run(["demo", "--weights", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(["demo", "--weights", str(weights), "--out", str(blocked / "demo")]) == 2
