"""Files of an evaluation: figures that show something, a page that needs nothing else."""

import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from geocaps.apps.drawing import Grid, draw_points, draw_surfaces
from geocaps.atomic import make_folder
from geocaps.datasets import load
from geocaps.errors import UsageError
from geocaps.evaluation.figures import FIGURES, draw_all
from geocaps.evaluation.report import write_report, write_results
from geocaps.evaluation.run import Settings, evaluate


@pytest.fixture(scope="module")
def result(model):
    dataset = load("shapes", per_class=1).of_classes(["chair", "mug"])
    return evaluate(model, dataset, Settings(points=64, protocols=("partial", "resampled"), baselines=("pca", "d2")))


@pytest.fixture(scope="module")
def images(result):
    return draw_all(result)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pictures_of_something(images, name):
    picture = pixels(images[name])
    assert picture.shape[0] > 150
    assert picture.shape[1] > 300
    painted = (picture < 250).any(axis=2).mean()
    assert 0.005 < painted < 0.9
    if name != "errors":
        colors = np.unique(picture.reshape(-1, 3) // 32, axis=0)
        assert len(colors) > 10


def test_figures_repeat(result, images):
    assert FIGURES["retrieval"][1](result) == images["retrieval"]


def test_the_same_points_in_canonical_frames_lie_on_top_of_each_other(images):
    """The second column (same points) covers far less paper than the first (50 turned inputs)."""
    picture = pixels(images["canonical"])
    inputs, canonical, _ = np.array_split((picture < 240).any(axis=2), 3, axis=1)
    assert canonical.mean() < 0.5 * inputs.mean()


def test_a_point_is_drawn_upright():
    """The data's y axis points up in the picture."""
    grid = Grid(1, 1)
    points = np.zeros((50, 3), dtype=np.float32)
    points[:, 1] = np.linspace(0, 1, 50)
    colors = np.stack([np.linspace(0, 1, 50), np.zeros(50), np.zeros(50)], axis=1)
    draw_points(grid.panel(0, 0), points, colors)
    picture = pixels(grid.png()).astype(int)
    red = np.argwhere((picture[..., 0] > 200) & (picture[..., 1] < 60))
    black = np.argwhere(picture.max(axis=2) < 60)
    assert red[:, 0].mean() < black[:, 0].mean()


def test_surfaces_are_filled():
    grid = Grid(1, 1)
    square = np.array([[[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]], dtype=np.float64)
    draw_surfaces(grid.panel(0, 0), square, np.array([[0, 1, 2], [1, 3, 2]]), np.array([[1.0, 0, 0]]))
    picture = pixels(grid.png()).astype(int)
    assert ((picture[..., 0] > 80) & (picture[..., 1] < 20)).mean() > 0.1


def test_results_folder(result, images, tmp_path):
    folder = write_results(result, images, tmp_path / "new" / "folder")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["results.json", "results.md", *(f"{name}.png" for name in FIGURES)]
    )
    stored = json.loads((folder / "results.json").read_text())
    assert stored["protocols"]["partial"] == result.to_dict()["protocols"]["partial"]
    assert stored["completion"] == result.to_dict()["completion"]
    assert "| chance: identity" in (folder / "results.md").read_text()


class Page(HTMLParser):
    """Checks that tags close, and collects where things come from."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.tables = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.tables += tag == "table"
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_one_self_contained_page(result, images, tmp_path):
    path = write_report(result, images, tmp_path / "report")
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.tables == 5
    assert len(page.sources) == len(FIGURES)
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert "Protocol resampled" in text
    assert f"<td>{1000 * result.completion['partial']['chamfer_mirrored']:.2f} [" in text


def test_a_folder_that_cannot_be_made_is_said_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        make_folder(tmp_path / "file" / "below")
