"""``geocaps.Index("shapes.lance")``: retrieval of the same or a similar object, in any pose, from a partial scan too.

Objects are found by what they look like from their parts; candidates are verified by laying the query on each.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.apps.encode import Model, load
from geocaps.batch.shards import file_sha256
from geocaps.data import PointDataset
from geocaps.data.base import UNLABELLED
from geocaps.data.folder import list_items
from geocaps.errors import GeocapsError, InvalidInputError, SearchIndexError, Skipped
from geocaps.index.hits import Hit, SearchResult
from geocaps.index.rows import Row, row_of, similarities
from geocaps.index.store import Filter, Store
from geocaps.index.verify import Query, Verified, Verifier
from geocaps.model.checkpoint import weights_of
from geocaps.model.config import ObjectConfig

__all__ = ["AddReport", "Hit", "Index", "IndexInfo", "SearchResult", "Skipped"]

CANDIDATES = 100  # objects that are verified unless the caller says otherwise
_BATCH = 64  # objects looked at together, and the most in one commit: what a kill can cost
_BATCH_POINTS = 4_000_000  # points held at a time: large scans are written in smaller commits
_TIDY_EVERY = 200  # batches after which small files are joined


@dataclass(frozen=True)
class AddReport:
    """Result of ``Index.add``."""

    added: int
    known: int
    """Objects whose content was in the index before."""
    replaced: int
    """Objects taken out because their files have other content now."""
    skipped: tuple[Skipped, ...]
    dropped: int = 0
    """Points of the added objects that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        outdated = f", {self.replaced} outdated ones removed" if self.replaced else ""
        skipped = f", {len(self.skipped)} skipped:" if self.skipped else ""
        lines = [f"{self.added} added, {self.known} already there{outdated}{skipped}"]
        return "\n".join([*lines, *(f"  {one.name}: {one.reason}" for one in self.skipped)])


@dataclass(frozen=True)
class IndexInfo:
    """Contents of an index."""

    path: str
    objects: int
    classes: dict[str, int]
    unlabelled: int
    dimension: int
    """Numbers in a feature."""
    approximate: bool
    """Whether a vector index answers; otherwise every percept is compared, and the candidates are exact."""
    weights: str
    """SHA-256 of the weights that its features were made with."""

    def __repr__(self) -> str:
        lines = [
            f"{self.path}: {self.objects} objects, {len(self.classes)} classes",
            f"features of {self.dimension} numbers, {'approximate' if self.approximate else 'exact'} search",
            f"made with weights {self.weights}",
            *(f"  {count:>7}  {name}" for name, count in self.classes.items()),
        ]
        return "\n".join(lines + ([f"  {self.unlabelled:>7}  (no class)"] if self.unlabelled else []))


class Index:
    """Objects that are found in arbitrary orientations.

    ``path`` is a folder (made by the first ``add``) or an address on object storage such as ``s3://bucket/shapes``,
    where many machines may add and search at once. The model is the shipped one unless another is given; an index
    answers only to the weights it was made with.
    """

    def __init__(self, path: str | os.PathLike[str], model: Model | None = None) -> None:
        if model is not None and not isinstance(model, Model):
            raise InvalidInputError(f"model must be what geocaps.load(folder) gives, not {type(model).__name__}")
        self._store = Store(path)
        self._verifier = Verifier()
        self._model = None if model is None else _that_looks(model)
        if model is not None and self._store.exists():
            self._check_weights()

    @property
    def path(self) -> str:
        return self._store.where

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = _that_looks(load())
        return self._model

    def __len__(self) -> int:
        return self._store.count() if self._store.exists() else 0

    def __repr__(self) -> str:
        return f"Index({self.path!r}, {len(self)} objects)"

    def add(
        self,
        source: Source | PointDataset,
        *,
        class_name: str | Sequence[str | None] | None = None,
        names: Sequence[str] | None = None,
        drop_invalid: bool = False,
        on_object: Callable[[int, int], None] | None = None,
    ) -> AddReport:
        """Adds a folder (a class per sub-folder), files, clouds, a list of these, or a data set.

        What is in the index already, by its content, is not added again, so a call that was cut off is repeated to
        complete it. A file whose content has changed takes the place of what it was. Objects that cannot be read are
        reported and left out. ``class_name`` is one for all or one for each; ``drop_invalid`` leaves out points
        that are NaN or infinite, which are refused otherwise; ``on_object(done, of)`` is called with the progress.
        """
        entries = _entries(source, class_name, names, drop_invalid)
        if not self._store.exists():
            sizes = self.model.config.object
            assert isinstance(sizes, ObjectConfig)
            self._store.create(self._weights, self._config, sizes.feature, sizes.percept)
        self._check_weights()
        return _Adding(self._store, self.model).run(entries, on_object)

    def search(
        self,
        cloud: Source,
        k: int = 10,
        *,
        verify: int = CANDIDATES,
        class_name: str | None = None,
        path: str | None = None,
        drop_invalid: bool = False,
    ) -> SearchResult:
        """The objects that explain a cloud or are like it, each with the pose that brings it onto the cloud.

        The cloud (an array, a path, a mesh) may be a scan that shows a part of an object. Found by what both look like
        from their parts; the ``verify`` most alike are verified by geometry, in the same units or, as a whole cloud, in
        any (0: none is, and poses are those of the object capsules). Where no object explains the cloud, the result
        says so (``result.found``). ``class_name`` is a class, ``path`` a pattern with ``*`` and ``?`` over whole paths,
        as in ``"*/chairs/*"``. ``drop_invalid`` is as in ``add``.
        """
        if k < 1 or verify < 0:
            raise InvalidInputError(f"k must be at least 1 and verify at least 0, not {k} and {verify}")
        self._check_weights()
        model = self.model
        checked = as_cloud(cloud, model.config.parts.parts, "the query", drop_invalid=drop_invalid)
        encoding = model.encode(checked)
        query = row_of(model, encoding, "", checked.name)
        where = Filter(class_name, path)
        rows, alike = self._store.most_alike(query.percepts, query.feature, max(k, verify), where)
        seen = Query(query, similarities(encoding.parse.candidates[0]))
        verified = self._verifier.verify(seen, rows, verify)[:k]
        first = [_hit(query, rows[one.candidate], float(alike[one.candidate]), one) for one in verified]
        rest = sorted(set(range(len(rows))) - {one.candidate for one in verified})[: k - len(first)]
        hits = (*first, *(_hit(query, rows[index], float(alike[index])) for index in rest))
        return SearchResult(checked.name, hits, query.user_points, checked.dropped)

    def remove(
        self, *, class_name: str | None = None, path: str | None = None, ids: Sequence[str] | None = None
    ) -> int:
        """Removes what matches everything given (as in ``search``; ``ids`` are those of hits); returns how many."""
        where = Filter(class_name, path, None if ids is None else tuple(ids))
        if where == Filter():
            raise InvalidInputError("say what to remove: a class, a pattern of paths, or ids ('*' is every path)")
        removed = self._store.delete(where)
        if removed:
            self._store.tidy()
        return removed

    def info(self) -> IndexInfo:
        classes = Counter(self._store.classes())
        unlabelled = classes.pop(None, 0)
        return IndexInfo(
            path=self.path,
            objects=classes.total() + unlabelled,
            classes={name: classes[name] for name in sorted(filter(None, classes))},
            unlabelled=unlabelled,
            dimension=self._store.dimension,
            approximate=self._store.is_approximate,
            weights=self._store.weights,
        )

    @cached_property
    def _weights(self) -> str:
        return weights_of(self.model.network)

    @property
    def _config(self) -> str:
        return json.dumps(self.model.config.to_dict(), sort_keys=True)

    def _check_weights(self) -> None:
        made_with = self._store.weights
        if made_with != self._weights:
            raise SearchIndexError(
                f"the index {self.path} was made with other weights ({made_with[:12]}) than this model's "
                f"({self._weights[:12]}), and features of different weights cannot be compared: use the weights it "
                "was made with, or make a new index"
            )
        if self._store.config != self._config:
            raise SearchIndexError(
                f"the index {self.path} was made with other settings of the same weights ({made_with[:12]}), and such "
                "features cannot be compared: use the config.json it was made with, or make a new index"
            )


# ── adding ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Entry:
    """One object that may be added; nothing of it is read before ``digest`` or ``cloud`` is called."""

    source: Source | PointDataset
    drop_invalid: bool
    name: str | None = None
    path: str | None = None
    class_name: str | None = None
    member: int = 0  # of a data set

    def digest(self) -> str:
        """SHA-256 of the content: of a file its bytes, of an array its points."""
        if self.path is not None:
            return file_sha256(Path(self.path))
        return hashlib.sha256(np.ascontiguousarray(self.cloud(0).points, dtype=np.float64).tobytes()).hexdigest()

    def cloud(self, minimum: int) -> Cloud:
        source = self.source.points(self.member) if isinstance(self.source, PointDataset) else self.source
        return as_cloud(source, minimum, self.name or "the cloud", drop_invalid=self.drop_invalid)

    def called(self, digest: str) -> str:
        return self.name or f"cloud-{digest[:8]}"


def _entries(
    source: Source | PointDataset,
    class_name: str | Sequence[str | None] | None,
    names: Sequence[str] | None,
    drop_invalid: bool,
) -> list[_Entry]:
    """Every object of ``source``, with the names and classes given, or else those of its files and folders."""
    found = list(_expanded(source, drop_invalid))
    classes = [class_name] * len(found) if isinstance(class_name, str) else class_name
    for what, values in (("class_name", classes), ("names", names)):
        if values is not None and len(values) != len(found):
            raise InvalidInputError(f"{what} has {len(values)} entries for {len(found)} objects: give one for each")
    if classes is not None:
        found = [replace(one, class_name=value) for one, value in zip(found, classes, strict=True)]
    if names is not None:
        found = [replace(one, name=value) for one, value in zip(found, names, strict=True)]
    return found


def _expanded(source: Source | PointDataset, drop_invalid: bool) -> Iterator[_Entry]:
    if isinstance(source, PointDataset):
        for member, (label, name) in enumerate(zip(source.labels, source.object_ids, strict=True)):
            class_name = None if label == UNLABELLED else source.class_names[label]
            yield _Entry(source, drop_invalid, name, None, class_name, member)
    elif isinstance(source, (list, tuple)):
        for one in source:
            yield from _expanded(one, drop_invalid)
    elif isinstance(source, (str, os.PathLike)):
        for path, name, class_name in _files(Path(source)):
            yield _Entry(path, drop_invalid, name, Path(os.path.abspath(path)).as_posix(), class_name)
    else:
        for one in source if getattr(source, "ndim", 2) == 3 else [source]:
            yield _Entry(one, drop_invalid)


def _files(path: Path) -> list[tuple[Path, str, str | None]]:
    """Each file's path, name and class."""
    if not path.exists():
        raise InvalidInputError(f"{path} does not exist: check the name and the folder")
    if not path.is_dir():
        return [(path, path.name, None)]
    items = list_items(path)
    if not items:
        raise InvalidInputError(f"{path} holds no meshes or point clouds: nothing could be added")
    return [(item.path, item.object_id, item.class_name) for item in items]


class _Adding:
    """One call of ``Index.add``: what is there is left alone, what cannot be read is listed."""

    def __init__(self, store: Store, model: Model) -> None:
        self._store, self._model = store, model
        self._present: set[str] = set()  # ids of this call's objects that are in the index now
        self._added = self._known = self._replaced = self._dropped = 0
        self._skipped: list[Skipped] = []

    def run(self, entries: Sequence[_Entry], on_object: Callable[[int, int], None] | None) -> AddReport:
        """In batches, each one commit."""
        for number, start in enumerate(range(0, len(entries), _BATCH), 1):
            self._add(entries[start : start + _BATCH])
            if on_object is not None:
                on_object(min(start + _BATCH, len(entries)), len(entries))
            if number % _TIDY_EVERY == 0:
                self._store.tidy()
        if self._added or self._replaced:
            self._store.tidy()
        return AddReport(self._added, self._known, self._replaced, tuple(self._skipped), self._dropped)

    def _add(self, entries: Sequence[_Entry]) -> None:
        found: list[tuple[str, _Entry]] = []
        for entry in entries:
            try:
                found.append((entry.digest(), entry))
            except GeocapsError as error:
                self._skipped.append(Skipped(entry.name or "a cloud", str(error), entry.path))
        stored = self._store.known([id_ for id_, _ in found], [entry.path for _, entry in found if entry.path])
        before = {id_ for id_, _ in stored} | self._present
        fresh: dict[str, _Entry] = {}
        for id_, entry in found:
            if id_ in before:
                self._present.add(id_)
            if id_ in before or id_ in fresh:
                self._known += 1
            else:
                fresh[id_] = entry
        self._write(fresh)
        # A file that has other content now is no longer found by what it was, unless a copy of that is in this call.
        # After the new content is in, so that a kill between the two leaves both, and the next call drops the old one.
        now = {entry.path: id_ for id_, entry in found if id_ in self._present}
        outdated = {id_ for id_, path in stored if path is not None and now.get(path, id_) != id_} - self._present
        if outdated:
            self._replaced += self._store.delete(Filter(ids=tuple(sorted(outdated))))

    def _write(self, fresh: dict[str, _Entry]) -> None:
        ready: dict[str, Cloud] = {}
        for id_, entry in fresh.items():
            try:
                cloud = entry.cloud(self._model.config.parts.parts)
                self._model.prepare(cloud)
            except GeocapsError as error:
                self._skipped.append(Skipped(entry.called(id_), str(error), entry.path))
                continue
            ready[id_] = cloud
            if sum(len(one.points) for one in ready.values()) > _BATCH_POINTS:
                self._commit(ready, fresh)
                ready = {}
        self._commit(ready, fresh)

    def _commit(self, ready: dict[str, Cloud], entries: dict[str, _Entry]) -> None:
        if not ready:
            return
        rows = []
        for id_, encoding in zip(ready, self._model.encode_many(list(ready.values())), strict=True):
            entry = entries[id_]
            rows.append(row_of(self._model, encoding, id_, entry.called(id_), entry.path, entry.class_name))
        self._store.write(rows)
        self._present.update(ready)
        self._added += len(rows)
        self._dropped += sum(cloud.dropped for cloud in ready.values())


def _hit(query: Row, row: Row, similarity: float, verified: Verified | None = None) -> Hit:
    if verified is None:
        # One object capsule laid on the other, and the spheres of both.
        T_object_query = row.pose @ query.pose.inverse()
        confidence = overlap = error = None
    else:
        T_object_query = verified.T_object_query
        confidence, overlap = verified.confidence, verified.overlap
        error = verified.distance * float(query.normalization.scale / T_object_query.scale)
    T_query_hit = query.normalization @ T_object_query.inverse() @ row.normalization.inverse()
    named = row.name, row.path, row.class_name
    return Hit(*named, similarity, confidence, overlap, error, T_query_hit, row.id, row.user_points)


def _that_looks(model: Model) -> Model:
    if not isinstance(model.config.object, ObjectConfig):
        raise InvalidInputError(
            "an index compares objects by what they look like from their parts, and a model with the paper's object "
            "layer does not look: use the shipped weights, or a model of the preset cpu"
        )
    return model
