"""Lines of docs/security.md that belong to no one module."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import geocaps
from geocaps.atomic import WorkFolder
from geocaps.batch.shards import StoredShard, find_items
from geocaps.cli import run
from geocaps.data.folder import list_items
from geocaps.errors import CheckpointError, InvalidInputError
from geocaps.evaluation.report import page
from geocaps.evaluation.run import Settings, evaluate
from geocaps.io import load_points, save_points
from geocaps.io.save import write_whole
from geocaps.model.checkpoint import load_checkpoint, load_training_state

PACKAGE = Path(geocaps.__file__).parent
RUNS_CODE = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "marshal.loads",
    "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_output", "yaml.load", "joblib.load",
}  # fmt: skip
ALLOWED = {
    # What a Ray worker sends back to the process that started it, and gets from it.
    ("batch/shards.py", "pickle.loads"),
}
NETWORK = {"socket", "http", "urllib.request", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "websockets"}
MAY_USE_NETWORK = {"data/download.py", "viewer/server.py"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def cloud(seed=0, count=200):
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_nothing_that_runs_code_is_called():
    found = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in RUNS_CODE:
                found.add((name, ast.unparse(node.func)))
    assert found == ALLOWED


def test_torch_and_numpy_load_no_pickles():
    loads = 0
    for name, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            called = ast.unparse(node.func)
            assert options.get("allow_pickle", "False") == "False", name
            if called == "torch.load":
                assert options.get("weights_only") == "True", name
            if called in ("np.load", "torch.load"):
                loads += 1
    assert loads >= 2, "the search itself works"


def test_the_network_is_used_for_downloads_and_the_page_alone():
    found = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported = {node.module or ""}
            else:
                continue
            if any(one == network or one.startswith(network + ".") for one in imported for network in NETWORK):
                found.add(name)
    assert found == MAY_USE_NETWORK


AUDITED = """
import sys
import numpy as np
import geocaps

cloud = np.random.default_rng(0).normal(size=(200, 3))
model = geocaps.load()
model.encode(cloud)
forbidden = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename")

def refuse(event, args):
    if event.startswith(forbidden) or event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        raise RuntimeError(f"{event} {args}")

sys.addaudithook(refuse)
found = model.encode(cloud)
found.labels, found.reconstruct(), found.canonical(), found.alternatives
geocaps.align(cloud, cloud[:150])
try:
    open("written", "w")
except RuntimeError:
    print("clean")
"""


def test_encoding_and_aligning_write_nothing_start_nothing_and_call_nobody(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", AUDITED], capture_output=True, text=True, cwd=tmp_path, timeout=500, check=False
    )
    assert done.stdout == "clean\n", done.stderr[-2000:]


def test_the_package_holds_no_pickles():
    kinds = {path.suffix for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert ".safetensors" in kinds
    assert not kinds & {".pt", ".pth", ".pkl", ".pickle", ".bin", ".joblib"}


HOSTILE = "</caption><script>alert(1)</script>"


def test_a_report_of_a_hostile_data_set_holds_no_markup_of_its_making(tmp_path):
    path = tmp_path / f"{HOSTILE.replace('/', '')}.npz"
    points = np.stack([cloud(seed) for seed in range(4)]).astype(np.float32)
    np.savez(path, points=points, labels=[0, 0, 1, 1], class_names=[HOSTILE, "<img src=x onerror=alert(1)>"])
    result = evaluate(geocaps.untrained(), geocaps.datasets.load(path), Settings(protocols=("points",), points=64))
    text = page(result, {})
    assert "geocaps evaluation" in text
    assert "<script" not in text
    assert "<img" not in text


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_planted_shard_of_a_stopped_run_is_not_unpickled(tmp_path):
    save_points(tmp_path / "a.npy", cloud())
    made_from = [vars(item) for item in find_items([tmp_path / "a.npy"])]
    work = WorkFolder(tmp_path / "out.npz.partial", "weights")
    planted = work._place(made_from)
    with planted.open("wb") as file:
        np.savez(file, failed=np.array([Bomb(tmp_path / "executed")], dtype=object), count=np.array(1))
    assert b"executed" in planted.read_bytes()
    for shard in map(StoredShard, work.pieces([made_from])):
        for read in (lambda shard=shard: shard.failed, lambda shard=shard: shard.column("failed")):
            with pytest.raises(ValueError, match="allow_pickle=False"):
                read()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("write", [save_points, lambda path, _: write_whole(path, b"content")], ids=["points", "bytes"])
def test_a_link_in_place_of_the_output_is_replaced_not_followed(write, tmp_path):
    precious = tmp_path / "precious.ply"
    precious.write_text("precious")
    out = tmp_path / "out.ply"
    out.symlink_to(precious)
    write(out, cloud())
    assert precious.read_text() == "precious"
    assert not out.is_symlink()


def test_links_to_folders_are_not_followed(tmp_path):
    folder, secret = tmp_path / "set", tmp_path / "secret"
    for place in (folder / "chair", secret):
        place.mkdir(parents=True)
        save_points(place / "a.npy", cloud())
    (folder / "again").symlink_to(folder)
    (folder / "elsewhere").symlink_to(secret)
    assert [item.object_id for item in list_items(folder)] == ["chair/a.npy"]


@pytest.mark.parametrize(
    "name", ["../evil.ply", "a b;touch executed.ply", "$(touch executed).ply", "-rf.ply", "ü\u202e.ply", "[red]x.ply"]
)
def test_odd_names_are_names(name, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "inner"
    folder.mkdir()
    monkeypatch.chdir(folder)
    save_points(Path(name), cloud())
    source = f"./{name}"
    assert run(["parts", source, "--out", "out.ply", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == source
    assert len(load_points("out.ply").points) == 200
    assert {path.name for path in tmp_path.rglob("*.ply")} == {"out.ply", Path(name).name}
    assert not list(tmp_path.rglob("executed"))


def test_a_page_that_others_can_reach_says_so(monkeypatch, capsys):
    from viser import ViserServer

    def stop(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(ViserServer, "sleep_forever", stop)
    assert run(["view", "--host", "0.0.0.0", "--port", "0", "--no-browser"]) == 0
    assert "there is no password" in capsys.readouterr().err
    assert run(["view", "--port", "0", "--no-browser"]) == 0
    said = capsys.readouterr()
    assert "password" not in said.err
    assert "http://127.0.0.1:" in said.out


class Unwilling:
    def __array__(self, *args, **options):
        raise RuntimeError("no")


def test_odd_arrays_are_worked_with_or_refused():
    model, points = geocaps.untrained(), cloud(count=64)
    plain = model.encode(points).feature
    backwards = np.ascontiguousarray(points[::-1])[::-1]
    frozen = points.copy()
    frozen.flags.writeable = False
    for same in (backwards, frozen, points.astype(">f8"), np.ma.masked_array(points), torch.from_numpy(-points).neg()):
        found = model.encode(same)
        found.canonical()
        np.testing.assert_array_equal(found.feature, plain)
    assert np.isfinite(model.encode(torch.from_numpy(points).bfloat16()).feature).all()
    dense = torch.from_numpy(points).float()
    refused = {
        "masked": np.ma.masked_array(points, mask=points > 2),
        "Sparse": dense.to_sparse(),
        "no data": torch.zeros(64, 3, device="meta"),
        "numbers, not": dense.to(torch.complex64).conj(),
        "not an array .*: no": Unwilling(),
        "NaN or infinite": np.full((64, 3), np.longdouble("1e400")),
    }
    for message, source in refused.items():
        with pytest.raises(InvalidInputError, match=message) as caught:
            model.encode(source)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "training.pt", "card.md"])
def test_a_pipe_in_a_checkpoint_does_not_hang(name, tmp_path, capsys):
    folder = shutil.copytree(PACKAGE / "weights" / "default", tmp_path / "weights")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for read in (load_training_state, load_checkpoint):
        with pytest.raises(CheckpointError, match=f"{name} is not a regular file"):
            read(folder)
    assert run(["info", str(folder)]) == 1
    assert f"{name} is not a regular file" in capsys.readouterr().err


def test_nothing_that_is_printed_commands_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = "\x1b]0;owned\x07\x1b[31m\x9b2J"
    save_points(Path(f"a{command}.npy"), cloud())
    folder = shutil.copytree(PACKAGE / "weights" / "default", tmp_path / "weights")
    (folder / "card.md").write_text(f"# A card{command}\n", encoding="utf-8")
    assert run(["info", f"a{command}.npy"]) == run(["info", "weights"]) == 0
    assert run(["info", f"missing{command}.ply"]) == 1
    said = capsys.readouterr()
    assert said.out.count("\\x1b]0;owned") == 2
    assert said.err.count("\\x1b]0;owned") == 1
    assert not set(said.out + said.err) & set("\x07\x1b\x9b")


def test_a_name_that_is_too_long_is_one_sentence(capsys):
    name = "a" * 5000 + ".ply"
    for args in (["info", name], ["align", name, name], ["parts", name]):
        assert run(args) == 1
        said = capsys.readouterr().err
        assert said.startswith("geocaps: cannot open aaa")
        assert said.count("\n") == 1
