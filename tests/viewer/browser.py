"""A real browser, and the hands and eyes of a person in front of it."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Locator, Playwright, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from viser import ClientHandle

from geocaps.viewer.mode import EYE
from geocaps.viewer.page import png_bytes
from geocaps.viewer.server import Shared, Viewer

WIDTH, HEIGHT = 900, 400
"""Small: without a graphics card every pixel costs time."""
WAIT = 300.0
"""Seconds that a busy machine may take for any one thing: minutes, but less than pytest gives a test (600), so that
what ends a test says what it was waiting for."""
expect.set_options(timeout=WAIT * 1000)
# WebGL by the processor: there is no graphics card where tests run.
_ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
_NEWER_STATE = """revision => {
    const panel = document.getElementById("geocaps-state");
    const state = panel ? JSON.parse(panel.textContent) : {};
    return state.revision > revision ? state : null;
}"""
_SIDE = 300
_AWAY = 4.0
_FIELD = 2 * np.arctan(1.06 / _AWAY)
"""An object has radius 1; its title stands at 1.15."""
_FROM_THE_FRONT = (0.0, 1.0, 0.0, 0.0)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def launch(playwright: Playwright) -> Browser:
    """The browser of the system, else playwright's own. None at all fails the test: it is never skipped."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    return playwright.chromium.launch(executable_path=found, args=_ARGUMENTS, timeout=WAIT * 1000)


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A window that waits as long as a busy machine may take; playwright itself gives up after half a minute."""
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT * 1000)
    return context


class WatchedViewer(Viewer):
    """A running page that tells when a browser has come or gone."""

    def __init__(self, shared: Shared) -> None:
        self._moved = threading.Condition()
        super().__init__(shared, port=0)

    def _connected(self, client: ClientHandle) -> None:
        super()._connected(client)
        with self._moved:
            self._moved.notify_all()

    def _disconnected(self, client: ClientHandle) -> None:
        super()._disconnected(client)
        with self._moved:
            self._moved.notify_all()

    def wait_for_pages(self, count: int) -> None:
        with self._moved:
            came = self._moved.wait_for(lambda: len(self.pages) == count, WAIT)
        assert came, f"{len(self.pages)} browsers are connected, not {count}"


class Person:
    """Someone at one browser; ``server`` is the server's side of the page."""

    def __init__(self, browser: Browser, viewer: Viewer, *, touch: bool = False) -> None:
        # Panels that glide into their place would be clicked on their way.
        self.context = new_context(
            browser,
            viewport={"width": WIDTH, "height": HEIGHT},
            accept_downloads=True,
            reduced_motion="reduce",
            has_touch=touch,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.page = self.context.new_page()
        self.open(viewer)
        if touch:
            # Until then a tap would be taken for the drag of a handle.
            self.page.locator("#geocaps-touch").wait_for(state="attached")

    def open(self, viewer: Viewer) -> None:
        """The page anew: what was done in it before is gone.

        At a fixed resolution: by itself viser draws coarser where drawing is slow, in the middle of whatever is done.
        """
        self.page.goto("about:blank")
        self.page.goto(f"{viewer.url}/?fixedDpr=1")
        # The browser's remark on the missing graphics card comes and goes over what is drawn.
        self.page.add_style_tag(content=".mantine-Notifications-root { display: none }")
        self.wait(lambda state: True)
        # Of a page that was just left, the server may not know yet.
        self.server = viewer.pages[max(viewer.pages)]

    @property
    def state(self) -> dict[str, Any]:
        """The page's own state."""
        return self._state_after(0)

    def wait(self, arrived: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until the page's own state is as expected: it is looked at whenever the page has announced a new one."""
        end = time.monotonic() + WAIT
        state: dict[str, Any] = {"revision": 0}
        while True:
            try:
                state = self._state_after(state["revision"], end - time.monotonic())
            except PlaywrightTimeout:
                message = f"the page never came to the expected state; it is {state}, it says {self.message}"
                raise AssertionError(message) from None
            if arrived(state):
                return state

    def _state_after(self, revision: int, seconds: float = WAIT) -> dict[str, Any]:
        shown = self.page.wait_for_function(_NEWER_STATE, arg=revision, timeout=max(1.0, 1000 * seconds))
        return shown.json_value()

    def look(self, at: np.ndarray | None = None) -> np.ndarray:
        """What the browser has drawn ``[h, w, 3]`` of all that was announced: as it is seen, or ``at`` from the front.

        From the front there is one object alone, without the title above it, and wherever the camera is.
        """
        if at is None:
            camera = self.server.client.camera
            seen = self.server.picture(camera.image_height, camera.image_width, WAIT)
        else:
            position = at + np.array([0, 0, _AWAY])
            seen = self.server.picture(_SIDE, _SIDE, WAIT, position=position, wxyz=_FROM_THE_FRONT, fov=_FIELD)
        return np.asarray(Image.open(io.BytesIO(png_bytes(seen))))

    def sent(self, name: str, what: str = "points") -> np.ndarray:
        """Points, colours … of a node as they were sent to the browser: a copy, viser changes its own in place."""
        return np.array(getattr(self.server.canvas.nodes[name], what))

    @property
    def message(self) -> str:
        """What the page says, nothing before it is there."""
        return next(iter(self.page.locator("#geocaps-message").all_text_contents()), "")

    def wait_for_message(self, part: str) -> None:
        expect(self.page.locator("#geocaps-message")).to_contain_text(part)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def read(self, text: str, *, exact: bool = False) -> None:
        """Until the page shows this text, which may come after the state that it tells of."""
        self.page.get_by_text(text, exact=exact).first.wait_for()

    def press(self, name: str) -> None:
        self.button(name).first.click()

    def unfold(self, folder: str) -> None:
        self.page.get_by_text(folder, exact=True).click()

    def tick(self, label: str) -> None:
        self.page.get_by_label(label, exact=True).click()

    def enter(self, label: str, value: float) -> None:
        """A number into the field beside a slider."""
        row = self.page.locator("label", has_text=label).locator("xpath=ancestor::*[.//input[@type='text']][1]")
        field = row.locator("input[type=text]")
        field.fill(f"{value:g}")
        field.press("Enter")

    def choose(self, label: str, option: str) -> None:
        field = self.page.get_by_label(label, exact=True)
        field.click()
        field.fill(option)
        self.page.get_by_role("option", name=option, exact=True).click()

    def upload(self, name: str, content: bytes) -> None:
        file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        self.page.locator("input[type=file]").set_input_files(file)


def hues(image: np.ndarray) -> int:
    """How many different colours (of 24 on the circle) cover at least a few pixels."""
    hsv = np.asarray(Image.fromarray(image).convert("HSV")).reshape(-1, 3).astype(int)
    strong = hsv[(hsv[:, 1] > 70) & (hsv[:, 2] > 60)]
    counts = np.bincount(strong[:, 0] * 24 // 256, minlength=24)
    return int((counts > 12).sum())


def changed(before: np.ndarray, after: np.ndarray) -> float:
    """Of the pixels that are drawn in either picture, the share that differ."""
    drawn = (before.min(axis=2) < 200) | (after.min(axis=2) < 200)
    differ = np.abs(before.astype(int) - after.astype(int)).max(axis=2) > 40
    return float((differ & drawn).sum() / max(drawn.sum(), 1))


def motion(before, after):
    """Root mean square motion of a cloud that was sent, in radii of the object."""
    return float(np.sqrt(((after - before) ** 2).sum(axis=1).mean()))


def first_camera(person):
    """The camera as the browser has reported it, once it stands where the page puts it at first."""
    camera, reported = person.server.client.camera, threading.Event()
    camera.on_update(lambda _: reported.set())
    end = time.monotonic() + WAIT
    while True:
        reported.clear()
        box = person.page.locator("canvas").first.bounding_box()
        size = camera.image_width, camera.image_height
        if np.allclose(camera.position, EYE, atol=1e-4) and size == (box["width"], box["height"]):
            return camera
        came = reported.wait(end - time.monotonic())
        assert came, f"the camera is at {camera.position}, not {EYE}; its picture has {size}, the canvas is {box}"


def on_screen(point, camera, person):
    """Where a point of the scene is in the window."""
    w, x, y, z = camera.wxyz
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    right, down, ahead = rotation.T @ (point - camera.position)
    box = person.page.locator("canvas").first.bounding_box()
    focal = box["height"] / 2 / np.tan(camera.fov / 2)
    return (
        box["x"] + box["width"] / 2 + focal * right / ahead,
        box["y"] + box["height"] / 2 + focal * down / ahead,
    )
