"""``geocaps.Index``: retrieval of objects by their pose-invariant features, each hit brought onto the query."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from geocaps.apps.clouds import Source, as_cloud
from geocaps.apps.encode import Model, load
from geocaps.data import PointDataset
from geocaps.errors import InvalidInputError, SearchIndexError
from geocaps.index.adding import Adding, AddReport, entries_of, make_row
from geocaps.index.rerank import SearchResult, reranked
from geocaps.index.store import Filter, Store
from geocaps.model.checkpoint import weights_of


@dataclass(frozen=True)
class IndexInfo:
    """What an index holds."""

    path: str
    objects: int
    classes: dict[str, int]
    unlabelled: int
    dimension: int
    """Numbers in a feature."""
    approximate: bool
    """Whether a vector index answers; otherwise every feature is compared, and the answer is exact."""
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
        self._model = model
        self._checksum: str | None = None
        if model is not None and self._store.exists():
            self._check_weights()

    @property
    def path(self) -> str:
        return self._store.where

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = load()
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
        entries = entries_of(source, class_name, names, drop_invalid)
        if not self._store.exists():
            self._store.create(self._weights(), self._config(), self.model.config.object.feature)
        self._check_weights()
        return Adding(self._store, self.model).run(entries, on_object)

    def search(
        self,
        cloud: Source,
        k: int = 10,
        *,
        rerank: int = 20,
        class_name: str | None = None,
        path: str | None = None,
        drop_invalid: bool = False,
    ) -> SearchResult:
        """The k objects most like a cloud (an array, a path, a mesh), each with the pose that brings it onto the cloud.

        Found by the distance of features; the ``rerank`` nearest ones are aligned with the cloud and put in order by
        their Chamfer distance (0: features alone, and poses from capsules). ``class_name`` is a class, ``path`` a
        pattern with ``*`` and ``?`` over whole paths, as in ``"*/chairs/*"``. ``drop_invalid`` is as in ``add``.
        """
        if k < 1 or rerank < 0:
            raise InvalidInputError(f"k must be at least 1 and rerank at least 0, not {k} and {rerank}")
        self._check_weights()
        model = self.model
        checked = as_cloud(cloud, model.config.parts.parts, "the query", drop_invalid=drop_invalid)
        encoding = model.encode(checked)
        query = make_row(model, encoding, "", checked.name)
        found = self._store.nearest(query.feature, max(k, rerank), Filter(class_name, path))
        turns = encoding.parse.candidates[0].rotation_matrix().double().numpy()
        hits = reranked(query, turns, found, rerank)[:k]
        return SearchResult(checked.name, tuple(hits), query.user_points, checked.dropped)

    def remove(
        self, *, class_name: str | None = None, path: str | None = None, ids: Sequence[str] | None = None
    ) -> int:
        """Takes out what fits all that is given (as in ``search``; ``ids`` are those of hits); returns how many."""
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

    def _weights(self) -> str:
        if self._checksum is None:
            self._checksum = weights_of(self.model.network)
        return self._checksum

    def _config(self) -> str:
        return json.dumps(self.model.config.to_dict(), sort_keys=True)

    def _check_weights(self) -> None:
        made_with = self._store.weights
        if made_with != self._weights():
            raise SearchIndexError(
                f"the index {self.path} was made with other weights ({made_with[:12]}) than this model's "
                f"({self._weights()[:12]}), and features of different weights cannot be compared: use the weights it "
                "was made with, or make a new index"
            )
        if self._store.config != self._config():
            raise SearchIndexError(
                f"the index {self.path} was made with other settings of the same weights ({made_with[:12]}), and such "
                "features cannot be compared: use the config.json it was made with, or make a new index"
            )
