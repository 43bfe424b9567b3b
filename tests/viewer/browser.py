"""A real browser, and the hands and eyes of a person in front of it."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, Playwright

WIDTH, HEIGHT = 1100, 600
WAIT = 60.0
"""Seconds that a slow machine may take for anything."""
# WebGL by the processor: there is no graphics card where tests run.
_ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def launch(playwright: Playwright) -> Browser:
    """The browser of the system, else playwright's own. None at all fails the test: it is never skipped."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    return playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)


class Person:
    """Someone at one browser."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, accept_downloads=True)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT * 1000)
        self.open(url)

    def open(self, url: str) -> None:
        """The page anew: what was done in it before is gone."""
        self.page.goto("about:blank")
        self.page.goto(url)
        # The browser's remark on the missing graphics card comes and goes over what is drawn.
        self.page.add_style_tag(content=".mantine-Notifications-root { display: none }")
        self.wait(lambda state: "object" in state)

    @property
    def state(self) -> dict[str, Any]:
        panel = self.page.locator("#geocaps-state")
        return json.loads(panel.text_content() or "{}") if panel.count() else {}

    def wait(self, arrived: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until the page's own state is as expected."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            state = self.state
            if state and arrived(state):
                return state
            time.sleep(0.05)
        raise AssertionError(f"the page never came to the expected state; it is {self.state}, it says {self.message}")

    @property
    def message(self) -> str:
        return self.page.locator("#geocaps-message").first.text_content() or ""

    def wait_for_message(self, part: str) -> str:
        self.page.locator("#geocaps-message", has_text=part).first.wait_for()
        return self.message

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

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

    def look(self) -> np.ndarray:
        """What is drawn ``[h, w, 3]``, without the panel."""
        box = self.page.locator("canvas").first.bounding_box()
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        panel = self.page.locator("#geocaps-drop").bounding_box()
        right = min(box["x"] + box["width"], panel["x"] - 12)
        return np.asarray(shot.crop((int(box["x"]), int(box["y"]), int(right), int(box["y"] + box["height"]))))

    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The input picture and the canonical picture, once they have stood still for a second.

        On a busy machine a page takes its time between two of the steps in which it draws.
        """
        seen, since = self.look(), time.monotonic()
        end = since + WAIT
        while time.monotonic() < min(end, since + 1):
            time.sleep(0.25)
            again = self.look()
            if (again != seen).any():
                seen, since = again, time.monotonic()
        middle = seen.shape[1] // 2
        return seen[:, :middle], seen[:, middle:]


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
