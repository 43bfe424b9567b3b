"""``geocaps.parts``: what the files hold, read back with trimesh, and what the value promises."""

import base64
import io

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError
from geocaps.io import load_points
from geocaps.io.save import Mesh, save_cloud, save_meshes

MAP = np.array([5e5, 5.4e6, 120.0])


@pytest.fixture(scope="module")
def model():
    return geocaps.untrained("cpu")


@pytest.fixture(scope="module")
def chair():
    return make_shape("chair", 3).sample(700, torch.Generator().manual_seed(0)).points.numpy()


@pytest.fixture(scope="module")
def found(model, chair):
    return geocaps.parts(chair, model)


def painted(found):
    """The colour that each point should have."""
    return np.where(found.labels[:, None] < 0, 153, found.colors[found.labels])


def vertex_colors(geometry):
    return np.asarray(geometry.visual.vertex_colors)[:, :3]


def scene_meshes(path):
    """Each mesh of a file by name, moved to its place."""
    scene = trimesh.load_scene(path, process=False)
    return {name: scene.geometry[scene.graph[name][1]].copy().apply_transform(scene.graph[name][0])
            for name in scene.graph.nodes_geometry}  # fmt: skip


# ── the value ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_point_has_one_part(found, model, chair):
    assert found.counts.sum() + (found.labels == -1).sum() == len(chair) == len(found.labels)
    assert len(found) == model.config.parts.parts == len(found.counts)
    np.testing.assert_array_equal(found.points, chair)
    np.testing.assert_array_equal(found.labels, model.encode(chair).labels)
    assert len(np.unique(found.colors, axis=0)) == len(found)


def test_torch_trimesh_path_and_encoding_give_the_same(found, model, chair, tmp_path):
    np.save(tmp_path / "chair.npy", chair)
    sources = (torch.from_numpy(chair), trimesh.PointCloud(chair), tmp_path / "chair.npy", model.encode(chair))
    for source in sources:
        other = geocaps.parts(source, model)
        np.testing.assert_array_equal(other.labels, found.labels)
        np.testing.assert_array_equal(other.surfaces, found.surfaces)


@pytest.fixture(scope="module")
def strewn(model, chair):
    """The chair with forty stray points at the end."""
    strays = np.random.default_rng(0).uniform(-3, 3, (40, 3)).astype(np.float32)
    return geocaps.parts(np.concatenate([chair, strays]), model)


def test_stray_points_belong_to_no_part(strewn, chair):
    assert (strewn.labels[len(chair) :] == -1).mean() > 0.9
    assert (strewn.labels[: len(chair)] >= 0).mean() > 0.9
    assert strewn.counts.sum() == (strewn.labels >= 0).sum()
    assert len(strewn.counts) == len(strewn)
    assert len(strewn.points) == len(chair) + 40


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("suffix", [".ply", ".npz", ".xyz", ".pcd"])
def test_stray_points_are_saved_grey_with_their_label(strewn, tmp_path, suffix, canonical):
    path = tmp_path / f"parts{suffix}"
    strewn.save(path, canonical=canonical)
    labels = strewn.canonical_labels if canonical else strewn.labels
    if suffix == ".npz":
        with np.load(path) as archive:
            found, colors = archive["labels"], archive["colors"]
    elif suffix == ".ply":
        cloud = trimesh.load(path)
        found, colors = cloud.metadata["_ply_raw"]["vertex"]["data"]["label"].ravel(), cloud.colors[:, :3]
    else:
        rows = [line.split() for line in path.read_text().splitlines() if line[0] in "-0123456789"]
        *columns, last = np.array([[int(value) for value in row[3:]] for row in rows]).T
        found, colors = last, np.stack(columns, axis=1)
        if suffix == ".pcd":  # label, 0xRRGGBB
            found, colors = columns[0], last[:, None] >> np.array([16, 8, 0]) & 255
    np.testing.assert_array_equal(found, labels)
    stray = labels == -1
    np.testing.assert_array_equal(np.unique(colors[stray], axis=0), [[153, 153, 153]])
    np.testing.assert_array_equal(colors[~stray], strewn.colors[labels[~stray]])
    assert [153, 153, 153] not in strewn.colors.tolist()


def test_the_objects_own_parts(strewn, model, chair):
    encoding = model.encode(strewn.points)
    np.testing.assert_array_equal(strewn.canonical_labels, encoding.canonical_labels)
    np.testing.assert_array_equal(strewn.canonical_labels == -1, strewn.labels == -1)
    assert strewn.canonical_counts.sum() == strewn.counts.sum()
    assert strewn.canonical_labels.max() < len(strewn)
    assert strewn.png(canonical=True) != strewn.png()


def test_a_saved_encoding_keeps_its_strays(strewn, tmp_path):
    strewn.encoding.save(tmp_path / "chair.npz")
    again = geocaps.parts(geocaps.Encoding.load(tmp_path / "chair.npz"))
    np.testing.assert_array_equal(again.labels, strewn.labels)
    np.testing.assert_array_equal(again.canonical_labels, strewn.canonical_labels)
    assert again.png(canonical=True).startswith(b"\x89PNG")


def test_several_clouds_are_refused(model, chair):
    with pytest.raises(InvalidInputError, match="encode takes one cloud"):
        geocaps.parts([chair, chair], model)


# ── meshes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def mesh():
    """A chair of three boxes, cut into small triangles, away from the origin."""
    sizes = {(1.0, 0.1, 1.0): (0, 0, 0), (1.0, 1.0, 0.1): (0, 0.5, -0.5), (0.1, 0.8, 0.1): (0.4, -0.4, 0.4)}
    boxes = [trimesh.creation.box(size).apply_translation(place) for size, place in sizes.items()]
    whole = trimesh.util.concatenate(boxes).subdivide().subdivide()
    return whole.apply_translation((3, 4, 5))


@pytest.fixture(scope="module")
def cut(model, mesh):
    return geocaps.parts(mesh, model)


def test_every_face_has_the_part_of_its_centre(cut, model, mesh):
    assert len(cut.points) == 4096
    np.testing.assert_array_equal(cut.faces, mesh.faces)
    np.testing.assert_array_equal(cut.vertices, mesh.vertices)
    surfaces = cut.surfaces
    distance = np.linalg.norm(mesh.triangles_center[:, None, None] - surfaces, axis=-1).min(axis=-1)
    chosen = distance[np.arange(len(mesh.faces)), cut.face_labels]
    assert (chosen - distance.min(axis=1)).max() < 1e-4
    assert len(np.unique(cut.face_labels)) > 3
    np.testing.assert_array_equal(geocaps.parts(model.encode(mesh)).face_labels, cut.face_labels)


def test_a_cloud_has_no_faces(found):
    assert found.vertices is None
    assert found.faces is None
    assert found.face_labels is None


@pytest.mark.parametrize("suffix", [".ply", ".obj", ".glb"])
def test_a_mesh_stays_a_mesh_with_the_colours_of_the_parts(cut, model, mesh, tmp_path, suffix):
    mesh.export(tmp_path / "chair.stl")
    from_file = geocaps.parts(tmp_path / "chair.stl", model)
    for one in (cut, from_file):
        one.save(tmp_path / f"parts{suffix}")
        pieces = (
            [trimesh.load(tmp_path / "parts.ply")]
            if suffix == ".ply"
            else scene_meshes(tmp_path / f"parts{suffix}").values()
        )
        if suffix == ".glb":
            found = [(piece.triangles_center, np.tile(piece.visual.material.baseColorFactor[:3], (len(piece.faces), 1)))
                     for piece in pieces]  # fmt: skip
        else:
            found = [(piece.triangles_center, piece.visual.face_colors[:, :3]) for piece in pieces]
        centers, colors = (np.concatenate(column) for column in zip(*found, strict=True))
        assert len(centers) == len(one.faces)
        expected = one.vertices[one.faces].mean(axis=1)
        nearest = np.linalg.norm(centers[:, None] - expected, axis=-1).argmin(axis=1)
        assert len(np.unique(nearest)) == len(expected)
        np.testing.assert_allclose(centers, expected[nearest], atol=1e-5)
        np.testing.assert_array_equal(colors, one.colors[one.face_labels[nearest]])


def test_a_mesh_in_a_format_of_points_is_the_points_drawn_from_it(cut, tmp_path):
    cut.save(tmp_path / "parts.npz")
    with np.load(tmp_path / "parts.npz") as archive:
        np.testing.assert_array_equal(archive["label"] if "label" in archive else archive["labels"], cut.labels)


def test_a_cloud_is_not_written_as_obj(found, tmp_path):
    with pytest.raises(InvalidInputError, match="must end in"):
        found.save(tmp_path / "parts.obj")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ply_holds_points_in_the_colours_of_their_parts(found, tmp_path):
    found.save(tmp_path / "parts.ply")
    cloud = trimesh.load(tmp_path / "parts.ply")
    np.testing.assert_array_equal(cloud.vertices, found.points)
    np.testing.assert_array_equal(cloud.colors[:, :3], painted(found))
    np.testing.assert_array_equal(cloud.metadata["_ply_raw"]["vertex"]["data"]["label"].ravel(), found.labels)


def test_glb_holds_points_in_the_colours_of_their_parts(found, tmp_path):
    found.save(tmp_path / "parts.glb")
    (cloud,) = trimesh.load_scene(tmp_path / "parts.glb").geometry.values()
    np.testing.assert_allclose(cloud.vertices, found.points, atol=1e-7)
    np.testing.assert_array_equal(cloud.colors[:, :3], painted(found))


def test_glb_surfaces_are_a_coloured_double_sided_mesh_for_each_part(found, tmp_path):
    found.save_surfaces(tmp_path / "surfaces.glb")
    meshes = scene_meshes(tmp_path / "surfaces.glb")
    assert sorted(meshes) == [f"part_{j:02d}" for j in range(len(found))]
    for j in range(len(found)):
        mesh = meshes[f"part_{j:02d}"]
        np.testing.assert_allclose(mesh.triangles, found.surfaces[j][found.triangles], atol=1e-6)
        np.testing.assert_array_equal(mesh.visual.material.baseColorFactor[:3], found.colors[j])
        assert mesh.visual.material.doubleSided


def test_ply_surfaces_are_one_mesh_with_the_colours_of_the_parts(found, tmp_path):
    found.save_surfaces(tmp_path / "surfaces.ply")
    mesh = trimesh.load(tmp_path / "surfaces.ply", process=False)
    np.testing.assert_array_equal(mesh.vertices, found.surfaces.reshape(-1, 3))
    np.testing.assert_array_equal(vertex_colors(mesh), np.repeat(found.colors, found.surfaces.shape[1], axis=0))
    np.testing.assert_array_equal(mesh.triangles, found.surfaces[:, found.triangles].reshape(-1, 3, 3))


def test_obj_surfaces_are_an_object_for_each_part(found, tmp_path):
    found.save_surfaces(tmp_path / "surfaces.obj")
    scene = trimesh.load_scene(tmp_path / "surfaces.obj", split_objects=True, process=False)
    assert sorted(scene.geometry) == [f"part_{j:02d}" for j in range(len(found))]
    for j in range(len(found)):
        mesh = scene.geometry[f"part_{j:02d}"]
        np.testing.assert_allclose(np.sort(mesh.triangles, axis=0), np.sort(found.surfaces[j][found.triangles], axis=0))
        np.testing.assert_array_equal(np.unique(vertex_colors(mesh), axis=0), found.colors[j][None])


@pytest.mark.parametrize("suffix", [".glb", ".ply", ".obj"])
def test_map_coordinates_keep_their_digits(model, chair, tmp_path, suffix):
    """GLB has float32 alone: the place stands in the node."""
    there = geocaps.parts(chair.astype(np.float64) + MAP, model)
    there.save_surfaces(tmp_path / f"surfaces{suffix}")
    vertices = load_points(tmp_path / f"surfaces{suffix}").vertices
    np.testing.assert_allclose(np.sort(vertices, axis=0), np.sort(there.surfaces.reshape(-1, 3), axis=0), atol=1e-6)
    if suffix != ".obj":
        there.save(tmp_path / f"points{suffix}")
        np.testing.assert_allclose(load_points(tmp_path / f"points{suffix}").points, there.points, atol=1e-6)


def test_a_mesh_without_colour(tmp_path):
    box = trimesh.creation.box((1, 2, 3))
    for suffix in (".ply", ".obj", ".glb"):
        save_meshes(tmp_path / f"box{suffix}", [Mesh("box", np.array(box.vertices), np.array(box.faces))])
        back = trimesh.load_mesh(tmp_path / f"box{suffix}")
        assert back.volume == pytest.approx(6)


def test_picture(found, tmp_path):
    found.save_png(tmp_path / "parts.png")
    image = np.asarray(Image.open(tmp_path / "parts.png").convert("RGB")).reshape(-1, 3)
    background = np.all(image == 255, axis=1).mean()
    assert 0.3 < background < 0.98
    assert len(np.unique(image, axis=0)) > len(found)


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "name", "sentence"),
    [
        ("save", "parts.doc", "must end in"),
        ("save", "parts.npy", "NPY holds only points"),
        ("save_surfaces", "parts.xyz", "must end in"),
        ("save_png", "parts.jpg", "must end in .png"),
        ("save", "nowhere/parts.ply", "does not exist"),
        ("save_surfaces", "folder.glb", "a folder has this name"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence(found, tmp_path, method, name, sentence):
    (tmp_path / "folder.glb").mkdir()
    with pytest.raises(InvalidInputError, match=sentence):
        getattr(found, method)(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.glb"]


def test_a_failed_write_leaves_the_old_file(found, tmp_path, monkeypatch):
    target = tmp_path / "surfaces.ply"
    target.write_bytes(b"old")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        found.save_surfaces(target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_mesh_and_no_points(tmp_path):
    with pytest.raises(InvalidInputError, match="no mesh"):
        save_meshes(tmp_path / "empty.glb", [])
    with pytest.raises(InvalidInputError, match="no points"):
        save_cloud(tmp_path / "empty.glb", np.empty((0, 3)))


def test_notebook(found):
    shown = found._repr_html_()
    assert "32 parts" in repr(found)
    encoded = shown.split("base64,")[1].split('"')[0]
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).size[0] > 100
