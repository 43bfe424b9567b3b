"""Plain symmetric solids, for tests of ambiguity."""

from geocaps.data.synthetic import Shape, make_surface
from geocaps.data.synthetic import solids as p

_CORNERS = [(x, 0.0, z) for x in (-0.45, 0.45) for z in (-0.45, 0.45)]
_PARTS = {
    "sphere": {"body": p.sphere(1.0)},
    "cylinder": {"body": p.cylinder(0.5, 1.5)},
    "cube": {"body": p.box(1.0, 1.0, 1.0)},
    "brick": {"body": p.box(1.0, 0.4, 0.65)},
    "cone": {"body": p.frustum(0.5, 0.0, 1.2)},
    "torus": {"body": p.ring(1.0, 0.3)},
    "square_table": {"top": p.box(1.0, 0.06, 1.0).at(y=0.7), "legs": p.stack(p.box(0.08, 0.7, 0.08), _CORNERS)},
    "round_table": {
        "top": p.cylinder(0.5, 0.05).at(y=0.7),
        "column": p.cylinder(0.05, 0.68).at(y=0.02),
        "foot": p.frustum(0.28, 0.22, 0.03),
    },
}
BASIC = tuple(_PARTS)


def basic_shape(name: str) -> Shape:
    return Shape(name, tuple(_PARTS[name]), 0, make_surface(_PARTS[name]))
