"""The align mode: two clouds before and after, and the alternatives to click through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geocaps.errors import InvalidInputError
from geocaps.viewer import saving, texts
from geocaps.viewer.alignment import AlignedPair, align_pair
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.scene import ABOVE, CANONICAL_AT, INPUT_AT

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

_A, _B = np.array([0.84, 0.37, 0.0]), np.array([0.0, 0.35, 0.7])
CURRENT = "the object, as it is turned"


class AlignMode:
    """Before on the left, after on the right; A is orange, B is blue and stays where it is."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.pair: AlignedPair | None = None
        self.way = 0
        gui = page.client.gui
        with gui.add_folder("Align two clouds", visible=False) as self.panel:
            options = (CURRENT, *page.shared.names)
            self.a = gui.add_dropdown("A (orange)", options, initial_value=CURRENT)
            self.b = gui.add_dropdown("B (blue)", options, initial_value=page.shared.first)
            self.scale = gui.add_checkbox("find the scale too", False)
            self.start = gui.add_button("Align A to B")
            self.ways = gui.add_dropdown("way", ("1",), visible=False)
            self.next = gui.add_button("Next way", visible=False)
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self.align))
        self.next.on_click(page.guarded(self._next))
        self.ways.on_update(page.guarded(self._way_chosen))

    def offer(self, names: tuple[str, ...]) -> None:
        """Clouds that were opened meanwhile."""
        self.a.options = self.b.options = (CURRENT, *names)

    def _cloud(self, name: str) -> ShownCloud:
        if name != CURRENT:
            return self.page.cloud(name)
        now = self.page.object.session.now
        return ShownCloud(now.cloud.name, now.points, now.cloud.total)

    def align(self) -> None:
        self.page.say("aligning")
        self.pair = align_pair(self._cloud(self.a.value), self._cloud(self.b.value), scale=bool(self.scale.value))
        self.way = 0
        names = tuple(f"{index + 1}: confidence {one.confidence:.2f}" for index, one in enumerate(self.pair.ways))
        self.page.put(self.ways, names[0], names)
        self.ways.visible = True
        self.next.visible = len(names) > 1
        more = len(self.pair.ways) - 1
        found = f"{more} other way{'' if more == 1 else 's'}" if more else "no other way"
        self.page.say(f"{self.pair.a.name} on {self.pair.b.name}: {found} to lay them on each other was found")
        self.draw()

    def _way_chosen(self) -> None:
        self.way = int(self.ways.value.split(":")[0]) - 1
        self.draw()

    def _next(self) -> None:
        """Through all ways and round again."""
        self.way = (self.way + 1) % len(self._aligned().ways)
        self.page.put(self.ways, self.ways.options[self.way])
        self.draw()

    def show(self, visible: bool) -> None:
        self.panel.visible = visible
        self.page.canvas.group("/align", visible)
        if visible:
            self.draw()

    def draw(self) -> None:
        if self.pair is None:
            return
        canvas = self.page.canvas
        with self.page.client.atomic():
            for name, way, at in (("before", None, INPUT_AT), ("after", self.way, CANONICAL_AT)):
                a, b = self.pair.drawn(way)
                canvas.points(f"/align/{name}_a", a, _A, at)
                canvas.points(f"/align/{name}_b", b, _B, at)
                canvas.label(f"/align/{name}_label", name, at + ABOVE)
        chosen = self.pair.ways[self.way]
        self.results.content = texts.table(
            [
                ("residual before", f"{self.pair.residual(None):.4g}"),
                ("residual after", f"{self.pair.residual(self.way):.4g} (units of B)"),
                ("confidence", f"{chosen.confidence:.2f}"),
                ("overlap", "A {:.0%}, B {:.0%}".format(*self.pair.found.overlap)),
                ("scale", f"{chosen.scale:.4g}"),
            ]
        )

    def state(self) -> dict[str, Any]:
        if self.pair is None:
            return {"alignment": None}
        return {
            "alignment": {
                "a": self.pair.a.name,
                "b": self.pair.b.name,
                "ways": len(self.pair.ways),
                "way": self.way,
                "residual_before": self.pair.residual(None),
                "residual": self.pair.residual(self.way),
                "confidence": self.pair.ways[self.way].confidence,
            }
        }

    def ply(self) -> bytes:
        return saving.pair_ply(self._aligned(), self.way)

    def record(self) -> dict[str, Any]:
        return saving.pair_record(self._aligned(), self.way)

    def _aligned(self) -> AlignedPair:
        if self.pair is None:
            raise InvalidInputError("nothing was aligned yet: choose A and B and press  Align A to B")
        return self.pair
