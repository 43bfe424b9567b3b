"""``geocaps data`` as a user calls it: what it prints where, and its exit codes."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import trimesh

from geocaps.cli import run
from geocaps.datasets import load
from tests.cli.command import command

call = command("data")


@pytest.fixture
def meshes(tmp_path):
    for class_name, size in (("box", 1), ("slab", 0.1)):
        (tmp_path / "meshes" / class_name).mkdir(parents=True)
        trimesh.creation.box((1, 2, size)).export(tmp_path / "meshes" / class_name / "a.off")
    return tmp_path / "meshes"


@pytest.fixture
def site(tmp_path):
    """A folder served over HTTP: its path and its address."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_info_for_people(capsys):
    code, out, _ = call(capsys, "info", "furniture")
    assert code == 0
    assert "175 objects" in out
    assert "chair" in out
    assert "no problems found" in out


def test_info_as_json_reports_problems(capsys, meshes):
    (meshes / "box" / "broken.off").write_text("OFF\nnonsense")
    code, out, _ = call(capsys, "info", meshes, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["objects"] == 3
    assert found["classes"] == {"box": 2, "slab": 1}
    assert [(problem["kind"], problem["count"]) for problem in found["problems"]] == [("unreadable", 1)]


def test_info_shows_problems_to_people_too(capsys, tmp_path):
    np.savez(tmp_path / "a.npz", points=np.full((30, 4, 3), np.nan, np.float32))
    code, out, _ = call(capsys, "info", tmp_path / "a.npz")
    assert code == 0
    assert "problem: points that are not finite: 30" in out
    assert "and 20 more" in out


@pytest.mark.parametrize("command", [["data", "info"], ["info"]])
def test_info_of_a_single_file(capsys, tmp_path, meshes, command):
    points = np.vstack([np.random.default_rng(0).random((50, 3)), np.full((2, 3), np.nan), [[30, 0, 0]] * 2])
    np.savetxt(tmp_path / "scan.xyz", points)
    np.savez(tmp_path / "one.npz", points=points)
    for file in (tmp_path / "scan.xyz", tmp_path / "one.npz"):
        assert run([*command, str(file), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["file"]
        assert (found["kind"], found["points"], found["faces"]) == ("cloud", 54, 0)
        assert (found["not_finite"], found["duplicates"], found["stray"], found["units"]) == (2, 1, 2, None)
    assert run([*command, str(tmp_path / "scan.xyz")]) == 0
    said = capsys.readouterr().out
    for line in ("54 points", "not stated in the file", "2 (NaN or infinite)", "2 (more than 3 times as far from the"):
        assert line in said
    assert run([*command, str(meshes / "box" / "a.off")]) == 0
    said = capsys.readouterr().out
    for line in ("OFF, a mesh", "8 vertices, 12 faces", "extent       1 x 2 x 1"):
        assert line in said


def test_a_single_file_has_no_splits(capsys, meshes):
    code, _, err = call(capsys, "info", meshes / "box" / "a.off", "--split", "train")
    assert code == 2
    assert "is a single mesh" in err


def test_info_of_nothing(capsys, tmp_path):
    code, out, err = call(capsys, "info", tmp_path / "nowhere.npz", "--json")
    assert code == 1
    assert out == ""
    assert "no such file" in err


def test_pack_then_info(capsys, meshes, tmp_path):
    (meshes / "box" / "broken.off").write_text("OFF\nnonsense")
    code, out, _ = call(capsys, "pack", meshes, tmp_path / "out.npz", "--points", 64, "--workers", 1)
    assert code == 0
    assert "2 objects of 64 points" in out
    assert "skipped box/broken.off: cannot read" in out
    assert load(tmp_path / "out.npz").points(0).shape == (64, 3)
    code, _, err = call(capsys, "pack", meshes, tmp_path / "out.npz")
    assert code == 2
    assert "--overwrite" in err
    code, out, _ = call(
        capsys, "pack", meshes, tmp_path / "out.npz", "--overwrite", "--json", "--points", 32, "--workers", 1
    )
    assert code == 0
    report = json.loads(out)
    assert (report["objects"], report["points"]) == (2, 32)
    assert report["skipped"][0]["name"] == "box/broken.off"


def test_download_lists_what_it_knows(capsys):
    code, out, _ = call(capsys, "download")
    assert code == 0
    assert "modelnet40" in out
    assert "checksum: unknown" in out
    code, out, _ = call(capsys, "download", "--json")
    assert "shapenet_core55" in json.loads(out)["sources"]


def test_download_explains_what_it_cannot_do(capsys):
    code, out, err = call(capsys, "download", "shapenet_core55", "--json")
    assert code == 1
    assert json.loads(out)["status"] == "by hand"
    assert "Google Drive" in err


def test_download(capsys, site, tmp_path):
    folder, address = site
    buffer = io.BytesIO()
    np.savez(buffer, points=np.zeros((2, 4, 3), np.float32))
    (folder / "set.npz").write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    options = ["download", "mine", "--url", f"{address}/set.npz", "--to", tmp_path / "data"]
    code, out, _ = call(capsys, *options)
    assert code == 0
    assert "downloaded: " in out
    assert f"sha256 {digest}" in out
    assert "no checksum is known" in out
    code, out, _ = call(capsys, *options, "--json")
    assert code == 0
    assert json.loads(out)["status"] == "already there"
    code, _, err = call(capsys, *options, "--to", tmp_path / "other", "--sha256", "0" * 64)
    assert code == 1
    assert "expected 0000" in err
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("args", [["info"], ["pack"], ["info", "furniture", "--nonsense"]])
def test_a_wrong_call_is_exit_code_two(capsys, args):
    with pytest.raises(SystemExit) as exit_:
        run(["data", *args])
    assert exit_.value.code == 2


def test_an_address_without_a_name_is_a_wrong_call(capsys):
    code, out, err = call(capsys, "download", "--url", "http://127.0.0.1/a.npz")
    assert (code, out) == (2, "")
    assert "need a name for the data set" in err


@pytest.mark.parametrize("command", ["info", "pack", "download"])
def test_help_has_an_example(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        run(["data", command, "--help"])
    assert exit_.value.code == 0
    assert f"geocaps data {command} " in capsys.readouterr().out.split("Example:")[1]
