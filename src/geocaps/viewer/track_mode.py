"""The track mode: an object tracked through frames, played as a film with the results of each frame."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64, Int

from geocaps.apps.clouds import as_cloud
from geocaps.apps.drawing import STRAY_COLOR, part_colors
from geocaps.apps.encode import Model
from geocaps.apps.track import Tracked, Tracker
from geocaps.apps.track.files import FROM_SENSOR, Frames, record
from geocaps.data.sequences import sequence
from geocaps.errors import FileFormatError, GeocapsError, InvalidInputError
from geocaps.geometry.sampling import at_most
from geocaps.geometry.similarity import Similarity
from geocaps.viewer.mode import BOX, Mode, table, trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from geocaps.viewer.page import Page

_EXAMPLE_NUMBER = 6  # a chair
_RATE = 12.0  # frames per second, if the machine is fast enough
_FRAME_POINTS = 2048  # of a frame that are drawn
_FRAME_COLOR = np.array([0.15, 0.15, 0.15])
_FADED = np.array([0.95, 0.72, 0.68])  # of a lost object, at its predicted position
_SIZE = 1.7  # size on the page of half the volume through which the object passes
_PLAY, _PAUSE = "Play", "Pause"


@dataclass(frozen=True)
class ToTrack:
    """Frames, the object to track (None: the frames build it up), and poses, if known."""

    name: str
    frames: Sequence[Any]
    names: Sequence[str]
    reference: Any = None  # a path, or points
    poses: str | None = None  # path of a file that geocaps track has written

    @classmethod
    def of_files(cls, frames: str, reference: str | None, poses: str | None) -> ToTrack:
        found = Frames(frames)
        if poses is not None and reference is None:
            raise InvalidInputError(f"{poses} says where an object is: name the object's file, too")
        return cls(frames, found, found.names, reference, poses)

    @classmethod
    def example(cls) -> ToTrack:
        made = sequence(_EXAMPLE_NUMBER, vanishes=True)
        names = [f"frame {number}" for number in range(len(made.frames))]
        return cls("an example: it turns, vanishes and comes back", made.frames, names, made.reference)


@dataclass(frozen=True)
class Followed:
    """A sequence, and the pose of the object in each of its frames."""

    sequence: ToTrack
    reference: Float64[np.ndarray, "m 3"]
    labels: Int[np.ndarray, "m"]
    found: tuple[Tracked, ...]

    @cached_property
    def bounds(self) -> tuple[Float64[np.ndarray, "3"], float]:
        """The middle of the volume through which the object passes, and half its size, in the units of the frames."""
        reach = np.linalg.norm(self.reference - self.reference.mean(axis=0), axis=1).max()
        places = np.stack([one.pose.apply(self.reference.mean(axis=0)) for one in self.found])
        middle = (places.min(axis=0) + places.max(axis=0)) / 2
        return middle, max(float(np.abs(places - middle).max() + reach), 1e-12)

    def placed(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """Points of a frame on the page, as the sensor sees them."""
        middle, reach = self.bounds
        return FROM_SENSOR * (points - middle) * (_SIZE / reach)

    def frame(self, number: int) -> Float64[np.ndarray, "n 3"]:
        """Points of a frame to draw; none if it cannot be used."""
        try:
            points = as_cloud(self.sequence.frames[number], 0, "frame", drop_invalid=True).points
        except GeocapsError:  # already reported in ``reason``
            return np.empty((0, 3))
        return points[at_most(_FRAME_POINTS, len(points))].astype(np.float64)

    def colors(self, number: int) -> Float64[np.ndarray, "m 3"]:
        """Colours of the object: visible parts in their colours, hidden ones grey."""
        one = self.found[number]
        parts = np.where(one.parts_visible[:, None], part_colors(len(one.visible)), STRAY_COLOR)
        return np.broadcast_to(_FADED, self.reference.shape) if one.lost else parts[self.labels]

    def records(self) -> list[dict[str, Any]]:
        return [
            {**record(one, name), "matrix": one.pose.matrix().tolist()}
            for one, name in zip(self.found, self.sequence.names, strict=True)
        ]


def followed(given: ToTrack, model: Model, on_frame: Callable[[int], None]) -> Followed:
    """Tracks the object through all frames, or reads its poses."""
    tracker = Tracker(given.reference, model=model)
    if given.poses is not None:
        found = read_poses(given.poses, len(given.frames), model.config.parts.parts)
    else:
        found = []
        for number, frame in enumerate(given.frames):
            on_frame(number)
            found.append(tracker.update(frame))
    if tracker.reference is None or tracker.part_labels is None:
        raise InvalidInputError(f"no frame of {given.name} shows an object: {found[0].reason}")
    return Followed(given, tracker.reference, tracker.part_labels, tuple(found))


def read_poses(path: str, frames: int, parts: int) -> list[Tracked]:
    """Poses from a file written by ``geocaps track --out poses.jsonl``."""
    found = []
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            pose = Similarity.from_wxyz(np.array(one["wxyz"], dtype=np.float64), np.array(one["translation"]))
            visible = np.array(one["visible"], dtype=np.float64)
            found.append(Tracked(pose, float(one["confidence"]), visible, one["lost"], one["reason"], one["frame"]))
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"cannot read {path}: line {len(found) + 1} is not a pose as geocaps track --out poses.jsonl writes it"
        ) from error
    if len(found) != frames or any(len(one.visible) != parts for one in found):
        raise InvalidInputError(
            f"{path} has {len(found)} poses of an object in {len(found[0].visible) if found else 0} parts; there are "
            f"{frames} frames, and the weights have {parts} parts: track these frames again"
        )
    return found


class TrackMode(Mode):
    """One frame at a time; while it plays, a thread advances to the next one."""

    group = "/track"
    explained = (
        "press the button, then Play. Black: points of the frame. The object lies where it was found, its hidden parts "
        "grey; it is pink where it is lost and only expected."
    )
    nothing = "nothing was tracked yet: press  Track the object"
    found: Followed | None = None
    at = 0

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self._playing: threading.Event | None = None  # set to stop it
        gui, given = page.client.gui, page.shared.sequence
        with gui.add_folder("Follow an object through frames", visible=False) as self.panel:
            self.start = gui.add_button(
                "Track the object" if given is None or given.poses is None else "Read the poses"
            )
            self.play = gui.add_button(_PLAY, visible=False)
            self.slider = gui.add_slider("frame", 0, 1, 1, 0, visible=False)
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self._track))
        self.play.on_click(page.guarded(self._play_or_pause))
        self.slider.on_update(page.guarded(self._slid))

    def _track(self) -> None:
        self.left()
        given = self.page.shared.sequence or ToTrack.example()

        def told(number: int) -> None:
            self.page.say(f"tracking: frame {number + 1} of {len(given.frames)}")

        self.found = followed(given, self.page.shared.model, told)
        self.at = 0
        self.slider.max = max(len(given.frames) - 1, 1)
        self.page.put(self.slider, 0)
        self.slider.visible = self.play.visible = True
        lost = sum(one.lost for one in self.found.found)
        self.page.say(f"{given.name}: {len(given.frames)} frames, the object is lost in {lost} of them")
        self.draw()

    # ── playing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _slid(self) -> None:
        self.left()
        self._show(min(int(self.slider.value), len(self.result().found) - 1))

    def _play_or_pause(self) -> None:
        if self._playing is not None:
            self.left()
            return
        if self.at == len(self.result().found) - 1:
            self._show(0)
        self._playing = threading.Event()
        self.play.label = _PAUSE
        threading.Thread(target=self._film, args=(self._playing,), daemon=True).start()

    def left(self) -> None:
        if self._playing is not None:
            self._playing.set()
            self._playing = None
            self.play.label = _PLAY

    def _film(self, stop: threading.Event) -> None:
        while not stop.wait(1 / _RATE):
            self.page.guarded(lambda: self._next(stop))(None)

    def _next(self, stop: threading.Event) -> None:
        if stop.is_set():  # while this thread waited for its turn
            return
        self._show(self.at + 1)
        if self.at == len(self.result().found) - 1:
            self.left()

    def _show(self, number: int) -> None:
        self.at = number
        self.page.put(self.slider, number)
        self.draw()

    # ── what is seen ──────────────────────────────────────────────────────────────────────────────────────────────

    def draw(self) -> None:
        if self.found is None:
            return
        followed, one = self.found, self.found.found[self.at]
        here = np.zeros(3)
        with self.page.client.atomic():
            moved = followed.placed(one.pose.apply(followed.reference))
            self.canvas.points("/track/object", moved, followed.colors(self.at), here, size=1.2)
            frame = followed.placed(followed.frame(self.at))
            if len(frame):
                self.canvas.points("/track/frame", frame, _FRAME_COLOR, here)
            else:  # viser takes no empty clouds
                self.canvas.remove("/track/frame")
        rows = [
            ("frame", f"{self.at + 1} of {len(followed.found)}: {Path(followed.sequence.names[self.at]).name}"),
            ("confidence", f"{one.confidence:.2f}"),
            ("parts visible", f"{int(one.parts_visible.sum())} of {len(one.visible)}"),
            ("translation", ", ".join(f"{value:.3f}" for value in one.pose.translation)),
            ("rotation (wxyz)", ", ".join(f"{value:.3f}" for value in one.pose.wxyz)),
            ("shown", "as the sensor sees it, along its z axis"),
        ]
        lost = trouble(f"lost: {one.reason}") if one.lost else ""
        self.results.content = timeline(followed.found, self.at) + lost + table(rows)

    def state(self) -> dict[str, Any]:
        if self.found is None:
            return {"track": None}
        one = self.found.found[self.at]
        return {
            "track": {
                "frames": len(self.found.found),
                "frame": self.at,
                "playing": self._playing is not None,
                "lost": one.lost,
                "confidence": round(one.confidence, 4),
                "parts_visible": int(one.parts_visible.sum()),
            }
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The object where it is in this frame, and the part of each point."""
        followed = self.result()
        return followed.found[self.at].pose.apply(followed.reference), followed.labels

    def record(self) -> dict[str, Any]:
        followed = self.result()
        return {"frames": followed.sequence.name, "shown": self.at, "poses": followed.records()}

    def pose(self) -> Similarity:
        """``T_frame_reference`` of this frame."""
        return self.result().found[self.at].pose

    def code(self) -> str:
        given = self.page.shared.sequence
        if given is None:
            number = _EXAMPLE_NUMBER
            return (
                "import geocaps\nfrom geocaps.data.sequences import sequence\n"
                f"made = sequence({number}, vanishes=True)\ntracker = geocaps.Tracker(made.reference)\n"
                "for frame in made.frames:\n    print(tracker.update(frame))\n\n"
                "# with files of your own:  geocaps track reference.ply frames/ --out poses.jsonl"
            )
        files = [given.name] if given.reference is None else [given.reference, given.name]
        return (
            f"geocaps track {shlex.join(files)} --out poses.jsonl\n\n"
            f"import geocaps\nfrom geocaps.apps.track.files import Frames\n"
            f"tracker = geocaps.Tracker({given.reference!r})\n"
            f"for frame in Frames({given.name!r}):\n    print(tracker.update(frame))"
        )


def timeline(found: Sequence[Tracked], at: int) -> str:
    """The confidence in each frame as a column, red if the object is lost; the current frame is marked."""
    columns = []
    for number, one in enumerate(found):
        height, color = (100, "#c0392b55") if one.lost else (max(round(100 * one.confidence), 4), "#2b6cb0")
        mark = "outline:2px solid #d6901f;" if number == at else ""
        style = f"flex:1;min-width:1px;height:{height}%;background:{color};{mark}"
        columns.append(f'<span class="geocaps-frame" style="{style}"></span>')
    return f'<div style="{BOX}display:flex;align-items:flex-end;height:2.6em">{"".join(columns)}</div>'
