"""The object mode: turn, switches, the algorithm step by step, and features under sliders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geocaps.viewer import saving, texts
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.picture import Picture, part_under_ray
from geocaps.viewer.principal import DIRECTIONS
from geocaps.viewer.scene import ABOVE, CANONICAL_AT, INPUT_AT, LAYERS, draw_object, viewpoint_frames
from geocaps.viewer.session import UPRIGHT, Angles, ObjectSession
from geocaps.viewer.trace import VotingStep

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

_RANDOM_STARTS = 8
_RANDOM = "random rotation"
_STARTS = ("of the model (principal axes)", f"{_RANDOM_STARTS} at random (the paper)")


class ObjectMode:
    """Input on the left, canonical on the right. Handlers read the controls, change the session and draw."""

    def __init__(self, page: Page, cloud: ShownCloud, generator: torch.Generator) -> None:
        self.page, self.canvas = page, page.canvas
        self.session = ObjectSession(page.shared.model, cloud, generator)
        self.picture: Picture = self.session.picture()
        self.pointed_out = False
        self._build()

    # ── controls ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _build(self) -> None:
        gui, guarded, config = self.page.client.gui, self.page.guarded, self.page.shared.model.config
        with gui.add_folder(None) as self.panel:
            with gui.add_folder("Turn the object"):
                self.angles = [gui.add_slider(f"about {axis}", -180.0, 180.0, 1.0, 0.0) for axis in "xyz"]
                self.turning = gui.add_button_group("turn", (_RANDOM, "upright"))
                self.results = gui.add_html("")
            with gui.add_folder("Show"):
                self.switches = {key: gui.add_checkbox(label, on) for key, (label, on) in LAYERS.items()}
            with gui.add_folder("Watch the algorithm", expand_by_default=False):
                last = config.parts.iterations
                self.iteration = gui.add_slider("routing iteration", 0, last, 1, last)
                self.watch = gui.add_checkbox("show viewpoints", False)
                self.starts = gui.add_dropdown("starts", _STARTS)
                self.vote = gui.add_slider("voting step", 0, config.object.voting_steps, 1, 0)
                self.votes = gui.add_html("")
            with gui.add_folder("A part's feature", expand_by_default=False):
                names = tuple(f"part {j}" for j in range(config.parts.parts))
                self.part = gui.add_dropdown("click a part, or", names)
                self.bars = gui.add_html("")
                reach = self.session.feature_reach()
                self.features = [
                    gui.add_slider(f"feature {d}", -reach, reach, reach / 500, 0.0) for d in range(config.parts.feature)
                ]
                self.undo_part = gui.add_button("as it was found")
            with gui.add_folder("The object's feature", expand_by_default=False):
                self.amounts = [gui.add_slider(f"direction {k + 1}", -3.0, 3.0, 0.05, 0.0) for k in range(DIRECTIONS)]
                self.undo_object = gui.add_button("as it was found")
        for slider in self.angles:
            slider.on_update(guarded(self._turned))
        self.turning.on_click(guarded(self._turn_button))
        drawn: tuple[Any, ...] = (*self.switches.values(), self.iteration, self.watch, self.starts, self.vote)
        for control in drawn:
            control.on_update(guarded(self.draw))
        self.part.on_update(guarded(self._part_chosen))
        for slider in self.features:
            slider.on_update(guarded(self._part_changed))
        self.undo_part.on_click(guarded(self._part_undone))
        for slider in self.amounts:
            slider.on_update(guarded(self._object_changed))
        self.undo_object.on_click(guarded(self._object_undone))

    # ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, cloud: ShownCloud) -> None:
        self.session.open(cloud)
        self.pointed_out = False
        self._set_angles(UPRIGHT)
        self.page.put(self.iteration, self.iteration.max)
        for slider in self.amounts:
            self.page.put(slider, 0.0)
        self._select(0)
        self.draw()

    def _turned(self) -> None:
        """Sliders move faster than capsules are found: only where they stand now counts."""
        x, y, z = (float(slider.value) for slider in self.angles)
        if (x, y, z) == self.session.now.angles:
            return
        self.session.turn_to((x, y, z))
        self.draw()

    def _turn_button(self) -> None:
        angles = self.session.random_angles() if self.turning.value == _RANDOM else UPRIGHT
        self.session.turn_to(angles)
        self._set_angles(angles)
        self.draw()

    def _set_angles(self, angles: Angles) -> None:
        for slider, value in zip(self.angles, angles, strict=True):
            self.page.put(slider, value)

    def clicked(self, origin: Any, direction: Any) -> None:
        """The nearest part under the pointer, in either picture."""
        start, way = np.asarray(origin, dtype=np.float64), np.asarray(direction, dtype=np.float64)
        hits = [
            part_under_ray(self.picture, start - INPUT_AT, way),
            part_under_ray(self.picture.canonical(), start - CANONICAL_AT, way),
        ]
        found = [hit for hit in hits if hit is not None]
        if found:
            part = min(found, key=lambda hit: hit[1])[0]
            self._point_out(part)
            self.page.say(f"part {part}: {int((self.session.now.labels == part).sum()):,} points")

    def _part_chosen(self) -> None:
        self._point_out(int(self.part.value.removeprefix("part ")))

    def _point_out(self, part: int) -> None:
        self._select(part)
        self.pointed_out = True
        self.draw()

    def _select(self, part: int) -> None:
        self.session.part = part
        reach = self.session.feature_reach()
        for slider, value in zip(self.features, self.session.part_feature(part).tolist(), strict=True):
            slider.min, slider.max, slider.step = -reach, reach, reach / 500
            self.page.put(slider, value)
        self.page.put(self.part, f"part {part}")
        self._draw_bars()

    def _part_changed(self) -> None:
        self.session.set_part_feature(self.session.part, [float(slider.value) for slider in self.features])
        self._switch_on("surfaces")
        self.draw()

    def _part_undone(self) -> None:
        self.session.part_changes.pop(self.session.part, None)
        self._select(self.session.part)
        self.draw()

    def _object_changed(self) -> None:
        self.session.object_amounts = torch.tensor([float(slider.value) for slider in self.amounts])
        self._switch_on("from_object")
        self.draw()

    def _object_undone(self) -> None:
        self.session.object_amounts = None
        for slider in self.amounts:
            self.page.put(slider, 0.0)
        self.draw()

    def _switch_on(self, layer: str) -> None:
        """What is being changed must be seen."""
        self.page.put(self.switches[layer], True)

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, visible: bool) -> None:
        self.panel.visible = visible
        self.canvas.group("/object", visible)
        if visible:
            self.draw()

    def draw(self) -> None:
        session, shown = self.session, {key: bool(switch.value) for key, switch in self.switches.items()}
        principal = self.page.shared.principal() if session.object_amounts is not None else None
        final = session.picture(principal)
        early = self.iteration.value < self.iteration.max
        self.picture = session.picture(principal, self.iteration.value) if early else final
        with self.page.client.atomic():
            draw_object(self.canvas, "/object/input", self.picture, INPUT_AT, shown)
            draw_object(self.canvas, "/object/canonical", final.canonical(), CANONICAL_AT, shown)
            self.canvas.label("/object/input_label", "input", INPUT_AT + ABOVE)
            self.canvas.label("/object/canonical_label", "canonical", CANONICAL_AT + ABOVE)
            self._draw_votes()
            self._draw_pointer()
        self._draw_bars()
        self.results.content = texts.table(self._figures())

    def _draw_pointer(self) -> None:
        """The name of the part that was clicked, where it is."""
        if not self.pointed_out:
            self.canvas.remove("/object/part")
            return
        part = self.session.part
        place = self.picture.part_poses[part].translation.numpy()
        self.canvas.label("/object/part", f"part {part}", INPUT_AT + place)

    def _draw_bars(self) -> None:
        part = self.session.part
        self.bars.content = texts.bars(self.session.part_feature(part).tolist(), part)

    def _figures(self) -> list[tuple[str, str]]:
        session, now = self.session, self.session.now
        return [
            ("rotation error against the turn", f"{session.rotation_error:.3f}°"),
            ("canonical view moved by", f"{100 * session.canonical_motion:.2f} % of the radius"),
            ("confidence of the viewpoint", f"{float(now.encoding.confidence):.2f}"),
            ("found in", f"{now.milliseconds:.0f} ms"),
        ]

    def _draw_votes(self) -> None:
        if not self.watch.value:
            self.canvas.remove("/object/viewpoints")
            self.votes.content = ""
            return
        step = self._votes()[self.vote.value]
        self.canvas.axes("/object/viewpoints", viewpoint_frames(step), INPUT_AT, 0.25, True)
        away = step.degrees_to(self.session.now.object.pose).tolist()
        probable = [""] * len(away) if step.probability is None else [f", p {p:.2f}" for p in step.probability]
        rows = enumerate(zip(away, probable, strict=True))
        self.votes.content = texts.table(
            [(f"viewpoint {k}", f"{degrees:.1f}° from the one found{p}") for k, (degrees, p) in rows]
        )

    def _votes(self) -> list[VotingStep]:
        return self.session.now.voting(_RANDOM_STARTS if self.starts.value == _STARTS[1] else 0, seed=0)

    # ── what others ask ───────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        """For the page's state panel."""
        session = self.session
        canonical = self.picture.canonical().points
        votes = self._votes()[self.vote.value] if self.watch.value else None
        return {
            "object": session.still.cloud.name,
            "angles": list(session.now.angles),
            "rotation_error_degrees": round(session.rotation_error, 4),
            "canonical_motion": round(session.canonical_motion, 5),
            "milliseconds": round(session.now.milliseconds, 1),
            "parts_seen": len(set(self.picture.labels.tolist())),
            "part": session.part,
            "part_feature": [round(value, 4) for value in session.part_feature(session.part).tolist()],
            "directions": [round(float(slider.value), 2) for slider in self.amounts],
            "iteration": self.iteration.value,
            "first_input_point": _rounded(self.picture.points[0]),
            "first_canonical_point": _rounded(canonical[0]),
            "shown": [key for key, switch in self.switches.items() if switch.value],
            "viewpoints": None if votes is None else len(votes.viewpoints.wxyz),
            "vote": self.vote.value,
        }

    def ply(self) -> bytes:
        return saving.object_ply(self.session.now)

    def record(self) -> dict[str, Any]:
        return saving.object_record(self.session.now)


def _rounded(point: np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in point]
