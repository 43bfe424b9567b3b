"""Takes the pictures of the web page that the README shows: python -m scripts.view_screenshots."""

from __future__ import annotations

import io
from pathlib import Path

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


def main() -> None:
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
            _parts(person)
            _align(person)
            browser.close()
    finally:
        viewer.stop()


def _parts(person: Person) -> None:
    person.choose("object", "chair 1")
    person.wait(lambda state: state["object"] == "chair 1")
    for axis, angle in (("x", 25), ("y", 150), ("z", -35)):
        person.enter(f"about {axis}", angle)
    person.wait(lambda state: state["angles"] == [25.0, 150.0, -35.0])
    _take(person, "view_parts.png")


def _align(person: Person) -> None:
    person.press("Align")
    person.choose("A (orange)", "scan.ply")
    person.choose("B (blue)", "model.ply")
    person.press("Align A to B")
    person.wait(lambda state: state["alignment"] is not None)
    _take(person, "view_align.png")


def _take(person: Person, name: str) -> None:
    person.page.mouse.move(5, 5)
    person.page.locator("#geocaps-drop").scroll_into_view_if_needed()
    person.look()
    shot = Image.open(io.BytesIO(person.page.screenshot(animations="disabled"))).convert("RGB")
    path = IMAGES / name
    shot.quantize(COLORS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
