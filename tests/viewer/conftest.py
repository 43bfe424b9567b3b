import pytest
import torch
from playwright.sync_api import sync_playwright

import geocaps
from geocaps import Index
from geocaps.data.sequences import sequence
from geocaps.io import save_points
from geocaps.viewer.clouds import EXAMPLE, embedded_cloud
from geocaps.viewer.server import Shared
from geocaps.viewer.session import ObjectSession
from geocaps.viewer.track_mode import ToTrack
from tests.viewer.browser import Person, WatchedViewer, launch

FRAMES, BAD_FRAME = 8, 5


@pytest.fixture(scope="session")
def model():
    return geocaps.load()


@pytest.fixture(scope="session")
def chair(model):
    return embedded_cloud(EXAMPLE, model.config.parts.parts)


@pytest.fixture
def session(model, chair):
    return ObjectSession(model, chair, torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def tracked_files(tmp_path_factory):
    """A reference and a folder of frames, one of which shows nothing."""
    folder, made = tmp_path_factory.mktemp("tracked"), sequence(6)
    (folder / "frames").mkdir()
    save_points(folder / "reference.ply", made.reference)
    for number, frame in enumerate(made.frames[:FRAMES]):
        save_points(folder / "frames" / f"{number}.ply", frame[:3] if number == BAD_FRAME else frame)
    return folder


@pytest.fixture(scope="module")
def viewer(model, tracked_files, tmp_path_factory):
    index = Index(tmp_path_factory.mktemp("index") / "shapes", model)
    names = ["chair 1", "mug 1"]
    index.add([embedded_cloud(name, 16).points for name in names], names=names)
    followed = ToTrack.of_files(str(tracked_files / "frames"), str(tracked_files / "reference.ply"), None)
    viewer = WatchedViewer(Shared(model, {}, index, followed))
    yield viewer
    viewer.stop()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window(browser, viewer):
    person = Person(browser, viewer)
    yield person
    person.context.close()


@pytest.fixture
def person(window, viewer):
    """Someone who has just opened the page; the window is the same for all tests, opening one takes the longest."""
    window.open(viewer)
    return window
