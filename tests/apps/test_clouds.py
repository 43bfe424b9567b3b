"""What is refused at the door: clouds that have no orientation."""

import numpy as np
import pytest

from geocaps.apps.clouds import require_extent
from geocaps.errors import InvalidInputError

LINE = np.linspace(0, 1, 60)[:, None] * np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("points", "says"), [(np.ones((100, 3)), "in one place"), (LINE, "on one line")])
def test_clouds_without_orientation_are_named_and_refused(points, says, unit):
    with pytest.raises(InvalidInputError, match=f"rod.ply.*{says}"):
        require_extent(unit * (points + 3), "rod.ply")
    with pytest.raises(InvalidInputError, match=says):
        require_extent((unit * points).astype(np.float32), "rod.ply")


def test_the_origin_is_a_place_too():
    with pytest.raises(InvalidInputError, match="in one place"):
        require_extent(np.zeros((10, 3)), "it")


def test_thin_and_flat_clouds_pass():
    random = np.random.default_rng(0)
    require_extent(LINE + 1e-3 * random.normal(size=LINE.shape), "a rod")
    require_extent(random.normal(size=(30, 3)) * [1, 1, 0], "a sheet")
    require_extent(1e-9 * random.normal(size=(30, 3)), "a speck")
    require_extent(random.normal(size=(30, 3)) + 1e8, "far away")
