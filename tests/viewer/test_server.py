"""Where the page is served, and to whom."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
import viser
import zstandard
from websockets.sync.client import connect

from geocaps.cli import run
from geocaps.errors import UsageError
from geocaps.viewer import server
from geocaps.viewer.server import Shared, free_port, is_own_page
from tests.viewer.browser import WAIT, WatchedViewer


def test_the_default_port_or_a_free_one(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(server, "DEFAULT_PORT", port)
        assert free_port("127.0.0.1", None) == 0, "any free one"
        with pytest.raises(UsageError, match=f"cannot serve at 127.0.0.1:{port}.*--port"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", None) == port


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 8080), ("192.0.2.1", None), ("127.0.0.1", 99999)])
def test_an_address_that_cannot_be_had_gets_one_sentence(host, port):
    with pytest.raises(UsageError, match=re.escape(f"cannot serve at {host}:")):
        free_port(host, port)


def test_only_our_own_page_is_answered():
    assert is_own_page("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1")
    assert is_own_page("http://localhost:8080", "localhost:8080", "127.0.0.1")
    assert is_own_page("http://studio.example:8080", "studio.example:8080", "0.0.0.0")
    assert not is_own_page("http://evil.example", "127.0.0.1:8080", "127.0.0.1")
    assert not is_own_page("http://evil.example", "studio.example:8080", "0.0.0.0")
    assert not is_own_page("http://evil.example:8080", "evil.example:8080", "127.0.0.1"), "a name made to point here"
    assert not is_own_page("", "127.0.0.1:8080", "127.0.0.1")


def geocaps(*args):
    return [sys.executable, "-m", "geocaps", "view", *args]


def test_the_command_serves_until_it_is_stopped(tmp_path):
    np.save(tmp_path / "cloud.npy", np.random.default_rng(0).normal(size=(100, 3)))
    command = geocaps(str(tmp_path / "cloud.npy"), "--json", "--no-browser", "--port", "0")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url) as answer:
                assert answer.status == 200
                assert b"<!doctype html>" in answer.read().lower()
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=WAIT)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert rest == "", "standard output holds the one JSON object"
    assert "Traceback" not in errors


def test_the_command_exports_a_page(tmp_path):
    page = tmp_path / "chair.html"
    done = subprocess.run(geocaps("--out", str(page), "--json"), capture_output=True, text=True, check=True)
    expected = {"out": str(page), "object": "chair 1", "dropped": 0, "bytes": page.stat().st_size}
    assert json.loads(done.stdout) == expected


def test_without_the_extra_the_sentence_names_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert run(["view", "--no-browser"]) == 1
    assert "pip install '.[viewer]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["a.ply", "b.ply", "--out", "x.html"], 2, "2 files were given"),
        (["--port", "-1", "--no-browser"], 2, "--port must be from 0 to 65535"),
        (["--port", "70000", "--no-browser"], 2, "--port must be from 0 to 65535"),
        (["missing.ply"], 1, "missing.ply does not exist"),
        (["--export", "x.png"], 2, "the name must end in"),
        (["--index", "none", "--no-browser"], 1, "there is no index at none"),
    ],
)
def test_wrong_calls_get_one_sentence(args, code, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["view", *args]) == code
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert said.startswith("geocaps: ")
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def viewer(model):
    viewer = WatchedViewer(Shared(model, {}))
    yield viewer
    viewer.stop()


@contextmanager
def connected(viewer, origin):
    """A program that speaks as viser's page does."""
    address = viewer.url.replace("http", "ws")
    patient = {"open_timeout": WAIT, "close_timeout": WAIT, "ping_interval": None, "max_size": None}
    with connect(address, origin=origin, subprotocols=[f"viser-v{viser.__version__}"], **patient) as socket:
        camera = {
            "type": "ViewerCameraMessage",
            "wxyz": [1.0, 0.0, 0.0, 0.0],
            "position": [0.0, 0.0, 3.0],
            "fov": 1.0,
            "near": 0.1,
            "far": 100.0,
            "image_height": 100,
            "image_width": 100,
            "look_at": [0.0, 0.0, 0.0],
            "up_direction": [0.0, 1.0, 0.0],
        }
        socket.send(msgspec.msgpack.encode(camera))
        yield socket


def unpacked(frame):
    """The messages in a frame of viser's, without the arrays that follow them."""
    return zstandard.decompress(frame[16 : 16 + int.from_bytes(frame[8:16], "little")])


def until_told(socket, sentence):
    """All that the server sends until it has said a sentence."""
    sent = b""
    while sentence.encode() not in sent:
        try:
            sent += unpacked(socket.recv(timeout=WAIT))
        except TimeoutError:
            raise AssertionError(f"the server never said {sentence!r}, it sent {sent[-2000:]!r}") from None
    return sent


def test_another_web_page_gets_no_page(viewer):
    with connected(viewer, viewer.url):
        viewer.wait_for_pages(1)
        with connected(viewer, "http://evil.example") as theirs:
            assert b"chair 1" not in until_told(theirs, "belongs to another address")
            assert len(viewer.pages) == 1
    viewer.wait_for_pages(0)


def test_a_program_that_lies_about_its_uploads_is_not_obeyed(viewer, monkeypatch):
    monkeypatch.setattr(server, "MAX_UPLOAD_BYTES", 1000)
    with connected(viewer, viewer.url) as socket:
        viewer.wait_for_pages(1)
        (page,) = viewer.pages.values()
        pending = page.client.gui._current_file_upload_states

        def send(kind, transfer, **values):
            source = page.upload._impl.uuid
            message = {"type": kind, "source_component_uuid": source, "transfer_uuid": transfer, **values}
            socket.send(msgspec.msgpack.encode(message))

        declared = {"filename": "a.ply", "mime_type": "", "size_bytes": 100, "part_count": 50}
        send("FileTransferStartUpload", "first", **declared)
        send("FileTransferStartUpload", "second", **declared)
        until_told(socket, "one file at a time")
        assert set(pending) == {"first"}
        send("FileTransferPart", "first", part_index=0, content=bytes(1001))
        until_told(socket, "more bytes than it had declared")
        assert pending == {}
    viewer.wait_for_pages(0)
