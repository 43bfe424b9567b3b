"""Takes the pictures of the web page that the documents show: python -m scripts.view_screenshots [FOLDER]."""

from __future__ import annotations

import io
import math
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import sync_playwright
from tests.viewer.browser import Person, launch

import geocaps
from geocaps.data.corruption import crop_half_space, gaussian_noise
from geocaps.data.synthetic import make_shape
from geocaps.geometry.se3 import Pose
from geocaps.viewer.clouds import by_name, embedded_cloud, embedded_names, shown_cloud
from geocaps.viewer.scene_mode import EXAMPLE_SCAN
from geocaps.viewer.server import Shared, Viewer

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WINDOW = {"width": 1180, "height": 620}
COLORS = 128
"""Enough for flat colours, and a picture of a third of the size."""
DRAGGED = "furniture: armchair (1)"
FRAMES, FRAME_MS, FILM = 28, 110, (826, 434)
FILM_COLORS = 200
NEARER = 0.78  # the camera of the film, against where it stands at first
INDEXED = 69  # the procedural shapes that the page lists
HALF_HIDDEN = 0.5  # share of the parts that are seen in the frame that is shown


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = make_shape("airplane", 7)
    generator = torch.Generator().manual_seed(4)
    model_cloud = whole.sample(3000, generator).points
    scan = crop_half_space(whole.sample(3000, generator).points, 0.7, generator)[0]
    scan = gaussian_noise(Pose.random(generator=generator).apply(scan), 0.008, generator)
    files = by_name([shown_cloud("model.ply", model_cloud.numpy(), 16), shown_cloud("scan.ply", scan.numpy(), 16)])
    model = geocaps.load()
    with tempfile.TemporaryDirectory() as place:
        index = geocaps.Index(Path(place) / "shapes.lance", model)
        names = embedded_names()[:INDEXED]
        clouds = [model_cloud.numpy(), *(embedded_cloud(name, 16).points for name in names)]
        index.add(clouds, names=["model.ply", *names])
        _take_all(Viewer(Shared(model, files, index), port=0), folder)


def _take_all(viewer: Viewer, folder: Path) -> None:
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            person = Person(browser, viewer)
            person.page.set_viewport_size(WINDOW)
            _film(person, folder)
            person.open(viewer)  # the camera stands where it does at first: nothing is cut off
            _parts(person, folder)
            _align(person, folder)
            _search(person, folder)
            _paint(person, folder)
            _track(person, folder)
            _scene(person, folder)
            browser.close()
    finally:
        viewer.stop()


def _film(person: Person, folder: Path) -> None:
    """The object is turned by its sliders all the way round; its canonical view is found anew in every frame."""
    person.choose("object", DRAGGED)
    person.wait(lambda state: state["object"] == DRAGGED)
    camera = person.server.client.camera
    camera.position = NEARER * np.asarray(camera.position)
    frames = []
    for step in range(FRAMES):
        turn = 2 * math.pi * step / FRAMES
        angles = [round(60 * math.sin(turn)), round(-180 * math.sin(turn / 2) ** 2), round(45 * math.sin(2 * turn))]
        _turn(person, angles)
        frames.append(_seen(person).resize(FILM, Image.Resampling.LANCZOS))
    # One palette for all frames: a part keeps its colour.
    every = Image.new("RGB", (FILM[0], FILM[1] * 4))
    for place, frame in enumerate(frames[:: len(frames) // 4][:4]):
        every.paste(frame, (0, place * FILM[1]))
    palette = every.quantize(FILM_COLORS)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    path = folder / "view.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=FRAME_MS, loop=0, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


def _turn(person: Person, angles: list[int]) -> None:
    """All three sliders at once, which no hand can do."""
    mode = person.server.object

    def work() -> None:
        mode.session.turn_to((float(angles[0]), float(angles[1]), float(angles[2])))
        for slider, angle in zip(mode.angles, angles, strict=True):
            person.server.put(slider, float(angle))
        mode.draw()

    _do(person, work, lambda state: state["angles"] == angles)


def _do(person: Person, work: Callable[[], None], done: Callable[[dict[str, Any]], bool]) -> None:
    """In a thread of its own, as a browser's event is: the browser must be able to answer."""
    thread = threading.Thread(target=person.server.guarded(work), args=(None,))
    thread.start()
    person.wait(done)
    thread.join()


def _parts(person: Person, folder: Path) -> None:
    person.choose("object", "chair 1")
    person.wait(lambda state: state["object"] == "chair 1")
    angles = [0.0, 0.0, 0.0]
    for number, (axis, angle) in enumerate((("x", 25.0), ("y", 150.0), ("z", -35.0))):
        angles[number] = angle
        person.enter(f"about {axis}", angle)
        person.wait(lambda state: state["angles"] == angles)
    _take(person, folder / "view_parts.png")


def _align(person: Person, folder: Path) -> None:
    person.press("Align")
    person.choose("A (orange)", "scan.ply")
    person.choose("B (blue)", "model.ply")
    person.press("Align A to B")
    person.wait(lambda state: state["alignment"] is not None)
    _take(person, folder / "view_align.png")


def _search(person: Person, folder: Path) -> None:
    """A scan that is opened while this mode is shown is looked for at once."""
    person.press("Search")
    person.choose("object", "scan.ply")
    person.wait(lambda state: state["hits"] is not None)
    _take(person, folder / "view_search.png")


def _paint(person: Person, folder: Path) -> None:
    """Legs, seat and back of one chair, by the height of its parts."""
    person.press("Paint")
    person.choose("object", "chair 2")
    person.wait(lambda state: state["painted"] is not None and state["painted"]["object"] == "chair 2")
    mode = person.server.modes["Paint"]

    def work() -> None:
        painting = mode.result()
        heights = painting.row()[0][0][:, 1]
        for part in np.unique(painting.parts[painting.parts >= 0]).tolist():
            height = float(heights[painting.parts == part].mean())
            painting.paint_part(part, 1 if height < -0.15 else 2 if height < 0.15 else 3)
        mode.draw()

    _do(person, work, lambda state: {1, 2, 3} <= set(state["painted"]["labels"]))
    _take(person, folder / "view_paint.png")


def _track(person: Person, folder: Path) -> None:
    person.press("Track")
    person.press("Track the object")
    person.wait(lambda state: state["track"] is not None)
    found = person.server.modes["Track"].result().found
    seen = [abs(float(one.parts_visible.mean()) - HALF_HIDDEN) + one.lost for one in found]
    number = int(np.argmin(seen))
    person.enter("frame", number)
    person.wait(lambda state: state["track"]["frame"] == number)
    _take(person, folder / "view_track.png")


def _scene(person: Person, folder: Path) -> None:
    person.press("Scene")
    person.choose("scan", EXAMPLE_SCAN)
    person.press("Find the objects")
    person.wait(lambda state: state["scene"] is not None)
    mode = person.server.modes["Scene"]
    person.choose("look at", mode.object.options[1])
    person.wait(lambda state: state["scene"]["chosen"] == 0)
    _take(person, folder / "view_scene.png")


def _seen(person: Person) -> Image.Image:
    person.page.mouse.move(5, 5)
    person.look()
    return Image.open(io.BytesIO(person.page.screenshot(animations="disabled"))).convert("RGB")


def _take(person: Person, path: Path) -> None:
    person.page.locator("#geocaps-drop").scroll_into_view_if_needed()
    _seen(person).quantize(COLORS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
