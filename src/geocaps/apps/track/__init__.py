"""``geocaps.Tracker(reference).update(frame)``: the pose of an object from frame to frame, even if it is occluded.

The visible parts determine the pose of the whole object, and hidden parts follow. A lost object is found again by what
its views look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy.spatial import cKDTree

from geocaps.apps.clouds import Cloud, Placed, Source, as_cloud, require_extent
from geocaps.apps.encode import Model, load
from geocaps.apps.track.fit import Explained, View, explain, led, recognised, seen_points
from geocaps.apps.track.reference import Reference, parsed
from geocaps.errors import GeocapsError, InvalidInputError
from geocaps.geometry.sampling import at_most
from geocaps.geometry.similarity import Similarity, concatenate, stack

MINIMUM_POINTS = 12
_POINTS, _VOTING = 1024, 256  # points of a frame that are used, and those for which partners are searched
_TRACKS = 3  # number of poses that are followed at the same time
_REACHES = np.array([0.35, 0.3, 0.25, 0.2, 0.15, 0.15])
_MEMORY = 0.85  # weight of earlier frames in the cost of a pose
_ON = 0.6  # share of a frame that must lie on the object
_ON_BUILDING = 0.4
_BUILDING = 30  # frames that a reference is built from
_NEW = 0.2  # share of new points after which a growing reference is parsed again
_LESS, _ENOUGH, _AGAIN = 0.06, 0.4, 4  # drop and visibility that make a pose doubtful; frames between checks
_LOYALTY = 0.02  # by which a new pose must be better than one that is followed
_DAMPING = 0.95  # factor on the motion for each frame in which the object is not seen
_STEADY = 0.6  # weight of the newest motion in the expected one
_APART = np.radians(12), 0.15
_SHARPNESS = 12.0  # weight of a difference in cost, in nats, when poses are compared
_POSSIBLE = 0.05  # a pose this improbable relative to the best is dropped
_SEEN = 0.2  # share of a part that must be seen to count as visible


@dataclass(frozen=True, repr=False)
class Tracked(Placed):
    """The pose of the object in one frame: ``x_frame = R · x_reference + t``, in the user's units."""

    pose: Similarity
    """``T_frame_reference``; a prediction if the object is lost. Its scale is 1."""
    confidence: float
    """From 0 to 1: the share of the frame that lies on the object, times the probability of this pose."""
    visible: Float64[np.ndarray, "j"]
    """Visible share of each part's surface; 0 for all if the object is lost."""
    lost: bool
    """Whether the object was not found in this frame, so that the pose is a prediction."""
    reason: str
    """Why it is lost, or why the frame could not be used; empty if it was found."""
    frame: int
    """Number of the frame, from 0."""

    @property
    def parts_visible(self) -> Bool[np.ndarray, "j"]:
        """Whether at least a fifth of each part's surface is visible."""
        return self.visible >= _SEEN

    def __repr__(self) -> str:
        state = f"LOST: {self.reason}" if self.lost else f"{int(self.parts_visible.sum())} parts visible"
        return f"Tracked(frame {self.frame}: {self.pose!r}, confidence {self.confidence:.2f}, {state})"


@dataclass(frozen=True)
class _Track:
    """One pose that is followed, in working units, with its motion and its cost."""

    pose: Similarity
    turn: Float64[np.ndarray, "3 3"]
    shift: Float64[np.ndarray, "3"]
    cost: float
    on: float  # share of the frame that lies on the object there
    expected: float  # share of what should be seen of the object that is seen


class Tracker:
    """Tracks one object through frames that each show part of it, with noise, from one side.

    ``reference`` is a mesh or a whole cloud, in the units of the frames. ``viewer`` is the position of the sensor in
    the coordinates of the frames, by default their origin; None if it is unknown. ``pose`` is the initial pose, if it
    is known; otherwise it is found. Without a reference, the first usable frame defines its coordinates, and the first
    thirty frames build it up. ``drop_invalid`` leaves out NaN and infinite points of the reference, which are refused
    otherwise; those of frames are always left out. The result for a frame depends only on it and on earlier ones.
    """

    def __init__(
        self,
        reference: Source | None = None,
        *,
        model: Model | None = None,
        viewer: Sequence[int | float] | np.ndarray | None = (0, 0, 0),
        pose: Similarity | None = None,
        drop_invalid: bool = False,
    ) -> None:
        self._model = model or load()
        self._built = None if reference is not None else np.empty((0, 3))
        self._known = 0  # points of the reference when it was last parsed
        self._parsed = None if reference is None else parsed(reference, self._model, drop_invalid=drop_invalid)
        if reference is None and pose is not None:
            raise InvalidInputError("a pose needs a reference: without one, the first frame's own coordinates are it")
        self._viewer = None if viewer is None else np.asarray(viewer, dtype=np.float64)
        if self._viewer is not None and (self._viewer.shape != (3,) or not np.isfinite(self._viewer).all()):
            raise InvalidInputError(f"viewer must be a position (x, y, z), not {viewer!r}")
        self._tracks: list[_Track] = [] if pose is None else [_still(self._working(pose))]
        self._last = Similarity.identity() if pose is None else pose
        self._frame = -1
        self._missed = 1 if pose is None else 0
        self._parts = self._model.config.parts.parts
        self._usual = 0.0
        self._recognised_at = 0

    @property
    def _reference(self) -> Reference:
        assert self._parsed is not None, "the first frame that can be used begins the reference"
        return self._parsed

    @property
    def _least(self) -> float:
        """Share of a frame that must lie on the object; less while the reference is still being built."""
        return _ON if self._built is None else _ON_BUILDING

    def update(self, frame: Source) -> Tracked:
        """The object in the next frame; if the frame cannot be used, ``reason`` says why."""
        self._frame += 1
        try:
            cloud = as_cloud(frame, 0, f"frame {self._frame}", drop_invalid=True)
            if self._built is not None and not len(self._built):
                return self._begun(cloud)
            view = self._view(cloud)
        except GeocapsError as error:
            return self._coasted(str(error))
        tracks = self._followed(view)
        if self._must_recognise(tracks):
            tracks = self._with_recognised(tracks, view)
        if not tracks:
            return self._coasted("nothing in the frame looks like the object")
        best = tracks[0]
        if best.on < self._least:
            return self._coasted(f"{best.on:.0%} of the frame lies on the object, less than {self._least:.0%}")
        self._tracks = tracks
        self._missed = 0
        seen = self._reference.share_of_parts(seen_points(self._reference, best.pose, view))
        chance = np.exp(-_SHARPNESS * (np.array([one.cost for one in tracks]) - best.cost))
        self._usual = max(best.on, _MEMORY * self._usual + (1 - _MEMORY) * best.on)
        self._last = self._users(best.pose)
        if self._built is not None:
            self._build(cloud)
        return Tracked(self._last, float(best.on / chance.sum()), seen, False, "", self._frame)

    # ── one frame ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _view(self, cloud: Cloud) -> View:
        if len(cloud.points) < MINIMUM_POINTS:
            raise InvalidInputError(
                f"{cloud.name} has {len(cloud.points)} points; at least {MINIMUM_POINTS} are needed to see an object"
            )
        require_extent(cloud.points, cloud.name)
        points = cloud.points[at_most(_POINTS, len(cloud.points))] / self._reference.unit
        points = points.astype(np.float64)
        chosen = points[at_most(_VOTING, len(points))]
        viewer = None if self._viewer is None else self._viewer / self._reference.unit
        return View(points, chosen, cKDTree(points), viewer)

    def _followed(self, view: View) -> list[_Track]:
        """Tracks refined by the new frame, from their predicted and from their last poses, best first."""
        if not self._tracks:
            return []
        expected = stack([self._predicted(one) for one in self._tracks])
        # The best one also starts from its last pose, since motions change.
        starts = concatenate([expected, stack([self._tracks[0].pose])])
        prior = concatenate([expected, expected[:1]])
        poses = led(self._reference, starts, view, _REACHES, prior)
        said = explain(self._reference, poses, view)
        chosen = list(range(len(self._tracks)))
        if said.cost[-1] < said.cost[0]:
            chosen[0] = len(chosen)
        return _different(
            [_moved_on(track, poses[index], said, index) for track, index in zip(self._tracks, chosen, strict=True)]
        )

    def _predicted(self, track: _Track) -> Similarity:
        return Similarity(track.turn @ track.pose.rotation, track.pose.translation + track.shift)

    def _must_recognise(self, tracks: Sequence[_Track]) -> bool:
        """Whether to search for the object: if it is lost, or if less of the frame lies on it than usual.

        In the second case only if much of it is visible, since a small rest resembles many things.
        """
        if not tracks or self._missed > 0 or tracks[0].on < self._least:
            return True
        doubtful = tracks[0].on < self._usual - _LESS and tracks[0].expected > _ENOUGH
        return doubtful and self._frame - self._recognised_at >= _AGAIN

    def _with_recognised(self, tracks: Sequence[_Track], view: View) -> list[_Track]:
        """Tracks and recognised poses, compared by this frame alone."""
        self._recognised_at = self._frame
        poses = recognised(self._reference, view, self._model, _TRACKS)
        if tracks:
            poses = concatenate([stack([one.pose for one in tracks]), poses])
        said = explain(self._reference, poses, view)
        known = [*tracks, *(_still(poses[index]) for index in range(len(tracks), len(poses)))]
        return _different(
            [
                replace(
                    one,
                    cost=float(cost) + (_LOYALTY if place >= len(tracks) else 0),
                    on=float(on),
                    expected=float(seen),
                )
                for place, (one, cost, on, seen) in enumerate(
                    zip(known, said.cost, said.frame, said.expected, strict=True)
                )
            ]
        )

    def _coasted(self, reason: str) -> Tracked:
        """The object continues its motion unseen, more and more slowly."""
        self._missed += 1
        self._tracks = [
            replace(
                one,
                pose=self._predicted(one),
                turn=Similarity.from_rotvec(_DAMPING * Similarity(one.turn).rotvec).rotation,
                shift=_DAMPING * one.shift,
            )
            for one in self._tracks
        ]
        if self._tracks:
            self._last = self._users(self._tracks[0].pose)
        return Tracked(self._last, 0.0, np.zeros(self._parts), True, reason, self._frame)

    # ── a reference built from the first frames ───────────────────────────────────────────────────────────────────

    def _begun(self, cloud: Cloud) -> Tracked:
        """The first usable frame becomes the reference, in its own coordinates."""
        self._parse(cloud.points)
        self._tracks = [_still(self._working(Similarity.identity()))]
        self._missed = 0
        return Tracked(self._last, 1.0, np.ones(self._parts), False, "", self._frame)

    def _build(self, cloud: Cloud) -> None:
        """Adds points of a frame that the reference does not have yet."""
        assert self._built is not None
        local = self._last.observe(cloud.points)
        apart = self._reference.cloud.spacing * self._reference.unit
        self._built = np.concatenate([self._built, local[cKDTree(self._built).query(local)[0] > apart]])
        if len(self._built) > (1 + _NEW) * self._known:
            poses = [self._users(one.pose) for one in self._tracks]
            self._parse(self._built)
            self._tracks = [
                replace(one, pose=self._working(pose)) for one, pose in zip(self._tracks, poses, strict=True)
            ]
        if self._frame >= _BUILDING:
            self._built = None

    def _parse(self, points: np.ndarray) -> None:
        self._parsed = parsed(points, self._model)
        self._built, self._known = points, len(points)

    @property
    def reference(self) -> Float64[np.ndarray, "n 3"] | None:
        """Points of the reference, in its own coordinates and the user's units; None before the first usable frame."""
        if self._parsed is None:
            return None
        return self._reference.cloud.points * self._reference.unit + self._reference.center

    @property
    def part_labels(self) -> Int[np.ndarray, "n"] | None:
        """The part of each point of ``reference``."""
        return None if self._parsed is None else self._parsed.labels

    # ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _users(self, pose: Similarity) -> Similarity:
        middle = pose.translation * self._reference.unit
        return Similarity(pose.rotation, middle - pose.rotation @ self._reference.center)

    def _working(self, pose: Similarity) -> Similarity:
        return Similarity(pose.rotation, pose.apply(self._reference.center) / self._reference.unit)


def _still(pose: Similarity) -> _Track:
    return _Track(pose, np.eye(3), np.zeros(3), 0.0, 0.0, 0.0)


def _moved_on(track: _Track, pose: Similarity, said: Explained, index: int) -> _Track:
    """The track at its new pose, with its motion updated."""
    cost, on, seen = (float(of[index]) for of in (said.cost, said.frame, said.expected))
    newest = Similarity(pose.rotation @ track.pose.rotation.T).rotvec
    turn = Similarity.from_rotvec(_STEADY * newest + (1 - _STEADY) * Similarity(track.turn).rotvec).rotation
    shift = _STEADY * (pose.translation - track.pose.translation) + (1 - _STEADY) * track.shift
    return _Track(pose, turn, shift, _MEMORY * track.cost + (1 - _MEMORY) * cost, on, seen)


def _different(tracks: Sequence[_Track]) -> list[_Track]:
    """The best tracks, best first; of two with the same pose, only the better one."""
    kept: list[_Track] = []
    for one in sorted(tracks, key=lambda track: track.cost):
        apart = all(
            float(one.pose.angle_to(other.pose)) > _APART[0]
            or np.linalg.norm(one.pose.translation - other.pose.translation) > _APART[1]
            for other in kept
        )
        if apart:
            kept.append(one)
    return [one for one in kept[:_TRACKS] if np.exp(-_SHARPNESS * (one.cost - kept[0].cost)) >= _POSSIBLE]
