"""The page of one browser (opening, messages, saving, state, modes), and one object as a single HTML file."""

from __future__ import annotations

import base64
import io
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image

from geocaps.apps.drawing import STRAY_COLOR, label_colors, part_colors
from geocaps.apps.encode import Model
from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.io import SUFFIXES, save_points
from geocaps.io.save import check_target, write_whole
from geocaps.viewer.cloud_modes import AlignMode, SearchMode
from geocaps.viewer.clouds import KNOWN, ShownCloud, Stance, stances, uploaded_cloud
from geocaps.viewer.mode import (
    BUSY,
    DROP_ZONE,
    TOUCH,
    Canvas,
    Mode,
    code_panel,
    css_color,
    message,
    mode_notice,
    notice,
    state_panel,
    trouble,
)
from geocaps.viewer.object_mode import ObjectMode
from geocaps.viewer.paint_mode import PaintMode
from geocaps.viewer.scene_mode import SceneMode
from geocaps.viewer.session import ObjectSession, pose_record
from geocaps.viewer.track_mode import TrackMode

if TYPE_CHECKING:
    from viser import ClientHandle

    from geocaps.viewer.server import Shared

MODES = ("Object", "Align", "Search", "Paint", "Track", "Scene")
_ACTIVE = "▸ "  # marks the button of the mode that is shown
_MAX_UPLOADS = 20
_PNG_WAIT = 30.0
_MOMENT = 0.3  # seconds before a sign of progress appears
_ACKNOWLEDGED = (16, 16)  # height and width of a picture that only acknowledges earlier messages
_STEP = 1e-4  # resolution of exported coordinates, in radii: a tenth of a pixel on a large screen, in two bytes each


class Page:
    """The page of one browser; ``lock`` makes it do one thing at a time."""

    def __init__(self, client: ClientHandle, shared: Shared, seed: int) -> None:
        self.client, self.shared = client, shared
        self.lock = threading.RLock()
        self.uploads: dict[str, ShownCloud] = {}
        self._stances: dict[str, tuple[ShownCloud, Stance]] = {}
        self.revision = 0
        self._setting = False
        gui = client.gui
        self.canvas = Canvas(client)
        self.upload = gui.add_upload_button("Open a file", mime_type=",".join(sorted(SUFFIXES)))
        gui.add_html(DROP_ZONE + TOUCH)
        self.choice = gui.add_dropdown("object", shared.names, initial_value=shared.first)
        self.message = gui.add_html(message(notice("loading")))
        self.busy = gui.add_html(BUSY, visible=False)
        # Two rows, because six buttons do not fit side by side.
        self.mode_buttons = [gui.add_button_group("mode", MODES[:3]), gui.add_button_group("", MODES[3:])]
        self.explained = gui.add_html("")
        first = shared.cloud(shared.first)
        self.object = ObjectMode(self, first, torch.Generator().manual_seed(seed))
        others = AlignMode(self), SearchMode(self), PaintMode(self), TrackMode(self), SceneMode(self)
        self.modes: dict[str, Mode] = dict(zip(MODES, (self.object, *others), strict=True))
        with gui.add_folder("Save what is seen"):
            for label, work in (
                ("PNG picture", self._save_png),
                ("PLY points", lambda: self._download("ply", ply_bytes(*self.modes[self.mode].cloud()))),
                ("JSON data", lambda: self._download("json", json_bytes(self.modes[self.mode].record()))),
                ("TXT pose (4 × 4)", lambda: self._download("txt", matrix_bytes(self.modes[self.mode].pose()))),
            ):
                gui.add_button(label).on_click(self.guarded(work))
        with gui.add_folder("The same as a command, and in Python", expand_by_default=False):
            self.code = gui.add_html("")
        with gui.add_folder("State", expand_by_default=False):
            self.state = gui.add_html(state_panel({}))
        self.upload.on_upload(self.guarded(self._uploaded))
        self.choice.on_update(self.guarded(self._chosen))
        for row in self.mode_buttons:
            row.on_click(self.guarded(partial(self._mode_pressed, row)))
        client.scene.on_click()(self._clicked)
        with self.lock:
            self._switch("Object")
            self._say_opened(first)

    # ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def guarded(self, work: Callable[[], None]) -> Callable[[Any], None]:
        """A handler that runs ``work`` exclusively, and shows the message of an error on the page."""

        def handler(_: Any) -> None:
            with self.lock:
                if self._setting:
                    return
                try:
                    with self._patience():
                        work()
                except GeocapsError as error:
                    self.complain(str(error))
                except Exception as error:
                    self.complain(f"this should not have happened ({type(error).__name__}): the terminal says more")
                    raise
                finally:
                    self.publish()

        return handler

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """A sign of progress for longer work, removed at the end even if it fails."""
        sign = threading.Timer(_MOMENT, lambda: setattr(self.busy, "visible", True))
        sign.daemon = True
        sign.start()
        try:
            yield
        finally:
            sign.cancel()
            sign.join()  # it may be about to appear
            self.busy.visible = False

    def put(self, control: Any, value: Any, options: tuple[str, ...] | None = None) -> None:
        """Sets a control of the page without the effect of its handler, which viser calls at once."""
        self._setting = True
        try:
            if options is not None:
                control.options = options
            control.value = value
        finally:
            self._setting = False

    def _uploaded(self) -> None:
        """Opens a new cloud in this browser; it replaces one of the same name."""
        file = self.upload.value
        if len(self.uploads) >= _MAX_UPLOADS:
            raise InvalidInputError(f"{_MAX_UPLOADS} files were opened here: reload the page to open more")
        cloud = uploaded_cloud(file.name, file.content, self.shared.minimum)
        self.object.open(cloud)
        self.uploads[cloud.name] = cloud
        self.put(self.choice, cloud.name, self.names)
        for mode in self.modes.values():
            mode.offer(self.names)
        self._say_opened(cloud)
        self.modes[self.mode].opened()

    @property
    def names(self) -> tuple[str, ...]:
        """The clouds to choose from, with opened files first."""
        return (*self.uploads, *(name for name in self.shared.names if name not in self.uploads))

    def cloud(self, name: str) -> ShownCloud:
        return self.uploads[name] if name in self.uploads else self.shared.cloud(name)

    def _chosen(self) -> None:
        cloud = self.cloud(self.choice.value)
        if cloud is not self.object.session.still.cloud:
            self.object.open(cloud)
            self._say_opened(cloud)
            self.modes[self.mode].opened()

    def stance(self, cloud: ShownCloud) -> Stance:
        """How a cloud stands; computed once."""
        if cloud.upright:
            return KNOWN
        known, stance = self._stances.get(cloud.name, (None, KNOWN))
        if known is not cloud:
            (stance,) = stances([(self.shared.model.encode(cloud.points), False)])
            self._stances[cloud.name] = cloud, stance
        return stance

    def stance_of_object(self) -> Stance:
        """How the object stands in its present rotation."""
        session = self.object.session
        return Stance(session.stance.rotation @ session.now.turn.rotation.T, session.stance.how)

    def _mode_pressed(self, row: Any) -> None:
        self._switch(row.value.removeprefix(_ACTIVE))

    def _switch(self, mode: str) -> None:
        self.mode = mode
        for row, names in zip(self.mode_buttons, (MODES[:3], MODES[3:]), strict=True):
            row.options = tuple(f"{_ACTIVE}{name}" if name == mode else name for name in names)
        self.explained.content = mode_notice(mode, self.modes[mode].explained)
        for name, one in self.modes.items():
            one.show(name == mode)

    def _clicked(self, event: Any) -> None:
        origin, direction = (np.asarray(of, dtype=np.float64) for of in (event.ray_origin, event.ray_direction))
        self.guarded(lambda: self.modes[self.mode].clicked(origin, direction))(event)

    def close(self) -> None:
        """The browser was closed."""
        for mode in self.modes.values():
            mode.left()

    # ── messages and state ────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str) -> None:
        self.message.content = message(notice(text))

    def complain(self, text: str) -> None:
        self.message.content = message(trouble(text))

    def _say_opened(self, cloud: ShownCloud) -> None:
        some = "" if cloud.total == len(cloud.points) else f", {len(cloud.points):,} of them shown"
        self.say(f"{cloud.name}: {cloud.total:,} points{some}")

    def publish(self) -> None:
        """Sends the state after everything that it describes, so that whoever sees it there can rely on the rest."""
        with self.lock:
            self.revision += 1
            state: dict[str, Any] = {"revision": self.revision, "mode": self.mode}
            for mode in self.modes.values():
                state |= mode.state()
            self.code.content = code_panel(self.modes[self.mode].code())
            self.state.content = state_panel(state)

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def picture(self, height: int, width: int, timeout: float, **camera: Any) -> np.ndarray:
        """The browser's picture ``[h, w, 4]``, after it has drawn all that was sent, from its own or another camera.

        The browser answers requests in order, so its first answer acknowledges everything sent before. Only the second
        is the picture: in the first frame after a change of colours, points have a provisional size.
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
        self._download("png", png_bytes(self.picture(camera.image_height, camera.image_width, _PNG_WAIT)))

    def _download(self, suffix: str, content: bytes) -> None:
        name = f"geocaps_{self.mode.lower()}.{suffix}"
        self.client.send_file_download(name, content, save_immediately=True)
        self.say(f"{name} was handed to the browser, {len(content):,} bytes")


def png_bytes(image: np.ndarray) -> bytes:
    """A rendering ``[h, w, 4]`` on white, because many programs show transparency as black."""
    picture = Image.fromarray(image)
    white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    buffer = io.BytesIO()
    Image.alpha_composite(white, picture).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def ply_bytes(points: Float[np.ndarray, "n 3"], labels: Int[np.ndarray, "n"]) -> bytes:
    """Points in the colours of their labels."""
    with tempfile.TemporaryDirectory(prefix="geocaps-save-") as folder:
        path = Path(folder) / "cloud.ply"
        save_points(path, points, labels=labels, colors=label_colors(labels, int(labels.max()) + 1))
        return path.read_bytes()


def matrix_bytes(pose: Similarity) -> bytes:
    """Four lines of four numbers, as ``geocaps align --init`` and ``numpy.loadtxt`` read them."""
    return "".join(" ".join(f"{value:.17g}" for value in row) + "\n" for row in pose.matrix()).encode()


def json_bytes(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, indent=1).encode()


# ── one object as one HTML file, with its own small viewer, for use without a network ─────────────────────────────────


def export_page(path: str | os.PathLike[str], model: Model, cloud: ShownCloud) -> int:
    """Writes the page of a cloud, and returns its size in bytes."""
    path = Path(path)
    check_target(path, (".html", ".htm"))
    page = page_of(model, cloud).encode()
    write_whole(path, page)
    return len(page)


def page_of(model: Model, cloud: ShownCloud) -> str:
    template = (resources.files("geocaps.viewer") / "page.html").read_text(encoding="utf-8")
    # A name may contain "</script>", so there is no "<" in the data.
    data = json.dumps(page_data(model, cloud), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return template.replace("@TITLE@", escape(cloud.name)).replace("@DATA@", data)


def page_data(model: Model, cloud: ShownCloud) -> dict[str, Any]:
    session = ObjectSession(model, cloud, torch.Generator())
    picture, encoding = session.picture(), session.now.encoding
    return {
        "name": cloud.name,
        "total": cloud.total,
        "step": _STEP,
        "points": _packed(picture.points),
        "labels": base64.b64encode(picture.labels.astype(np.uint8).tobytes()).decode(),
        # A stray point's -1 became 255, which is no part.
        "stray": css_color(np.array(STRAY_COLOR)),
        "colors": [css_color(color) for color in part_colors(len(picture.surfaces))],
        "surfaces": _packed(picture.surfaces),
        "object_surfaces": _packed(picture.object_surfaces),
        "triangles": picture.triangles.tolist(),
        "part_frames": [_frame(picture.part_poses[j]) for j in range(len(picture.surfaces))],
        "object_frame": _frame(picture.object_pose),
        "pose": pose_record(encoding.pose),
        "confidence": encoding.confidence,
    }


def _packed(points: np.ndarray) -> str:
    """Coordinates as little-endian 16-bit steps, clipped at three radii, in case a bad capsule decodes beyond."""
    return base64.b64encode(np.rint(np.clip(points, -3, 3) / _STEP).astype("<i2").tobytes()).decode()


def _frame(pose: Pose) -> list[float]:
    """Rotation (by rows), then translation."""
    return [round(float(v), 6) for v in (*pose.rotation_matrix().flatten(), *pose.translation)]
