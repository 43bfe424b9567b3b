"""``geocaps bench``: how fast this machine runs the model, and how much faster than the literal formulas."""

from __future__ import annotations

from typing import Annotated

import tyro

from geocaps.cli.output import console, messages, print_json

POINTS = (1_000, 10_000, 100_000, 1_000_000)


def bench(json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False, literal_batch: int = 2) -> None:
    """Measure speed and memory against the paper's formulas taken literally, side by side.

    Example: geocaps bench --json

    Args:
        json: One JSON object on standard output.
        literal_batch: Objects in the literal training step (it needs about 1 GB each); the product runs 8.
    """
    from rich.table import Table

    from geocaps.apps.encode import untrained
    from geocaps.errors import UsageError
    from geocaps.evaluation import bench as measure

    if literal_batch < 1:
        raise UsageError(f"--literal-batch must be at least 1, not {literal_batch}")
    say = messages()
    say.print("training step of layer 1 at N 2048, J 16, K 4, M 256: product …")
    fast_seconds, fast_bytes = measure.layer1_step("product", batch=8, repeats=3)
    say.print(f"… and literal, with {literal_batch} objects, scaled …")
    slow_seconds, slow_bytes = measure.layer1_step("literal", batch=literal_batch, repeats=2)
    say.print("encoding …")
    model = untrained("cpu")
    seconds_by_count = measure.encode_seconds(model, POINTS)
    share = measure.gemm_share(model)
    result = {
        "layer1_step_ratio": slow_seconds / fast_seconds,
        "layer1_memory_ratio": slow_bytes / fast_bytes,
        "layer2_decoder_ratio": measure.layer2_decoder_ratio(),
        "encode_per_s_1": measure.encode_rate(model, 1),
        "encode_per_s_64": measure.encode_rate(model, 64),
        "encode_seconds": seconds_by_count,
        "gemm_share": share,
    }
    if json:
        print_json(result)
        return
    table = Table("measurement", "value", title="geocaps bench (cpu preset)")
    table.add_row("layer 1 training step, literal / product time", f"{result['layer1_step_ratio']:.1f} ×")
    table.add_row("layer 1 training step, literal / product memory", f"{result['layer1_memory_ratio']:.1f} ×")
    table.add_row("layer 2 part decoders, loop / batched time", f"{result['layer2_decoder_ratio']:.2f} ×")
    table.add_row("objects encoded per second, one at a time", f"{result['encode_per_s_1']:.1f}")
    table.add_row("objects encoded per second, batches of 64", f"{result['encode_per_s_64']:.1f}")
    for count, seconds in seconds_by_count.items():
        table.add_row(f"encoding {count:,} points, with labels", f"{seconds * 1000:.0f} ms")
    table.add_row("share of the machine's matrix-multiply rate", f"{100 * share:.0f} %")
    console().print(table)
