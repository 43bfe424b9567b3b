"""The align mode: two clouds before and after alignment, and the alternatives to click through."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from geocaps.apps.align.align import Alignment, Alternative, align
from geocaps.errors import InvalidInputError
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.mode import ABOVE, CANONICAL_AT, INPUT_AT, Mode, table
from geocaps.viewer.session import pose_record

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

CURRENT = "the object, as it is turned"
_A, _B = np.array([0.84, 0.37, 0.0]), np.array([0.0, 0.35, 0.7])
_KEPT = 0.9


@dataclass(frozen=True)
class AlignedPair:
    """Clouds A and B with the alignment ``T_b_a``; ways[0] is the chosen one, the others are its alternatives."""

    a: ShownCloud
    b: ShownCloud
    found: Alignment

    @cached_property
    def ways(self) -> list[Alternative]:
        return [Alternative(self.found.pose, self.found.confidence), *self.found.alternatives]

    @cached_property
    def residuals(self) -> dict[int | None, float]:
        """``Alignment.error`` of each way (None: as they came): the trimmed RMS distance of the better explained
        cloud, in units of B."""
        b = self.b.points.astype(np.float64)
        return {way: trimmed_distance(self.laid(way), b) for way in (None, *range(len(self.ways)))}

    def laid(self, way: int | None) -> Float[np.ndarray, "n 3"]:
        """The points of A in the frame of B: as they came (None), or by one of the ways."""
        points = self.a.points.astype(np.float64)
        return points if way is None else self.ways[way].pose.apply(points)

    def drawn(self, way: int | None) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "m 3"]]:
        """A and B in radii of B, centred on B. Clouds that came far apart or in other units are brought into sight."""
        exact = self.b.points.astype(np.float64)
        center = exact.mean(axis=0)
        radius = float(np.linalg.norm(exact - center, axis=1).max())
        a, b = (self.laid(way) - center) / radius, (exact - center) / radius
        if way is None:
            own = a.mean(axis=0)
            spread = float(np.linalg.norm(a - own, axis=1).max())
            if spread > 2 or spread < 0.5 or np.linalg.norm(own) > 1:
                a = (a - own) / max(spread, 1e-12)
        return a, b

    def joined(self, way: int) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """B (label 0) and A laid on it (label 2, a colour well apart)."""
        laid, b = self.laid(way), self.b.points.astype(np.float64)
        return np.concatenate([b, laid]), np.repeat([0, 2], [len(b), len(laid)])

    def record(self, way: int) -> dict[str, Any]:
        return {
            "a": self.a.name,
            "b": self.b.name,
            "shown": way,
            "ways": [
                {
                    **pose_record(one.pose),
                    "scale": one.scale,
                    "confidence": one.confidence,
                    "residual": self.residuals[index],
                }
                for index, one in enumerate(self.ways)
            ],
            "error": self.found.error,
            "overlap": list(self.found.overlap),
            "ambiguous": self.found.ambiguous,
        }


def trimmed_distance(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "m 3"]) -> float:
    means = []
    for points, others in ((a, b), (b, a)):
        square = np.sort(cKDTree(others).query(points)[0] ** 2)
        means.append(square[: max(1, int(np.ceil(_KEPT * len(square))))].mean())
    return float(np.sqrt(min(means)))


class AlignMode(Mode):
    """Before on the left, after on the right; A is orange, B is blue and stays where it is."""

    group = "/align"

    def __init__(self, page: Page) -> None:
        super().__init__(page)
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
        self.start.on_click(page.guarded(self._align))
        self.next.on_click(page.guarded(self._next))
        self.ways.on_update(page.guarded(self._way_chosen))

    def offer(self, names: tuple[str, ...]) -> None:
        """Clouds that were opened meanwhile."""
        self.a.options = self.b.options = (CURRENT, *names)

    def _cloud(self, name: str) -> ShownCloud:
        return self.page.object.session.now.shown() if name == CURRENT else self.page.cloud(name)

    def _align(self) -> None:
        self.page.say("aligning")
        a, b = self._cloud(self.a.value), self._cloud(self.b.value)
        self.pair = AlignedPair(a, b, align(a.points, b.points, scale=bool(self.scale.value)))
        self.way = 0
        names = tuple(f"{index + 1}: confidence {one.confidence:.2f}" for index, one in enumerate(self.pair.ways))
        self.page.put(self.ways, names[0], names)
        self.ways.visible = True
        self.next.visible = len(names) > 1
        more = len(names) - 1
        found = f"{more} other way{'' if more == 1 else 's'}" if more else "no other way"
        self.page.say(f"{a.name} on {b.name}: {found} to lay them on each other was found")
        self.draw()

    def _way_chosen(self) -> None:
        self.way = int(self.ways.value.split(":")[0]) - 1
        self.draw()

    def _next(self) -> None:
        """Through all ways and round again."""
        self.way = (self.way + 1) % len(self._aligned().ways)
        self.page.put(self.ways, self.ways.options[self.way])
        self.draw()

    def draw(self) -> None:
        if self.pair is None:
            return
        with self.page.client.atomic():
            for name, way, at in (("before", None, INPUT_AT), ("after", self.way, CANONICAL_AT)):
                a, b = self.pair.drawn(way)
                self.canvas.points(f"/align/{name}_a", a, _A, at)
                self.canvas.points(f"/align/{name}_b", b, _B, at)
                self.canvas.label(f"/align/{name}_label", name, at + ABOVE)
        chosen, residuals = self.pair.ways[self.way], self.pair.residuals
        self.results.content = table(
            [
                ("residual before", f"{residuals[None]:.4g}"),
                ("residual after", f"{residuals[self.way]:.4g} (units of B)"),
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
                "residual_before": self.pair.residuals[None],
                "residual": self.pair.residuals[self.way],
                "confidence": self.pair.ways[self.way].confidence,
            }
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        return self._aligned().joined(self.way)

    def record(self) -> dict[str, Any]:
        return self._aligned().record(self.way)

    def _aligned(self) -> AlignedPair:
        if self.pair is None:
            raise InvalidInputError("nothing was aligned yet: choose A and B and press  Align A to B")
        return self.pair
