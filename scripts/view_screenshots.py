"""Takes the pictures of the web page that the documents show: python -m scripts.view_screenshots [FOLDER]."""

from __future__ import annotations

import io
import math
import sys
import threading
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import sync_playwright
from tests.viewer.browser import Person, launch

import geocaps
from geocaps.data.corruption import crop_half_space, gaussian_noise
from geocaps.data.synthetic import make_shape
from geocaps.geometry.se3 import Pose
from geocaps.viewer.clouds import by_name, shown_cloud
from geocaps.viewer.server import Shared, Viewer

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WINDOW = {"width": 1180, "height": 620}
COLORS = 128
"""Enough for flat colours, and a picture of a third of the size."""
DRAGGED = "furniture: armchair (1)"
FRAMES, FRAME_MS, FILM = 28, 110, (826, 434)
FILM_COLORS = 200
NEARER = 0.78  # the camera, against where it stands at first


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = make_shape("airplane", 7)
    generator = torch.Generator().manual_seed(4)
    model_cloud = whole.sample(3000, generator).points
    scan = crop_half_space(whole.sample(3000, generator).points, 0.7, generator)[0]
    scan = gaussian_noise(Pose.random(generator=generator).apply(scan), 0.008, generator)
    files = by_name([shown_cloud("model.ply", model_cloud.numpy(), 16), shown_cloud("scan.ply", scan.numpy(), 16)])
    viewer = Viewer(Shared(geocaps.load(), files), port=0)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            person = Person(browser, viewer)
            person.page.set_viewport_size(WINDOW)
            _film(person, folder)
            _parts(person, folder)
            _align(person, folder)
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

    # In a thread of its own, as a browser's event is: the browser must be able to answer.
    thread = threading.Thread(target=person.server.guarded(work), args=(None,))
    thread.start()
    person.wait(lambda state: state["angles"] == angles)
    thread.join()


def _parts(person: Person, folder: Path) -> None:
    person.choose("object", "chair 1")
    person.wait(lambda state: state["object"] == "chair 1")
    for axis, angle in (("x", 25), ("y", 150), ("z", -35)):
        person.enter(f"about {axis}", angle)
    person.wait(lambda state: state["angles"] == [25.0, 150.0, -35.0])
    _take(person, folder / "view_parts.png")


def _align(person: Person, folder: Path) -> None:
    person.press("Align")
    person.choose("A (orange)", "scan.ply")
    person.choose("B (blue)", "model.ply")
    person.press("Align A to B")
    person.wait(lambda state: state["alignment"] is not None)
    _take(person, folder / "view_align.png")


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
