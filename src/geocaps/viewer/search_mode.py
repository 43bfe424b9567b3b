"""The search mode: the nearest objects of an index as a row of clouds, each in the query's pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.drawing import part_colors
from geocaps.errors import InvalidInputError
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.mode import ABOVE, Mode, notice, table
from geocaps.viewer.session import pose_record

if TYPE_CHECKING:
    from geocaps.index import Hit
    from geocaps.viewer.page import Page

_MOST_HITS = 6
_NO_INDEX = "the page was started without an index: start it with  geocaps view --index FOLDER"
_APART = 1.9
"""Between neighbours of the row, in radii of the query."""
_ROW = 4.8
"""Width of the row, where one object alone has radius 1."""


@dataclass(frozen=True)
class Found:
    """A query and its hits, nearest first."""

    query: ShownCloud
    hits: tuple[Hit, ...]

    @property
    def size(self) -> float:
        """Radius of the query in the row."""
        return min(1.0, _ROW / (_APART * (len(self.hits) + 1)))

    def _clouds(self) -> list[Float[np.ndarray, "_ 3"]]:
        """The query and each hit laid on it, in the query's coordinates."""
        return [self.query.points.astype(np.float64), *(hit.apply(hit.points) for hit in self.hits)]

    def _frame(self) -> tuple[Float[np.ndarray, "3"], float]:
        exact = self.query.points.astype(np.float64)
        center = exact.mean(axis=0)
        return center, max(float(np.linalg.norm(exact - center, axis=1).max()), 1e-12)

    def row(self) -> list[Float[np.ndarray, "_ 3"]]:
        """The query and each hit in the query's pose, each about its own origin, and small enough for the page."""
        center, radius = self._frame()
        return [(points - center) / radius * self.size for points in self._clouds()]

    def places(self) -> list[Float[np.ndarray, "3"]]:
        """Where each cloud of the row stands: side by side, about the middle."""
        middle = len(self.hits) / 2
        return [np.array([(k - middle) * _APART * self.size, 0.0, 0.0]) for k in range(len(self.hits) + 1)]

    def joined(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The whole row in the query's units, and the number of the cloud that each point is of (0: the query)."""
        _, radius = self._frame()
        placed = [points + radius / self.size * at for points, at in zip(self._clouds(), self.places(), strict=True)]
        return np.concatenate(placed), np.repeat(np.arange(len(placed)), [len(points) for points in placed])

    def record(self) -> dict[str, Any]:
        return {
            "query": self.query.name,
            "hits": [
                {
                    "name": hit.name,
                    "class_name": hit.class_name,
                    "distance": hit.distance,
                    "chamfer": hit.chamfer,
                    **pose_record(hit.pose),
                    "scale": hit.scale,
                }
                for hit in self.hits
            ],
        }


class SearchMode(Mode):
    """The object, in its current rotation, is the query. The command line chooses the index, not the page."""

    group = "/search"

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.found: Found | None = None
        gui = page.client.gui
        with gui.add_folder("Search an index", visible=False) as self.panel:
            index = page.shared.index
            gui.add_html(notice(_NO_INDEX if index is None else f"{len(index):,} objects in {index.path}"))
            self.count = gui.add_slider("hits", 1, _MOST_HITS, 1, 4)
            self.start = gui.add_button("Search for the object")
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self._search))

    def _search(self) -> None:
        if self.page.shared.index is None:
            raise InvalidInputError(_NO_INDEX)
        query = self.page.object.session.now.shown()
        self.page.say("searching")
        self.found = Found(query, tuple(self.page.shared.index.search(query.points, k=int(self.count.value))))
        self.page.say(f"{len(self.found.hits)} objects like {query.name}")
        self.draw()

    def draw(self) -> None:
        if self.found is None:
            return
        found = self.found
        names = ["query", *(hit.name for hit in found.hits)]
        paint = part_colors(_MOST_HITS + 1)
        with self.page.client.atomic():
            for number, (points, at) in enumerate(zip(found.row(), found.places(), strict=True)):
                self.canvas.points(f"/search/cloud{number}", points, paint[number], at)
                self.canvas.label(f"/search/label{number}", _short(names[number], len(names)), at + ABOVE * found.size)
            for number in range(len(names), _MOST_HITS + 1):
                self.canvas.remove(f"/search/cloud{number}")
                self.canvas.remove(f"/search/label{number}")
        self.results.content = table(
            [(f"{place}. {hit.name}", _distance(hit)) for place, hit in enumerate(found.hits, start=1)]
        )

    def state(self) -> dict[str, Any]:
        return {"hits": None if self.found is None else [hit.name for hit in self.found.hits]}

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        return self._searched().joined()

    def record(self) -> dict[str, Any]:
        return self._searched().record()

    def _searched(self) -> Found:
        if self.found is None:
            raise InvalidInputError("nothing was searched yet: press  Search for the object")
        return self.found


def _short(name: str, clouds: int) -> str:
    """What fits above one of several clouds: the end of a name says most."""
    room = 84 // clouds
    return name if len(name) <= room else "…" + name[1 - room :]


def _distance(hit: Hit) -> str:
    between = "" if hit.chamfer is None else f", points {hit.chamfer:.4g} apart"
    return f"feature distance {hit.distance:.3g}{between}"
