"""Adding objects in batches, each one commit: what is there is left alone, what cannot be read is listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geocaps.apps.clouds import Cloud
from geocaps.apps.encode import Model
from geocaps.errors import GeocapsError
from geocaps.index.results import AddReport, Skipped
from geocaps.index.rows import Label, make_rows
from geocaps.index.sources import Entry
from geocaps.index.store import Filter, Store

_BATCH = 64
"""Objects looked at together, and the most in one commit: what a kill can cost."""
_BATCH_POINTS = 4_000_000
"""Points held at a time: large scans are written in smaller commits."""
_TIDY_EVERY = 200
"""Batches after which small files are joined."""


class Adding:
    """One call of ``Index.add``."""

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
        labelled = [(label, entry) for entry in entries if (label := self._labelled(entry)) is not None]
        ids = [label.id for label, _ in labelled]
        stored = self._store.known(ids, [label.path for label, _ in labelled if label.path is not None])
        before = {id_ for id_, _ in stored} | self._present
        fresh: dict[str, tuple[Label, Entry]] = {}
        for label, entry in labelled:
            if label.id in before or label.id in fresh:
                self._known += 1
            else:
                fresh[label.id] = label, entry
        self._present.update(before.intersection(ids))
        self._write(list(fresh.values()))
        self._drop_outdated(stored, {label.path: label.id for label, _ in labelled if label.id in self._present})

    def _labelled(self, entry: Entry) -> Label | None:
        try:
            id_ = entry.digest()
        except GeocapsError as error:
            self._skip(entry.name or "a cloud", error)
            return None
        return Label(id_, entry.name or f"cloud-{id_[:8]}", entry.path, entry.class_name)

    def _write(self, fresh: Sequence[tuple[Label, Entry]]) -> None:
        labels: list[Label] = []
        clouds: list[Cloud] = []
        for label, entry in fresh:
            try:
                cloud = entry.cloud(self._model.config.parts.parts)
                self._model.ready(cloud)
            except GeocapsError as error:
                self._skip(label.name, error)
                continue
            labels.append(label)
            clouds.append(cloud)
            self._dropped += cloud.dropped
            if sum(len(one.points) for one in clouds) > _BATCH_POINTS:
                self._commit(labels, clouds)
                labels, clouds = [], []
        self._commit(labels, clouds)

    def _commit(self, labels: Sequence[Label], clouds: Sequence[Cloud]) -> None:
        if labels:
            self._store.write(make_rows(self._model, labels, clouds))
            self._present.update(label.id for label in labels)
            self._added += len(labels)

    def _drop_outdated(self, stored: Sequence[tuple[str, str | None]], now: dict[str | None, str]) -> None:
        """A file that has other content now is no longer found by what it was, unless a copy of that is in this call.

        After the new content is in, so that a kill between the two leaves both, and the next call drops the old one.
        """
        outdated = {id_ for id_, path in stored if path is not None and now.get(path, id_) != id_} - self._present
        if outdated:
            self._replaced += self._store.delete(Filter(ids=tuple(sorted(outdated))))

    def _skip(self, name: str, error: GeocapsError) -> None:
        self._skipped.append(Skipped(name, str(error)))
