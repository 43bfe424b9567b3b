"""``geocaps demo``: encoding, alignment and retrieval on embedded objects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from geocaps.cli.output import UNSET, console, messages, print_json


def demo(
    out: Path = Path("geocaps_demo"),
    weights: Annotated[Path | None, UNSET] = None,
    per_class: int = 2,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Rotate embedded objects at random, encode, align and retrieve them; writes a picture and an HTML page.

    Example: geocaps demo --out geocaps_demo

    Args:
        out: Folder for demo.png and demo.html.
        weights: Checkpoint folder (default: the weights that ship with the package).
        per_class: Objects of each embedded class.
        json: Print one JSON object on standard output.
    """
    from geocaps.apps.encode import load
    from geocaps.errors import UsageError
    from geocaps.evaluation.demo import run_demo

    if per_class < 1:
        raise UsageError(f"--per-class must be at least 1, not {per_class}")
    messages().print("encoding, aligning and retrieving the embedded shapes …")
    found = run_demo(load(weights), out, per_class=per_class)
    if json:
        print_json(
            {
                "objects": found.objects,
                "methods": found.rows,
                "seconds": found.seconds,
                "picture": str(found.picture),
                "page": str(found.page),
            }
        )
        return
    screen = console()
    screen.print(found.table.markdown(), soft_wrap=True, markup=False)
    screen.print(f"\n{found.seconds:.0f} s; picture: {found.picture}   page: {found.page}", soft_wrap=True)
