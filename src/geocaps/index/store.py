"""Table of an index, in a folder or on object storage: every call to LanceDB is in this file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from geocaps.errors import GeocapsError, SearchIndexError
from geocaps.index.rows import Row, Rows, arrays_of, extra, from_arrow, schema_of, sizes_of, to_arrow
from geocaps.model.losses import FEATURE_SHARE

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "objects"
_OLDER = ("1", "2")
FORMAT = "3"
APPROXIMATE_FROM = 4_000  # objects, from which a vector index answers; fewer are kept in memory, about 17 kB each
_WIDER = 2  # times k are compared by the single feature too
# Of that index: cells looked into for each percept, the same with a filter (it leaves less in each), and objects
# compared exactly.
_PROBES, _PROBES_FILTERED, _REFINED = 1, 16, 600
_KEPT_FOR = timedelta(hours=1)  # age from which replaced files are deleted: no search takes that long
_FORMAT_KEY, _WEIGHTS_KEY, _CONFIG_KEY = (b"geocaps.index." + name for name in (b"format", b"weights", b"config"))


@dataclass(frozen=True)
class Filter:
    """The objects that match everything given; ``path`` is a pattern with ``*`` and ``?`` over whole paths."""

    class_name: str | None = None
    path: str | None = None
    ids: tuple[str, ...] | None = None

    def sql(self) -> str | None:
        """The condition for LanceDB, whatever is in the strings; None for everything."""
        terms = []
        if self.class_name is not None:
            terms.append(f"class_name = {_literal(self.class_name)}")
        if self.path is not None:
            terms.append(f"path LIKE {_literal(_like(self.path))}")
        if self.ids is not None:
            terms.append(_is_in("id", self.ids))
        return " AND ".join(terms) or None


@dataclass(frozen=True)
class _Memory:
    """A small table, read as a whole: one product compares a query with every percept of it."""

    version: int
    table: pa.Table
    ids: np.ndarray
    features: Float32[np.ndarray, "n d"]
    percepts: Float32[np.ndarray, "m e"]
    first: Int[np.ndarray, "n"]  # of each object's percepts

    @classmethod
    def of(cls, version: int, table: pa.Table, size: int) -> _Memory:
        table = table.combine_chunks()
        each = [one.reshape(-1, size) for one in arrays_of(table["percepts"])]
        first = np.cumsum([0, *(len(one) for one in each[:-1])])
        ids, features = np.array(table["id"].to_pylist()), np.stack(arrays_of(table["feature"]))
        return cls(version, table, ids, features, np.concatenate(each), first)

    def similarity(self, percepts: Float32[np.ndarray, "j e"]) -> Float[np.ndarray, "n"]:
        return np.maximum.reduceat(self.percepts @ percepts.T, self.first, axis=0).mean(axis=1)


class _Compared(NamedTuple):
    """Objects that were compared with a query."""

    table: pa.Table
    features: Float[np.ndarray, "n d"]
    similarity: Float[np.ndarray, "n"]  # of their parts; minus infinity where the filter leaves one out


class Store:
    """One LanceDB table. Every write is one atomic commit: a kill at any instant leaves the last one."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = os.fspath(where)
        self._table: Any = None
        self._memory: _Memory | None = None

    def exists(self) -> bool:
        return self._opened() is not None

    @property
    def table(self) -> Any:
        table = self._opened()
        if table is None:
            raise SearchIndexError(
                f"there is no index at {self.where}: make one with  geocaps index add {self.where} FOLDER"
            )
        return table

    def create(self, weights: str, config: str, dimension: int, percept: int) -> None:
        """Makes the empty table, unless another process was quicker."""
        made_with = {_FORMAT_KEY: FORMAT, _WEIGHTS_KEY: weights, _CONFIG_KEY: config}
        with self._told("made"):
            schema = schema_of(dimension, percept, {key: value.encode() for key, value in made_with.items()})
            self._database().create_table(TABLE, schema=schema, exist_ok=True)
        self._table = None

    @property
    def weights(self) -> str:
        """SHA-256 of the weights that the features were made with."""
        return self.table.schema.metadata[_WEIGHTS_KEY].decode("ascii", "replace")

    @property
    def config(self) -> str:
        """Settings of the model that the features were made with, as JSON."""
        return self.table.schema.metadata[_CONFIG_KEY].decode("utf-8", "replace")

    @property
    def dimension(self) -> int:
        return self.table.schema.field("feature").type.list_size

    def count(self) -> int:
        with self._told("read"):
            return self.table.count_rows()

    def classes(self) -> list[str | None]:
        """The class of every object."""
        with self._told("read"):
            found = self.table.search().select(["class_name"]).limit(self._most()).to_arrow()
        return found["class_name"].to_pylist()

    def known(self, ids: Sequence[str], paths: Sequence[str]) -> list[tuple[str, str | None]]:
        """Id and path of the objects that have one of these ids, or lie at one of these paths."""
        where = " OR ".join(_is_in(name, values) for name, values in (("id", ids), ("path", paths)) if values)
        if not where:
            return []
        with self._told("read"):
            found = self.table.search().where(where).select(["id", "path"]).limit(self._most()).to_arrow()
        return list(zip(found["id"].to_pylist(), found["path"].to_pylist(), strict=True))

    def write(self, rows: Sequence[Row]) -> None:
        """Adds the rows whose ids are not there yet, in one commit."""
        if rows:
            with self._told("written to"):
                batch = extra("pyarrow").Table.from_pylist([to_arrow(row) for row in rows], self.table.schema)
                self.table.merge_insert("id").when_not_matched_insert_all().execute(batch)

    def delete(self, where: Filter) -> int:
        """Removes the objects that match the filter, and returns how many they were."""
        condition = where.sql()
        assert condition is not None, "a filter that fits everything must not delete"
        with self._told("written to"):
            before = self.table.count_rows(condition)
            if before:
                self.table.delete(condition)
        return before

    def most_alike(
        self, percepts: Float32[np.ndarray, "j e"], feature: Float32[np.ndarray, "d"], k: int, where: Filter
    ) -> tuple[Rows, Float[np.ndarray, "k"]]:
        """The k objects that look most alike (all, if there are fewer), with the similarity of their parts.

        By late interaction: for each percept of the query the cosine of the best one of the object, averaged. Those
        come first that are most alike by their parts and, a little, by the single feature; where a vector index
        answers, of twice as many.
        """
        with self._told("searched"):
            found = self._looked_up(percepts, k, where) if self.is_approximate else self._compared(percepts, where)
            # Features have a root mean square of 1.
            both = found.similarity + FEATURE_SHARE / len(feature) * (found.features @ feature)
            best = np.argsort(-both, kind="stable")[: min(k, int(np.isfinite(found.similarity).sum()))]

        def decoded(places: Sequence[int]) -> list[Row]:
            with self._told("searched"):
                return from_arrow(found.table.take(best[places]))

        return Rows(len(best), decoded), found.similarity[best]

    def _looked_up(self, percepts: Float32[np.ndarray, "j e"], k: int, where: Filter) -> _Compared:
        """By the vector index."""
        count = min(_WIDER * k, self._most())
        query = self.table.search(percepts, vector_column_name="percepts").distance_type("cosine")
        condition = where.sql()
        query = query.nprobes(_PROBES if condition is None else _PROBES_FILTERED)
        query = query.refine_factor(max(1, _REFINED // count))
        if condition is not None:
            query = query.where(condition, prefilter=True)
        found = query.limit(count).select([*self.table.schema.names, "_distance"]).to_arrow().combine_chunks()
        # LanceDB adds up 1 - cosine over the percepts of the query.
        similarity = 1 - found["_distance"].to_numpy() / len(percepts)
        return _Compared(found, np.array(arrays_of(found["feature"])).reshape(-1, self.dimension), similarity)

    def _compared(self, percepts: Float32[np.ndarray, "j e"], where: Filter) -> _Compared:
        """With every percept, in memory; what other processes have written since is read first."""
        version = self.table.version
        if self._memory is None or self._memory.version != version:
            everything = self.table.to_arrow()
            if not everything.num_rows:
                return _Compared(everything, np.empty((0, self.dimension)), np.empty(0))
            self._memory = _Memory.of(version, everything, percepts.shape[1])
        memory, similarity = self._memory, self._memory.similarity(percepts)
        condition = where.sql()
        if condition is not None:
            matching = self.table.search().where(condition).select(["id"]).limit(self._most()).to_arrow()
            similarity[~np.isin(memory.ids, matching["id"].to_pylist())] = -np.inf
        return _Compared(memory.table, memory.features, similarity)

    @property
    def is_approximate(self) -> bool:
        """Whether the table has a vector index; without one every percept is compared."""
        return bool(self.table.list_indices())

    def tidy(self) -> None:
        """Joins small files and brings the vector index up to date; makes it once the table is large."""
        with self._told("tidied"):
            try:
                self.table.optimize(cleanup_older_than=_KEPT_FOR)
                if not self.is_approximate and self.table.count_rows() >= APPROXIMATE_FROM:
                    from lancedb.index import IvfRq

                    self.table.create_index("percepts", config=IvfRq(distance_type="cosine"))
            except (RuntimeError, OSError, ValueError) as error:
                # Another process wrote or tidied and was quicker. Nothing is lost: whoever comes next tidies the rest.
                if "commit conflict" not in str(error).lower():
                    raise

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self) -> Any:
        """The table, checked; None where there is none yet."""
        if self._table is None and self._may_be_there():
            with self._told("opened"):
                try:
                    table = self._database().open_table(TABLE)
                except (ValueError, FileNotFoundError) as error:
                    # Object storage has no folders to look into first.
                    if self._is_remote and "not found" in str(error):
                        return None
                    raise
                self._table = self._checked(table)
        return self._table

    @property
    def _is_remote(self) -> bool:
        return "://" in self.where

    def _may_be_there(self) -> bool:
        """Whether an index is at a local path. A folder with other contents is never written to."""
        if self._is_remote:
            return True
        folder = Path(self.where)
        if not folder.exists():
            return False
        if not folder.is_dir():
            raise SearchIndexError(f"{folder} is a file, and an index is a folder: choose another name")
        inside = folder / f"{TABLE}.lance"
        if not inside.is_dir():
            if any(folder.iterdir()):
                raise SearchIndexError(f"{folder} is a folder of other things and holds no index: choose another name")
            return False
        # A kill while the table was made leaves no version, and nothing in it is lost.
        if any(inside.glob("_versions/*.manifest")):
            return True
        if any(inside.glob("data/*")):
            raise SearchIndexError(
                f"{folder} is damaged, it has data but no version of the table: restore it or make a new one"
            )
        return False

    def _database(self) -> Any:
        lancedb = extra("lancedb")
        # What other processes and machines have written is seen at the next call.
        return lancedb.connect(self.where, read_consistency_interval=timedelta(0))

    def _checked(self, table: Any) -> Any:
        schema = table.schema
        metadata = schema.metadata or {}
        version = metadata.get(_FORMAT_KEY, b"").decode("ascii", "replace")
        if version in _OLDER:
            raise SearchIndexError(
                f"the index {self.where} was made by an older geocaps (format {version}, now {FORMAT}) and does not "
                "say what objects look like from their parts: make a new one from the same files, with  "
                "geocaps index add NEW_INDEX FOLDER"
            )
        if version != FORMAT or not {_WEIGHTS_KEY, _CONFIG_KEY} <= metadata.keys():
            raise SearchIndexError(f"{self.where} holds a LanceDB table, but not a geocaps index of format {FORMAT}")
        dimension, percept = sizes_of(schema)
        if not schema.equals(schema_of(dimension, percept, {})):
            raise SearchIndexError(
                f"{self.where} has other columns than a geocaps index of format {FORMAT}: make a new one"
            )
        return table

    def _most(self) -> int:
        return max(1, self.table.count_rows())

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Whatever LanceDB raises becomes one sentence that names the index."""
        try:
            yield
        except GeocapsError:
            raise
        except BaseException as error:
            # A panic in the Rust library is no Exception; an interrupt by the user is none of ours.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            # Its messages end in places of its own source code.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(", /")[0][:200]
            raise SearchIndexError(f"the index {self.where} cannot be {what}: {reason}") from error


def _literal(text: str) -> str:
    """A string constant of LanceDB's SQL, in which a quote is doubled and nothing else has a meaning."""
    return "'" + text.replace("'", "''") + "'"


def _is_in(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(map(_literal, values))})"


def _like(pattern: str) -> str:
    """A pattern with ``*`` and ``?`` as one of SQL, whose own wildcards are taken as they are."""
    meaning = {"*": "%", "?": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}
    return "".join(meaning.get(letter, letter) for letter in pattern)
