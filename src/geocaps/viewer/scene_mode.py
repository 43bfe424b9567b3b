"""The scene mode: the objects of a scan, and of the chosen one its parts, its capsule and its match in an index."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy.spatial.transform import Rotation

from geocaps.apps.drawing import label_colors, part_colors
from geocaps.apps.scene import ParsedScene, SceneObject, parse_scene
from geocaps.data.scenes import scene
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import at_most
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.index.hits import FOUND
from geocaps.viewer.clouds import AS_GIVEN, UP, ShownCloud, Stance, shown_cloud, standing_along
from geocaps.viewer.mode import Mode, file_of, matrix, table
from geocaps.viewer.session import pose_record, under_ray

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

EXAMPLE_SCAN = "example: objects on a floor"
_EXAMPLE_NUMBER, _EXAMPLE_POINTS = 9, 40_000
_SHOWN = 16_000  # points of a scan that are drawn
_NOTHING = "none"
_SCAN_AT, _OBJECT_AT = np.array([-0.95, -0.1, 0.0]), np.array([1.75, 0.0, 0.0])
_SCAN_SIZE, _OBJECT_SIZE = 1.6, 0.85  # radii on the page
_HEADING = 0.5  # of the scan's radius: if the sensor was farther away, the scan is shown from its side
_PALE = np.array([0.6, 0.7, 0.86])


@dataclass(frozen=True)
class SeenScene:
    """A parsed scan, for drawing."""

    cloud: ShownCloud
    parsed: ParsedScene

    @cached_property
    def stance(self) -> Stance:
        """Upright on the largest supporting plane, seen from the sensor, if that was at the origin."""
        if not self.parsed.planes:
            return AS_GIVEN
        floor = max(self.parsed.planes, key=lambda plane: int(plane.on.sum()))
        above = float(np.median(floor.height(self.cloud.scan[~floor.on]))) if not floor.on.all() else 1.0
        level = standing_along(floor.normal * (1.0 if above >= 0 else -1.0), "on its floor, the largest plane")
        from_sensor = level.rotation @ self.center
        if np.hypot(from_sensor[0], from_sensor[2]) < _HEADING * self.radius:
            return level
        turn = np.arctan2(from_sensor[0], -from_sensor[2])
        return Stance(Rotation.from_rotvec(turn * UP).as_matrix() @ level.rotation, level.how)

    @cached_property
    def center(self) -> Float64[np.ndarray, "3"]:
        return (self.cloud.exact.min(axis=0) + self.cloud.exact.max(axis=0)) / 2

    @cached_property
    def radius(self) -> float:
        return max(float(np.linalg.norm(self.cloud.exact - self.center, axis=1).max()), 1e-12)

    @cached_property
    def drawn(self) -> Int[np.ndarray, "k"]:
        """The points of the scan that are drawn."""
        return at_most(_SHOWN, len(self.cloud.scan))

    def placed(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """Points of the scan in the coordinates of the page."""
        return (points - self.center) @ self.stance.rotation.T * (_SCAN_SIZE / self.radius)

    def close_up(self, one: SceneObject) -> Similarity:
        """From the scan's coordinates to a close-up of one object, upright as in the scan."""
        own = self.cloud.scan[one.points]
        middle = (own.min(axis=0) + own.max(axis=0)).astype(np.float64) / 2
        scale = _OBJECT_SIZE / max(float(np.linalg.norm(own - middle, axis=1).max()), 1e-12)
        return Similarity(self.stance.rotation, -scale * self.stance.rotation @ middle, scale)

    def record(self) -> dict[str, Any]:
        objects = []
        for one in self.parsed.objects:
            entry: dict[str, Any] = {
                "points": len(one.points),
                "pose": pose_record(one.capsule.pose),
                "radius": one.capsule.radius,
                "confidence": one.capsule.confidence,
                "parts": len(one.capsule.parts),
            }
            if one.match is not None:
                told = {name: getattr(one.match, name) for name in ("name", "class_name", "confidence", "overlap")}
                entry["match"] = {**told, **pose_record(one.match.pose), "scale": one.match.scale}
            objects.append(entry)
        planes = [{"normal": plane.normal.tolist(), "points": int(plane.on.sum())} for plane in self.parsed.planes]
        return {"scan": self.cloud.name, "objects": objects, "planes": planes}


def example_scan(minimum: int) -> ShownCloud:
    # In float32, as in a PLY file, so that the command finds the same objects in the saved scan.
    points = scene(_EXAMPLE_NUMBER, points=_EXAMPLE_POINTS).points.astype(np.float32)
    return shown_cloud(EXAMPLE_SCAN, points, minimum)


class SceneMode(Mode):
    """The scan on the left, the chosen object on the right."""

    group = "/scene"
    explained = (
        "choose a scan and press the button: its objects get a colour each. Click or touch one (or choose it below) to "
        "see its parts, its capsule and its match in the index."
    )
    nothing = "no scan was parsed yet: press  Find the objects"
    found: SeenScene | None = None
    chosen: int | None = None

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        gui = page.client.gui
        first = EXAMPLE_SCAN if not page.shared.files else page.shared.first
        with gui.add_folder("Objects of a scan", visible=False) as self.panel:
            self.scan = gui.add_dropdown("scan", (EXAMPLE_SCAN, *page.names), initial_value=first)
            self.start = gui.add_button("Find the objects")
            self.object = gui.add_dropdown("look at", (_NOTHING,))
            self.whole = gui.add_checkbox("completed shape", False)
            self.match = gui.add_checkbox("its match", True)
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self._parse))
        self.object.on_update(page.guarded(self._chosen))
        self.whole.on_update(page.guarded(self.draw))
        self.match.on_update(page.guarded(self.draw))

    def offer(self, names: tuple[str, ...]) -> None:
        self.scan.options = (EXAMPLE_SCAN, *names)

    def opened(self) -> None:
        """Parses a newly opened scan at once."""
        self.page.put(self.scan, self.page.object.session.still.cloud.name)
        self._parse()

    def _parse(self) -> None:
        name, shared = self.scan.value, self.page.shared
        self.page.say("looking for objects")
        cloud = example_scan(shared.minimum) if name == EXAMPLE_SCAN else self.page.cloud(name)
        self.found = SeenScene(cloud, parse_scene(cloud.scan, shared.index, model=shared.model))
        objects = self.found.parsed.objects
        self.page.put(self.object, _NOTHING, (_NOTHING, *(self._title(number) for number in range(len(objects)))))
        self.chosen = None
        count, planes = len(objects), len(self.found.parsed.planes)
        self.page.say(
            f"{count} object{'' if count == 1 else 's'} on {planes} supporting plane{'' if planes == 1 else 's'}"
        )
        self.draw()

    def _title(self, number: int) -> str:
        match = self.result().parsed.objects[number].match
        named = "" if match is None or (match.confidence or 0) < FOUND else f": {match.name}"
        return f"object {number + 1}{named}"

    def _chosen(self) -> None:
        place = self.object.options.index(self.object.value)
        self.chosen = place - 1 if place else None
        self.draw()

    def clicked(self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]) -> None:
        if self.found is None:
            return
        labels = self.found.parsed.labels
        objects = self.found.drawn[labels[self.found.drawn] >= 0]
        hit = under_ray(self.found.placed(self.found.cloud.scan[objects]), origin - _SCAN_AT, direction)
        if hit is not None:
            self.chosen = int(labels[objects[hit[0]]])
            self.page.put(self.object, self.object.options[self.chosen + 1])
            self.page.say(f"{self.object.value}: {len(self.found.parsed.objects[self.chosen].points):,} points")
            self.draw()

    # ── what is seen ──────────────────────────────────────────────────────────────────────────────────────────────

    def draw(self) -> None:
        if self.found is None:
            return
        seen, labels = self.found, self.found.parsed.labels[self.found.drawn]
        paint = label_colors(labels, max(len(seen.parsed.objects), 1))
        if self.chosen is not None:
            paint = np.where((labels == self.chosen)[:, None], paint, 0.35 * paint + 0.6)
        with self.page.client.atomic():
            self.canvas.points("/scene/scan", seen.placed(seen.cloud.scan[seen.drawn]), paint, _SCAN_AT, size=0.8)
            self._draw_object()
        objects = [
            (self._title(number), f"{len(one.points):,} points, confidence {one.capsule.confidence:.2f}")
            for number, one in enumerate(seen.parsed.objects)
        ]
        if self.chosen is None:
            self.results.content = table([*objects, ("shown upright", seen.stance.how)])

    def _draw_object(self) -> None:
        if self.found is None or self.chosen is None:
            for name in ("points", "frame", "whole", "match", "label"):
                self.canvas.remove(f"/scene/object_{name}")
            return
        seen, one = self.found, self.found.parsed.objects[self.chosen]
        near, capsule = seen.close_up(one), one.capsule
        points = near.apply(seen.cloud.scan[one.points])
        self.canvas.points("/scene/object_points", points, label_colors(capsule.labels, len(capsule.parts)), _OBJECT_AT)
        self.canvas.axes("/scene/object_frame", _frame(near, capsule.pose), _OBJECT_AT, _OBJECT_SIZE, True)
        colors = np.repeat(part_colors(len(capsule.parts)), len(one.complete()) // len(capsule.parts), axis=0)
        self.canvas.points(
            "/scene/object_whole", near.apply(one.complete()), 0.5 * colors + 0.5, _OBJECT_AT, bool(self.whole.value)
        )
        self.canvas.label("/scene/object_label", self._title(self.chosen), _OBJECT_AT + (_OBJECT_SIZE + 0.15) * UP)
        rows = [
            ("object", f"{self.chosen + 1} of {len(seen.parsed.objects)}, {len(one.points):,} points"),
            ("parts", f"{len(set(capsule.labels.tolist()) - {-1})}, a colour each"),
            ("capsule", f"radius {capsule.radius:.3g}, confidence {capsule.confidence:.2f}"),
        ]
        if one.match is None:
            self.canvas.remove("/scene/object_match")
            rows.append(("match", "the page was started without an index (--index FOLDER)"))
        else:
            sure = one.match.confidence or 0.0
            overlap = "" if one.match.overlap is None else f", {one.match.overlap[0]:.0%} of the points lie on it"
            said = one.match.name if sure >= FOUND else f"none of the index; most like {one.match.name}"
            rows.append(("match", f"{said} (confidence {sure:.2f}{overlap})"))
            laid = near.apply(one.match.apply(one.match.points))
            shown = bool(self.match.value) and sure >= FOUND
            self.canvas.points("/scene/object_match", laid, _PALE, _OBJECT_AT, shown)
        rows.append(("its capsule's pose", "x_scan = R · x_canonical + t:"))
        self.results.content = table(rows) + matrix(capsule.pose)

    def state(self) -> dict[str, Any]:
        if self.found is None:
            return {"scene": None}
        objects = self.found.parsed.objects
        return {
            "scene": {
                "scan": self.found.cloud.name,
                "objects": len(objects),
                "planes": len(self.found.parsed.planes),
                "matches": [None if one.match is None else one.match.name for one in objects],
                "chosen": self.chosen,
            }
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The scan, and the object of each point; or the chosen object, and the part of each point."""
        seen = self.result()
        if self.chosen is None:
            return seen.cloud.scan, seen.parsed.labels
        one = seen.parsed.objects[self.chosen]
        return seen.cloud.scan[one.points], one.capsule.labels

    def record(self) -> dict[str, Any]:
        return {**self.result().record(), "chosen": self.chosen}

    def pose(self) -> Similarity:
        """The pose of the chosen object's capsule, or else of the first one's."""
        objects = self.result().parsed.objects
        if not objects:
            raise InvalidInputError("no object was found, so there is no pose")
        return objects[self.chosen or 0].capsule.pose

    def code(self) -> str:
        if self.found is None:
            return self.nothing
        file, remark = file_of(self.found.cloud)
        index = self.page.shared.index
        named = "" if index is None else f" --index {shlex.quote(str(index.path))}"
        given = "" if index is None else f", geocaps.Index({str(index.path)!r})"
        return (
            f"{remark}geocaps scene {shlex.quote(file)}{named} --out scene\n\n"
            f"import geocaps\nscene = geocaps.parse_scene({file!r}{given})\nprint(scene)\n"
            "for one in scene.objects:\n    print(len(one.points), one.capsule.pose.matrix(), one.match)"
        )


def _frame(near: Similarity, pose: Similarity) -> Pose:
    """A frame ``[1]`` of the scan, in the close-up."""
    rotation, place = near.rotation @ pose.rotation, near.apply(pose.translation)
    return Pose.from_rotation(torch.from_numpy(rotation).float(), torch.from_numpy(place).float())[None]
