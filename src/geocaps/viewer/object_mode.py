"""The object mode: rotation, layers, the algorithms step by step, and features under sliders."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.mode import ABOVE, CANONICAL_AT, INPUT_AT, Mode, bars, file_of, table
from geocaps.viewer.session import DIRECTIONS, UPRIGHT, Angles, ObjectSession, Picture, VotingStep

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

LAYERS = {
    "points": ("input points", True),
    "colors": ("part colours", True),
    "surfaces": ("part surfaces", False),
    "part_frames": ("part frames", False),
    "object_frame": ("canonical frame", True),
    "from_parts": ("decoded from parts", False),
    "from_object": ("decoded from object", False),
}
"""The switches: name, its label on the page, whether it is on at first."""
_RANDOM_STARTS = 8
_RANDOM = "random rotation"
_STARTS = ("of the model (axes of the surface)", f"{_RANDOM_STARTS} at random (the paper)")
_VIEWPOINTS_AT = 1.25


class ObjectMode(Mode):
    """The input on the left, canonical on the right. Handlers read the controls, change the session and draw."""

    group = "/object"
    explained = "drag the sliders: the object turns, and its canonical view, found anew each time, stands still."

    def __init__(self, page: Page, cloud: ShownCloud, generator: torch.Generator) -> None:
        super().__init__(page)
        self.session = ObjectSession(page.shared.model, cloud, generator)
        self.picture: Picture = self.session.picture()
        self.pointed_out = False
        gui, config = page.client.gui, page.shared.model.config

        def on_update(controls: Any, work: Any) -> None:
            for control in controls:
                control.on_update(page.guarded(work))

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
                gui.add_button("as it was found").on_click(page.guarded(self._part_undone))
            with gui.add_folder("The object's feature", expand_by_default=False):
                self.amounts = [gui.add_slider(f"direction {k + 1}", -3.0, 3.0, 0.05, 0.0) for k in range(DIRECTIONS)]
                gui.add_button("as it was found").on_click(page.guarded(self._object_undone))
        on_update(self.angles, self._turned)
        self.turning.on_click(page.guarded(self._turn_button))
        on_update((*self.switches.values(), self.iteration, self.watch, self.starts, self.vote), self.draw)
        on_update([self.part], lambda: self._point_out(int(self.part.value.removeprefix("part "))))
        on_update(self.features, self._part_changed)
        on_update(self.amounts, self._object_changed)

    # ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, cloud: ShownCloud) -> None:
        self.session.open(cloud)
        self.pointed_out = False
        self._put_all(self.angles, UPRIGHT)
        self.page.put(self.iteration, self.iteration.max)
        self._put_all(self.amounts, [0.0] * DIRECTIONS)
        self._select(0)
        self.draw()

    def _put_all(self, sliders: list[Any], values: Any) -> None:
        for slider, value in zip(sliders, values, strict=True):
            self.page.put(slider, value)

    def _turned(self) -> None:
        """Rotates the object. Sliders move faster than capsules are found, so only their present position counts."""
        x, y, z = (float(slider.value) for slider in self.angles)
        if (x, y, z) != self.session.now.angles:
            self.session.turn_to((x, y, z))
            self.draw()

    def _turn_button(self) -> None:
        angles: Angles = self.session.random_angles() if self.turning.value == _RANDOM else UPRIGHT
        self.session.turn_to(angles)
        self._put_all(self.angles, angles)
        self.draw()

    def clicked(self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]) -> None:
        """Selects the nearest part under the pointer, in either picture."""
        hits = [
            self.picture.part_under_ray(origin - INPUT_AT, direction),
            self.session.canonical_view(self.picture).part_under_ray(origin - CANONICAL_AT, direction),
        ]
        found = [hit for hit in hits if hit is not None]
        if found:
            part = min(found, key=lambda hit: hit[1])[0]
            self._point_out(part)
            self.page.say(f"part {part}: {int((self.session.now.labels == part).sum()):,} points")

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

    def _part_changed(self) -> None:
        self.session.set_part_feature(self.session.part, [float(slider.value) for slider in self.features])
        # What is being edited must be visible.
        self.page.put(self.switches["surfaces"], True)
        self.draw()

    def _part_undone(self) -> None:
        self.session.part_changes.pop(self.session.part, None)
        self._select(self.session.part)
        self.draw()

    def _object_changed(self) -> None:
        self.session.object_amounts = torch.tensor([float(slider.value) for slider in self.amounts])
        self.page.put(self.switches["from_object"], True)
        self.draw()

    def _object_undone(self) -> None:
        self.session.object_amounts = None
        self._put_all(self.amounts, [0.0] * DIRECTIONS)
        self.draw()

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def draw(self) -> None:
        session, shown = self.session, {key: bool(switch.value) for key, switch in self.switches.items()}
        principal = self.page.shared.principal() if session.object_amounts is not None else None
        final = session.picture(principal)
        early = self.iteration.value < self.iteration.max
        self.picture = session.picture(principal, self.iteration.value) if early else final
        with self.page.client.atomic():
            self.canvas.picture("/object/input", self.picture, INPUT_AT, shown)
            self.canvas.picture("/object/canonical", session.canonical_view(final), CANONICAL_AT, shown)
            self.canvas.label("/object/input_label", "input", INPUT_AT + ABOVE)
            self.canvas.label("/object/canonical_label", "canonical", CANONICAL_AT + ABOVE)
            self._draw_votes()
            if self.pointed_out:
                place = self.picture.part_poses[session.part].translation.numpy()
                self.canvas.label("/object/part", f"part {session.part}", INPUT_AT + place)
            else:
                self.canvas.remove("/object/part")
        self.bars.content = bars(session.part_feature(session.part).tolist(), session.part)
        self.results.content = table(
            [
                ("rotation error against the turn", f"{session.rotation_error:.3f}°"),
                ("canonical view moved by", f"{100 * session.canonical_motion:.2f} % of the radius"),
                ("confidence of the viewpoint", f"{float(session.now.encoding.confidence):.2f}"),
                ("found in", f"{session.now.milliseconds:.0f} ms"),
                ("shown upright", session.stance.how),
            ]
        )

    def _draw_votes(self) -> None:
        if not self.watch.value:
            self.canvas.remove("/object/viewpoints")
            self.votes.content = ""
            return
        step = self._voting_step()
        self.canvas.axes("/object/viewpoints", viewpoint_frames(step.viewpoints), INPUT_AT, 0.25, True)
        away = step.degrees_to(self.session.now.object.pose).tolist()
        probable = [""] * len(away) if step.probability is None else [f", p {p:.2f}" for p in step.probability]
        rows = enumerate(zip(away, probable, strict=True))
        self.votes.content = table(
            [(f"viewpoint {k}", f"{degrees:.1f}° from the one found{p}") for k, (degrees, p) in rows]
        )

    def _voting_step(self) -> VotingStep:
        random = _RANDOM_STARTS if self.starts.value == _STARTS[1] else 0
        return self.session.now.voting(random, seed=0)[self.vote.value]

    # ── what the page asks ────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        session = self.session
        canonical = session.canonical_view(self.picture)
        return {
            "object": session.still.cloud.name,
            "angles": list(session.now.angles),
            "upright": session.stance.how,
            "rotation_error_degrees": round(session.rotation_error, 4),
            "canonical_motion": round(session.canonical_motion, 5),
            "milliseconds": round(session.now.milliseconds, 1),
            "parts_seen": len(set(self.picture.labels.tolist()) - {-1}),
            "part": session.part,
            "part_feature": [round(value, 4) for value in session.part_feature(session.part).tolist()],
            "directions": [round(float(slider.value), 2) for slider in self.amounts],
            "iteration": self.iteration.value,
            "first_input_point": [round(value, 3) for value in self.picture.points[0].tolist()],
            "first_canonical_point": [round(value, 3) for value in canonical.points[0].tolist()],
            "shown": [key for key, switch in self.switches.items() if switch.value],
            "viewpoints": len(self._voting_step().viewpoints.wxyz) if self.watch.value else None,
            "vote": self.vote.value,
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        return self.session.now.points, self.session.now.labels

    def record(self) -> dict[str, Any]:
        return self.session.now.record()

    def pose(self) -> Similarity:
        return self.session.now.encoding.pose

    def code(self) -> str:
        file, remark = file_of(self.session.now.shown())
        return (
            f"{remark}geocaps parts {shlex.quote(file)} --out parts.ply\n\n"
            f"import geocaps\ncapsule = geocaps.load().encode({file!r})\n"
            "print(capsule.pose.matrix(), capsule.confidence)"
        )


def viewpoint_frames(viewpoints: Pose) -> Pose:
    """Viewpoints as frames on a sphere around the object, each moved outwards along its own z axis.

    There they can be distinguished, and viewpoints that agree are in one place.
    """
    out = viewpoints.rotation_matrix()[..., 2] * _VIEWPOINTS_AT
    return Pose(viewpoints.translation + out, viewpoints.wxyz)
