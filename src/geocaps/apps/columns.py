"""An encoding as named arrays: what a row of ``encode_files`` and the exported graph have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from geocaps.apps.encoding import Encoding

ENCODED = (
    "translation",
    "wxyz",
    "feature",
    "confidence",
    "part_translation",
    "part_wxyz",
    "part_feature",
    "labels",
    "center",
    "scale",
)


def encoded_columns(encoding: Encoding) -> dict[str, np.ndarray]:
    """The ``ENCODED`` columns of one cloud, in the user's units."""
    values: tuple[Any, ...] = (
        encoding.pose.translation,
        encoding.pose.wxyz,
        encoding.feature,
        np.float32(encoding.confidence),
        encoding.parts.pose.translation,
        encoding.parts.pose.wxyz,
        encoding.parts.feature,
        encoding.labels,
        encoding.normalization.center[0],
        encoding.normalization.scale[0],
    )
    return {name: np.asarray(value) for name, value in zip(ENCODED, values, strict=True)}
