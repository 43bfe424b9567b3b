"""Downloads against a real local server: resumed, checked, and never half in place."""

from __future__ import annotations

import hashlib
import io
import stat
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import pytest

from geocaps.data import download as download_module
from geocaps.data.download import download, extract_zip, sources
from geocaps.datasets import load
from geocaps.errors import DatasetError, UsageError


@dataclass
class Site:
    """One file on a server, and how the server behaves."""

    content: bytes
    url: str = ""
    etag: str = '"v1"'
    ranges: bool = True
    cut_at: int | None = None  # bytes of the body after which the connection breaks
    status: int = 200
    asked: list[str | None] = field(default_factory=list)


@contextmanager
def serving(content: bytes, filename: str, **behaviour):
    site = Site(content, **behaviour)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            site.asked.append(wanted)
            start = 0
            fits = self.headers.get("If-Range") in (None, site.etag)
            if wanted and site.ranges and fits:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            body = site.content[start:]
            self.send_response(site.status if site.status != 200 else 206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(site.content) - 1}/{len(site.content)}")
            if site.etag:
                self.send_header("ETag", site.etag)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if site.cut_at is None else body[: site.cut_at])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/some/{filename}?token=1"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def npz_bytes(objects=20):
    buffer = io.BytesIO()
    np.savez(buffer, data=np.random.default_rng(0).normal(size=(objects, 64, 3)).astype(np.float32))
    return buffer.getvalue()


def zip_bytes(entries: dict[str, bytes], method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_fetched_checked_and_loadable(tmp_path):
    content = npz_bytes()
    seen = []
    with serving(content, "shapenet57448xyzonly.npz") as site:
        got = download(
            "shapenet_core55",
            tmp_path / "data",
            url=site.url,
            sha256=sha256(content).upper(),
            on_bytes=lambda done, of: seen.append((done, of)),
        )
    assert got.fetched
    assert got.sha256 == sha256(content)
    assert got.checked_against == "the known checksum"
    assert seen[-1] == (len(content), len(content))
    assert len(load(got.path)) == 20
    assert names(tmp_path / "data") == ["shapenet57448xyzonly.npz", "shapenet57448xyzonly.npz.sha256"]


def test_the_archive_of_modelnet_is_unpacked_and_loads(tmp_path):
    h5 = io.BytesIO()
    with h5py.File(h5, "w") as file:
        file["data"] = np.zeros((2, 8, 3), np.float32)
        file["label"] = np.zeros((2, 1), np.uint8)
    top = "modelnet40_ply_hdf5_2048/"
    content = zip_bytes(
        {
            top: b"",
            top + "ply_data_train0.h5": h5.getvalue(),
            top + "train_files.txt": b"data/modelnet40_ply_hdf5_2048/ply_data_train0.h5\n",
            top + "shape_names.txt": b"airplane\n",
        }
    )
    with serving(content, "mirror.zip") as site:
        got = download("modelnet40", tmp_path, url=site.url)
        again = download("modelnet40", tmp_path, url=site.url)
    assert got.path == tmp_path / "modelnet40" / "modelnet40_ply_hdf5_2048"
    assert load(got.path, split="train").class_names == ("airplane",)
    assert not again.fetched
    assert again.path == got.path
    assert len(site.asked) == 1


def test_a_cut_transfer_goes_on_where_it_stopped(tmp_path):
    content = npz_bytes()
    with serving(content, "a.npz", cut_at=5000) as site:
        with pytest.raises(DatasetError, match="re-run to resume"):
            download("mine", tmp_path, url=site.url)
        assert not (tmp_path / "a.npz").exists()
        assert (tmp_path / "a.npz.part").stat().st_size == 5000
        site.cut_at = None
        got = download("mine", tmp_path, url=site.url)
    assert site.asked == [None, "bytes=5000-"]
    assert got.path.read_bytes() == content
    assert names(tmp_path) == ["a.npz", "a.npz.sha256"]


@pytest.mark.parametrize("change", [{"etag": '"v2"'}, {"ranges": False}])
def test_a_part_that_no_longer_fits_is_fetched_anew(tmp_path, change):
    content = npz_bytes()
    with serving(npz_bytes(30), "a.npz", cut_at=5000) as site:
        with pytest.raises(DatasetError):
            download("mine", tmp_path, url=site.url)
        site.cut_at, site.content = None, content
        for name, value in change.items():
            setattr(site, name, value)
        got = download("mine", tmp_path, url=site.url)
    assert got.path.read_bytes() == content


def test_without_a_version_tag_a_part_is_not_trusted(tmp_path):
    with serving(npz_bytes(), "a.npz", etag="", cut_at=5000) as site:
        with pytest.raises(DatasetError):
            download("mine", tmp_path, url=site.url)
        site.cut_at = None
        download("mine", tmp_path, url=site.url)
    assert site.asked == [None, None]


def test_a_wrong_checksum_leaves_nothing(tmp_path):
    with (
        serving(npz_bytes(), "a.npz") as site,
        pytest.raises(DatasetError, match=r"expected 0000.*it was deleted"),
    ):
        download("mine", tmp_path, url=site.url, sha256="0" * 64)
    assert names(tmp_path) == []


def test_the_known_checksum_of_the_table_is_used_for_its_own_address(tmp_path, monkeypatch):
    content = zip_bytes({"a.txt": b"not the real file"})
    with serving(content, "modelnet40_ply_hdf5_2048.zip") as site:
        entry = sources()["modelnet40"]
        changed = type(entry)(**{**vars(entry), "url": site.url})
        monkeypatch.setattr("geocaps.data.download.sources", lambda: {"modelnet40": changed})
        with pytest.raises(DatasetError, match="the md5 of what came is"):
            download("modelnet40", tmp_path)
    assert names(tmp_path) == []


def test_a_second_download_must_be_the_same_as_the_first(tmp_path):
    with serving(npz_bytes(), "a.npz") as site:
        first = download("mine", tmp_path, url=site.url)
        assert first.checked_against is None
        first.path.unlink()
        second = download("mine", tmp_path, url=site.url)
        assert "earlier download" in second.checked_against
        second.path.unlink()
        site.content = npz_bytes(3)
        with pytest.raises(DatasetError, match="expected " + first.sha256):
            download("mine", tmp_path, url=site.url)
        assert names(tmp_path) == ["a.npz.sha256"]
        assert download("mine", tmp_path, url=site.url, sha256=sha256(site.content)).fetched


def test_an_existing_file_is_never_replaced(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"mine")
    with serving(npz_bytes(), "a.npz") as site, pytest.raises(DatasetError, match="move it away"):
        download("mine", tmp_path, url=site.url, sha256="1" * 64)
    assert (tmp_path / "a.npz").read_bytes() == b"mine"
    assert site.asked == []


@pytest.mark.parametrize(
    ("content", "behaviour", "message"),
    [
        (b"<html>please confirm</html>", {}, "sent a web page"),
        (b"\x00\x01\x02", {}, "something that starts with"),
        (b"", {"status": 404}, "the server answered 404"),
        (b"", {"status": 503}, "the server answered 503"),
    ],
)
def test_servers_that_do_not_have_the_file(tmp_path, content, behaviour, message):
    with serving(content, "a.npz", **behaviour) as site, pytest.raises(DatasetError, match=message):
        download("mine", tmp_path, url=site.url)
    assert names(tmp_path) == []


def test_no_server_at_all(tmp_path):
    with serving(b"", "a.npz") as site:
        pass
    with pytest.raises(DatasetError, match="the transfer failed"):
        download("mine", tmp_path, url=site.url)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nope", {}, "known are modelnet40"),
        ("mine", {"url": "file:///etc/passwd"}, "only http and https"),
        ("mine", {"url": "http://127.0.0.1/"}, "must end in a file name"),
        ("../up", {"url": "http://127.0.0.1/a.npz"}, "becomes a folder"),
        ("modelnet40", {"sha256": "abc"}, "64 hexadecimal"),
    ],
)
def test_wrong_calls(tmp_path, name, options, message):
    with pytest.raises(UsageError, match=message):
        download(name, tmp_path, **options)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot make the folder"):
        download("mine", tmp_path / "file", url="http://127.0.0.1/a.npz")
    assert (tmp_path / "file").read_text() == "mine"


def test_when_nothing_comes_no_folder_stays(tmp_path):
    with serving(b"", "a.npz") as site:
        pass
    with pytest.raises(DatasetError, match="the transfer failed"):
        download("mine", tmp_path / "new", url=site.url)
    assert list(tmp_path.iterdir()) == []


def test_a_set_without_an_address_explains_itself(tmp_path):
    with pytest.raises(DatasetError, match=r"automatically: .*Google Drive.*--url"):
        download("shapenet_core55", tmp_path)
    for source in sources().values():
        assert source.licence
        assert source.page.startswith("https://")
        assert (source.checksum is None) == (source.checksum_note == "none is known")


def link_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "/etc")
    return buffer.getvalue()


def overlapping_zip():
    """Two entries that share the bytes of one: what a bomb of the newer kind is made of."""
    data = bytearray(zip_bytes({"a": b"\0" * 400, "b": b"\0" * 400}, zipfile.ZIP_STORED))
    second = data.rindex(b"PK\x01\x02")
    data[second + 20 : second + 28] = (10**6).to_bytes(4, "little") * 2
    return bytes(data)


HOSTILE = {
    "parent": (zip_bytes({"../evil.txt": b"x"}), "points outside"),
    "parent within": (zip_bytes({"a/../../evil.txt": b"x"}), "points outside"),
    "absolute": (zip_bytes({"/evil.txt": b"x"}), "points outside"),
    "drive": (zip_bytes({"C:/evil.txt": b"x"}), "points outside"),
    "backslash": (zip_bytes({"..\\evil.txt": b"x"}), "points outside"),
    "link": (link_zip(), "is a link"),
    "overlapping": (overlapping_zip(), "overlap"),
    "empty": (b"", "cannot be unpacked"),
    "damaged": (zip_bytes({"a": b"sound bytes"}, zipfile.ZIP_STORED).replace(b"sound", b"other"), "cannot be unpacked"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_leave_nothing(tmp_path, case):
    content, message = HOSTILE[case]
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        extract_zip(tmp_path / "a.zip", tmp_path / "out")
    assert names(tmp_path) == ["a.zip"]


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(download_module, "RATIO_MATTERS_ABOVE", 2**20)
    (tmp_path / "a.zip").write_bytes(zip_bytes({"zeros": b"\0" * 2**22}))
    with pytest.raises(DatasetError, match="zip bomb"):
        extract_zip(tmp_path / "a.zip", tmp_path / "out")
    assert names(tmp_path) == ["a.zip"]
