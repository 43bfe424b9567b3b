"""``geocaps.parse_scene``: the objects of a scan, how many there are, and which points are theirs."""

import numpy as np
import pytest
import torch

import geocaps
from geocaps.data.scenes import compose, furnishings, scene
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError


@pytest.fixture(scope="module")
def made():
    shapes = [make_shape("car", 1), make_shape("toilet", 2), make_shape("sofa", 0)]
    return compose(shapes, torch.Generator().manual_seed(7), points=8000)


@pytest.fixture(scope="module")
def parsed(made):
    return geocaps.parse_scene(made.points, viewer=made.viewers)


def test_objects_are_found_and_the_floor_is_set_aside(made, parsed):
    assert len(parsed.objects) == 3
    assert len(parsed.planes) == 1
    assert (parsed.labels[made.instance < 0] == -1).mean() > 0.99
    for number, one in enumerate(parsed.objects):
        assert np.array_equal(one.points, np.flatnonzero(parsed.labels == number))
        true = np.bincount(made.instance[one.points] + 1).argmax() - 1
        both = (made.instance[one.points] == true).sum()
        assert both / (len(one.points) + (made.instance == true).sum() - both) > 0.7
        assert one.match is None
        assert one.complete().shape[1] == 3
        assert np.linalg.norm(one.complete().mean(axis=0) - made.members[true].pose.translation) < 0.7
    assert "3 objects" in repr(parsed)


def test_the_same_again(made, parsed):
    assert np.array_equal(geocaps.parse_scene(made.points, viewer=made.viewers).labels, parsed.labels)


def test_an_index_tells_apart_what_touches(tmp_path):
    """Pliers and a wrench that touch along a wide border: nothing but what they are parts them."""
    made = scene(1001, points=10000)
    together = geocaps.parse_scene(made.points, viewer=made.viewers)
    assert len(together.objects) == 1
    tools = [shape for shape in furnishings() if shape.class_name in ("pliers", "wrench")]
    for number, shape in enumerate(tools):
        np.save(
            tmp_path / f"{shape.class_name}_{number}.npy",
            shape.sample(4096, torch.Generator().manual_seed(0)).points.numpy(),
        )
    index = geocaps.Index(tmp_path / "tools.lance")
    index.add(sorted(tmp_path.glob("*.npy")))
    parsed = geocaps.parse_scene(made.points, index, viewer=made.viewers)
    assert len(parsed.objects) == len(made.members) == 2
    for one in parsed.objects:
        true = np.bincount(made.instance[one.points] + 1).argmax() - 1
        assert one.match.name.startswith(made.members[true].shape.class_name)
        both = (made.instance[one.points] == true).sum()
        assert both / (len(one.points) + (made.instance == true).sum() - both) > 0.9


def test_a_plane_alone_has_no_objects():
    flat = np.random.default_rng(0).uniform(-1, 1, (3000, 3)) * [1, 1, 0]
    found = geocaps.parse_scene(flat)
    assert (found.objects, len(found.planes)) == ((), 1)
    assert (found.labels == -1).all()


def test_bad_input_is_one_sentence():
    for cloud, sentence in (
        (np.empty((0, 3)), "the scan has 0 points"),
        (np.full((100, 3), np.nan), "NaN or infinite"),
        (np.ones((100, 3)), "all in one place"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            geocaps.parse_scene(cloud)
