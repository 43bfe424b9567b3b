"""Plain symmetric solids."""

from collections.abc import Callable

from geocaps.data.synthetic import primitives as p
from geocaps.data.synthetic.solid import Solid, stack


def _square_table() -> dict[str, Solid]:
    corners = [(x, 0.0, z) for x in (-0.45, 0.45) for z in (-0.45, 0.45)]
    return {"top": p.box(1.0, 0.06, 1.0).at(y=0.7), "legs": stack(p.box(0.08, 0.7, 0.08), corners)}


def _round_table() -> dict[str, Solid]:
    return {
        "top": p.cylinder(0.5, 0.05).at(y=0.7),
        "column": p.cylinder(0.05, 0.68).at(y=0.02),
        "foot": p.frustum(0.28, 0.22, 0.03),
    }


MAKERS: dict[str, Callable[[], dict[str, Solid]]] = {
    "sphere": lambda: {"body": p.sphere(1.0)},
    "cylinder": lambda: {"body": p.cylinder(0.5, 1.5)},
    "cube": lambda: {"body": p.box(1.0, 1.0, 1.0)},
    "brick": lambda: {"body": p.box(1.0, 0.4, 0.65)},
    "cone": lambda: {"body": p.frustum(0.5, 0.0, 1.2)},
    "torus": lambda: {"body": p.ring(1.0, 0.3)},
    "square_table": _square_table,
    "round_table": _round_table,
}
