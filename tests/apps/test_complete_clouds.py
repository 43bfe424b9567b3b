"""``geocaps.complete``: the whole object in the scan's own coordinates and units."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import geocaps
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError
from geocaps.io import load_points, save_points


@pytest.fixture(scope="module")
def model():
    return geocaps.untrained("cpu")


@pytest.fixture(scope="module")
def crop():
    """Seventy per cent of a chair."""
    points = make_shape("chair", 3).sample(1000, torch.Generator().manual_seed(0)).points.numpy().astype(np.float64)
    side = points @ np.array([0.6, 0.0, 0.8])
    return points[side < np.quantile(side, 0.7)]


@pytest.fixture(scope="module")
def found(model, crop):
    return geocaps.complete(crop, model)


def test_it_is_what_the_object_capsule_decodes_to(found, model, crop):
    encoding = model.encode(crop)
    np.testing.assert_array_equal(found.points, encoding.reconstruct("object").points.reshape(-1, 3))
    np.testing.assert_array_equal(found.given, crop)
    np.testing.assert_array_equal(found.center, encoding.pose.translation)
    assert found.radius == encoding.radius
    assert found.confidence == encoding.confidence
    assert found.ambiguous == encoding.ambiguous
    np.testing.assert_array_equal(geocaps.complete(encoding).points, found.points)


@pytest.mark.parametrize("weights", ["untrained", "shipped"])
def test_it_moves_turns_and_grows_with_the_scan(weights, model, crop):
    model = model if weights == "untrained" else geocaps.load()
    motion = geocaps.Similarity(
        Rotation.from_euler("xyz", [20, -70, 130], degrees=True).as_matrix(), np.array([300.0, -40.0, 7.0]), 25.0
    )
    found, moved = geocaps.complete(crop, model), geocaps.complete(motion.apply(crop), model)
    size = 25.0 * found.radius
    assert moved.radius == pytest.approx(size, rel=1e-2)
    assert np.linalg.norm(moved.center - motion.apply(found.center)) < 1e-2 * size
    assert np.linalg.norm(moved.points - motion.apply(found.points), axis=1).max() < 1e-2 * size


@pytest.mark.parametrize("suffix", [".ply", ".npy", ".xyz", ".glb"])
def test_files(found, tmp_path, suffix):
    found.save(tmp_path / f"whole{suffix}")
    np.testing.assert_allclose(load_points(tmp_path / f"whole{suffix}").points, found.points, atol=1e-6)


def test_a_file_is_completed_as_its_points_are(found, model, crop, tmp_path):
    save_points(tmp_path / "scan.ply", crop)
    other = geocaps.complete(tmp_path / "scan.ply", model)
    np.testing.assert_array_equal(other.points, found.points)
    assert other.name == str(tmp_path / "scan.ply")
    other.save_png(tmp_path / "both.png")
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_notebook(found):
    assert repr(found).startswith("Completion(the cloud: 700 points to ")
    assert "data:image/png;base64," in found._repr_html_()


def test_a_saved_encoding_is_completed_too(found, model, crop, tmp_path):
    model.encode(crop).save(tmp_path / "chair.npz")
    loaded = geocaps.complete(geocaps.Encoding.load(tmp_path / "chair.npz"))
    np.testing.assert_array_equal(loaded.points, found.points)


@pytest.mark.parametrize(
    ("cloud", "sentence"),
    [
        (np.zeros((100, 3)), "all in one place"),
        (np.zeros((3, 3)), "has 3 points"),
        (np.full((100, 3), np.nan), "NaN or infinite"),
        ([np.zeros((100, 3))], "takes one cloud"),
        ("nowhere/scan.ply", "nowhere/scan.ply"),
    ],
)
def test_what_cannot_be_completed_is_refused_in_one_sentence(model, cloud, sentence):
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        geocaps.complete(cloud, model)
    assert "\n" not in str(caught.value)


def test_it_is_not_written_as_what_has_faces(found, tmp_path):
    with pytest.raises(InvalidInputError, match="must end in"):
        found.save(tmp_path / "whole.stl")
    assert list(tmp_path.iterdir()) == []
