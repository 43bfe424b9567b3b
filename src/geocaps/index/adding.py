"""Objects added to an index - folders, files, arrays, data sets - in batches, each one commit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from geocaps.apps.clouds import Cloud, Source, as_cloud
from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.batch.sources import file_sha256
from geocaps.data import PointDataset
from geocaps.data.base import UNLABELLED
from geocaps.data.folder import list_items
from geocaps.errors import GeocapsError, InvalidInputError, Skipped
from geocaps.geometry.sampling import evenly
from geocaps.index.store import Filter, Row, Store

KEPT_POINTS = 512
"""Points of an object that are kept, for aligning and drawing it."""
_BATCH = 64
"""Objects looked at together, and the most in one commit: what a kill can cost."""
_BATCH_POINTS = 4_000_000
"""Points held at a time: large scans are written in smaller commits."""
_TIDY_EVERY = 200
"""Batches after which small files are joined."""


@dataclass(frozen=True)
class AddReport:
    """What ``Index.add`` did."""

    added: int
    known: int
    """Objects whose content was in the index before."""
    replaced: int
    """Objects taken out because their files have other content now."""
    skipped: tuple[Skipped, ...]
    dropped: int = 0
    """Points of the added objects that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        text = f"{self.added} added, {self.known} already there"
        if self.replaced:
            text += f", {self.replaced} outdated ones removed"
        lines = [text + (f", {len(self.skipped)} skipped:" if self.skipped else "")]
        return "\n".join([*lines, *(f"  {one.name}: {one.reason}" for one in self.skipped)])


# ── what there is to add ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Entry:
    """One object that may be added; nothing of it is read before ``digest`` or ``cloud`` is called."""

    source: Source | PointDataset
    drop_invalid: bool
    name: str | None = None
    path: str | None = None
    class_name: str | None = None
    member: int = 0
    """Of a data set."""

    def digest(self) -> str:
        """SHA-256 of the content: of a file its bytes, of an array its points."""
        if self.path is not None:
            return file_sha256(Path(self.path))
        return hashlib.sha256(np.ascontiguousarray(self.cloud(0).points, dtype=np.float64).tobytes()).hexdigest()

    def cloud(self, minimum: int) -> Cloud:
        """The checked cloud, of at least ``minimum`` points."""
        source = self.source.points(self.member) if isinstance(self.source, PointDataset) else self.source
        return as_cloud(source, minimum, self.name or "the cloud", drop_invalid=self.drop_invalid)


def entries_of(
    source: Source | PointDataset,
    class_name: str | Sequence[str | None] | None,
    names: Sequence[str] | None,
    drop_invalid: bool,
) -> list[Entry]:
    """Every object of ``source``, called and classed as asked; without that, by its files and folders."""
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


def _expanded(source: Source | PointDataset, drop_invalid: bool) -> Iterator[Entry]:
    if isinstance(source, PointDataset):
        for member, (label, name) in enumerate(zip(source.labels, source.object_ids, strict=True)):
            class_name = None if label == UNLABELLED else source.class_names[label]
            yield Entry(source, drop_invalid, name, None, class_name, member)
    elif isinstance(source, (list, tuple)):
        for one in source:
            yield from _expanded(one, drop_invalid)
    elif isinstance(source, (str, os.PathLike)):
        for path, name, class_name in _files(Path(source)):
            yield Entry(path, drop_invalid, name, Path(os.path.abspath(path)).as_posix(), class_name)
    else:
        for one in source if getattr(source, "ndim", 2) == 3 else [source]:
            yield Entry(one, drop_invalid)


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


# ── adding it ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Adding:
    """One call of ``Index.add``: what is there is left alone, what cannot be read is listed."""

    def __init__(self, store: Store, model: Model) -> None:
        self._store = store
        self._model = model
        self._present: set[str] = set()  # ids of this call's objects that are in the index now
        self._added = self._known = self._replaced = self._dropped = 0
        self._skipped: list[Skipped] = []

    def run(self, entries: Sequence[Entry], on_object: Callable[[int, int], None] | None) -> AddReport:
        for number, start in enumerate(range(0, len(entries), _BATCH), 1):
            self._add(entries[start : start + _BATCH])
            if on_object is not None:
                on_object(min(start + _BATCH, len(entries)), len(entries))
            if number % _TIDY_EVERY == 0:
                self._store.tidy()
        if self._added or self._replaced:
            self._store.tidy()
        return AddReport(self._added, self._known, self._replaced, tuple(self._skipped), self._dropped)

    def _add(self, entries: Sequence[Entry]) -> None:
        found: list[tuple[str, Entry]] = []
        for entry in entries:
            try:
                found.append((entry.digest(), entry))
            except GeocapsError as error:
                self._skip(entry.name or "a cloud", entry, error)
        ids = [id_ for id_, _ in found]
        stored = self._store.known(ids, [entry.path for _, entry in found if entry.path is not None])
        before = {id_ for id_, _ in stored} | self._present
        fresh: dict[str, Entry] = {}
        for id_, entry in found:
            if id_ in before or id_ in fresh:
                self._known += 1
            else:
                fresh[id_] = entry
        self._present.update(before.intersection(ids))
        self._write(fresh)
        self._drop_outdated(stored, {entry.path: id_ for id_, entry in found if id_ in self._present})

    def _write(self, fresh: dict[str, Entry]) -> None:
        ready: list[tuple[str, Entry, Cloud]] = []
        for id_, entry in fresh.items():
            try:
                cloud = entry.cloud(self._model.config.parts.parts)
                self._model.prepare(cloud)
            except GeocapsError as error:
                self._skip(_called(id_, entry), entry, error)
                continue
            ready.append((id_, entry, cloud))
            self._dropped += cloud.dropped
            if sum(len(one.points) for *_, one in ready) > _BATCH_POINTS:
                self._commit(ready)
                ready = []
        self._commit(ready)

    def _commit(self, ready: Sequence[tuple[str, Entry, Cloud]]) -> None:
        if ready:
            encodings = self._model.encode_many([cloud for *_, cloud in ready])
            rows = [
                make_row(self._model, one, id_, _called(id_, entry), entry.path, entry.class_name)
                for (id_, entry, _), one in zip(ready, encodings, strict=True)
            ]
            self._store.write(rows)
            self._present.update(row.id for row in rows)
            self._added += len(rows)

    def _drop_outdated(self, stored: Sequence[tuple[str, str | None]], now: dict[str | None, str]) -> None:
        """A file that has other content now is no longer found by what it was, unless a copy of that is in this call.

        After the new content is in, so that a kill between the two leaves both, and the next call drops the old one.
        """
        outdated = {id_ for id_, path in stored if path is not None and now.get(path, id_) != id_} - self._present
        if outdated:
            self._replaced += self._store.delete(Filter(ids=tuple(sorted(outdated))))

    def _skip(self, name: str, entry: Entry, error: GeocapsError) -> None:
        self._skipped.append(Skipped(name, str(error), entry.path))


def _called(id_: str, entry: Entry) -> str:
    return entry.name or f"cloud-{id_[:8]}"


def make_row(
    model: Model, encoding: Encoding, id_: str, name: str, path: str | None = None, class_name: str | None = None
) -> Row:
    """What an index keeps of an encoded object."""
    points = model.prepare(encoding.cloud)[0].numpy()
    kept = points[evenly(min(len(points), KEPT_POINTS), len(points))]
    return Row(id_, name, path, class_name, encoding.feature, encoding.pose, encoding.normalization, kept)
