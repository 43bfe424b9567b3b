"""Modes with several clouds: two aligned with each other, and a query with the nearest objects of an index."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from geocaps.apps.align import Alignment, Alternative, align
from geocaps.apps.align.hypotheses import trimmed_rms
from geocaps.apps.clouds import Cloud
from geocaps.apps.drawing import BLUE, ORANGE, STRAY_COLOR
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity
from geocaps.index.hits import FOUND
from geocaps.viewer.clouds import AS_GIVEN, ShownCloud, Stance, stances
from geocaps.viewer.mode import (
    ABOVE,
    CANONICAL_AT,
    INPUT_AT,
    Mode,
    file_of,
    in_a_row,
    matrix,
    notice,
    short,
    table,
    trouble,
)
from geocaps.viewer.session import pose_record

if TYPE_CHECKING:
    from geocaps.index import Hit
    from geocaps.viewer.page import Page

CURRENT = "the object, as it is turned"
_A, _B, _NOT_FOUND = (np.array(color) for color in (ORANGE, BLUE, STRAY_COLOR))
_MOST_HITS = 6
_NO_INDEX = "the page was started without an index: start it with  geocaps view --index FOLDER"


# ── two clouds before and after alignment, and the alternatives to click through ──────────────────────────────────────


@dataclass(frozen=True)
class AlignedPair:
    """Clouds A and B with the alignment ``T_b_a``; ``ways[0]`` is the chosen pose, the others are alternatives."""

    a: ShownCloud
    b: ShownCloud
    found: Alignment

    @cached_property
    def ways(self) -> list[Alternative]:
        return [Alternative(self.found.pose, self.found.confidence), *self.found.alternatives]

    @cached_property
    def residuals(self) -> dict[int | None, float]:
        """``Alignment.error`` of each way (None: as given), in units of B."""
        return {way: trimmed_distance(self.laid(way), self.b.exact) for way in (None, *range(len(self.ways)))}

    def laid(self, way: int | None) -> Float[np.ndarray, "n 3"]:
        """The points of A in the frame of B: as given (None), or moved by one of the ways."""
        return self.a.exact if way is None else self.ways[way].pose.apply(self.a.exact)

    def drawn(self, way: int | None) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "m 3"]]:
        """A and B in radii of B, centred on B; clouds that are far apart or in other units are moved into view."""
        a, b = ((points - self.b.center) / self.b.radius for points in (self.laid(way), self.b.exact))
        if way is None:
            own = a.mean(axis=0)
            spread = float(np.linalg.norm(a - own, axis=1).max())
            if spread > 2 or spread < 0.5 or np.linalg.norm(own) > 1:
                a = (a - own) / max(spread, 1e-12)
        return a, b

    def joined(self, way: int) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """B (label 0) and A aligned with it (label 2, in a clearly different colour)."""
        laid = self.laid(way)
        return np.concatenate([self.b.exact, laid]), np.repeat([0, 2], [len(self.b.exact), len(laid)])

    def record(self, way: int) -> dict[str, Any]:
        ways = [
            pose_record(one.pose) | {"scale": one.scale, "confidence": one.confidence, "residual": self.residuals[k]}
            for k, one in enumerate(self.ways)
        ]
        return {
            "a": self.a.name,
            "b": self.b.name,
            "shown": way,
            "ways": ways,
            "error": self.found.error,
            "overlap": list(self.found.overlap),
            "ambiguous": self.found.ambiguous,
        }


def trimmed_distance(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "m 3"]) -> float:
    return trimmed_rms(cKDTree(b).query(a)[0] ** 2, cKDTree(a).query(b)[0] ** 2)


class AlignMode(Mode):
    """Before on the left, after on the right; A is orange, B is blue and stays in place."""

    group = "/align"
    explained = "choose two clouds and press Align A to B. Left: as they came; right: A laid on B, which stays."
    nothing = "nothing was aligned yet: choose A and B and press  Align A to B"
    found: AlignedPair | None = None
    stance = AS_GIVEN
    way = 0

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        gui = page.client.gui
        with gui.add_folder("Align two clouds", visible=False) as self.panel:
            options = (CURRENT, *page.shared.names)
            self.a = gui.add_dropdown("A (orange)", options, initial_value=CURRENT)
            self.b = gui.add_dropdown("B (blue)", options, initial_value=_another(page.shared.names, page.shared.first))
            self.scale = gui.add_checkbox("find the scale too", False)
            self.start = gui.add_button("Align A to B")
            self.ways = gui.add_dropdown("way", ("1",), visible=False)
            self.next = gui.add_button("Next way", visible=False)
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self._align))
        self.next.on_click(page.guarded(self._next))
        self.ways.on_update(page.guarded(self._way_chosen))

    def offer(self, names: tuple[str, ...]) -> None:
        self.a.options = self.b.options = (CURRENT, *names)

    def _cloud(self, name: str) -> ShownCloud:
        return self.page.object.session.now.shown() if name == CURRENT else self.page.cloud(name)

    def _align(self) -> None:
        self.page.say("aligning")
        a, b = self._cloud(self.a.value), self._cloud(self.b.value)
        self.found = AlignedPair(a, b, align(a.points, b.points, scale=bool(self.scale.value)))
        self.stance = self.page.stance_of_object() if self.b.value == CURRENT else self.page.stance(b)
        self.way = 0
        names = tuple(f"{number}: confidence {one.confidence:.2f}" for number, one in enumerate(self.found.ways, 1))
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
        """Steps through all ways cyclically."""
        self.way = (self.way + 1) % len(self.result().ways)
        self.page.put(self.ways, self.ways.options[self.way])
        self.draw()

    def draw(self) -> None:
        if self.found is None:
            return
        with self.page.client.atomic():
            for name, way, at in (("before", None, INPUT_AT), ("after", self.way, CANONICAL_AT)):
                a, b = (points @ self.stance.rotation.T for points in self.found.drawn(way))
                self.canvas.points(f"/align/{name}_a", a, _A, at)
                self.canvas.points(f"/align/{name}_b", b, _B, at)
                self.canvas.label(f"/align/{name}_label", name, at + ABOVE)
        chosen, residuals = self.found.ways[self.way], self.found.residuals
        self.results.content = table(
            [
                ("residual before", f"{residuals[None]:.4g}"),
                ("residual after", f"{residuals[self.way]:.4g} (units of B)"),
                ("confidence", f"{chosen.confidence:.2f}"),
                ("overlap", "A {:.0%}, B {:.0%}".format(*self.found.found.overlap)),
                ("scale", f"{chosen.scale:.4g}"),
                ("shown upright", self.stance.how),
                ("A lies on B by", "x_B = scale · R · x_A + t:"),
            ]
        ) + matrix(chosen.pose)

    def state(self) -> dict[str, Any]:
        if self.found is None:
            return {"alignment": None}
        return {
            "alignment": {
                "a": self.found.a.name,
                "b": self.found.b.name,
                "ways": len(self.found.ways),
                "way": self.way,
                "residual_before": self.found.residuals[None],
                "residual": self.found.residuals[self.way],
                "confidence": self.found.ways[self.way].confidence,
            }
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        return self.result().joined(self.way)

    def record(self) -> dict[str, Any]:
        return self.result().record(self.way)

    def pose(self) -> Similarity:
        return self.result().ways[self.way].pose

    def code(self) -> str:
        if self.found is None:
            return self.nothing
        (a, first), (b, second) = file_of(self.found.a), file_of(self.found.b)
        scale = bool(self.scale.value)
        return (
            f"{first}{second}geocaps align {shlex.quote(a)} {shlex.quote(b)}{' --scale' if scale else ''}\n\n"
            f"import geocaps\nfound = geocaps.align({a!r}, {b!r}{', scale=True' if scale else ''})\n"
            "print(found.matrix, found.confidence)"
        )


# ── the nearest objects of an index as a row of clouds, each in the query's pose ──────────────────────────────────────


@dataclass(frozen=True)
class Found:
    """A query and its hits, best first."""

    query: ShownCloud
    hits: tuple[Hit, ...]
    verdict: str
    explained: bool  # whether the first hit is the object in the query; if not, none is
    stance: Stance  # of the query

    @property
    def size(self) -> float:
        """Radius of the query in the row."""
        return in_a_row(len(self.hits) + 1)[0]

    def places(self) -> list[Float[np.ndarray, "3"]]:
        """The position of each cloud in the row."""
        return in_a_row(len(self.hits) + 1)[1]

    def _clouds(self) -> list[Float[np.ndarray, "_ 3"]]:
        """The query and each hit aligned with it, in the query's coordinates."""
        return [self.query.exact, *(hit.apply(hit.points) for hit in self.hits)]

    def row(self) -> list[Float[np.ndarray, "_ 3"]]:
        """The query and each hit in the query's pose, each about its own origin and scaled to fit the page."""
        unit = self.size / self.query.radius
        return [(points - self.query.center) @ self.stance.rotation.T * unit for points in self._clouds()]

    def joined(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """The query (label 0) and each hit aligned with it (labelled by rank), in the query's coordinates."""
        clouds = self._clouds()
        return np.concatenate(clouds), np.repeat(np.arange(len(clouds)), [len(points) for points in clouds])

    def record(self) -> dict[str, Any]:
        told = ("name", "class_name", "similarity", "confidence", "overlap", "error")
        hits = [
            {
                **{name: getattr(hit, name) for name in told},
                **pose_record(hit.pose),
                "scale": hit.scale,
                "T_object_scan": hit.T_object_scan.matrix().tolist(),
            }
            for hit in self.hits
        ]
        return {"query": self.query.name, "found": self.explained, "verdict": self.verdict, "hits": hits}


class SearchMode(Mode):
    """A search with the object, in its current rotation, as the query, in the index given on the command line."""

    group = "/search"
    explained = (
        "open or drop a scan, also a partial one, or press the button. Objects of the index appear with the scan "
        "(orange) laid over them: blue if they explain it, grey if they do not."
    )
    nothing = "nothing was searched yet: press  Search for the object"
    found: Found | None = None
    hit = 0

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        gui = page.client.gui
        with gui.add_folder("Search an index", visible=False) as self.panel:
            index = page.shared.index
            gui.add_html(notice(_NO_INDEX if index is None else f"{len(index):,} objects in {index.path}"))
            self.count = gui.add_slider("hits", 1, _MOST_HITS, 1, 3)
            self.start = gui.add_button("Search for the object")
            self.verdict = gui.add_html("")
            self.hits = gui.add_dropdown("hit", ("1",), visible=False)
            self.results = gui.add_html("")
        self.start.on_click(page.guarded(self._search))
        self.hits.on_update(page.guarded(self._hit_chosen))

    def opened(self) -> None:
        """Searches for a newly opened scan at once."""
        if self.page.shared.index is not None:
            self._search()

    def _search(self) -> None:
        if self.page.shared.index is None:
            raise InvalidInputError(_NO_INDEX)
        query = self.page.object.session.now.shown()
        self.page.say("searching")
        result = self.page.shared.index.search(Cloud(query.points, query.name), k=int(self.count.value))
        verdict = f"{result[0].name} explains {query.name}" if result.found else result.verdict
        self.found = Found(query, tuple(result), verdict, result.found, self._stance(result))
        self.hit = 0
        names = tuple(f"{place}: {hit.name}" for place, hit in enumerate(result, 1))
        if names:
            self.page.put(self.hits, names[0], names)
        self.hits.visible = len(names) > 1
        self.page.say(f"{query.name}: looked for among {len(self.page.shared.index):,} objects")
        self.draw()

    def _stance(self, result: Any) -> Stance:
        """The stance of the object found, which is whole, as a partial scan says little about which way is up."""
        if not result.found:
            return self.page.stance_of_object()
        (stance,) = stances([(self.page.shared.model.encode(result[0].points), False)])
        return Stance(stance.rotation @ result[0].pose.rotation.T, f"the object that was found: {stance.how}")

    def _hit_chosen(self) -> None:
        self.hit = int(self.hits.value.split(":")[0]) - 1
        self.draw()

    def draw(self) -> None:
        if self.found is None:
            return
        found = self.found
        names = [found.query.name, *(hit.name for hit in found.hits)]
        with self.page.client.atomic():
            for number, (points, at) in enumerate(zip(found.row(), found.places(), strict=True)):
                if number:
                    sure = (found.hits[number - 1].confidence or 0) >= FOUND
                    self.canvas.points(f"/search/cloud{number}", points, _B if sure else _NOT_FOUND, at)
                self.canvas.points(f"/search/over{number}", found.row()[0], _A, at)
                title = f"{number}. {names[number]}" if number else f"{names[0]} (looked for)"
                self.canvas.label(f"/search/label{number}", short(title, len(names)), at + ABOVE * found.size)
            for number in range(len(names), _MOST_HITS + 1):
                for what in ("cloud", "over", "label"):
                    self.canvas.remove(f"/search/{what}{number}")
        self.verdict.content = (notice if found.explained else trouble)(found.verdict)
        if not found.hits:
            self.results.content = ""
            return
        hit = found.hits[self.hit]
        rows = [("similarity", f"{hit.similarity:.2f}"), ("shown upright", found.stance.how)]
        if hit.confidence is not None and hit.overlap is not None and hit.error is not None:
            rows[:0] = [
                ("confidence", f"{hit.confidence:.2f}"),
                ("overlap", f"{hit.overlap[0]:.0%} of the scan, {hit.overlap[1]:.0%} of the object"),
                ("residual", f"{hit.error:.4g} (units of the scan)"),
            ]
        rows.append(("it lies on the scan by", "x_scan = scale · R · x_object + t:"))
        self.results.content = table([("hit", names[self.hit + 1]), *rows]) + matrix(hit.pose)

    def state(self) -> dict[str, Any]:
        if self.found is None:
            return {"hits": None}
        return {
            "hits": [hit.name for hit in self.found.hits],
            "hit": self.hit,
            "found": self.found.explained,
            "searched": self.found.query.name,
        }

    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        return self.result().joined()

    def record(self) -> dict[str, Any]:
        return self.result().record()

    def pose(self) -> Similarity:
        """``T_query_hit``."""
        hits = self.result().hits
        if not hits:
            raise InvalidInputError("there is no hit, so there is no pose")
        return hits[self.hit].pose

    def code(self) -> str:
        if self.found is None or self.page.shared.index is None:
            return self.nothing
        (file, remark), index = file_of(self.found.query), str(self.page.shared.index.path)
        return (
            f"{remark}geocaps index search {shlex.quote(index)} {shlex.quote(file)} --k {int(self.count.value)}\n\n"
            f"import geocaps\nhits = geocaps.Index({index!r}).search({file!r}, k={int(self.count.value)})\n"
            "print(hits)\nprint(hits[0].matrix, hits[0].confidence, hits[0].overlap)"
        )


def _another(names: tuple[str, ...], first: str) -> str:
    """A second cloud to begin with: the next in the list, which is usually of the same kind."""
    return names[(names.index(first) + 1) % len(names)]
