"""The paint mode: labels painted on one object, and transferred to others of its kind by ``geocaps.transfer``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.drawing import STRAY_COLOR, part_colors
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.apps.transfer import Reference, Transferred, labelled_by
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity
from geocaps.viewer.clouds import ShownCloud, Stance, embedded_names, stances
from geocaps.viewer.mode import ABOVE, Mode, file_of, in_a_row, short, table
from geocaps.viewer.session import under_ray

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

LABELS = 6
_MOST_OTHERS = 4
_PART, _SPOT = "a whole part", "a spot"
_ERASER = "erase"
_SAVED = "geocaps_paint.ply"  # name of the painted object when it is saved


class Painting:
    """One painted object, and others that take its labels; 0 means unpainted."""

    def __init__(self, model: Model, cloud: ShownCloud, encoding: Encoding, others: Sequence[ShownCloud]) -> None:
        self._model = model
        self.clouds = (cloud, *others)
        self.parts: Int[np.ndarray, "n"] = encoding.labels
        self.labels = np.zeros(len(cloud.points), dtype=np.int64)
        self._first = encoding

    @cached_property
    def _encodings(self) -> list[Encoding]:
        return [self._first, *(self._model.encode(one.points) for one in self.clouds[1:])]

    @cached_property
    def stances(self) -> list[Stance]:
        known = [one.upright for one in self.clouds]
        return stances(list(zip(self._encodings, known, strict=True)))

    def paint_part(self, part: int, label: int) -> None:
        self._set(self.parts == part, label)

    def paint_spot(self, point: int, radius: float, label: int) -> None:
        """Paints all points within a radius of a point, in radii of the object."""
        cloud = self.clouds[0]
        self._set(np.linalg.norm(cloud.exact - cloud.exact[point], axis=1) <= radius * cloud.radius, label)

    def clear(self) -> None:
        self._set(np.ones(len(self.labels), dtype=bool), 0)

    def _set(self, which: np.ndarray, label: int) -> None:
        self.labels[which] = label
        self.__dict__.pop("others", None)

    @cached_property
    def others(self) -> list[Transferred]:
        """The other objects, with the labels transferred from this one."""
        known = [Reference(self._first, self.labels)]
        return [labelled_by(known, one) for one in self._encodings[1:]]

    def row(self) -> list[tuple[Float[np.ndarray, "_ 3"], Int[np.ndarray, "_"]]]:
        """Each object, upright and with radius 1, and the labels of its points; the painted one first."""
        labels = [self.labels, *(one.labels for one in self.others)]
        return [
            ((cloud.exact - cloud.center) @ stance.rotation.T / cloud.radius, own)
            for cloud, stance, own in zip(self.clouds, self.stances, labels, strict=True)
        ]

    def record(self) -> dict[str, Any]:
        return {
            "painted": self.clouds[0].name,
            "labels": self.labels.tolist(),
            "others": [
                {
                    "name": cloud.name,
                    "similarity": one.similarity,
                    "labels": one.labels.tolist(),
                    "confidence": np.round(one.confidence, 4).tolist(),
                }
                for cloud, one in zip(self.clouds[1:], self.others, strict=True)
            ],
        }


def of_its_kind(name: str, opened: Sequence[str]) -> list[str]:
    """Names of objects of the same kind: embedded ones of its class or, for a file, the other files."""
    embedded = embedded_names()
    if name not in embedded:
        return [one for one in opened if one != name and one not in embedded][:_MOST_OTHERS]
    return [one for one in embedded if one != name and _kind(one) == _kind(name)][:_MOST_OTHERS]


def _kind(name: str) -> str:
    return re.sub(r" \(?\d+\)?$", "", name)


class PaintMode(Mode):
    """Painting on the object; the others are shown in a row beside it."""

    group = "/paint"
    explained = (
        "choose a colour, then click or touch parts of the first object. The others of its kind are painted alike: "
        "embedded objects of its class, or the other files that were opened."
    )
    found: Painting | None = None

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self._kept: dict[str, Painting] = {}  # by the painted object's name: it may be opened again
        gui = page.client.gui
        with gui.add_folder("Paint one, see all painted", visible=False) as self.panel:
            self.label = gui.add_dropdown("colour", (*(f"label {k}" for k in range(1, LABELS + 1)), _ERASER))
            self.brush = gui.add_dropdown("a click paints", (_PART, _SPOT))
            self.radius = gui.add_slider("size of a spot", 0.05, 0.6, 0.05, 0.2)
            count = page.shared.model.config.parts.parts
            self.part = gui.add_dropdown("or choose a part", tuple(f"part {j}" for j in range(count)))
            self.apply = gui.add_button("Paint this part")
            self.undo = gui.add_button("Begin again")
            self.results = gui.add_html("")
        self.apply.on_click(page.guarded(lambda: self._paint_part(int(self.part.value.removeprefix("part ")))))
        self.undo.on_click(page.guarded(self._cleared))

    def result(self) -> Painting:
        """The painting of the open object, with all others that are available now."""
        still = self.page.object.session.still
        names = [still.cloud.name, *of_its_kind(still.cloud.name, self.page.names)]
        if self.found is None or [one.name for one in self.found.clouds] != names:
            others = [self.page.cloud(name) for name in names[1:]]
            self.found = Painting(self.page.shared.model, still.cloud, still.encoding, others)
            before = self._kept.get(names[0])
            if before is not None and np.array_equal(before.clouds[0].points, still.cloud.points):
                self.found.labels[:] = before.labels
            self._kept[names[0]] = self.found
        return self.found

    def opened(self) -> None:
        self.draw()

    # ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _label(self) -> int:
        return 0 if self.label.value == _ERASER else int(self.label.value.removeprefix("label "))

    def _paint_part(self, part: int) -> None:
        self.result().paint_part(part, self._label)
        self.page.put(self.part, f"part {part}")
        self._painted(f"part {part}")

    def clicked(self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]) -> None:
        painting = self.result()
        size, places = in_a_row(len(painting.clouds))
        hit = under_ray(painting.row()[0][0], (origin - places[0]) / size, direction)
        if hit is None:
            return
        part = int(painting.parts[hit[0]])
        if self.brush.value == _PART and part >= 0:
            self._paint_part(part)
        else:
            painting.paint_spot(hit[0], float(self.radius.value), self._label)
            self._painted("a spot")

    def _cleared(self) -> None:
        self.result().clear()
        self.draw()
        self.page.say("nothing is painted")

    def _painted(self, what: str) -> None:
        self.draw()
        where = f"{len(self.result().others)} others are painted alike"
        if not self.result().others:
            where = "open more files of its kind to see them painted"
        self.page.say(f"{what}: {self.label.value}; {where}")

    # ── what is seen ──────────────────────────────────────────────────────────────────────────────────────────────

    def draw(self) -> None:
        painting = self.result()
        size, places = in_a_row(len(painting.clouds))
        paint = np.vstack([STRAY_COLOR, part_colors(LABELS)])
        with self.page.client.atomic():
            for number, ((points, labels), at) in enumerate(zip(painting.row(), places, strict=True)):
                normals = painting.clouds[number].normals @ painting.stances[number].rotation.T
                self.canvas.points(f"/paint/cloud{number}", size * points, paint[labels], at, normals=normals)
                name = painting.clouds[number].name
                title = short(name if number else f"{name} (paint here)", len(places))
                self.canvas.label(f"/paint/label{number}", title, at + ABOVE * size)
            for number in range(len(places), _MOST_OTHERS + 1):
                self.canvas.remove(f"/paint/cloud{number}")
                self.canvas.remove(f"/paint/label{number}")
        rows = [("painted", f"{(painting.labels > 0).mean():.0%} of {painting.clouds[0].name}")]
        rows += [
            (cloud.name, f"{(one.labels > 0).mean():.0%}, mean confidence {one.confidence.mean():.2f}")
            for cloud, one in zip(painting.clouds[1:], painting.others, strict=True)
        ]
        self.results.content = table([*rows, ("shown upright", painting.stances[0].how)])

    def state(self) -> dict[str, Any]:
        if self.found is None:
            return {"painted": None}
        painting = self.found
        return {
            "painted": {
                "object": painting.clouds[0].name,
                "labels": sorted(set(painting.labels.tolist())),
                "share": round(float((painting.labels > 0).mean()), 4),
                "others": {
                    cloud.name: sorted(set(one.labels.tolist()))
                    for cloud, one in zip(painting.clouds[1:], painting.others, strict=True)
                },
            }
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The painted object, which the command starts from."""
        return self.result().clouds[0].points, self.result().labels

    def record(self) -> dict[str, Any]:
        return self.result().record()

    def pose(self) -> Similarity:
        raise InvalidInputError("painting finds labels, not a pose: save PLY points or JSON data")

    def code(self) -> str:
        files = [file_of(one) for one in self.result().clouds[1:]]
        if not files:
            return "# there is no other object to paint: open more files of its kind"
        remarks = "".join(remark for _, remark in files)
        names = [file for file, _ in files]
        return (
            f"# press  PLY points  first: it saves the painted object as {_SAVED}\n{remarks}"
            f"geocaps transfer {_SAVED} {shlex.join(names)} --out labelled\n\n"
            f"import geocaps\npainted = geocaps.transfer({_SAVED!r}, {names!r})\nprint(painted)"
        )
