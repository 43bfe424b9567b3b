"""Files of every format, there and back."""

import struct
import subprocess
import sys
from pathlib import Path

import laspy
import numpy as np
import pytest
import trimesh
from io_files import gltf_tree, make_box, make_points, ply_bytes, write_glb

from geocaps.errors import InvalidInputError
from geocaps.io import (
    SUFFIXES,
    PointCloud,
    describe,
    is_supported,
    limits,
    load_points,
    report_of,
    sample_surface,
    save_points,
)


def distance_to_box(points):
    """How far each point is from the surface of the box 1 x 2 x 3."""
    return np.abs((np.abs(points) - [0.5, 1, 1.5]).max(axis=1))


def test_every_cloud_comes_back_exactly(io_folder, cloud_name):
    cloud = load_points(io_folder / cloud_name)
    assert isinstance(cloud, PointCloud)
    assert cloud.points.dtype == np.float32
    np.testing.assert_array_equal(cloud.points, make_points())
    assert cloud.faces is None
    assert cloud.vertices is None
    assert cloud.source == str(io_folder / cloud_name)


def test_every_mesh_is_sampled_on_its_surface(io_folder, box_name):
    cloud = load_points(io_folder / box_name, 500)
    assert cloud.points.shape == (500, 3)
    assert distance_to_box(cloud.points).max() < 1e-6
    assert cloud.faces.shape == (12, 3)
    area = trimesh.Trimesh(cloud.vertices, cloud.faces, process=False).area
    assert area == pytest.approx(22, abs=1e-4)


def test_every_suffix_has_a_file_in_these_tests(io_folder):
    made = {path.suffix for path in io_folder.iterdir()} - {".bin"}
    assert made == SUFFIXES


def test_default_count_and_seed(io_folder):
    path = io_folder / "box.off"
    first = load_points(path)
    assert first.points.shape == (4096, 3)
    np.testing.assert_array_equal(first.points, load_points(path, seed=0).points)
    assert not np.array_equal(first.points, load_points(path, seed=1).points)


def test_subset_of_a_cloud_is_seeded_ordered_and_without_repeats(io_folder):
    path, points = io_folder / "plain.xyz", make_points()
    subset = load_points(path, 50, seed=3).points
    np.testing.assert_array_equal(subset, load_points(path, 50, seed=3).points)
    assert not np.array_equal(subset, load_points(path, 50, seed=4).points)
    positions = [int(np.flatnonzero((points == row).all(axis=1))[0]) for row in subset]
    assert positions == sorted(set(positions))
    np.testing.assert_array_equal(load_points(path, 5000).points, points)


@pytest.mark.parametrize(("extent", "dtype"), [(10, np.float64), (500, np.float64), (1e5, np.float32)])
def test_map_coordinates_keep_their_digits(tmp_path, extent, dtype):
    points = np.random.default_rng(0).random((100, 3)) * extent + [500_000, 5_400_000, 100]
    np.save(tmp_path / "utm.npy", points)
    loaded = load_points(tmp_path / "utm.npy").points
    assert loaded.dtype == dtype
    assert np.abs(loaded - points).max() < 1e-5 * extent


@pytest.mark.parametrize("scale", [1e-50, 1e50])
def test_numbers_outside_float32_stay_float64(tmp_path, scale):
    points = make_points().astype(np.float64) * scale
    np.save(tmp_path / "odd.npy", points)
    np.testing.assert_array_equal(load_points(tmp_path / "odd.npy").points, points)


def test_obj_relative_indices_count_from_their_own_line(tmp_path):
    triangle = "v {0} 0 0\nv {0} 1 0 # corner\nv {0} 0 1\nf -3/1/2 -2//1 \\\n -1\n"
    (tmp_path / "two.obj").write_text("mtllib ../../x.mtl\n" + triangle.format(0) + "usemtl a\n" + triangle.format(5))
    cloud = load_points(tmp_path / "two.obj", 400)
    assert cloud.faces.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert set(np.unique(cloud.points[:, 0])) == {0, 5}


def test_ply_with_other_elements_and_bytes_after_the_end(tmp_path):
    vertices, faces = make_box()
    data = ply_bytes(vertices, faces.tolist(), "<")
    data = data.replace(b"end_header", b"element edge 1\nproperty int vertex1\nproperty int vertex2\nend_header")
    (tmp_path / "edges.ply").write_bytes(data + b"\0" * 8 + b"tail")
    assert load_points(tmp_path / "edges.ply").faces.shape == (12, 3)


def test_unreferenced_vertices_are_kept_but_not_sampled(tmp_path):
    (tmp_path / "loose.off").write_text("OFF\n4 1 0\n0 0 0\n1 0 0\n0 1 0\n9 9 9\n3 0 1 2\n")
    cloud = load_points(tmp_path / "loose.off", 100)
    assert cloud.vertices.shape == (4, 3)
    assert cloud.points.max() <= 1


def test_scene_is_put_together_with_its_transforms(tmp_path):
    scene = trimesh.Scene()
    box = trimesh.creation.box()
    turned = trimesh.transformations.rotation_matrix(0.3, [1, 2, 3], [4, 5, 6])
    scene.add_geometry(box, node_name="near")
    scene.add_geometry(box, node_name="arm", transform=turned)
    moved = trimesh.transformations.translation_matrix([10, 0, 0])
    scene.add_geometry(box, node_name="hand", parent_node_name="arm", transform=moved)
    for name in ("scene.glb", "scene.gltf"):
        if name.endswith("glb"):
            scene.export(tmp_path / name)
        else:
            for member, content in scene.export(file_type="gltf").items():
                (tmp_path / member.replace("model.gltf", name)).write_bytes(content)
        cloud = load_points(tmp_path / name)
        expected = scene.to_mesh() if hasattr(scene, "to_mesh") else scene.dump(concatenate=True)
        found, wanted = (
            np.sort(np.round(v, 4).view("f8,f8,f8").ravel())
            for v in (np.ascontiguousarray(cloud.vertices, dtype=np.float64), np.ascontiguousarray(expected.vertices))
        )
        np.testing.assert_allclose(found.tolist(), wanted.tolist(), atol=2e-4)
        assert cloud.faces.shape == (36, 3)


def test_glb_points_strips_cameras_and_missing_scene(tmp_path):
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=float)
    tree, buffer = gltf_tree(vertices, np.array([0, 1, 2, 3]), None)
    del tree["buffers"][0]["uri"], tree["scenes"], tree["scene"]
    tree["nodes"] = [{"camera": 0, "children": [1], "translation": [0, 0, 5]}, {"mesh": 0, "scale": [2, 2, 2]}]
    primitive = tree["meshes"][0]["primitives"][0]
    primitive["mode"] = 5
    write_glb(tmp_path / "strip.glb", tree, buffer)
    strip = load_points(tmp_path / "strip.glb")
    assert strip.faces.shape == (2, 3)
    np.testing.assert_allclose(strip.vertices, vertices * 2 + [0, 0, 5])
    primitive["mode"] = 0
    del primitive["indices"]
    write_glb(tmp_path / "points.glb", tree, buffer)
    points = load_points(tmp_path / "points.glb")
    assert points.faces is None
    np.testing.assert_allclose(points.points, vertices * 2 + [0, 0, 5])


@pytest.mark.parametrize("suffix", [".ply", ".xyz", ".npy", ".npz", ".pcd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_points_come_back(tmp_path, suffix, dtype):
    points = np.random.default_rng(1).normal(size=(77, 3)).astype(dtype) + dtype(1e7 if dtype == np.float64 else 0)
    extras = {}
    if suffix != ".npy":
        extras = {"labels": np.arange(77) - 3, "colors": np.random.default_rng(2).random((77, 3))}
    path = tmp_path / f"saved{suffix.upper()}"
    path.write_bytes(b"old")
    save_points(path, points, **extras)
    loaded = load_points(path).points
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded, points)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_labels_and_colors_are_in_the_file(tmp_path):
    points, labels = make_points(3), np.array([5, -6, 7])
    colors = np.array([[255, 0, 1], [2, 3, 4], [0, 0, 255]], dtype=np.uint8)
    for suffix in ("ply", "npz", "xyz", "pcd"):
        save_points(tmp_path / f"a.{suffix}", points, labels=labels, colors=colors)
    raw = trimesh.load(tmp_path / "a.ply")
    np.testing.assert_array_equal(raw.colors[:, :3], colors)
    np.testing.assert_array_equal(raw.metadata["_ply_raw"]["vertex"]["data"]["label"], labels)
    with np.load(tmp_path / "a.npz") as npz:
        np.testing.assert_array_equal(npz["labels"], labels)
        np.testing.assert_array_equal(npz["colors"], colors)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.xyz")[:, 3:], np.column_stack([colors, labels]))
    rows = (tmp_path / "a.pcd").read_text().splitlines()[-3:]
    assert [row.split()[3:] for row in rows] == [["5", str(255 << 16 | 1)], ["-6", "131844"], ["7", "255"]]


@pytest.mark.parametrize(
    ("name", "points", "extras", "words"),
    [
        ("a.las", np.zeros((2, 3)), {}, "must end in .npy or"),
        ("a.npy", np.zeros((2, 3)), {"labels": [1, 2]}, "NPY holds only points"),
        ("none/a.ply", np.zeros((2, 3)), {}, "does not exist"),
        ("a.ply", np.zeros((2, 2)), {}, "shape"),
        ("a.ply", np.array([["a", "b", "c"]]), {}, "must be numbers"),
        ("a.ply", np.zeros((2, 3)), {"labels": [1.5, 2]}, "labels must be"),
        ("a.ply", np.zeros((2, 3)), {"labels": [1, 2**40]}, "32 bits"),
        ("a.ply", np.zeros((2, 3)), {"colors": np.full((2, 3), 7.0)}, "colors must be"),
        ("a.ply", np.zeros((2, 3)), {"colors": np.zeros((3, 3))}, "colors must have shape"),
    ],
)
def test_what_cannot_be_saved_leaves_the_folder_as_it_was(tmp_path, name, points, extras, words):
    (tmp_path / "a.ply").write_bytes(b"old")
    with pytest.raises(InvalidInputError, match=words):
        save_points(tmp_path / name, points, **extras)
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a.ply", b"old")]


def test_a_write_that_fails_half_way_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    save_points(path, make_points())
    before = path.read_bytes()

    def broken(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("geocaps.io.save.os.replace", broken)
    with pytest.raises(InvalidInputError, match="No space left"):
        save_points(path, make_points(seed=1))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npy"]


def test_sampling_is_uniform_by_area():
    # Triangles of area 1 and 3, and one without area that must never be chosen.
    vertices = np.array([[0, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 5], [2, 0, 5], [0, 3, 5]], dtype=float)
    faces = np.array([[0, 0, 1], [0, 1, 2], [3, 4, 5], [5, 5, 5]])
    points, face_index = sample_surface(vertices, faces, 40_000, seed=0)
    assert points.shape == (40_000, 3)
    assert np.bincount(face_index, minlength=4)[[0, 3]].tolist() == [0, 0]
    # Four standard deviations of a binomial share.
    assert (face_index == 2).mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 40_000))
    large = points[face_index == 2]
    np.testing.assert_allclose(large[:, 2], 5)
    # Uniform in a triangle: the mean is its centroid, and half of each coordinate's share lies where it should.
    np.testing.assert_allclose(large.mean(axis=0), [2 / 3, 1, 5], atol=0.02)
    assert (large[:, 0] < 1).mean() == pytest.approx(0.75, abs=0.012)


@pytest.mark.parametrize("scale", [1e-160, 1.0, 1e160])
def test_sampling_at_any_scale(scale):
    vertices, faces = make_box()
    points, _ = sample_surface(vertices * scale, faces, 200, seed=1)
    assert distance_to_box(points / scale).max() < 1e-9


@pytest.mark.parametrize(
    ("vertices", "faces", "count", "seed", "words"),
    [
        (np.zeros((3, 3)), [[0, 1, 2]], 5, 0, "no area"),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], 5, 0, "degenerate"),
        (np.eye(3), np.empty((0, 3), int), 5, 0, "without faces"),
        (np.eye(3), [[0, 1, 3]], 5, 0, "refer"),
        (np.eye(3) * np.nan, [[0, 1, 2]], 5, 0, "finite"),
        (np.eye(2), [[0, 1, 2]], 5, 0, "vertices must have shape"),
        (np.eye(3), [[0.0, 1, 2]], 5, 0, "faces must be integers"),
        (np.eye(3), [[0, 1, 2]], 0, 0, "at least 1"),
        (np.eye(3), [[0, 1, 2]], 5, -1, "seed"),
    ],
)
def test_what_cannot_be_sampled(vertices, faces, count, seed, words):
    with pytest.raises(InvalidInputError, match=words):
        sample_surface(vertices, faces, count, seed=seed)


def test_is_supported():
    assert is_supported("Chair.PLY")
    assert not is_supported("chair.docx")
    assert not is_supported("chair")


def test_clouds_and_ply_meshes_are_read_without_the_slow_libraries(io_folder):
    names = ["box_ascii.ply", "points_little.ply", "box.obj", "binary.pcd", "plain.xyz", "single.npy", "stored.npz"]
    code = (
        "import sys; from geocaps.io import load_points; [load_points(path) for path in sys.argv[1:]];"
        "slow = {'torch', 'trimesh', 'h5py', 'scipy', 'rich', 'matplotlib'} & sys.modules.keys(); assert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", code, *(str(io_folder / name) for name in names)], check=True)


def test_a_file_is_described_as_it_is(tmp_path):
    points = np.vstack([make_points(), make_points()[:5], [[np.nan, 0, 0]], [[0, 0, 99]]])
    colors = np.full((len(points), 3), 7, np.uint8)
    for name in ("a.ply", "a.pcd"):
        save_points(tmp_path / name, points, colors=colors)
        found = describe(tmp_path / name)
        assert (found.kind, found.format, found.objects) == ("cloud", name[2:].upper(), 1)
        assert (found.points, found.faces, found.duplicates, found.not_finite, found.stray) == (207, 0, 5, 1, 1)
        assert (found.units, found.extras) == (None, ("colours",))
        np.testing.assert_allclose(found.highest, np.nanmax(points, axis=0), rtol=1e-6)
        np.testing.assert_allclose(found.extent, np.nanmax(points, axis=0) - np.nanmin(points, axis=0), rtol=1e-6)
    np.save(tmp_path / "a.npy", np.full((3, 3), np.nan))
    found = describe(tmp_path / "a.npy")
    assert (found.points, found.not_finite, found.lowest, found.extent, found.stray) == (3, 3, None, None, 0)


def test_nothing_is_stray_in_shapes_of_any_proportion():
    random = np.random.default_rng(0)
    for points in (random.random((500, 3)) * [100, 1, 1], random.normal(size=(500, 3)), np.ones((50, 3))):
        assert report_of(Path(__file__), limits.cloud(points)).stray == 0


def test_units_and_attributes_are_told_where_the_file_states_them(tmp_path, io_folder):
    glb = describe(io_folder / "box.glb")
    assert (glb.kind, glb.faces, glb.units) == ("mesh", 12, "metres")
    assert describe(io_folder / "box.obj").units is None
    assert describe(io_folder / "wide.npy").extras == ("3 more columns",)
    assert describe(io_folder / "counted.pts").extras == ("4 more columns",)
    (tmp_path / "n.obj").write_text("v 0 0 0 1 0 0\nv 1 0 0 1 0 0\nv 0 1 0 1 0 0\nvn 0 0 1\nf 1//1 2//1 3//1\n")
    assert describe(tmp_path / "n.obj").extras == ("colours", "normals")
    wkt = 'PROJCS["a",GEOGCS["b",UNIT["degree",0.0174]],UNIT["US survey foot",0.3048006]]'
    keys = struct.pack("<12H", 1, 1, 0, 2, 1024, 0, 1, 1, 3076, 0, 1, 9001)
    for record, content, units in ((2112, wkt.encode(), "US survey feet"), (34735, keys, "metres"), (7, b"", None)):
        scan = laspy.LasData(laspy.LasHeader(point_format=3, version="1.2"))
        scan.header.vlrs.append(laspy.VLR("LASF_Projection", record, record_data=content))
        scan.x, scan.y, scan.z = make_points().T.astype(np.float64)
        scan.red = np.arange(200)
        scan.write(tmp_path / "a.las")
        found = describe(tmp_path / "a.las")
        assert (found.units, found.extras) == (units, ("colours",))
