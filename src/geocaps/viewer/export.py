"""One object as one HTML file: points, parts, poses and surfaces, with a small viewer of its own and no network."""

from __future__ import annotations

import base64
import json
import os
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geocaps.apps.drawing import part_colors
from geocaps.apps.encode import Model
from geocaps.geometry.se3 import Pose
from geocaps.io.save import check_target
from geocaps.io.scene import write_whole
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.session import ObjectSession
from geocaps.viewer.texts import css_color

_STEP = 1e-4
"""Coordinates are kept to this, in radii of the object: a tenth of a pixel on a large screen, in two bytes each."""


def export_page(path: str | os.PathLike[str], model: Model, cloud: ShownCloud) -> int:
    """Write the page of a cloud (whole, or not at all) and return its size in bytes."""
    path = Path(path)
    check_target(path, (".html", ".htm"))
    page = page_of(model, cloud).encode()
    write_whole(path, page)
    return len(page)


def page_of(model: Model, cloud: ShownCloud) -> str:
    template = (resources.files("geocaps.viewer") / "page.html").read_text(encoding="utf-8")
    # A name may hold "</script>": inside the data no "<" is left.
    data = json.dumps(page_data(model, cloud), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return template.replace("@TITLE@", escape(cloud.name)).replace("@DATA@", data)


def page_data(model: Model, cloud: ShownCloud) -> dict[str, Any]:
    session = ObjectSession(model, cloud, torch.Generator())
    picture, encoding = session.picture(), session.now.encoding
    return {
        "name": cloud.name,
        "total": cloud.total,
        "step": _STEP,
        "points": _packed(picture.points),
        "labels": base64.b64encode(picture.labels.astype(np.uint8).tobytes()).decode(),
        "colors": [css_color(color) for color in part_colors(len(picture.surfaces))],
        "surfaces": _packed(picture.surfaces),
        "object_surfaces": _packed(picture.object_surfaces),
        "triangles": picture.triangles.tolist(),
        "part_frames": [_frame(picture.part_poses[j]) for j in range(len(picture.surfaces))],
        "object_frame": _frame(picture.object_pose),
        "pose": {"translation": encoding.pose.translation.tolist(), "wxyz": encoding.pose.wxyz.tolist()},
        "confidence": encoding.confidence,
    }


def _packed(points: np.ndarray) -> str:
    """Coordinates as little-endian 16-bit steps. What a bad capsule decodes to beyond three radii is cut there."""
    return base64.b64encode(np.rint(np.clip(points, -3, 3) / _STEP).astype("<i2").tobytes()).decode()


def _frame(pose: Pose) -> list[float]:
    """Rotation (by rows), then translation."""
    return [round(float(v), 6) for v in (*pose.rotation_matrix().flatten(), *pose.translation)]
