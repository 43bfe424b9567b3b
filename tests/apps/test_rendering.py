"""The renderer: what is in front hides what is behind, light and shadow come from above, scale and text are right."""

import io

import numpy as np
import pytest
from PIL import Image

import geocaps
from geocaps.apps.drawing import Grid, draw_points, part_colors
from geocaps.apps.rendering import Scene

RED, GREEN = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
FLAT = np.stack([*np.meshgrid(np.linspace(-1, 1, 40), [0.0], np.linspace(-1, 1, 40))], axis=-1).reshape(-1, 3)
"""A floor, seen from above at a slant."""


def painted(scene, pixels=120):
    return scene.image(pixels)


def reddish(image):
    return (image[..., 0] > 0.3) & (image[..., 1] < 0.2)


def greenish(image):
    return (image[..., 1] > 0.3) & (image[..., 0] < 0.2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_nearer_hides_what_is_behind_whichever_is_drawn_first(order):
    wall = np.stack([*np.meshgrid(np.linspace(-1, 1, 40), np.linspace(-1, 1, 40), [0.0])], axis=-1).reshape(-1, 3)
    scene, layers = Scene(), [(wall + np.array([0, 0, 1.0]), RED), (wall - np.array([0, 0, 0.5]), GREEN)]
    for which in order:
        draw_points(scene, *layers[which])
    image = painted(scene)
    middle = image[40:80, 50:70]
    assert reddish(middle).mean() > 0.9
    assert greenish(image).any()  # beside the nearer wall


def test_triangles_are_filled_and_hidden_like_points():
    scene = Scene()
    square = np.array([[[0, 0, 0], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 0], [0, 1, 0]]], dtype=float)
    scene.add_triangles(square, np.tile(RED, (2, 1)))
    scene.add_triangles(square - [0, 0, 0.3], np.tile(GREEN, (2, 1)))
    image = painted(scene)
    assert reddish(image).sum() > 3 * greenish(image).sum() > 0
    holes = ~(reddish(image) | greenish(image))
    rows, columns = np.nonzero(reddish(image))
    middle = slice(int(np.median(rows)) - 10, int(np.median(rows)) + 10)
    assert not holes[middle, int(np.median(columns)) - 10 : int(np.median(columns)) + 10].any()


def test_what_faces_the_light_is_brighter():
    wall = FLAT[:, [0, 2, 1]]
    tops, sides = (painted(one) for one in (scene_of(FLAT), scene_of(wall)))
    assert np.median(tops[..., 0][reddish(tops)]) > 1.1 * np.median(sides[..., 0][reddish(sides)])


def scene_of(points):
    scene = Scene()
    draw_points(scene, points, RED)
    return scene


def test_a_shadow_lies_below_and_the_rest_is_white():
    ball = np.random.default_rng(0).normal(size=(800, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    image = painted(scene_of(ball))
    grey = (np.ptp(image, axis=2) < 0.02) & (image[..., 0] < 0.95)
    assert grey.any()
    assert np.nonzero(grey)[0].mean() > np.nonzero(reddish(image))[0].mean()
    np.testing.assert_allclose(image[:3], 1.0, atol=1e-3)


def test_nothing_gives_a_white_picture_and_few_points_are_drawn():
    assert (painted(Scene()) == 1).all()
    scene = scene_of(np.zeros((0, 3)))
    assert (painted(scene) == 1).all()
    two = painted(scene_of(np.array([[0.0, 0, 0], [1, 0, 0]])))
    assert (two[..., 1] < 0.6).any()


def test_a_picture_is_the_same_each_time_and_its_rows_may_share_a_scale():
    large, small = FLAT, 0.5 * FLAT
    sizes = {}
    for same in (False, True):
        grid = Grid(1, 2, same_scale=same)
        draw_points(grid.panel(0, 0), large, RED)
        draw_points(grid.panel(0, 1), small, RED)
        png = grid.png()
        assert png == grid.png()
        image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")) / 255
        left, right = (int(reddish(half).sum()) for half in np.array_split(image, 2, axis=1))
        sizes[same] = right / left
    assert sizes[False] == pytest.approx(1, abs=0.1)
    assert sizes[True] < 0.4


def test_captions_and_legends_are_below_and_long_titles_are_cut():
    grid = Grid(1, 1)
    draw_points(grid.panel(0, 0, "a very long name that does not fit over one panel"), FLAT, RED)
    plain = Image.open(io.BytesIO(grid.png())).size
    grid.caption("What is seen, in metres.", {"red": RED})
    assert Image.open(io.BytesIO(grid.png())).size[1] > plain[1]
    assert plain[0] == Image.open(io.BytesIO(grid.png())).size[0]


def test_part_colours_differ_from_their_neighbours_and_none_is_grey():
    colors = part_colors(40)
    assert (np.ptp(colors, axis=1) > 0.2).all()
    assert (np.linalg.norm(np.diff(colors, axis=0), axis=1) > 0.2).all()
    assert len(np.unique(colors.round(2), axis=0)) == 40


def test_the_picture_of_parts_is_large_enough_to_read():
    found = geocaps.parts(FLAT[::2], geocaps.untrained("cpu"))
    assert Image.open(io.BytesIO(found.png())).size[0] >= 1200
