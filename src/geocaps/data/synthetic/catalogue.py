"""The catalogue of embedded shapes: every class, and how to make and sample an object of it.

Canonical frame of every class: y is up, the front faces -z, and so +x is the object's own right. A chair's sitter looks
to -z, a car drives to -z, a bed's foot, a hammer's face and a teapot's spout point to -z; a mug's handle points to +x.
Tools stand upright along y, their working end on top (a spade's and a screwdriver's below).
Primitives overlap where they are joined, as in most CAD meshes: a few points lie inside a neighbouring part.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geocaps.data.synthetic import basic, furniture, household, seating, tools, vehicles, vessels
from geocaps.data.synthetic.draw import Draw
from geocaps.data.synthetic.solid import Solid
from geocaps.data.synthetic.surface import Surface, make_surface
from geocaps.errors import InvalidInputError

BasicName = Literal["sphere", "cylinder", "cube", "brick", "cone", "torus", "square_table", "round_table"]

_MAKERS: dict[str, Callable[[Draw], dict[str, Solid]]] = {
    "airplane": vehicles.airplane,
    "bed": furniture.bed,
    "boat": vehicles.boat,
    "bottle": vessels.bottle,
    "bowl": vessels.bowl,
    "car": vehicles.car,
    "chair": seating.chair,
    "desk": furniture.desk,
    "guitar": household.guitar,
    "hammer": tools.hammer,
    "lamp": household.lamp,
    "monitor": household.monitor,
    "mug": vessels.mug,
    "pliers": tools.pliers,
    "screwdriver": tools.screwdriver,
    "shelf": furniture.shelf,
    "sofa": seating.sofa,
    "spade": tools.spade,
    "table": furniture.table,
    "teapot": vessels.teapot,
    "toilet": seating.toilet,
    "truck": vehicles.truck,
    "wrench": tools.wrench,
}
CLASS_NAMES: tuple[str, ...] = tuple(_MAKERS)
# Classes no object of which looks the same, or nearly the same, after any turn.
ASYMMETRIC: frozenset[str] = frozenset(CLASS_NAMES) - {
    "bottle",
    "bowl",
    "lamp",
    "pliers",
    "screwdriver",
    "shelf",
    "table",
    "wrench",
}


@dataclass(frozen=True)
class SurfaceSample:
    """Independent points of one surface, uniform by area, with exact unit normals (outward) and parts."""

    points: Float[Tensor, "count 3"]
    normals: Float[Tensor, "count 3"]
    part_labels: Int[Tensor, "count"]


@dataclass(frozen=True)
class Shape:
    """One object. `part_names` are the parts this object has; a name means the same throughout its class."""

    class_name: str
    part_names: tuple[str, ...]
    seed: int
    surface: Surface = field(repr=False, compare=False)

    def sample(self, count: int, generator: torch.Generator) -> SurfaceSample:
        """`count` new points (float32; labels int64 index `part_names`).

        The frame belongs to the surface, not to the sample: area centroid at the origin, farthest point at distance 1.
        """
        if count < 1:
            raise InvalidInputError(f"count must be at least 1, but it is {count}: ask for one point or more.")
        if generator.device.type != "cpu":
            raise InvalidInputError(
                f"the generator must be on the CPU, but it is on {generator.device}: make a CPU one."
            )
        points, normals, patch = self.surface.sample(count, generator)
        return SurfaceSample(
            torch.from_numpy(points),
            torch.from_numpy(normals),
            torch.from_numpy(self.surface.labels[patch]),
        )


def make_shape(class_name: str, seed: int) -> Shape:
    """The object that belongs to a class and a seed (any whole number), the same on every machine."""
    if class_name not in _MAKERS:
        raise InvalidInputError(f"there is no embedded class {class_name!r}: choose one of {', '.join(CLASS_NAMES)}.")
    return _shape(class_name, seed, _MAKERS[class_name](Draw(f"{class_name}/{seed}")))


def basic_shape(name: BasicName) -> Shape:
    """A plain symmetric solid, for tests of ambiguity."""
    if name not in get_args(BasicName):
        raise InvalidInputError(f"there is no basic shape {name!r}: choose one of {', '.join(get_args(BasicName))}.")
    return _shape(name, 0, basic.MAKERS[name]())


def _shape(class_name: str, seed: int, parts: dict[str, Solid]) -> Shape:
    return Shape(class_name, tuple(parts), seed, make_surface(parts))
