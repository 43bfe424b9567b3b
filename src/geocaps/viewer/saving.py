"""What is seen, as files for the person's own disk: bytes, handed to the browser to save."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from geocaps.apps.drawing import part_colors
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.io import save_points
from geocaps.viewer.alignment import AlignedPair
from geocaps.viewer.session import Turned


def png_bytes(image: np.ndarray) -> bytes:
    """A rendering ``[h, w, 3 or 4]`` on white: a transparent page is black in many programs."""
    picture = Image.fromarray(image)
    if picture.mode == "RGBA":
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture).convert("RGB")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def ply_bytes(points: Float[np.ndarray, "n 3"], labels: Int[np.ndarray, "n"]) -> bytes:
    """Points in the colours of their labels."""
    colors = part_colors(int(labels.max()) + 1)[labels]
    with tempfile.TemporaryDirectory(prefix="geocaps-save-") as folder:
        path = Path(folder) / "cloud.ply"
        save_points(path, points, labels=labels, colors=colors)
        return path.read_bytes()


def object_ply(turned: Turned) -> bytes:
    """The turned points, in the user's units, with their parts."""
    return ply_bytes(turned.points, turned.labels)


def object_record(turned: Turned) -> dict[str, Any]:
    """The capsules of the object as it is turned, in the user's coordinates."""
    encoding = turned.encoding
    return {
        "name": turned.cloud.name,
        "points": len(turned.points),
        "points_in_file": turned.cloud.total,
        "turn": pose_record(turned.turn),
        "pose": pose_record(encoding.pose),
        "confidence": encoding.confidence,
        "feature": encoding.feature.tolist(),
        "alternatives": [{**pose_record(one.pose), "probability": one.probability} for one in encoding.alternatives],
        "parts": [
            {
                **pose_record(encoding.parts.pose[j]),
                "feature": encoding.parts.feature[j].tolist(),
                "points": int((turned.labels == j).sum()),
            }
            for j in range(len(encoding.parts))
        ],
        "labels": turned.labels.tolist(),
    }


def pair_ply(pair: AlignedPair, way: int) -> bytes:
    """B (label 0) and A laid on it (label 2, a colour well apart)."""
    laid, b = pair.laid(way), pair.b.points.astype(np.float64)
    return ply_bytes(np.concatenate([b, laid]), np.repeat([0, 2], [len(b), len(laid)]))


def pair_record(pair: AlignedPair, way: int) -> dict[str, Any]:
    return {
        "a": pair.a.name,
        "b": pair.b.name,
        "shown": way,
        "ways": [
            {
                **pose_record(one.pose),
                "scale": one.scale,
                "confidence": one.confidence,
                "residual": pair.residual(index),
            }
            for index, one in enumerate(pair.ways)
        ],
        "error": pair.found.error,
        "overlap": list(pair.found.overlap),
        "ambiguous": pair.found.ambiguous,
    }


def json_bytes(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, indent=1).encode()


def pose_record(pose: Pose | Similarity) -> dict[str, list[float]]:
    return {"translation": pose.translation.tolist(), "wxyz": pose.wxyz.tolist()}
