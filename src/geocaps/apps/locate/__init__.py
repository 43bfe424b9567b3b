"""``geocaps.locate(model, scan)``: every instance of a known rigid object in a cluttered scan, or none.

Matched pairs of oriented points are whole hypotheses, as local frames are in ``geocaps.align``; the scan's evidence
(surface, empty, hidden) sorts them, ICP refines the best, and what is left explains the scan or is no find. In numpy,
without weights and without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from geocaps.apps.align.hypotheses import distinct
from geocaps.apps.align.icp import by_tree, step
from geocaps.apps.align.prepare import Prepared
from geocaps.apps.clouds import Cloud, Placed, Source, as_cloud, require_extent
from geocaps.apps.locate import pairs, segments
from geocaps.apps.locate.evidence import Grid, RangeImage, Surface, could_see, evidence_grid, range_image
from geocaps.apps.locate.known import Known, surface
from geocaps.apps.locate.pairs import one_a_voxel
from geocaps.apps.planes import planes, spacing_of
from geocaps.errors import InvalidInputError
from geocaps.geometry.sampling import evenly
from geocaps.geometry.similarity import Similarity

MINIMUM_POINTS = 32
_MESH_POINTS = 30_000
_SPACINGS = 1.3  # of the scan's points: the least size of a voxel
_MODEL_POINTS = 1500  # voxels that the model is cut into: their size is the working resolution
_PROBES = 96, 256  # points of the model that hypotheses are scored on, and the refined ones
# How many poses are refined, polished, and polished to the end; and at most how many of them at one place: what is
# symmetric fits in many ways, and would leave no room for others.
_REFINED, _FINAL, _LAST = (240, 10), (80, 4), (26, 3)
_POLISHED = 300  # points of the scan that polish a pose
_JUDGED = 500  # points of the scan around a pose that choose which poses are polished to the end
_REACH = 2.2  # voxels: what lies so far from the scan's surface is supported by it while poses are coarse
_COARSE_REACHES = np.array([0.12, 0.1, 0.08, 0.06, 0.06])
_FINE_REACHES, _LAST_REACHES = np.geomspace(0.1, 0.05, 6), np.geomspace(0.08, 0.025, 14)
_PLACE = 0.1  # poses whose centres are nearer than this share of the diameter are at one place
_CANDIDATES = 700
_APART = np.radians(12), 0.06
_BLOCK = 512
_GAP = 2.0  # voxels between pieces of a scan
_TIGHT, _NEAR, _AROUND = 0.4, 1.2, 3.0  # voxels: what lies on the model's surface, and what around it
# A plane that is so many diameters long, filled, and as large as so many of the object's largest faces is no part of
# it: the tops of a few tables side by side are one plane, too.
_WIDER, _FILLED, _FACES = 1.2, 0.35, 6
_USUAL = 0.85, 0.02  # what is explained and what is against, where it is not known what should be seen
# Weights of: how much is seen, what is against, what is not explained, not on the model, not exactly on it; and all.
# Fitted by logistic regression to the candidates of 46 composed scenes, other than those of the benchmark.
_ODDS = np.array([1.2, -1.95, -0.53, -2.5, -0.92, -15.3])
_TAKEN = 0.3  # share of what a find explains that a better one may explain, too


@dataclass(frozen=True, repr=False)
class Find(Placed):
    """One instance: ``x_scan = R · x_model + t``, in the user's units."""

    pose: Similarity
    """``T_scan_model``; its scale is 1."""
    confidence: float
    """From 0 to 1: how surely this is the object."""
    explained: float
    """Share of the model's surface that should be seen here, that is seen; of all of it where no viewer is known."""
    visible: float
    """Share of the model's whole surface that is seen."""

    def __repr__(self) -> str:
        return (
            f"Find(T_scan_model: {self.pose!r}, confidence {self.confidence:.2f}, {self.explained:.0%} of what should "
            f"be seen explained, {self.visible:.0%} of the surface seen)"
        )


@dataclass(frozen=True)
class _Scan:
    """A scan in working units: without large planes and at the working resolution; what its viewers see."""

    cloud: Prepared
    planes: Float64[np.ndarray, "k 3"]
    images: list[RangeImage]

    @property
    def viewers(self) -> Float64[np.ndarray, "w 3"]:
        return np.array([image.viewer for image in self.images]).reshape(-1, 3)


@dataclass(frozen=True)
class _Verdict:
    """What the scan says of the model in one pose."""

    seen: float  # share of the surface that is expected and seen
    explained: float
    viewed: bool  # whether it is known what should be seen
    against: float  # share of the surface that lies where the scan sees through
    fits: float  # share of the scan around the model's surface that lies on it
    tight: float  # share of what lies on it that lies exactly on it
    taken: Int[np.ndarray, "k"]  # points of the scan that it explains


def locate(
    model: Source, scan: Source, *, viewer: Sequence[int | float] | np.ndarray | None = None, drop_invalid: bool = False
) -> list[Find]:
    """Every instance of a rigid object in a scan, surest first; an empty list where there is none.

    ``model`` is a mesh or a cloud of the whole object, in the units of the scan. ``viewer`` is where the sensor stood,
    or several ``[v, 3]`` of a scan that was put together: what lies in front of a surface that they see is empty. If it
    is not given, it is the origin, provided that nothing in the scan hides anything else from there; otherwise it
    is taken as unknown. Nothing is random: the same clouds give the same finds.
    """
    whole = _dense(_checked(model, "the model", drop_invalid))
    given = _checked(scan, "the scan", drop_invalid)
    center = (whole.min(axis=0) + whole.max(axis=0)) / 2
    diameter = 2 * float(np.linalg.norm(whole - center, axis=1).max())
    local = (whole - center) / diameter
    middle = given.points.mean(axis=0, dtype=np.float64)  # map coordinates keep their digits
    points = (given.points - middle) / diameter
    spacing = spacing_of(points)
    voxel = max(_voxel(local), _SPACINGS * spacing)
    known = Known.of(local, voxel)
    viewers = (_places(np.zeros(3) if viewer is None else viewer) - middle) / diameter
    images = [range_image(points, one, spacing) for one in viewers]
    if viewer is None and not could_see(points, images[0]):
        images = []
    faces = (float(plane.extent.prod()) for plane in planes(known.cloud.points, voxel / 2))
    seen = _seen(points, voxel, spacing, images, max(faces, default=0.0))
    if seen is None:
        return []
    motions = _search(known, seen, voxel)
    rough = np.array([_worth(one) for one in _verdicts(known, seen, motions, voxel, _JUDGED)])
    motions = motions[_spread(motions, np.argsort(-rough, kind="stable"), *_LAST)]
    motions = _polished(known, seen, motions, _LAST_REACHES)
    finds = []
    taken = np.zeros(len(seen.cloud.points), dtype=bool)
    verdicts = _verdicts(known, seen, motions, voxel, len(seen.cloud.points))
    for index in sorted(range(len(verdicts)), key=lambda one: -_worth(verdicts[one])):
        verdict = verdicts[index]
        if _confidence(verdict) < 0.5 or taken[verdict.taken].mean() > _TAKEN:
            continue
        taken[verdict.taken] = True
        motion = motions[index]
        translation = middle + diameter * motion.translation - motion.rotation @ center
        pose = Similarity(motion.rotation, translation)
        finds.append(Find(pose, _confidence(verdict), verdict.explained, verdict.seen))
    return finds


def _checked(source: Source, name: str, drop_invalid: bool) -> Cloud:
    cloud = as_cloud(source, 0, name, drop_invalid=drop_invalid)
    if len(cloud.points) < MINIMUM_POINTS:
        raise InvalidInputError(
            f"{cloud.name} has {len(cloud.points)} points; at least {MINIMUM_POINTS} are needed to locate an object"
        )
    require_extent(cloud.points, cloud.name)
    return cloud


def _places(viewer: Sequence[int | float] | np.ndarray) -> Float64[np.ndarray, "v 3"]:
    places = np.asarray(viewer, dtype=np.float64)
    if places.shape[-1:] != (3,) or places.ndim > 2 or not np.isfinite(places).all():
        raise InvalidInputError(f"viewer must be a place (x, y, z) or several [v, 3], not {viewer!r}")
    return places.reshape(-1, 3)


def _dense(model: Cloud) -> Float64[np.ndarray, "n 3"]:
    """So many points of a mesh that the two sides of a board are told apart; those of a cloud as they are."""
    from geocaps.io import sample_surface

    if model.faces is None or model.vertices is None:
        return model.points.astype(np.float64)
    return sample_surface(model.vertices, model.faces, _MESH_POINTS, seed=0)[0].astype(np.float64)


def _voxel(local: Float[np.ndarray, "n 3"]) -> float:
    """The size of voxels of which the model fills about ``_MODEL_POINTS``: their number goes with its square."""
    first = 1 / 24
    return first * float(np.sqrt(len(one_a_voxel(local, first)) / _MODEL_POINTS))


def _seen(
    points: Float64[np.ndarray, "n 3"], voxel: float, spacing: float, images: list[RangeImage], face: float
) -> _Scan | None:
    """The scan without planes that are much larger than a ``face`` of the object; None if nothing is left."""
    flat = np.zeros(len(points), dtype=bool)
    for plane in planes(points, voxel / 2):
        area, around = plane.on.sum() * spacing**2, float(plane.extent.prod())
        wide = plane.extent.max() > _WIDER and plane.extent.min() > _WIDER / 2
        if wide and area > _FILLED * around and area > _FACES * face:
            flat |= plane.on
    rest = points[~flat]
    return _Scan(surface(rest, voxel), points[flat], images) if len(rest) >= MINIMUM_POINTS else None


# ── the search, in diameters of the model ─────────────────────────────────────────────────────────────────────────────


def _search(known: Known, scan: _Scan, voxel: float) -> Similarity:
    """Motions from the model to the scan: hundreds of thousands of pairs, ever fewer on ever more points."""
    model, normals = known.cloud, scan.cloud.normals.T
    grid = evidence_grid(scan.cloud.points, normals, scan.planes, scan.images, _REACH * voxel, 0.3)
    solid = scan.cloud.solid
    found = (
        pairs.hypotheses((model.points, model.normals.T), (scan.cloud.points[solid], normals[solid])),
        segments.hypotheses(model.points, known.seen[:-1], scan.cloud.points[solid], _GAP * voxel),
    )
    rotation, translation = (np.concatenate(both) for both in zip(*found, strict=True))
    motions = Similarity(rotation, translation)
    order = np.argsort(-_scores(known, scan, grid, motions, _PROBES[0]), kind="stable")
    order = distinct(motions, order, _CANDIDATES, *_APART)
    motions = motions[_spread(motions, order, *_REFINED)]
    motions = _led(known, scan, motions)
    score = _scores(known, scan, grid, motions, _PROBES[1])
    kept = _spread(motions, np.argsort(-score, kind="stable"), *_FINAL)
    return _polished(known, scan, motions[kept], _FINE_REACHES)


def _scores(known: Known, scan: _Scan, grid: Grid, motions: Similarity, probes: int) -> Float[np.ndarray, "h"]:
    """The evidence for what is seen of the model in each pose: what is hidden says nothing."""
    score = np.empty(len(motions))
    for start in range(0, len(motions), _BLOCK):  # what stays in cache is quicker
        some = motions[start : start + _BLOCK]
        chosen = known.probes(scan.viewers, some, probes)
        points, normals = (
            rows[:, chosen].transpose(1, 0, 2).astype(np.float32) for rows in (known.cloud.columns, known.cloud.normals)
        )
        rotation, translation = some.rotation.astype(np.float32), some.translation.astype(np.float32)
        score[start : start + _BLOCK] = grid.score(rotation, translation, points, normals)
    return score


def _led(known: Known, scan: _Scan, motions: Similarity) -> Similarity:
    """Led on by some points of the model that are seen, to the nearest ones of the scan."""
    points = known.cloud.columns[:, known.probes(scan.viewers, motions, _PROBES[0])]
    near = by_tree(scan.cloud, reach=float(_COARSE_REACHES.max())).nearest
    trust = np.ones(points.shape[2])
    for reach in _COARSE_REACHES.tolist():
        moving = (motions.rotation @ points.transpose(1, 0, 2)).transpose(1, 0, 2) + motions.translation.T[:, :, None]
        partner = near(moving)
        fixed, normal = (rows.take(partner, axis=1) for rows in (scan.cloud.columns, scan.cloud.normals))
        motions = step((moving, fixed, normal), trust, motions, reach, scale=False)
    return motions


def _spread(motions: Similarity, order: np.ndarray, most: int, each: int) -> Int[np.ndarray, "k"]:
    """The first in the given order, at most ``each`` of them at one place."""
    kept: list[int] = []
    for index in order:
        away = np.linalg.norm(motions.translation[kept] - motions.translation[index], axis=1)
        if (away < _PLACE).sum() < each:
            kept.append(int(index))
        if len(kept) == most:
            break
    return np.array(kept, dtype=np.int64)


def _polished(known: Known, scan: _Scan, motions: Similarity, reaches: Float[np.ndarray, "steps"]) -> Similarity:
    """Led on by the points of the scan near the model: those are visible, all of them.

    Partners are looked up at every second step: that takes most of the time.
    """
    near = scan.cloud.tree.query_ball_point(motions.translation, 0.5, return_sorted=True)
    enough = np.flatnonzero(np.array([len(one) for one in near]) >= MINIMUM_POINTS)
    own = [np.array(near[index])[evenly(_POLISHED, len(near[index]))] for index in enough]
    if not own:
        return motions
    fixed = scan.cloud.columns[:, np.stack(own)]
    moved = motions[enough]
    model, view, reach = known.cloud, known.views_in(scan.viewers, moved), float(reaches.max())
    for number, each in enumerate(reaches.tolist()):
        if number % 2 == 0:
            local = (fixed.transpose(1, 2, 0) - moved.translation[:, None]) @ moved.rotation
            partner = known.partners(view, local, reach)
        turned = moved.rotation @ model.columns[:, partner].transpose(1, 0, 2)
        normal = (moved.rotation @ model.normals[:, partner].transpose(1, 0, 2)).transpose(1, 0, 2)
        moving = turned.transpose(1, 0, 2) + moved.translation.T[:, :, None]
        moved = step((moving, fixed, normal), np.ones(_POLISHED), moved, each, scale=False)
    rotation, translation = motions.rotation.copy(), motions.translation.copy()
    rotation[enough], translation[enough] = moved.rotation, moved.translation
    return Similarity(rotation, translation)


def _verdicts(known: Known, scan: _Scan, motions: Similarity, voxel: float, most: int) -> list[_Verdict]:
    """Of each motion, by at most so many points of the scan around it."""
    around = scan.cloud.tree.query_ball_point(motions.translation, 0.5 + _AROUND * voxel, return_sorted=True)
    some = [np.array(one, dtype=np.int64)[evenly(min(most, len(one)), len(one))] for one in around]
    return [_verdict(known, scan, motions[place], voxel, own) for place, own in enumerate(some)]


def _verdict(known: Known, scan: _Scan, motion: Similarity, voxel: float, around: Int[np.ndarray, "a"]) -> _Verdict:
    model = known.cloud
    moved, normals = motion.apply(model.points), (motion.rotation @ model.normals).T
    expected, through = _expected(scan, moved, normals, voxel, model.spacing)
    near = scan.cloud.tree.query(moved[expected], distance_upper_bound=_NEAR * voxel)[0]
    seen = int(np.isfinite(near).sum())
    away = known.whole.query(motion.observe(scan.cloud.points[around]), distance_upper_bound=_AROUND * voxel)[0]
    taken = around[away < _NEAR * voxel]
    return _Verdict(
        seen=seen / len(moved),
        explained=seen / max(len(near), 1),
        viewed=bool(scan.images),
        against=float(through.mean()),
        tight=float((away < _TIGHT * voxel).sum()) / max(len(taken), 1),
        fits=len(taken) / max(int(np.isfinite(away).sum()), 1),
        taken=taken,
    )


def _expected(
    scan: _Scan,
    moved: Float64[np.ndarray, "m 3"],
    normals: Float64[np.ndarray, "m 3"],
    voxel: float,
    spacing: float,
) -> tuple[Bool[np.ndarray, "m"], Bool[np.ndarray, "m"]]:
    """Points of the model that some viewer should see, and those at places that one sees through.

    Without a viewer, all of it may be seen.
    """
    if not scan.images:
        return np.ones(len(moved), dtype=bool), np.zeros(len(moved), dtype=bool)
    expected, through = np.zeros(len(moved), dtype=bool), np.zeros(len(moved), dtype=bool)
    for image in scan.images:
        surface = Surface.of(moved, normals, image.viewer, spacing, voxel / 2)
        behind = image.behind_in(surface.sight)
        expected |= surface.unhidden & (behind < voxel / 2 + image.step * surface.recession)
        through |= behind < -2 * voxel
    return expected, through


def _worth(verdict: _Verdict) -> float:
    """Log odds that a pose is right: how much of the model is seen, how little of it and of the scan speaks against."""
    explained, against = (verdict.explained, verdict.against) if verdict.viewed else _USUAL
    values = np.array([explained, verdict.fits, verdict.tight])
    features = [np.log(verdict.seen + 0.02), np.log(against + 0.01), *np.log(1.03 - values), 1.0]
    return float(np.dot(_ODDS, features))


def _confidence(verdict: _Verdict) -> float:
    return float(1 / (1 + np.exp(-_worth(verdict))))
