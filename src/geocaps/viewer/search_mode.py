"""The search mode: the hits of an index as a row of clouds, in the query's pose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geocaps.apps.drawing import part_colors
from geocaps.errors import InvalidInputError
from geocaps.viewer import saving, texts
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.scene import ABOVE
from geocaps.viewer.search import Found, search_index

if TYPE_CHECKING:
    from geocaps.viewer.page import Page

MOST_HITS = 6
_NO_INDEX = "the page was started without an index: start it with  geocaps view --index FOLDER"


class SearchMode:
    """The object, as it is turned, is the query. Which index is asked is for the command line to say, not the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.found: Found | None = None
        gui = page.client.gui
        with gui.add_folder("Search an index", visible=False) as self.panel:
            index = page.shared.index
            gui.add_html(texts.notice(_NO_INDEX if index is None else f"{len(index):,} objects in {index.path}"))
            self.count = gui.add_slider("hits", 1, MOST_HITS, 1, 4)
            self.start = gui.add_button("Search for the object")
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self.search))

    def search(self) -> None:
        if self.page.shared.index is None:
            raise InvalidInputError(_NO_INDEX)
        now = self.page.object.session.now
        query = ShownCloud(now.cloud.name, now.points, now.cloud.total)
        self.page.say("searching")
        self.found = search_index(self.page.shared.index, query, int(self.count.value))
        self.page.say(f"{len(self.found.hits)} objects like {query.name}")
        self.draw()

    def show(self, visible: bool) -> None:
        self.panel.visible = visible
        self.page.canvas.group("/search", visible)
        if visible:
            self.draw()

    def draw(self) -> None:
        if self.found is None:
            return
        canvas, found = self.page.canvas, self.found
        names = ["query", *(hit.name for hit in found.hits)]
        paint = part_colors(MOST_HITS + 1)
        with self.page.client.atomic():
            for number, (points, at) in enumerate(zip(found.row(), found.places(), strict=True)):
                canvas.points(f"/search/cloud{number}", points, paint[number], at)
                canvas.label(f"/search/label{number}", _short(names[number], len(names)), at + ABOVE * found.size)
            for number in range(len(found.hits) + 1, MOST_HITS + 1):
                canvas.remove(f"/search/cloud{number}")
                canvas.remove(f"/search/label{number}")
        self.results.content = texts.table(
            [(f"{place}. {hit.name}", _distance(hit)) for place, hit in enumerate(found.hits, start=1)]
        )

    def state(self) -> dict[str, Any]:
        return {"hits": None if self.found is None else [hit.name for hit in self.found.hits]}

    def ply(self) -> bytes:
        return saving.ply_bytes(*self._searched().joined())

    def record(self) -> dict[str, Any]:
        return self._searched().record()

    def _searched(self) -> Found:
        if self.found is None:
            raise InvalidInputError("nothing was searched yet: press  Search for the object")
        return self.found


def _short(name: str, clouds: int) -> str:
    """What has room above one of so many clouds: the end of a name says most."""
    room = 84 // clouds
    return name if len(name) <= room else "…" + name[1 - room :]


def _distance(hit: Any) -> str:
    between = "" if hit.chamfer is None else f", points {hit.chamfer:.4g} apart"
    return f"feature distance {hit.distance:.3g}{between}"
