"""``geocaps.parse_scene(scan)``: the objects in a scan, each with its capsule; their number need not be known.

Supporting planes are removed first. The rest is split into parts, patches of surface whose size depends on the scan's
resolution. Connected parts are an object, which is cut at a narrow place if two capsules explain it better than one.
With an index, parts are routed to its objects: objects explain parts, and parts vote for objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from geocaps.apps.clouds import Source, as_cloud, require_extent
from geocaps.apps.encode import Model, load
from geocaps.apps.encoding import Encoding
from geocaps.apps.locate.evidence import RangeImage, could_see, range_image
from geocaps.apps.locate.pairs import one_a_voxel
from geocaps.apps.locate.segments import components
from geocaps.apps.planes import Plane, planes, spacing_of
from geocaps.errors import InvalidInputError
from geocaps.model.parts import log_likelihood

NO_OBJECT = -1
MINIMUM_POINTS = 64
_SUPPORT, _ONE_SIDE = 0.1, 0.9  # share of a scan in a supporting plane, and of the rest on one side of it
_WIDE = 0.4  # extent of a supporting plane, as a share of the scan's diagonal
_PATCH, _FINEST = 5.0, 1 / 80  # size of a part, in spacings of the points, and least share of the scan's extent
_GAP = 2.5  # spacings between points that touch
_LEAST_PARTS, _LEAST_SHARE = 8, 0.1  # of an object, and of the smaller side of a cut
_CONCAVE = np.cos(np.radians(75))  # between the line and the normals, if two parts form a hollow
_HOLLOW = 0.05  # weight of a contact in a hollow
_NARROW, _OBVIOUS = 0.01, 0.0005  # relative contact of two objects, and that below which capsules need not be compared
_LOW = 3.0  # in parts: greatest height of an object above a plane, and distance of floating pieces from their object
_BETTER = 0.7  # unexplained by two capsules, relative to one, for a piece to be two objects
_FOUND = 0.5  # confidence from which the index is sure of an object
_ROUTINGS = 3
_SIGMA, _EXPLAINED, _OUT_OF_REACH = 0.03, 0.08, 0.3  # distances from a known object's surface, in its radii


@runtime_checkable
class Searchable(Protocol):
    """An index of known objects: ``geocaps.Index``."""

    def search(self, cloud: Source, k: int = ...) -> Sequence[Any]: ...


@dataclass(frozen=True)
class SceneObject:
    """One object in a scan."""

    points: Int[np.ndarray, "k"]
    """Indices of its points in the scan."""
    capsule: Encoding
    match: Any | None
    """The most similar object in the index (``name``, ``class_name``, and ``pose`` in the scan); None without one."""

    def complete(self) -> Float64[np.ndarray, "m 3"]:
        """Points of the whole object, in the scan's coordinates."""
        return self.capsule.complete()


@dataclass(frozen=True)
class ParsedScene:
    """A scan, parsed."""

    objects: tuple[SceneObject, ...]
    """The objects, those with most points first."""
    planes: tuple[Plane, ...]
    labels: Int[np.ndarray, "n"]
    """The object of each point; -1 for planes, and for pieces that are too small to be objects."""

    def __repr__(self) -> str:
        names = ", ".join(one.match.name for one in self.objects if one.match is not None)
        return f"ParsedScene({len(self.objects)} objects{': ' if names else ''}{names}; {len(self.planes)} planes)"


@dataclass(frozen=True)
class _Parts:
    """Patches of surface: the points of each, and their contacts."""

    of: Int[np.ndarray, "n"]  # part of each point
    center: Float64[np.ndarray, "p 3"]
    contact: Float64[np.ndarray, "p p"]  # number of touching points, with little weight in hollows


def parse_scene(
    scan: Source,
    index: Searchable | None = None,
    *,
    model: Model | None = None,
    viewer: Sequence[int | float] | np.ndarray | None = None,
    drop_invalid: bool = False,
) -> ParsedScene:
    """The objects in a scan. ``viewer`` are the positions of sensors, ``[3]`` or ``[v, 3]``, as in ``geocaps.locate``.

    With an ``index`` (``geocaps.Index``) each object gets the name and the pose of the most similar one in it, and
    objects that are found with confidence claim their parts, so that touching objects are separated and pieces joined.
    """
    cloud = as_cloud(scan, 0, "the scan", drop_invalid=drop_invalid)
    if len(cloud.points) < MINIMUM_POINTS:
        raise InvalidInputError(
            f"{cloud.name} has {len(cloud.points)} points; at least {MINIMUM_POINTS} are needed to see objects in it"
        )
    require_extent(cloud.points, cloud.name)
    model = model or load()
    points = cloud.points.astype(np.float64)
    spacing = spacing_of(points)
    supports = _supports(points, spacing)
    free = np.flatnonzero(~np.any([one.on for one in supports], axis=0)) if supports else np.arange(len(points))
    labels = np.full(len(points), NO_OBJECT)
    if len(free) < MINIMUM_POINTS:
        return ParsedScene((), tuple(supports), labels)
    parts = _cut(points[free], spacing, _images(points, spacing, viewer))
    cuts = _Explained(model, points[free], parts, supports, spacing)
    found: list[tuple[np.ndarray, Encoding, Any]] = [(*one, None) for one in cuts.objects()]
    if index is not None and found:
        routed = Routed(index, cuts).objects([members for members, *_ in found])
        found = [(one.members, cuts.capsule(one.members), one.hit) for one in routed]
    objects = [SceneObject(free[cuts.own(members)], capsule, match) for members, capsule, match in found]
    objects.sort(key=lambda one: -len(one.points))
    for number, one in enumerate(objects):
        labels[one.points] = number
    return ParsedScene(tuple(objects), tuple(supports), labels)


def _supports(points: Float64[np.ndarray, "n 3"], spacing: float) -> list[Plane]:
    """Planes nearly as wide as the scan with everything else on one side: floors and walls."""
    found: list[Plane] = []
    width = float(np.linalg.norm(np.ptp(points, axis=0)))
    for plane in planes(points, 2 * spacing, _SUPPORT):
        rest = plane.height(points[~plane.on])
        rest = rest[np.abs(rest) > 2 * plane.thickness]
        one_side = not len(rest) or max((rest > 0).mean(), (rest < 0).mean()) >= _ONE_SIDE
        if one_side and plane.extent.max() > _WIDE * width:
            found.append(plane)
    return found


def _images(points: np.ndarray, spacing: float, viewer: Sequence[int | float] | np.ndarray | None) -> list[RangeImage]:
    if viewer is None:
        image = range_image(points, np.zeros(3), spacing)
        return [image] if could_see(points, image) else []
    return [range_image(points, one, spacing) for one in np.asarray(viewer, dtype=np.float64).reshape(-1, 3)]


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cut(points: Float64[np.ndarray, "n 3"], spacing: float, images: list[RangeImage]) -> _Parts:
    size = max(_PATCH * spacing, _FINEST * float(np.ptp(points, axis=0).max()))
    seeds = points[one_a_voxel(points, size)]
    of = cKDTree(seeds).query(points)[1]
    _, of = np.unique(of, return_inverse=True)
    count = np.bincount(of)
    center = np.stack([np.bincount(of, column) / count for column in points.T], axis=1)
    offset = points - center[of]
    products = np.stack([np.bincount(of, offset[:, i] * offset[:, j]) for i in range(3) for j in range(3)], axis=1)
    normal = np.linalg.eigh(products.reshape(-1, 3, 3))[1][:, :, 0]
    towards = np.zeros_like(center)
    for image in images:
        sight = image.viewer - center
        seen = ~(image.behind(center) > size)
        towards += seen[:, None] * sight / np.linalg.norm(sight, axis=1, keepdims=True)
    known = np.abs(towards).sum(axis=1) > 0
    normal = normal * np.where(np.einsum("ij,ij->i", normal, towards) < 0, -1.0, 1.0)[:, None]
    some = one_a_voxel(points, spacing)
    pairs = some[cKDTree(points[some]).query_pairs(_GAP * spacing, output_type="ndarray")]
    touching = np.zeros((len(center), len(center)))
    np.add.at(touching, (of[pairs[:, 0]], of[pairs[:, 1]]), 1.0)
    touching += touching.T
    np.fill_diagonal(touching, 0)
    first, second = np.nonzero(touching)
    line = center[second] - center[first]
    line /= np.linalg.norm(line, axis=1, keepdims=True)
    # A hollow: both normals lean towards the other part.
    rise = np.einsum("ij,ij->i", normal[first], line) - np.einsum("ij,ij->i", normal[second], line)
    hollow = (rise > 2 * _CONCAVE) & known[first] & known[second]
    touching[first[hollow], second[hollow]] *= _HOLLOW
    return _Parts(of, center, touching)


# ── objects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Explained:
    """Objects that explain parts: connected pieces, cut if two capsules explain more than one."""

    def __init__(
        self, model: Model, points: Float64[np.ndarray, "n 3"], parts: _Parts, supports: list[Plane], spacing: float
    ) -> None:
        self.model, self.points, self.parts, self.spacing = model, points, parts, spacing
        heights = [np.abs(one.height(parts.center)) for one in supports]
        self.height = np.min(heights, axis=0) if heights else np.zeros(len(parts.center))
        self._capsules: dict[bytes, Encoding] = {}

    def objects(self) -> list[tuple[Int[np.ndarray, "m"], Encoding]]:
        found: list[tuple[np.ndarray, Encoding]] = []
        piece_of = np.zeros(len(self.parts.center), dtype=np.int64)
        piece_of[self.parts.of] = components(self.points, _GAP * self.spacing)
        piece_of = self._landed(piece_of)
        for piece in np.unique(piece_of):
            members = np.flatnonzero(piece_of == piece)
            if self.enough(members):
                found += self._divided(members, self.capsule(members))
        return found

    def _landed(self, piece_of: Int[np.ndarray, "p"]) -> Int[np.ndarray, "p"]:
        """Joins pieces that touch no supporting plane to near pieces that do, since objects do not float."""
        lowest = np.full(piece_of.max() + 1, np.inf)
        np.minimum.at(lowest, piece_of, self.height)
        stands = lowest[piece_of] < _LOW * _PATCH * self.spacing
        if not stands.any():
            return piece_of
        nearest = cKDTree(self.parts.center[stands]).query(self.parts.center)
        owner = piece_of.copy()
        for piece in np.unique(piece_of[~stands]):
            own = np.flatnonzero(piece_of == piece)
            closest = own[nearest[0][own].argmin()]
            if nearest[0][closest] < _LOW * _PATCH * self.spacing:
                owner[own] = piece_of[stands][nearest[1][closest]]
        return owner

    def own(self, members: Int[np.ndarray, "m"]) -> Int[np.ndarray, "k"]:
        return np.flatnonzero(np.isin(self.parts.of, members))

    def capsule(self, members: Int[np.ndarray, "m"]) -> Encoding:
        if (group := members.tobytes()) not in self._capsules:
            self._capsules[group] = self.model.encode(self.points[self.own(members)])
        return self._capsules[group]

    def _divided(self, members: Int[np.ndarray, "m"], capsule: Encoding) -> list[tuple[np.ndarray, Encoding]]:
        """The piece, or its parts after a cut at the narrowest or hollowest place, if that explains it better."""
        cut = self._narrowest(members)
        if cut is None:
            return [(members, capsule)]
        side, contact = cut
        halves = members[side], members[~side]
        if any(len(self.own(half)) < MINIMUM_POINTS for half in halves):
            return [(members, capsule)]
        capsules = [self.capsule(half) for half in halves]
        apart = [self._unexplained(half, one) for half, one in zip(halves, capsules, strict=True)]
        if contact > _OBVIOUS and np.concatenate(apart).mean() > _BETTER * self._unexplained(members, capsule).mean():
            return [(members, capsule)]
        return [one for half, own in zip(halves, capsules, strict=True) for one in self._divided(half, own)]

    def _unexplained(self, members: Int[np.ndarray, "m"], capsule: Encoding) -> Float64[np.ndarray, "k"]:
        """Distance of each point from the decoded surface of the capsule."""
        return cKDTree(capsule.complete()).query(self.points[self.own(members)])[0]

    def _narrowest(self, members: Int[np.ndarray, "m"]) -> tuple[Bool[np.ndarray, "m"], float] | None:
        """One side of the cut with the smallest relative contact, and that contact; both sides must stand."""
        least = max(_LEAST_PARTS, int(_LEAST_SHARE * len(members)))
        if len(members) < 2 * least:
            return None
        contact = self.parts.contact[np.ix_(members, members)]
        degree = contact.sum(axis=1) + 1e-9
        scaled = contact / np.sqrt(degree[:, None] * degree)
        order = np.argsort(np.linalg.eigh(scaled)[1][:, -2] / np.sqrt(degree), kind="stable")
        ordered = contact[np.ix_(order, order)]
        inside = np.cumsum(degree[order])
        # Contact across each place in the order: all contact of the parts before it, less that among them.
        within = np.cumsum(np.cumsum(ordered, axis=0), axis=1).diagonal()
        crossing = (inside - within) / np.minimum(inside, inside[-1] - inside).clip(1e-9)
        places = np.arange(least, len(members) - least + 1)
        best = int(places[crossing[places - 1].argmin()])
        side = np.zeros(len(members), dtype=bool)
        side[order[:best]] = True
        there = float(crossing[best - 1])
        return (side, there) if there < _NARROW and all(self.stands(members[half]) for half in (side, ~side)) else None

    def enough(self, members: Int[np.ndarray, "m"]) -> bool:
        """Whether parts are enough for an object."""
        return len(members) >= _LEAST_PARTS and len(self.own(members)) >= MINIMUM_POINTS

    def stands(self, members: Int[np.ndarray, "m"]) -> bool:
        """Whether parts begin near a supporting plane."""
        return bool(self.height[members].min() < _LOW * _PATCH * self.spacing)


# ── known objects explain parts ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Known:
    """Parts of one object, and the most similar object in the index, aligned with them."""

    members: Int[np.ndarray, "_"]
    hit: Any
    distance: Float64[np.ndarray, "p"]
    """RMS distance of every part from that object's surface, in its radii."""
    radius: float

    @property
    def sure(self) -> bool:
        return self.hit.confidence is not None and self.hit.confidence >= _FOUND


class Routed:
    """Parts routed to several objects of an index, by the routing of equations 1 and 2.

    Objects explain parts: ``R_ij`` is the probability of part i under the surface of object j. Parts vote for objects:
    the index is searched again with the parts that are routed to an object. The number of objects follows: parts that
    their object does not explain become a new one, and an object whose parts are explained by others disappears.
    """

    def __init__(self, index: Searchable, found: _Explained) -> None:
        self.index, self.found = index, found
        self.count = np.bincount(found.parts.of)
        self._searched: dict[bytes, _Known] = {}  # routing often returns to the same groups

    def objects(self, groups: list[Int[np.ndarray, "_"]]) -> list[_Known]:
        objects = [self._known(one) for one in groups]
        for _ in range(_ROUTINGS):
            apart = [each for one in objects for each in self._separated(one)]
            settled = self._settled(apart)
            if settled == objects:
                break
            objects = settled
        return objects

    def _known(self, members: Int[np.ndarray, "m"]) -> _Known:
        """The object that the parts vote for."""
        if (group := members.tobytes()) not in self._searched:
            self._searched[group] = self._search(members)
        return self._searched[group]

    def _search(self, members: Int[np.ndarray, "m"]) -> _Known:
        hit = self.index.search(self.found.points[self.found.own(members)], k=1)[0]
        surface = hit.apply(hit.points)
        radius = float(np.linalg.norm(surface - surface.mean(axis=0), axis=1).max())
        far = _OUT_OF_REACH * radius
        away = np.minimum(cKDTree(surface).query(self.found.points, distance_upper_bound=far)[0], far) / radius
        return _Known(members, hit, np.sqrt(np.bincount(self.found.parts.of, away**2) / self.count), radius)

    def _separated(self, one: _Known) -> list[_Known]:
        """The object, or its explained and unexplained parts, if each of them can be an object.

        This requires that the index is sure of the explained parts without the rest.
        """
        explained = one.distance[one.members] < _EXPLAINED
        rest = one.members[~explained]
        least = max(_LEAST_PARTS, int(_LEAST_SHARE * len(one.members)))
        if explained.sum() < least or len(rest) < least:
            return [one]
        apart = self.found.parts.contact[np.ix_(rest, rest)] > 0
        label = connected_components(coo_array(apart), directed=False)[1]
        others = [rest[label == piece] for piece in np.unique(label)]
        others = [own for own in others if len(own) >= least and self.found.enough(own) and self.found.stands(own)]
        core = np.setdiff1d(one.members, np.concatenate([np.empty(0, dtype=np.int64), *others]))
        if not others or not self.found.enough(core):
            return [one]
        whole = self._known(core)
        return [whole, *map(self._known, others)] if whole.sure else [one]

    def _settled(self, objects: list[_Known]) -> list[_Known]:
        """Each object with the parts that are routed to it; those with too few parts are dropped."""
        while True:
            chosen = self._routing(objects).argmax(axis=1)
            groups = [np.flatnonzero(chosen == place) for place in range(len(objects))]
            small = [place for place, own in enumerate(groups) if not self.found.enough(own)]
            if not small:
                break
            least = min(small, key=lambda place: len(groups[place]))
            objects = objects[:least] + objects[least + 1 :]
        return [
            one if np.array_equal(own, one.members) else self._known(own)
            for one, own in zip(objects, groups, strict=True)
        ]

    def _routing(self, objects: list[_Known]) -> Float64[np.ndarray, "p o_plus_1"]:
        """``R_ij = softmax_j b_ij``, with the size of objects as a prior; the last column stands for no object.

        In its present object, a part is at least as likely as at the limit of what counts as explained, so that parts
        that no other object explains stay there. An object of which the index is not sure explains no further parts.
        """
        sizes = np.array([len(one.members) for one in objects])
        scores = np.full((len(self.count), len(objects) + 1), -np.inf)
        edge = np.log(sizes) + [_likelihood(np.full(1, _EXPLAINED), one.radius)[0] for one in objects]
        scores[:, -1] = edge.min()
        for place, one in enumerate(objects):
            if one.sure:
                scores[:, place] = np.log(sizes[place]) + _likelihood(one.distance, one.radius)
            scores[one.members, place] = np.maximum(scores[one.members, place], edge[place])
            scores[one.members, -1] = -np.inf
        return torch.softmax(torch.from_numpy(scores), dim=1).numpy()


def _likelihood(distance: Float64[np.ndarray, "p"], radius: float) -> Float64[np.ndarray, "p"]:
    """``b_ij``, from distances in radii of the object."""
    sigma = torch.tensor(np.log(_SIGMA * radius)).expand(len(distance))
    return log_likelihood(torch.from_numpy((distance * radius) ** 2), sigma).numpy()
