"""``geocaps.Index``: what is added is found again whatever way it is turned, and nothing breaks an index."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError, MissingExtraError, SearchIndexError
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.index import Index, store, verify
from geocaps.index.rows import Row, Rows, row_of, similarities
from geocaps.index.store import Filter, Store
from geocaps.io import save_points
from tests.index.index_process import BATCH, small_model

ROOT = Path(__file__).parents[2]
MANY = 2 * BATCH + 4  # three batches of the other process
CLASSES = ("chair", "lamp", "car")
TURN = Pose(torch.tensor([5.0, -2.0, 30.0]).double(), torch.tensor([0.1, 0.7, -0.5, 0.5]).double())
TURN = Pose(TURN.translation, TURN.wxyz / TURN.wxyz.norm())


def shape(name: str, seed: int, count: int = 300) -> np.ndarray:
    return make_shape(name, seed).sample(count, torch.Generator().manual_seed(seed)).points.numpy()


def turned(points: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return TURN.apply(scale * torch.from_numpy(points).double()).numpy()


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four objects of each of three classes, and three files that cannot be read."""
    place = tmp_path_factory.mktemp("objects")
    for name in CLASSES:
        (place / name).mkdir()
        for seed in range(4):
            save_points(place / name / f"{seed}.npy", shape(name, seed))
    (place / "broken.ply").write_bytes(b"ply\nnot really")
    (place / "empty.obj").write_bytes(b"")
    save_points(place / "few.npy", np.eye(3))
    return place


@pytest.fixture(scope="module")
def filled(folder, model, tmp_path_factory):
    where = tmp_path_factory.mktemp("index") / "shapes.lance"
    Index(where, model).add(folder)
    return where


@pytest.fixture
def copy(filled, tmp_path):
    return Path(shutil.copytree(filled, tmp_path / "copy.lance"))


# ── adding ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_is_added_once_and_bad_files_are_listed(folder, model, tmp_path):
    index = Index(tmp_path / "new.lance", model)
    assert len(index) == 0
    progress = []
    report = index.add(folder, on_object=lambda done, of: progress.append((done, of)))
    assert (report.added, report.known, report.replaced) == (12, 0, 0)
    assert {one.name for one in report.skipped} == {"broken.ply", "empty.obj", "few.npy"}
    assert "at least 8 are needed" in next(one.reason for one in report.skipped if one.name == "few.npy")
    assert progress[-1] == (15, 15)
    assert "12 added" in repr(report)
    assert "few.npy" in repr(report)

    again = index.add(str(folder))
    assert (again.added, again.known, len(again.skipped)) == (0, 12, 3)
    info = index.info()
    assert info.objects == len(index) == 12
    assert info.classes == {"car": 4, "chair": 4, "lamp": 4}
    assert (info.unlabelled, info.dimension, info.approximate) == (0, 16, False)
    assert "12 objects, 3 classes" in repr(info)


def test_a_changed_file_takes_the_place_of_what_it_was(folder, model, tmp_path):
    place = Path(shutil.copytree(folder, tmp_path / "objects"))
    index = Index(tmp_path / "i.lance", model)
    index.add(place)
    save_points(place / "chair" / "0.npy", shape("chair", 99))
    report = index.add(place)
    assert (report.added, report.known, report.replaced) == (1, 11, 1)
    assert len(index) == 12
    hit = index.search(shape("chair", 99), 1)[0]
    assert hit.path == (place / "chair" / "0.npy").as_posix()
    assert hit.similarity > 0.9999

    # A file that can no longer be read keeps what it was: nothing better is known.
    (place / "chair" / "0.npy").write_bytes(b"cut off")
    assert index.add(place).replaced == 0
    assert len(index) == 12


def test_a_copy_outlives_the_change_of_the_first(model, tmp_path):
    for name in ("a.npy", "b.npy"):
        save_points(tmp_path / name, shape("chair", 1))
    files = [tmp_path / "b.npy", tmp_path / "a.npy"]
    index = Index(tmp_path / "i.lance", model)
    assert index.add(files[::-1]).known == 1
    save_points(tmp_path / "a.npy", shape("lamp", 1))
    report = index.add(files)
    assert (report.added, report.known, report.replaced) == (1, 1, 0)
    assert index.search(shape("chair", 1), 1)[0].similarity > 0.9999


def test_arrays_meshes_and_data_sets(model, tmp_path):
    index = Index(tmp_path / "i.lance", model)
    chair, lamp = shape("chair", 1), shape("lamp", 1)
    report = index.add([chair, torch.from_numpy(lamp)], class_name=["chair", None], names=["my chair", "my lamp"])
    assert report.added == 2
    assert index.add(np.stack([chair, lamp]).astype(np.float64)).known == 2
    assert index.add(trimesh.creation.box((1, 2, 3)), class_name="box").added == 1
    assert index.add(geocaps.datasets.load("shapes", per_class=1).subset([0, 1])).added == 2
    assert len(index) == 5
    hit = index.search(chair, 1)[0]
    assert (hit.name, hit.class_name, hit.path) == ("my chair", "chair", None)
    assert index.search(lamp, 1)[0].class_name is None
    assert index.info().unlabelled == 1
    assert index.search(trimesh.creation.box((1, 2, 3)), 1)[0].name.startswith("cloud-")


def test_wrong_calls_add_nothing(folder, model, tmp_path):
    index = Index(tmp_path / "i.lance", model)
    (tmp_path / "nothing").mkdir()
    for source, options, sentence in (
        (tmp_path / "missing", {}, "does not exist"),
        (tmp_path / "nothing", {}, "no meshes or point clouds"),
        (folder, {"names": ["one"]}, "1 entries for 15 objects"),
        (folder, {"class_name": ["a", "b"]}, "2 entries for 15 objects"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            index.add(source, **options)
    assert not (tmp_path / "i.lance").exists()


# ── searching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verify", [0, 2, 20])
def test_a_turned_object_is_found_and_its_pose_brings_it_home(filled, model, verify):
    """In other units, too: a whole cloud is found in whatever size."""
    index = Index(filled, model)
    for name, seed in (("chair", 2), ("car", 0), ("lamp", 3)):
        points = shape(name, seed)
        query = turned(points, scale=25.4)
        result = index.search(query, k=3, verify=verify)
        assert len(result) == 3
        best = result[0]
        assert (best.name, best.class_name) == (f"{name}/{seed}.npy", name)
        assert best.scale == pytest.approx(25.4, rel=1e-4)
        np.testing.assert_allclose(best.apply(points), query, atol=25.4 * 5e-3)
        np.testing.assert_allclose(points @ best.matrix[:3, :3].T + best.matrix[:3, 3], best.apply(points), atol=1e-9)
        np.testing.assert_allclose(best.T_object_scan.apply(query), points, atol=5e-3)
        assert result.found == (verify > 0)
        assert [hit.confidence is not None for hit in result] == [place < verify for place in range(3)]
        if verify:
            assert best.confidence > 0.9
            assert best.overlap == (1.0, 1.0)
            assert best.error < 25.4 * 1e-3


def test_what_is_not_there_is_refused(filled, model):
    result = Index(filled, model).search(turned(shape("airplane", 3)), k=3)
    assert not result.found
    assert len(result) == 3
    assert repr(result).startswith("none of these: nothing in the index explains the query")
    assert all(hit.confidence < 0.5 for hit in result)


def test_candidates_that_are_less_alike_are_verified_where_none_is_surely_right(filled, model, monkeypatch):
    monkeypatch.setattr(verify, "_SOON", 2)
    encoding = model.encode(turned(shape("chair", 2)))
    query = verify.Query(row_of(model, encoding, "", "query"), similarities(encoding.parse.candidates[0]))
    likely = Store(filled).most_alike(query.row.percepts, query.row.feature, 12, Filter())[0]
    rows = likely[::-1]
    found = verify.Verifier().verify(query, Rows(12, lambda places: [rows[one] for one in places]), 12)
    assert rows[found[0].candidate].name == "chair/2.npy"
    assert found[0].confidence > 0.9
    # The other way round the first is surely right, and nothing beyond the second is looked at.
    found = verify.Verifier().verify(query, likely, 12)
    assert {one.candidate for one in found} <= {0, 1}


def test_parts_that_are_not_the_most_alike_give_poses_too():
    """Of 144 pairs of parts one tells the pose, and 99 are more alike: crops change what is seen from a part."""
    random = np.random.default_rng(0)
    percepts = random.normal(size=(2, 12, 8)).astype(np.float32)
    percepts /= np.linalg.norm(percepts, axis=-1, keepdims=True)
    wxyz, places = random.normal(size=(2, 12, 4)), random.normal(size=(2, 12, 3))
    views = [Similarity.from_wxyz(*one, scale=np.ones(12)) for one in zip(wxyz, places, strict=True)]
    mine, theirs = np.unravel_index(np.argsort(-(percepts[0] @ percepts[1].T), axis=None)[99], (12, 12))
    T_object_query = Similarity.from_wxyz([0.5, 0.1, -0.7, 0.2], [0.1, 0.2, -0.1], 0.8)
    views[1].rotation[theirs] = T_object_query.rotation @ views[0].rotation[mine]
    views[1].translation[theirs] = T_object_query.apply(views[0].translation[mine])
    query, row = (
        replace(one, percepts=seen, viewpoints=where)
        for one, seen, where in zip(random_rows(2), percepts, views, strict=True)
    )
    motions, of = verify._hypotheses(verify.Query(query, Similarity.identity(1)), [row], np.array([0.8]))
    off = np.linalg.norm(motions.matrix() - T_object_query.matrix(), axis=(1, 2))
    assert off.min() < 1e-6
    assert (of == 0).all()


def test_candidates_are_read_when_they_are_asked_for():
    read = []

    def decode(places):
        read.extend(places)
        return [everything[one] for one in places]

    everything = random_rows(5)
    rows = Rows(5, decode)
    assert len(rows) == 5
    assert rows[-1] is everything[4]
    assert rows[3:] == everything[3:]
    assert read == [4, 3]
    assert rows[:] == everything
    assert read == [4, 3, 0, 1, 2]
    with pytest.raises(IndexError):
        rows[5]


def test_without_verification_hits_are_in_order_of_their_looks(filled, model):
    result = Index(filled, model).search(turned(shape("chair", 50)), k=12, verify=0)
    assert not result.found
    assert "not verified" in repr(result)
    assert len(result) == 12
    assert result[0].similarity > result[-1].similarity


def test_more_than_there_are_gives_all(filled, model):
    index = Index(filled, model)
    assert len(index.search(shape("chair", 1), k=10**20, verify=0)) == index.info().objects


def test_map_coordinates_keep_their_place(model, tmp_path):
    points = shape("chair", 1).astype(np.float64) + np.array([500_000.0, 5_400_000.0, 300.0])
    index = Index(tmp_path / "i.lance", model)
    index.add(points)
    hit = index.search(turned(points - points.mean(axis=0)) + 1e6, 1)[0]
    np.testing.assert_allclose(hit.apply(points), turned(points - points.mean(axis=0)) + 1e6, atol=5e-3)
    np.testing.assert_allclose(hit.points.mean(axis=0), points.mean(axis=0), atol=0.1)


def test_a_degenerate_cloud_neither_breaks_adding_nor_searching(filled, copy, model):
    index = Index(copy, model)
    spot, line = np.ones((20, 3)), np.linspace(0, 1, 50)[:, None] * np.ones((1, 3))
    report = index.add([spot, line], names=["spot", "line"])
    assert (report.added, [one.name for one in report.skipped]) == (0, ["spot", "line"])
    assert ["one place" in report.skipped[0].reason, "one line" in report.skipped[1].reason] == [True, True]
    for query in (spot, line):
        with pytest.raises(InvalidInputError, match=r"no orientation|undefined"):
            index.search(query)
    assert len(index.search(shape("chair", 0), 12)) == 12


def test_wrong_queries(filled, model):
    index = Index(filled, model)
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        index.search(shape("chair", 0), 0)
    with pytest.raises(InvalidInputError, match="verify"):
        index.search(shape("chair", 0), verify=-1)
    with pytest.raises(InvalidInputError, match="does not exist"):
        index.search("missing.ply")
    with pytest.raises(InvalidInputError, match="at least 8"):
        index.search(np.eye(3))


# ── filters ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_filters_on_class_and_path(filled, model):
    index = Index(filled, model)
    query = shape("chair", 0)
    assert {hit.class_name for hit in index.search(query, class_name="lamp")} == {"lamp"}
    assert len(index.search(query, class_name="no such class")) == 0
    assert {hit.name for hit in index.search(query, path="*/car/?.npy")} == {f"car/{seed}.npy" for seed in range(4)}
    assert [hit.name for hit in index.search(query, class_name="car", path="*/2.npy")] == ["car/2.npy"]
    assert len(index.search(query, path="car")) == 0


HOSTILE = [
    "it's",
    'quo"te',
    "100%_off",
    "back\\slash",
    "x' OR '1'='1",
    "'; DROP TABLE objects; --",
    "-- /* */",
    "ü\n💡",
    "%",
]


def test_no_string_of_a_user_is_code(model, tmp_path):
    index = Index(tmp_path / "i.lance", model)
    index.add([shape("chair", seed) for seed in range(len(HOSTILE))], class_name=HOSTILE, names=HOSTILE)
    query = shape("chair", 0)
    for number, text in enumerate(HOSTILE):
        assert [hit.name for hit in index.search(query, class_name=text, verify=0)] == [text]
        assert len(index.search(query, path=text, verify=0)) == 0
        assert index.remove(path=text) == index.remove(ids=[text]) == 0
        assert len(index) == len(HOSTILE) - number
        assert index.remove(class_name=text) == 1


@pytest.mark.parametrize("text", [text for text in HOSTILE if "/" not in text])
def test_patterns_take_every_letter_but_the_wildcards_as_it_is(model, tmp_path, text):
    (tmp_path / text).mkdir()
    save_points(tmp_path / text / "a.npy", shape("chair", 0))
    (tmp_path / "other").mkdir()
    save_points(tmp_path / "other" / "b.npy", shape("chair", 1))
    index = Index(tmp_path / "i.lance", model)
    index.add([tmp_path / text, tmp_path / "other"])
    query = shape("chair", 0)
    assert [hit.name for hit in index.search(query, path=f"*/{text}/*")] == ["a.npy"]
    assert len(index.search(query, path="*.npy")) == 2


def test_remove(copy, model):
    index = Index(copy)
    with pytest.raises(InvalidInputError, match="say what to remove"):
        index.remove()
    assert index.remove(class_name="chair", path="*/1.npy") == 1
    assert index.remove(class_name="lamp") == 4
    first = Index(copy, model).search(shape("car", 0), 1)[0]
    assert index.remove(ids=[first.id, "not there"]) == 1
    assert index.remove(class_name="lamp") == 0
    assert index.info().classes == {"car": 3, "chair": 3}


# ── weights, damage, crashes ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_is_not_its_folder(tmp_path):
    """In a process of its own: under pytest the annotations are checked before the function is called."""
    code = "import geocaps; geocaps.Index('i.lance', 'runs/mine/best')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "InvalidInputError: model must be what geocaps.load(folder) gives, not str" in done.stderr


def test_other_weights_are_refused(copy, folder):
    with pytest.raises(SearchIndexError, match="made with other weights"):
        Index(copy, small_model(seed=1))
    late = Index(copy)  # the shipped weights, loaded when they are first needed
    assert len(late) == 12
    for call in (lambda: late.search(shape("chair", 0)), lambda: late.add(folder)):
        with pytest.raises(SearchIndexError, match="use the weights it was made with"):
            call()
    assert len(late) == 12


def test_other_settings_of_the_same_weights_are_refused(copy, folder):
    network = small_model().network
    config = network.config
    network.config = replace(config, parts=replace(config.parts, iterations=config.parts.iterations + 1))
    with pytest.raises(SearchIndexError, match="other settings of the same weights"):
        Index(copy, geocaps.Model(network))


def test_no_index_is_said(model, tmp_path):
    missing = Index(tmp_path / "missing.lance", model)
    for call in (lambda: missing.search(shape("chair", 0)), missing.info, lambda: missing.remove(class_name="x")):
        with pytest.raises(SearchIndexError, match="there is no index at"):
            call()
    assert not (tmp_path / "missing.lance").exists()


def test_an_address_in_place_of_a_folder(model, tmp_path):
    """As on object storage: nothing can be looked at but through LanceDB."""
    address = (tmp_path / "i.lance").as_uri()
    index = Index(address, model)
    assert len(index) == 0
    with pytest.raises(SearchIndexError, match="there is no index at file://"):
        index.info()
    assert index.add(shape("chair", 0)).added == 1
    assert len(Index(address, model)) == len(Index(tmp_path / "i.lance")) == 1


def test_what_is_something_else_is_not_written_into(folder, model, tmp_path):
    (tmp_path / "file.lance").write_text("a letter")
    with pytest.raises(SearchIndexError, match="is a file"):
        Index(tmp_path / "file.lance", model)
    with pytest.raises(SearchIndexError, match="folder of other things"):
        Index(folder).add(shape("chair", 0))
    import lancedb
    import pyarrow as pa

    database = lancedb.connect(tmp_path / "foreign.lance")
    database.create_table("objects", pa.table({"id": ["a"], "text": ["b"]}))
    with pytest.raises(SearchIndexError, match="not a geocaps index"):
        Index(tmp_path / "foreign.lance", model)
    schema = pa.schema(
        [("id", pa.string())], metadata={store._FORMAT_KEY: b"3", store._WEIGHTS_KEY: b"x", store._CONFIG_KEY: b"{}"}
    )
    database = lancedb.connect(tmp_path / "columns.lance")
    database.create_table("objects", schema=schema)
    with pytest.raises(SearchIndexError, match="other columns"):
        len(Index(tmp_path / "columns.lance"))


@pytest.mark.parametrize("part", ["_versions", "data"])
@pytest.mark.parametrize("how", ["cut", "noise", "gone"])
def test_a_damaged_index_is_one_sentence(copy, model, part, how):
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.parent.name == part)
    assert files
    for path in files:
        content = path.read_bytes()
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(content[: len(content) // 2] if how == "cut" else b"\xa5" * len(content))
    with pytest.raises(SearchIndexError) as caught:
        Index(copy, model).search(shape("chair", 0))
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


def test_an_entry_that_cannot_be_is_one_sentence(tmp_path):
    table = Store(tmp_path / "i.lance")
    table.create("none", "{}", 16, 8)
    good = random_rows(3)
    bad_scale = Similarity(np.eye(3), scale=-1.0)
    nothing = {"points": np.zeros((0, 3)), "normals": np.zeros((0, 3))}
    for number, change in enumerate(({"normalization": bad_scale}, nothing)):
        table.write([replace(good[number], **change)])
        with pytest.raises(SearchIndexError, match=f"the entry {number} is damaged"):
            most_alike(table, good[number], 1)
    table.write(good[2:])
    assert most_alike(table, good[2], 1)[0][0].id == "2"


@pytest.mark.parametrize(
    ("killed_at", "hold", "left"), [("creating", "created", {0}), ("writing 2", "written 2", {BATCH, 2 * BATCH})]
)
def test_a_kill_during_add_leaves_a_valid_index(model, tmp_path, killed_at, hold, left):
    """Cut off anywhere between the two events: all of what was being written is in, or nothing of it."""
    where, clouds = tmp_path / "i.lance", write_many(tmp_path / "many", MANY)
    process = _process(where, tmp_path / "many", hold)
    _wait_for(process, killed_at)
    process.kill()
    process.communicate()
    index = Index(where, model)
    before = len(index)
    assert before in left
    if before:
        assert len(index.search(clouds[0], 3)) == 3

    report = index.add(tmp_path / "many")
    assert (report.added, report.known, report.skipped) == (MANY - before, before, ())
    assert len(index) == MANY
    assert index.search(turned(clouds[MANY - 1]), 1)[0].name == f"{MANY - 1:03d}.npy"


@pytest.mark.slow
def test_two_processes_add_at_once_and_each_object_is_there_once(model, tmp_path):
    """The other one has found that nothing is there and is about to write when we write the same objects."""
    where, _ = tmp_path / "i.lance", write_many(tmp_path / "many", MANY)
    other = _process(where, tmp_path / "many", "writing 1")
    _wait_for(other, "writing 1")
    index = Index(where, model)

    def let_go(done: int, of: int) -> None:
        assert (done, of) == (MANY, MANY)
        other.stdin.write("\n")
        other.stdin.flush()

    assert index.add(tmp_path / "many", on_object=let_go).added == MANY
    out, err = other.communicate()
    assert other.returncode == 0, out + err
    assert len(index) == len(Index(where, model)) == MANY
    assert index.add(tmp_path / "many").added == 0


def test_many_writers_tidy_at_once(tmp_path):
    Store(tmp_path / "i.lance").create("none", "{}", 16, 8)

    def work(number: int) -> None:
        own = Store(tmp_path / "i.lance")
        for step in range(8):
            first = 1000 * number + 10 * step
            own.write(random_rows(10, first))
            own.delete(Filter(ids=(str(first),)))
            own.tidy()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert Store(tmp_path / "i.lance").count() == 3 * 8 * 9


def write_many(folder: Path, count: int) -> np.ndarray:
    """Bent ellipsoids in files: no two alike, none symmetric."""
    folder.mkdir()
    random = np.random.default_rng(0)
    clouds = random.normal(size=(count, 60, 3))
    clouds *= random.uniform(0.2, 1, size=(count, 1, 3)) / np.linalg.norm(clouds, axis=-1, keepdims=True)
    clouds += random.uniform(0, 1, size=(count, 1, 3)) * clouds[..., [1, 2, 0]] ** 2
    for number, points in enumerate(clouds):
        np.save(folder / f"{number:03d}.npy", points)
    return clouds


def _process(index: Path, folder: Path, hold: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.index.index_process", str(index), str(folder), hold]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def _wait_for(process: subprocess.Popen[str], event: str) -> None:
    for line in process.stdout:
        if line.strip() == event:
            return
    pytest.fail(f"{event!r} never came: {process.communicate()[1]}")


# ── large tables, and what it takes to use them ───────────────────────────────────────────────────────────────────────


def random_rows(count: int, offset: int = 0, numbers: int = 8) -> list[Row]:
    random = np.random.default_rng(offset)
    features = random.normal(size=(count, 16)).astype(np.float32)
    percepts = random.normal(size=(count, 4, numbers)).astype(np.float32)
    percepts /= np.linalg.norm(percepts, axis=-1, keepdims=True)
    one, views = Similarity.identity(), Similarity.identity(4)
    return [
        Row(
            *(f"{offset + i}", f"object {i}", None, "odd" if i % 2 else "even"),
            *(features[i], percepts[i], views, one, one, np.eye(3), np.eye(3)),
        )
        for i in range(count)
    ]


def most_alike(table: Store, row: Row, k: int, where: Filter | None = None) -> list[tuple[Row, float]]:
    rows, similarity = table.most_alike(row.percepts, row.feature, k, where or Filter())
    return list(zip(rows[:], similarity, strict=True))


def test_a_row_comes_back_as_it_was_written(tmp_path):
    table = Store(tmp_path / "i.lance")
    table.create("none", "{}", 16, 8)
    rows = random_rows(5)
    table.write(rows)
    for row in rows:
        back, similarity = most_alike(table, row, 1)[0]
        assert (back.id, similarity) == (row.id, pytest.approx(1, abs=1e-5))
        for name in ("feature", "percepts", "points", "normals"):
            np.testing.assert_allclose(getattr(back, name), getattr(row, name), atol=1e-4)
        assert back.viewpoints.shape == (4,)


def test_similarity_is_late_interaction(tmp_path):
    from geocaps.model.losses import late_interaction

    table = Store(tmp_path / "i.lance")
    table.create("none", "{}", 16, 8)
    rows = random_rows(30)
    table.write(rows)
    query = random_rows(1, 500)[0].percepts[:3]
    expected = late_interaction(torch.tensor(query)[None], torch.tensor(np.stack([row.percepts for row in rows])))[0]
    found, similarities = table.most_alike(query, rows[0].feature, 30, Filter())
    assert len(found) == 30
    for row, similarity in zip(found[:], similarities, strict=True):
        assert similarity == pytest.approx(float(expected[int(row.id)]), abs=1e-5)


def test_what_others_write_is_seen_by_who_keeps_the_table_in_memory(tmp_path):
    table, other = Store(tmp_path / "i.lance"), Store(tmp_path / "i.lance")
    table.create("none", "{}", 16, 8)
    rows = random_rows(4)
    assert most_alike(table, rows[3], 5) == []
    for written, expected in ((rows[:3], {"0", "1", "2"}), (rows[3:], {"0", "1", "2", "3"})):
        other.write(written)
        assert {row.id for row, _ in most_alike(table, rows[3], 5)} == expected
    assert {row.id for row, _ in most_alike(table, rows[3], 5, Filter(class_name="odd"))} == {"1", "3"}
    other.delete(Filter(ids=("3",)))
    assert {row.id for row, _ in most_alike(table, rows[3], 5)} == {"0", "1", "2"}


def test_a_large_table_gets_a_vector_index(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "APPROXIMATE_FROM", 1000)
    table = Store(tmp_path / "i.lance")
    table.create("none", "{}", 16, 64)
    rows = random_rows(900, 0, 64)
    table.write(rows)
    table.tidy()
    assert not table.is_approximate
    more = random_rows(300, 900, 64)
    table.write(more)
    table.tidy()
    assert table.is_approximate
    found = [most_alike(table, row, 1)[0][0].id == row.id for row in (rows + more)[::60]]
    assert all(found)
    row, similarity = most_alike(table, more[7], 1, Filter(class_name="odd"))[0]
    assert (row.id, similarity) == ("907", pytest.approx(1, abs=1e-3))
    # What is added afterwards is found before the vector index knows it, and after.
    late = random_rows(5, 2000, 64)
    table.write(late)
    for _ in range(2):
        assert most_alike(table, late[3], 1)[0][0].id == "2003"
        table.tidy()


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_older_index_says_how_to_make_a_new_one(model, tmp_path, monkeypatch, version):
    monkeypatch.setattr(store, "FORMAT", version)
    Store(tmp_path / "i.lance").create("none", "{}", 16, 8)
    monkeypatch.undo()
    with pytest.raises(SearchIndexError, match=r"older geocaps \(format .*geocaps index add NEW_INDEX FOLDER"):
        Index(tmp_path / "i.lance", model)


def test_a_model_that_does_not_look_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="paper's object layer"):
        Index(tmp_path / "i.lance", geocaps.apps.encode.untrained("paper"))


def test_the_extra_is_imported_when_it_is_needed_and_named_when_it_is_missing(tmp_path):
    code = (
        "import sys, geocaps\n"
        "geocaps.Index\n"
        "assert not {'lancedb', 'pyarrow', 'matplotlib'} & set(sys.modules)\n"
        "sys.modules['lancedb'] = None\n"
        "try:\n"
        "    geocaps.Index(sys.argv[1]).add([[0.0, 0.0, 0.0]] * 20)\n"
        "except geocaps.GeocapsError as error:\n"
        "    assert type(error).__name__ == 'MissingExtraError', error\n"
        "    assert '.[index]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('nothing was raised')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "i.lance")], check=True)
    assert issubclass(MissingExtraError, geocaps.GeocapsError)


def test_results_print_well(filled, model):
    index = Index(filled, model)
    assert repr(index) == f"Index({str(filled)!r}, 12 objects)"
    result = index.search(turned(shape("chair", 2)), 3)
    lines = repr(result).splitlines()
    assert lines[0] == "3 hits for the query"
    assert "chair/2.npy" in lines[2]
    assert repr(result[0]).startswith("Hit('chair/2.npy', class_name='chair', similarity=")
    assert result[:2] == result.hits[:2]
    assert result.png().startswith(b"\x89PNG")
    page = result._repr_html_()
    assert page.count("<tr>") == 4
    assert "data:image/png;base64," in page
    assert len(index.search(shape("chair", 2), class_name="none")._repr_html_()) > 100


def test_names_cannot_be_html(model, tmp_path):
    index = Index(tmp_path / "i.lance", model)
    index.add(shape("chair", 0), names=["<script>alert(1)</script>"], class_name="<b>")
    page = index.search(shape("chair", 0))._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page
