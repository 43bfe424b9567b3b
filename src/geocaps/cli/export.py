"""``geocaps export``: the encoder for other runtimes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from geocaps.cli.output import UNSET, console, messages, print_json


def export(
    *,
    onnx: Annotated[Path, tyro.conf.arg(metavar="OUT.onnx")],
    weights: Annotated[str | None, tyro.conf.arg(metavar="FOLDER"), UNSET] = None,
    points: Annotated[int | None, UNSET] = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Write the encoder as one ONNX graph, for clouds of a fixed number of points.

    The whole encoder is in the graph: it takes `points` [N, 3] (float32, your units, any order) and gives translation,
    wxyz, feature, confidence, part_translation, part_wxyz, part_feature, labels, center and scale, as
    `geocaps encode` does. Not in it: reading files, choosing N points of a larger cloud (take any N at random), and
    decoding surfaces. The graph is compared with the model on three objects before it is kept.

    Takes a minute or two. Run it with:  onnxruntime.InferenceSession("OUT.onnx").run(None, {"points": xyz})

    Example: geocaps export --onnx encoder.onnx --points 1024

    Args:
        onnx: The file to write.
        weights: A checkpoint folder; without one, the weights that ship with geocaps.
        points: Points of a cloud: exactly this many; as many as the model takes when not given.
        json: One JSON object on standard output.
    """
    from geocaps.apps.export import export_onnx

    with messages().status("tracing the encoder, a minute or two"):
        done = export_onnx(onnx, weights=weights, points=points)
    if json:
        print_json({**asdict(done), "out": str(done.out)})
        return
    console().print(
        f"{done.out}: {done.points} points, {done.bytes:,} bytes, opset {done.opset}\n"
        f"largest difference from the model on three objects: {done.difference:.1e} (relative)",
        markup=False,
        soft_wrap=True,
    )
