"""The page of one browser: what belongs to all modes (opening, messages, saving, state), and the modes themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.io import SUFFIXES
from geocaps.viewer import saving, texts
from geocaps.viewer.align_mode import AlignMode
from geocaps.viewer.clouds import ShownCloud, uploaded_cloud
from geocaps.viewer.object_mode import ObjectMode
from geocaps.viewer.scene import Canvas
from geocaps.viewer.search_mode import SearchMode
from geocaps.viewer.shared import Shared

if TYPE_CHECKING:
    from viser import ClientHandle

MODES = ("Object", "Align", "Search")
_MAX_UPLOADS = 20
_PNG_WAIT = 30.0
_ACKNOWLEDGED = (16, 16)
"""Height and width of a picture that nobody looks at."""


class Page:
    """Everything of one browser; another browser has another one. One thing at a time: ``lock`` keeps order."""

    def __init__(self, client: ClientHandle, shared: Shared, seed: int) -> None:
        self.client, self.shared = client, shared
        self.lock = threading.RLock()
        self.uploads: dict[str, ShownCloud] = {}
        self.mode = MODES[0]
        self.revision = 0
        self._setting = False
        gui = client.gui
        self.canvas = Canvas(client)
        self.upload = gui.add_upload_button("Open a file", mime_type=",".join(sorted(SUFFIXES)))
        gui.add_html(texts.DROP_ZONE)
        self.choice = gui.add_dropdown("object", shared.names, initial_value=shared.first)
        self.message = gui.add_html(texts.notice("loading"))
        self.mode_buttons = gui.add_button_group("mode", MODES)
        first = shared.cloud(shared.first)
        generator = torch.Generator().manual_seed(seed)
        self.object = ObjectMode(self, first, generator)
        self.align = AlignMode(self)
        self.search = SearchMode(self)
        with gui.add_folder("Save what is seen"):
            self._button("PNG picture", self._save_png)
            self._button("PLY points", self._save_ply)
            self._button("JSON data", self._save_json)
        with gui.add_folder("State", expand_by_default=False):
            self.state = gui.add_html(texts.state({}))
        self.upload.on_upload(self.guarded(self._uploaded))
        self.choice.on_update(self.guarded(self._chosen))
        self.mode_buttons.on_click(self.guarded(lambda: self.switch(self.mode_buttons.value)))
        client.scene.on_click()(self._clicked)
        with self.lock:
            self.switch(MODES[0])
            self.say_opened(first)

    # ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def guarded(self, work: Callable[[], None]) -> Callable[[Any], None]:
        """A handler that does ``work`` alone, and shows the library's sentence when that cannot be done."""

        def handler(_: Any) -> None:
            with self.lock:
                if self._setting:
                    return
                try:
                    work()
                except GeocapsError as error:
                    self.complain(str(error))
                except Exception as error:
                    self.complain(f"this should not have happened ({type(error).__name__}): the terminal says more")
                    raise
                finally:
                    self.publish()

        return handler

    def put(self, control: Any, value: Any, options: tuple[str, ...] | None = None) -> None:
        """Set a control of the page; its handler, which viser calls at once, does nothing."""
        self._setting = True
        try:
            if options is not None:
                control.options = options
            control.value = value
        finally:
            self._setting = False

    def _button(self, label: str, work: Callable[[], None]) -> None:
        self.client.gui.add_button(label).on_click(self.guarded(work))

    def _uploaded(self) -> None:
        file = self.upload.value
        if len(self.uploads) >= _MAX_UPLOADS:
            raise InvalidInputError(f"{_MAX_UPLOADS} files were opened here: reload the page to open more")
        self.add(uploaded_cloud(file.name, file.content, self.shared.minimum))

    def add(self, cloud: ShownCloud) -> None:
        """A new cloud for this browser alone, shown at once; one of the same name takes its place."""
        self.object.open(cloud)
        self.uploads[cloud.name] = cloud
        self.put(self.choice, cloud.name, self.names)
        self.align.offer(self.names)
        self.say_opened(cloud)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.uploads, *(name for name in self.shared.names if name not in self.uploads))

    def cloud(self, name: str) -> ShownCloud:
        return self.uploads[name] if name in self.uploads else self.shared.cloud(name)

    def _chosen(self) -> None:
        cloud = self.cloud(self.choice.value)
        if cloud is self.object.session.still.cloud:
            return
        self.object.open(cloud)
        self.say_opened(cloud)

    def switch(self, mode: str) -> None:
        self.mode = mode
        self.object.show(mode == "Object")
        self.align.show(mode == "Align")
        self.search.show(mode == "Search")

    def _clicked(self, event: Any) -> None:
        if self.mode == "Object":
            self.guarded(lambda: self.object.clicked(event.ray_origin, event.ray_direction))(event)

    # ── what the page says ────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str) -> None:
        self.message.content = texts.notice(text)

    def complain(self, text: str) -> None:
        self.message.content = texts.trouble(text)

    def say_opened(self, cloud: ShownCloud) -> None:
        some = "" if cloud.total == len(cloud.points) else f", {len(cloud.points):,} of them shown"
        self.say(f"{cloud.name}: {cloud.total:,} points{some}")

    def publish(self) -> None:
        """The state, in the page: sent after all that it tells of, so that whoever sees it there knows of the rest."""
        with self.lock:
            self.revision += 1
            own = {"revision": self.revision, "mode": self.mode}
            self.state.content = texts.state(
                {**own, **self.object.state(), **self.align.state(), **self.search.state()}
            )

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def picture(self, height: int, width: int, timeout: float = _PNG_WAIT, **camera: Any) -> np.ndarray:
        """What the browser draws ``[h, w, 4]``, once it has drawn all that was sent: from where it looks, or elsewhere.

        The browser answers in the order in which it was asked, so its first answer acknowledges what was sent before.
        Only the second is the picture: in the first frame after a change of colours, points have a provisional size.
        """
        with self.lock:
            try:
                self.client.get_render(*_ACKNOWLEDGED, timeout=timeout)
                return self.client.get_render(height, width, transport_format="png", timeout=timeout, **camera)
            except TimeoutError:
                sentence = "the browser sent no picture: bring its window to the front, try again"
                raise InvalidInputError(sentence) from None

    def _save_png(self) -> None:
        camera = self.client.camera
        self._download("png", saving.png_bytes(self.picture(camera.image_height, camera.image_width)))

    def _save_ply(self) -> None:
        self._download("ply", self._current().ply())

    def _save_json(self) -> None:
        self._download("json", saving.json_bytes(self._current().record()))

    def _current(self) -> ObjectMode | AlignMode | SearchMode:
        modes: dict[str, ObjectMode | AlignMode | SearchMode] = {
            "Object": self.object,
            "Align": self.align,
            "Search": self.search,
        }
        return modes[self.mode]

    def _download(self, suffix: str, content: bytes) -> None:
        self.client.send_file_download(f"geocaps_{self.mode.lower()}.{suffix}", content, save_immediately=True)
        self.say(f"geocaps_{self.mode.lower()}.{suffix} was handed to the browser, {len(content):,} bytes")
