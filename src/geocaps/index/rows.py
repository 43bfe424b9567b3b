"""What an index keeps of an object, and how it is written in a table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from jaxtyping import Float, Float32, Float64

from geocaps.apps.encode import Model
from geocaps.apps.encoding import Encoding
from geocaps.errors import MissingExtraError
from geocaps.geometry.sampling import evenly
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.index.targets import surface_normals

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_POINTS = 1024  # of an object, for verifying and drawing it
_QUANTUM = 1 / 32767  # kept points lie in the unit ball and are stored as 16-bit multiples of this
_DIRECTION = 127  # normals are stored as 8-bit numbers, to half a degree
_WORDS = ("id", "name", "path", "class_name")
_REALS = ("feature", "percepts", "viewpoints", "translation", "wxyz", "center")
_NUMBERS = (*_REALS, "points", "normals")


@dataclass(frozen=True)
class Row:
    """One object of an index."""

    id: str  # SHA-256 of its content
    name: str
    path: str | None
    class_name: str | None
    feature: Float32[np.ndarray, "d"]
    percepts: Float32[np.ndarray, "j e"]  # of the parts that have points: unit vectors
    viewpoints: Similarity  # [j]: where these were seen from, in the model's frame
    pose: Similarity  # the object capsule's, in the model's frame
    normalization: Similarity  # from the model's frame to the user's coordinates: not rotated
    points: Float[np.ndarray, "n 3"]  # in the model's frame
    normals: Float[np.ndarray, "n 3"]

    @property
    def user_points(self) -> Float64[np.ndarray, "n 3"]:
        """The kept points in the object's own coordinates."""
        return self.normalization.apply(self.points)


class Rows:
    """Rows of a table, each decoded when it is first asked for: a search looks at few of its candidates."""

    def __init__(self, count: int, decode: Callable[[Sequence[int]], list[Row]]) -> None:
        self._count, self._decode = count, decode
        self._known: dict[int, Row] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        asked = range(self._count)[index]
        if not isinstance(asked, range):
            return self[asked : asked + 1][0]
        new = [one for one in asked if one not in self._known]
        if new:
            self._known.update(zip(new, self._decode(new), strict=True))
        return [self._known[one] for one in asked]


def row_of(
    model: Model, encoding: Encoding, id_: str, name: str, path: str | None = None, class_name: str | None = None
) -> Row:
    """What an index keeps of an encoded object."""
    points = model.prepare(encoding.cloud)[0].numpy()
    points = points[evenly(min(len(points), KEPT_POINTS), len(points))]
    parse = encoding.parse
    assert parse.places is not None
    seen = encoding.parts.share > 0
    return Row(
        id_,
        name,
        path,
        class_name,
        feature=encoding.feature,
        percepts=encoding.parts.percept[seen],
        viewpoints=similarities(parse.places[0])[seen],
        pose=similarities(parse.object.pose[0]),
        normalization=encoding.normalization,
        points=points,
        normals=surface_normals(points),
    )


def similarities(pose: Pose) -> Similarity:
    """Poses of the model, in the model's frame."""
    return Similarity.from_wxyz(pose.wxyz.double().numpy(), pose.translation.double().numpy())


# ── rows and arrow ────────────────────────────────────────────────────────────────────────────────────────────────────


def extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("a search index", "index") from error


def schema_of(dimension: int, percept: int, metadata: dict[bytes, bytes]) -> pa.Schema:
    pa = extra("pyarrow")
    fields = [
        ("id", pa.string()),
        ("name", pa.string()),
        ("path", pa.string()),
        ("class_name", pa.string()),
        ("feature", pa.list_(pa.float32(), dimension)),
        ("percepts", pa.list_(pa.list_(pa.float32(), percept))),
        ("viewpoints", pa.list_(pa.float32())),  # seven numbers for each percept: translation, quaternion
        ("translation", pa.list_(pa.float64(), 3)),
        ("wxyz", pa.list_(pa.float64(), 4)),
        ("center", pa.list_(pa.float64(), 3)),
        ("scale", pa.float64()),
        ("points", pa.list_(pa.int16())),
        ("normals", pa.list_(pa.int8())),
    ]
    return pa.schema(fields, metadata=metadata)


def sizes_of(schema: pa.Schema) -> tuple[int, int]:
    """Numbers in a feature and in a percept; 1 where a table has no such column, as no index has."""
    feature = schema.field("feature").type if "feature" in schema.names else None
    percepts = schema.field("percepts").type if "percepts" in schema.names else None
    found = getattr(feature, "list_size", 1), getattr(getattr(percepts, "value_type", None), "list_size", 1)
    return max(1, found[0]), max(1, found[1])


def to_arrow(row: Row) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in ("id", "name", "path", "class_name", "feature")}
    placed = {"translation": row.pose.translation, "wxyz": row.pose.wxyz, "center": row.normalization.translation}
    seen = np.concatenate([row.viewpoints.translation, row.viewpoints.wxyz], axis=1).astype(np.float32)
    return {
        **own,
        **placed,
        "percepts": list(row.percepts),
        "viewpoints": seen.reshape(-1),
        "scale": float(row.normalization.scale),
        "points": np.rint(row.points / _QUANTUM).astype(np.int16).reshape(-1),
        "normals": np.rint(row.normals * _DIRECTION).astype(np.int8).reshape(-1),
    }


def from_arrow(found: pa.Table) -> list[Row]:
    """Column by column: one Python object for each number would take longer than the search."""
    plain = {name: found[name].to_pylist() for name in _WORDS}
    scale = found["scale"].to_pylist()
    lists = {name: arrays_of(found[name]) for name in _NUMBERS}
    records = [{name: values[index] for name, values in lists.items()} for index in range(found.num_rows)]
    for id_, record, size in zip(plain["id"], records, scale, strict=True):
        if not (size > 0 and np.isfinite(size) and _is_sound(record)):
            raise ValueError(f"the entry {id_} is damaged")
    if not records:
        return []
    poses = Similarity.from_wxyz(np.stack(lists["wxyz"]), np.stack(lists["translation"]))
    seen = np.concatenate(lists["viewpoints"]).astype(np.float64).reshape(-1, 7)
    viewpoints = Similarity.from_wxyz(seen[:, 3:], seen[:, :3])
    first = np.cumsum([0, *(len(one) // 7 for one in lists["viewpoints"])])
    return [
        Row(
            **{name: values[index] for name, values in plain.items()},
            feature=record["feature"],
            percepts=record["percepts"].reshape(first[index + 1] - first[index], -1),
            viewpoints=viewpoints[first[index] : first[index + 1]],
            pose=poses[index],
            normalization=Similarity(np.eye(3), record["center"], scale[index]),
            points=record["points"].reshape(-1, 3) * _QUANTUM,
            normals=record["normals"].reshape(-1, 3) / _DIRECTION,
        )
        for index, record in enumerate(records)
    ]


def _is_sound(record: dict[str, np.ndarray]) -> bool:
    seen, points = record["viewpoints"].reshape(-1, 7), record["points"]
    shaped = len(seen) > 0 and len(record["percepts"]) % len(seen) == 0 and len(points) == len(record["normals"]) > 0
    turned = record["wxyz"].any() and seen[:, 3:].any(axis=1).all()
    return bool(shaped and turned and all(np.isfinite(record[name]).all() for name in _REALS))


def arrays_of(column: pa.ChunkedArray) -> list[np.ndarray]:
    """The numbers of each entry of a column of lists, or of lists of lists."""
    arrays = []
    for chunk in column.chunks:
        values, bounds = chunk, np.arange(len(chunk) + 1)
        while hasattr(values.type, "value_type"):
            size = getattr(values.type, "list_size", None)
            if size is None:
                bounds, values = values.offsets.to_numpy()[bounds], values.values
            else:
                bounds, values = (bounds + values.offset) * size, values.values
        numbers = values.to_numpy(zero_copy_only=False)
        arrays += [numbers[start:end] for start, end in pairwise(bounds)]
    return arrays
