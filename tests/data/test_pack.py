"""Packing folders: what comes out, what is skipped, and that a killed run goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh

from geocaps.data.folder import SCALE, pack, sample_unit
from geocaps.datasets import load, survey
from geocaps.errors import DatasetError, DroppedPointsWarning, UsageError
from geocaps.io import save_points
from tests.processes import kill_one_worker, killed_when_held


def write_mesh(path: Path, size: float = 1.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    trimesh.creation.box((1, 2, size)).apply_translation((10, 0, 0)).export(path)
    return path


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "meshes"
    for number in range(3):
        write_mesh(root / "box" / "train" / f"{number}.off", 1 + number)
    write_mesh(root / "slab" / "test" / "0.stl", 0.1)
    return root


def test_what_is_packed(folder, tmp_path):
    seen = []
    report = pack(folder, tmp_path / "out.npz", points=256, workers=2, on_file=lambda done, of: seen.append((done, of)))
    assert (report.objects, report.points, report.resumed, report.skipped) == (4, 256, 0, [])
    assert seen[-1] == (4, 4)
    dataset = load(tmp_path / "out.npz")
    assert list(dataset.object_ids) == ["box/train/0.off", "box/train/1.off", "box/train/2.off", "slab/test/0.stl"]
    assert dataset.class_names == ("box", "slab")
    assert dataset.labels.tolist() == [0, 0, 0, 1]
    assert len(dataset.split("train")) == 3
    assert isinstance(dataset._points, np.memmap)
    assert dataset._points.dtype == np.int16
    for index in range(4):
        points = dataset.points(index)
        assert np.linalg.norm(points, axis=1).max() == pytest.approx(1, abs=1e-4)
        assert np.abs(points.mean(0)).max() < 1e-4
    assert survey(tmp_path / "out.npz").problems == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["meshes", "out.npz"]


def test_points_lie_on_the_surface_and_follow_the_seed(folder):
    path = folder / "box" / "train" / "0.off"
    points = sample_unit(path, 500, 1)[0] * SCALE
    low, high = points.min(0), points.max(0)
    on_a_face = (np.minimum(points - low, high - points) < 1e-3).any(1)
    assert on_a_face.all()
    np.testing.assert_array_equal(sample_unit(path, 500, 1)[0], sample_unit(path, 500, 1)[0])
    assert not np.array_equal(sample_unit(path, 500, 1)[0], sample_unit(path, 500, 2)[0])


def test_files_that_cannot_be_packed_are_listed_with_the_reason(folder, tmp_path):
    (folder / "box" / "broken.off").write_text("OFF\nnonsense")
    (folder / "box" / "few.xyz").write_text("0 0 0\n1 0 0\n0 1 0\n")
    (folder / "box" / "place.xyz").write_text("5 5 5\n" * 300)
    report = pack(folder, tmp_path / "out.npz", points=256, workers=1)
    assert report.objects == 4
    reasons = {skipped.name: skipped.reason for skipped in report.skipped}
    assert set(reasons) == {"box/broken.off", "box/few.xyz", "box/place.xyz"}
    assert "cannot read" in reasons["box/broken.off"]
    assert "3 points" in reasons["box/few.xyz"]
    assert "--points" in reasons["box/few.xyz"]
    assert "in one place" in reasons["box/place.xyz"]


def test_nothing_is_written_when_nothing_can_be_read(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.off").write_text("OFF\nnonsense")
    with pytest.raises(DatasetError, match=r"none of its 1 files.*bad\.off"):
        pack(tmp_path / "in", tmp_path / "out.npz", workers=1)
    assert not (tmp_path / "out.npz").exists()


PACK_SCRIPT = """
import sys
from pathlib import Path
from geocaps.data.folder import pack
pack(Path(sys.argv[1]), Path(sys.argv[2]), points=2048, workers=2, on_file=hold_at(50))
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    root = tmp_path / "meshes"
    source = write_mesh(root / "box" / "0000.off").read_bytes()
    for number in range(1, 100):
        (root / "box" / f"{number:04d}.off").write_bytes(source)
    partial = tmp_path / "out.npz.partial"
    killed_when_held(PACK_SCRIPT, root, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()
    assert len(list(partial.glob("*.shard"))) == 50
    (partial / ".cut.shard.1.part").write_bytes(b"PK")  # what a kill left of the next
    report = pack(root, tmp_path / "out.npz", points=2048, workers=2)
    assert report.resumed == 50
    assert len(load(tmp_path / "out.npz")) == 100
    assert not partial.exists()
    pack(root, tmp_path / "whole.npz", workers=2)
    assert (tmp_path / "whole.npz").read_bytes() == (tmp_path / "out.npz").read_bytes()


def test_a_worker_that_dies_takes_no_file_with_it(folder, tmp_path):
    for number in range(30):
        write_mesh(folder / "more" / f"{number}.off")
    killed = []

    def kill_a_worker(done, of):
        if not killed:
            killed.append(kill_one_worker())

    report = pack(folder, tmp_path / "out.npz", points=64, workers=2, on_file=kill_a_worker)
    assert killed
    assert report.objects == 34
    assert report.skipped == []


class StopError(Exception):
    pass


def stop_at_the_end(done, of):
    if done == of:
        raise StopError


def test_a_changed_file_is_sampled_again(folder, tmp_path):
    call = {"folder": folder, "output": tmp_path / "out.npz", "points": 8, "workers": 1}
    with pytest.raises(StopError):
        pack(**call, on_file=stop_at_the_end)
    assert len(list((tmp_path / "out.npz.partial").glob("*.shard"))) == 4
    write_mesh(folder / "box" / "train" / "0.off", 9.0)
    assert pack(**call).resumed == 3


def test_a_damaged_piece_is_made_again(folder, tmp_path):
    call = {"folder": folder, "output": tmp_path / "out.npz", "points": 8, "workers": 1}
    with pytest.raises(StopError):
        pack(**call, on_file=stop_at_the_end)
    piece = next((tmp_path / "out.npz.partial").glob("*.shard"))
    damaged = bytearray(piece.read_bytes())
    damaged[200] ^= 0xFF
    piece.write_bytes(damaged)
    assert pack(**call).resumed == 3
    pack(folder, tmp_path / "whole.npz", points=8, workers=1)
    assert (tmp_path / "whole.npz").read_bytes() == (tmp_path / "out.npz").read_bytes()


def test_unfinished_work_of_another_call_goes_when_asked(folder, tmp_path):
    call = {"folder": folder, "output": tmp_path / "out.npz", "workers": 1}
    with pytest.raises(StopError):
        pack(**call, points=8, on_file=stop_at_the_end)
    with pytest.raises(UsageError, match="other points, seed or folder"):
        pack(**call, points=16)
    assert pack(**call, points=16, overwrite=True).resumed == 0
    assert load(tmp_path / "out.npz").points(0).shape == (16, 3)


def test_an_existing_output_is_kept_unless_asked(folder, tmp_path):
    output = tmp_path / "out.npz"
    output.write_bytes(b"precious")
    with pytest.raises(UsageError, match="--overwrite"):
        pack(folder, output, workers=1)
    assert output.read_bytes() == b"precious"
    pack(folder, output, points=16, workers=1, overwrite=True)
    assert len(load(output)) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folder": Path("nowhere")}, "does not exist"),
        ({"output": Path("file/out.npz")}, "is not a folder"),
        ({"points": 10**12}, "at most 50,000,000"),
        ({"output": Path("out.txt")}, r"must end in \.npz"),
        ({"output": Path("no/such/folder/out.npz")}, "does not exist"),
        ({"points": 0}, "at least 1"),
        ({"workers": 0}, "at least 1"),
        ({"seed": -1}, "at least 0"),
    ],
)
def test_wrong_calls(folder, tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    call = {"folder": folder, "output": tmp_path / "out.npz"} | change
    with pytest.raises((DatasetError, UsageError), match=message):
        pack(call.pop("folder"), call.pop("output"), **call)


def test_an_output_that_cannot_be_written_is_one_sentence(folder, tmp_path):
    (tmp_path / "out.npz.partial").write_text("a file of someone else's")
    with pytest.raises(DatasetError, match=r"cannot write .*out\.npz"):
        pack(folder, tmp_path / "out.npz", points=16, workers=1)
    assert (tmp_path / "out.npz.partial").read_text() == "a file of someone else's"


def test_when_nothing_can_be_packed_nothing_stays(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.ply").write_text("no")
    with pytest.raises(DatasetError, match=r"none of its 1 files.*a\.ply"):
        pack(tmp_path / "bad", tmp_path / "out.npz", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_points_that_are_not_finite_skip_a_file_unless_they_are_left_out(tmp_path):
    points = np.vstack([np.random.default_rng(0).normal(size=(600, 3)), np.full((3, 3), np.nan)])
    folder = tmp_path / "scans"
    folder.mkdir()
    save_points(folder / "a.xyz", points)
    save_points(folder / "b.pcd", points)
    with pytest.warns(DroppedPointsWarning, match="3 points of 1 files"):
        report = pack(folder, tmp_path / "some.npz", points=500, workers=1)
    assert (report.objects, report.dropped, [one.name for one in report.skipped]) == (1, 3, ["a.xyz"])
    assert "--drop-invalid" in report.skipped[0].reason
    with pytest.warns(DroppedPointsWarning, match="6 points of 2 files"):
        report = pack(folder, tmp_path / "all.npz", points=500, workers=1, drop_invalid=True)
    assert (report.objects, report.dropped, report.skipped) == (2, 6, [])
