"""``encode_files``: what its rows say, what is skipped, and that no kill of any process costs or changes a bit."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import torch

import geocaps
from geocaps import batch as formats
from geocaps.batch import _check_call
from geocaps.batch.shards import Item, encode_items, find_items, run_local, run_ray
from geocaps.data.synthetic import make_shape
from geocaps.errors import CheckpointError, EncodingError, InvalidInputError, MissingExtraError, UsageError
from geocaps.io import save_points
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.checkpoint import Weights, find_weights, save_checkpoint
from geocaps.model.config import preset
from tests.processes import kill_one_worker, killed_when_held

POINTS = 200
SHAPES = ("chair", "mug", "car")


def sample(name: str, seed: int, count: int = POINTS) -> np.ndarray:
    return make_shape(name, seed).sample(count, torch.Generator().manual_seed(seed)).points.numpy()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model: what is tested here is what happens around it."""
    torch.manual_seed(0)
    cpu = preset("cpu")
    small = replace(cpu, points=128, object=replace(cpu.object, width=64, feature=32))
    return save_checkpoint(tmp_path_factory.mktemp("weights") / "small", GeometricCapsuleAutoencoder(small), card="")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve clouds in sub-folders, two files that cannot be read, and what is not looked at."""
    place = tmp_path_factory.mktemp("in")
    for name in SHAPES:
        (place / name).mkdir()
        for seed in range(4):
            save_points(place / name / f"{seed}.ply", sample(name, seed, POINTS + seed))
    (place / "broken.ply").write_text("not a PLY file")
    save_points(place / "few.xyz", np.zeros((3, 3)))
    (place / ".hidden.xyz").write_text("0 0 0\n")
    (place / "readme.md").write_text("no cloud")
    return place


@pytest.fixture(scope="module")
def whole(folder, weights, tmp_path_factory):
    """The reference: both formats of an undisturbed run, as bytes."""
    place = tmp_path_factory.mktemp("whole")
    for suffix in ("parquet", "npz"):
        geocaps.encode_files(folder, place / f"out.{suffix}", weights=weights, workers=1)
    return {suffix: (place / f"out.{suffix}").read_bytes() for suffix in ("parquet", "npz")}


def opened(tmp_path, whole):
    (tmp_path / "whole.npz").write_bytes(whole["npz"])
    return np.load(tmp_path / "whole.npz")


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_is_what_the_model_says_of_the_file(folder, weights, whole, tmp_path):
    found = opened(tmp_path, whole)
    assert found["name"].tolist() == sorted(f"{name}/{seed}.ply" for name in SHAPES for seed in range(4))
    model = geocaps.load(weights)
    for index, name in enumerate(found["name"]):
        file = folder / name
        one = model.encode(file)
        np.testing.assert_allclose(found["feature"][index], one.feature, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["translation"][index], one.pose.translation, atol=1e-6)
        np.testing.assert_allclose(found["wxyz"][index], one.pose.wxyz, atol=1e-5)
        np.testing.assert_allclose(found["confidence"][index], one.confidence, atol=1e-5)
        np.testing.assert_allclose(found["part_translation"][index], one.parts.pose.translation, atol=1e-5)
        np.testing.assert_allclose(found["part_wxyz"][index], one.parts.pose.wxyz, atol=1e-5)
        np.testing.assert_allclose(found["part_feature"][index], one.parts.feature, atol=1e-5)
        np.testing.assert_allclose(found["part_share"][index], one.parts.share, atol=1e-5)
        np.testing.assert_allclose(found["part_percept"][index], one.parts.percept, atol=1e-5)
        np.testing.assert_allclose(found["radius"][index], one.radius, rtol=1e-5)
        np.testing.assert_allclose(found["center"][index], one.normalization.translation, atol=1e-12)
        np.testing.assert_allclose(found["scale"][index], one.normalization.scale, atol=1e-12)
        labels = found["labels"][slice(*found["label_offsets"][index : index + 2])]
        np.testing.assert_array_equal(labels, one.labels)
        assert found["path"][index] == str(file)
        assert found["points"][index] == len(one.labels)
        assert found["content_sha256"][index] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(found["geocaps_version"]) == geocaps.__version__
    assert str(found["weights_sha256"]) == find_weights(weights).sha256


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_stray_points_keep_their_label(weights, tmp_path, suffix):
    strays = np.random.default_rng(0).uniform(-4, 4, (20, 3))
    save_points(tmp_path / "strewn.ply", np.concatenate([sample("chair", 0), strays]))
    out = tmp_path / f"out.{suffix}"
    geocaps.encode_files(tmp_path / "strewn.ply", out, weights=weights, workers=1)
    found = np.load(out)["labels"] if suffix == "npz" else pq.read_table(out).column("labels")[0].as_py()
    labels = geocaps.load(weights).encode(tmp_path / "strewn.ply").labels
    assert (labels == -1).sum() >= 15
    np.testing.assert_array_equal(found, labels)


def test_parquet_holds_the_same(whole, tmp_path):
    found = opened(tmp_path, whole)
    (tmp_path / "whole.parquet").write_bytes(whole["parquet"])
    table = pq.read_table(tmp_path / "whole.parquet").to_pandas()
    assert len(table) == 12
    for name in formats.COLUMNS:
        if name == "labels":
            np.testing.assert_array_equal(np.concatenate(table["labels"].tolist()), found["labels"])
        elif found[name].ndim == 3:
            np.testing.assert_array_equal(np.stack([np.stack(row) for row in table[name]]), found[name])
        else:
            np.testing.assert_array_equal(np.stack(table[name].tolist()), found[name])
    assert set(table["weights_sha256"]) == {str(found["weights_sha256"])}


def test_members_of_data_sets_are_objects(weights, tmp_path):
    clouds = np.stack([sample("chair", 0), sample("mug", 1)])
    np.savez(tmp_path / "set.npz", points=clouds, object_ids=np.array(["a", "b"]))
    np.savez(tmp_path / "single.npz", points=clouds[0])
    np.savez(tmp_path / "neither.npz", points=np.zeros((2, 5)))
    report = geocaps.encode_files(tmp_path, tmp_path / "out.npz", weights=weights)
    found = np.load(tmp_path / "out.npz")
    assert found["name"].tolist() == ["set.npz#a", "set.npz#b", "single.npz"]
    assert found["member"].tolist() == [0, 1, -1]
    np.testing.assert_array_equal(found["feature"][0], found["feature"][2])
    assert found["content_sha256"][0] == hashlib.sha256(clouds[0].tobytes()).hexdigest()
    assert [one.name for one in report.failed] == ["neither.npz"]
    assert "nor is it a data set" in report.failed[0].reason


def test_the_embedded_objects_need_no_file():
    assert len(find_items(["furniture"])) > 10
    assert {item.member for item in find_items(["furniture"])} == set(range(len(geocaps.datasets.load("furniture"))))


def test_each_file_once_and_the_output_never(folder, tmp_path):
    save_points(tmp_path / "a.npy", sample("chair", 0))
    save_points(tmp_path / "out.npz", sample("chair", 0))
    again = [tmp_path / "a.npy", tmp_path, str(tmp_path / "a.npy")]
    assert [item.name for item in find_items(again, leave_out=[tmp_path / "out.npz"])] == ["a.npy"]


def test_row_groups_bound_the_memory_of_writing(folder, weights, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_GROUP_ROWS", 5)
    geocaps.encode_files(folder, tmp_path / "out.parquet", weights=weights, workers=1)
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [5, 5, 2]
    (tmp_path / "whole.parquet").write_bytes(whole["parquet"])
    assert file.read().equals(pq.read_table(tmp_path / "whole.parquet"))


# ── what cannot be encoded ────────────────────────────────────────────────────────────────────────────────────────────


def test_bad_files_are_skipped_and_listed(folder, weights, tmp_path):
    out = tmp_path / "out.npz"
    sources = [folder / "broken.ply", folder / "chair", folder / "few.xyz", tmp_path / "missing.ply"]
    report = geocaps.encode_files(sources, out, weights=weights)
    assert report.objects == 4
    reasons = {one.name: one.reason for one in report.failed}
    assert list(reasons) == ["broken.ply", "few.xyz", "missing.ply"]
    assert "as PLY" in reasons["broken.ply"]
    assert "has 3 points; at least 32" in reasons["few.xyz"]
    assert "No such file" in reasons["missing.ply"]
    assert [one["name"] for one in json.loads((tmp_path / "out.npz.failed.json").read_text())] == list(reasons)
    geocaps.encode_files(folder / "chair", out, weights=weights, overwrite=True)
    assert os.listdir(tmp_path) == ["out.npz"], "a list of failures stays only while there are some"


def test_when_all_fail_nothing_is_written_but_the_list(folder, weights, tmp_path):
    out = tmp_path / "out.npz"
    out.write_bytes(b"what was there before")
    with pytest.raises(EncodingError, match=r"none of the 2 objects.*broken\.ply.*as PLY") as caught:
        geocaps.encode_files([folder / "broken.ply", folder / "few.xyz"], out, weights=weights, overwrite=True)
    assert [one.name for one in caught.value.failed] == ["broken.ply", "few.xyz"]
    assert out.read_bytes() == b"what was there before"
    assert sorted(os.listdir(tmp_path)) == ["out.npz", "out.npz.failed.json"]


def test_names_that_are_no_text_are_spelled_out(weights, tmp_path):
    save_points(tmp_path / "a.xyz", sample("mug", 0))
    os.rename(tmp_path / "a.xyz", os.fsencode(tmp_path) + b"/\xff.xyz")
    geocaps.encode_files(tmp_path, tmp_path / "out.parquet", weights=weights)
    assert pq.read_table(tmp_path / "out.parquet")["name"].to_pylist() == ["\\udcff.xyz"]


def test_a_wrong_call_is_refused_before_any_work(folder, weights, tmp_path):
    (tmp_path / "there.npz").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for error, out, options in (
        (UsageError, tmp_path / "out.csv", {}),
        (UsageError, tmp_path / "nowhere" / "out.npz", {}),
        (UsageError, tmp_path / "there.npz", {}),
        (UsageError, tmp_path / "out.npz", {"workers": 0}),
        (UsageError, tmp_path / "out.npz", {"shard": 0}),
        (CheckpointError, tmp_path / "out.npz", {"weights": tmp_path / "empty"}),
    ):
        with pytest.raises(error):
            geocaps.encode_files(folder, out, **{"weights": weights, **options})
    with pytest.raises(UsageError, match="no engine 'spark'"):
        _check_call(tmp_path / "out.npz", "spark", None, 1, False)
    with pytest.raises(InvalidInputError, match="no meshes"):
        geocaps.encode_files(tmp_path / "empty", tmp_path / "out.npz", weights=weights)
    with pytest.raises(UsageError, match="no sources, or an empty name, were given"):
        geocaps.encode_files([], tmp_path / "out.npz", weights=weights)
    assert sorted(os.listdir(tmp_path)) == ["empty", "there.npz"]


def test_a_missing_extra_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"\.\[parquet\]"):
        geocaps.encode_files(folder, tmp_path / "out.parquet")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"\.\[ray\]"):
        geocaps.encode_files(folder, tmp_path / "out.npz", engine="ray")
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_not_waited_for(weights, tmp_path):
    os.mkfifo(tmp_path / "pipe.ply")
    with pytest.raises(EncodingError, match="not a regular file"):
        geocaps.encode_files(tmp_path / "pipe.ply", tmp_path / "out.npz", weights=weights)


def test_a_file_of_someone_else_in_the_work_folder_is_kept(folder, weights, tmp_path):
    (tmp_path / "out.npz.partial").mkdir()
    (tmp_path / "out.npz.partial" / "mine.txt").write_text("kept")
    geocaps.encode_files(folder / "chair", tmp_path / "out.npz", weights=weights)
    assert (tmp_path / "out.npz.partial" / "mine.txt").read_text() == "kept"
    assert os.listdir(tmp_path / "out.npz.partial") == ["mine.txt"]


def test_other_weights_under_the_same_name_are_refused(weights):
    with pytest.raises(CheckpointError, match="every machine needs the same weights"):
        encode_items([], Weights(str(weights), "0" * 64))


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

RUN = """
import geocaps
geocaps.encode_files(sys.argv[1], sys.argv[2], weights=sys.argv[3], workers=1, shard=1, on_object=hold_at(4))
"""


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_a_killed_run_goes_on_and_gives_the_same_bytes(folder, weights, whole, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    partial = tmp_path / f"out.{suffix}.partial"
    killed_when_held(RUN, folder, out, weights)
    assert not out.exists()
    done = sorted(partial.glob("*.shard"))
    assert len(done) == 4
    done[0].write_bytes(done[0].read_bytes()[:-40])  # a shard that something else damaged
    report = geocaps.encode_files(folder, out, weights=weights, workers=1, shard=1)
    assert report.resumed == 3
    assert out.read_bytes() == whole[suffix]
    assert not partial.exists()


class StopError(Exception):
    pass


def stop(done, of):
    raise StopError


def test_a_file_that_changed_since_is_encoded_again(weights, tmp_path):
    for seed in range(4):
        save_points(tmp_path / f"{seed}.npy", sample("mug", seed))
    out = tmp_path / "out.npz"
    with pytest.raises(StopError):
        geocaps.encode_files(tmp_path, out, weights=weights, workers=1, shard=1, on_object=stop)
    (done,) = (tmp_path / "out.npz.partial").glob("*.shard")
    assert done.exists()
    for seed in range(4):
        save_points(tmp_path / f"{seed}.npy", sample("chair", seed))
    assert geocaps.encode_files(tmp_path, out, weights=weights, workers=1, shard=1).resumed == 0
    hashes = [hashlib.sha256((tmp_path / f"{seed}.npy").read_bytes()).hexdigest() for seed in range(4)]
    assert np.load(out)["content_sha256"].tolist() == hashes


def test_a_killed_worker_loses_nothing(folder, weights, whole, tmp_path):
    killed = []

    def kill_a_worker(done, of):
        if not killed:
            killed.append(kill_one_worker())

    out = tmp_path / "out.npz"
    geocaps.encode_files(folder, out, weights=weights, workers=2, shard=2, on_object=kill_a_worker)
    assert killed
    assert out.read_bytes() == whole["npz"]


class DeadlyItem(Item):
    """A file whose reader takes its whole process down."""

    def read(self):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_file_that_ends_its_reader_costs_only_itself(folder, weights):
    items = find_items([folder / "chair"])
    deadly = DeadlyItem(**{**vars(items[2]), "name": "deadly"})
    shards = [(items[0], items[1], deadly), (items[3],)]
    found = dict(run_local(shards, find_weights(weights), workers=1))
    assert [str(row["name"]) for row in found[shards[0]].rows] == ["0.ply", "1.ply"]
    assert [one.name for one in found[shards[0]].failed] == ["deadly"]
    assert "crashed the process" in found[shards[0]].failed[0].reason
    assert [str(row["name"]) for row in found[shards[1]].rows] == ["3.ply"]


# ── Ray ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def local_ray():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@dataclass(frozen=True)
class OnceDeadlyItem(Item):
    """A file whose first reader takes its whole process down, and leaves a mark."""

    mark: str = ""

    def read(self):
        with suppress(FileExistsError):
            Path(self.mark).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read()


@pytest.mark.slow
def test_ray_gives_the_same_bytes_although_a_worker_is_killed(local_ray, folder, weights, whole, tmp_path, monkeypatch):
    """One run, disturbed: a Ray worker that is encoding ends by signal 9."""
    mark = tmp_path / "mark"

    def with_a_deadly_one(sources, leave_out):
        items = find_items(sources, leave_out)
        return [OnceDeadlyItem(**vars(one), mark=str(mark)) if one.name == "chair/2.ply" else one for one in items]

    monkeypatch.setattr(formats, "find_items", with_a_deadly_one)
    out = tmp_path / "out.parquet"
    report = geocaps.encode_files(folder, out, weights=weights, engine="ray", shard=1)
    assert mark.exists()
    assert report.objects == 12
    assert out.read_bytes() == whole["parquet"]


def test_a_machine_with_other_weights_is_named(local_ray, folder, weights):
    items = tuple(find_items([folder / "mug"]))
    with pytest.raises(EncodingError, match="every machine needs the same weights"):
        list(run_ray([items], Weights(str(weights), "0" * 64), None))
