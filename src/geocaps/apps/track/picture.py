"""A picture of a tracked sequence: some frames, each with the reference where it was found, in its parts' colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int

from geocaps.apps.drawing import STRAY_COLOR, Grid, draw_points, part_colors
from geocaps.geometry.sampling import at_most

MOST_DRAWN = 24
_COLUMNS, _POINTS = 8, 700
_FRAME_COLOR = (0.1, 0.1, 0.1)
FROM_SENSOR = np.array([-1, 1, -1])
"""Half a turn about the vertical: a sensor looks along its z axis, pictures are seen against it."""


@dataclass(frozen=True)
class Shot:
    """One frame as it is drawn: its points, and the reference in it."""

    title: str
    lost: bool
    frame: Float64[np.ndarray, "n 3"]
    reference: Float64[np.ndarray, "m 3"]
    labels: Int[np.ndarray, "m"]
    visible: Bool[np.ndarray, "j"]


def picture(shots: list[Shot]) -> bytes:
    """Frames in black; parts that are seen in colours, hidden ones grey; as the viewer sees it, from the origin."""
    columns = min(_COLUMNS, len(shots))
    grid = Grid(-(-len(shots) // columns), columns)
    for place, shot in enumerate(shots):
        colors = np.where(shot.visible[:, None], part_colors(len(shot.visible)), STRAY_COLOR)[shot.labels]
        few = [at_most(_POINTS, len(one)) for one in (shot.reference, shot.frame)]
        panel = grid.panel(*divmod(place, columns), shot.title, "red" if shot.lost else "black")
        draw_points(panel, FROM_SENSOR * shot.reference[few[0]], colors[few[0]])
        draw_points(panel, FROM_SENSOR * shot.frame[few[1]], _FRAME_COLOR, size=0.6)
    grid.caption(
        "The reference where it was found, each visible part in its colour, on the points of the frame.",
        {"points of the frame": _FRAME_COLOR, "hidden parts": STRAY_COLOR},
    )
    return grid.png()
