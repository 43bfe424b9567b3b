"""``geocaps export``: the encoder for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from geocaps.cli.output import Count, Json, Weights, show, spinner


def export(
    *,
    out: Annotated[Path, tyro.conf.arg(name="onnx", metavar="FILE", aliases=("--out",))],
    weights: Weights = None,
    points: Count = None,
    json: Json = False,
) -> None:
    """Write the encoder as one ONNX graph, for clouds of a fixed number of points.

    The whole encoder is in the graph: it takes `points` [N, 3] (float32, your units, any order) and gives translation,
    wxyz, feature, confidence, part_translation, part_wxyz, part_feature, labels, center and scale, as
    `geocaps encode` does. Not in it: reading files, choosing N points of a larger cloud (take any N at random), and
    decoding surfaces. The graph is compared with the model on three objects before it is kept.

    Takes a minute or two. Run it with:  onnxruntime.InferenceSession("encoder.onnx").run(None, {"points": xyz})

    Example: geocaps export --out encoder.onnx --points 1024

    Args:
        out: Where to write: a name that ends in .onnx.
        points: Number of points of every cloud (default: as many as the model takes).
    """
    from geocaps.apps.export import export_onnx

    with spinner("tracing the encoder, a minute or two"):
        done = export_onnx(out, weights=weights, points=points)
    lines = [
        f"{done.out}: {done.points} points, {done.bytes:,} bytes, opset {done.opset}",
        f"largest difference from the model on three objects: {done.difference:.1e} (relative)",
    ]
    show(json, done, lines)
