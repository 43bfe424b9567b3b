"""Counts what a reader has to live with: python scripts/call_trace.py [--names] [--json].

Modules and lines of ``src``; modules that ``from geocaps import load`` imports; functions and files of geocaps that one
``geocaps.load()`` and one ``model.encode(points)`` pass through. Nested functions and lambdas count with the function
they are written in, and so do methods that a dataclass generates.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import geocaps

ROOT = Path(geocaps.__file__).parent
Functions = set[tuple[str, str]]
"""File below the package, and first line with the name."""


def main() -> None:
    parser = argparse.ArgumentParser(description="What one load and one encode pass through.")
    parser.add_argument("--names", action="store_true", help="list the functions too")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    wanted = parser.parse_args()

    files = sorted(ROOT.rglob("*.py"))
    found: dict[str, Any] = {
        "modules": len(files),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
    }
    from geocaps import load

    found["imported"] = sum(name.split(".")[0] == "geocaps" for name in sys.modules)
    points = np.random.default_rng(0).normal(size=(1024, 3)) * [1.0, 0.6, 0.3]
    model, loading = traced(load)
    _, encoding = traced(lambda: model.encode(points))
    for name, functions in (("load", loading), ("load_and_encode", loading | encoding)):
        found[name] = {"functions": len(functions), "files": len({file for file, _ in functions})}
    if wanted.json:
        print(json.dumps(found))
        return
    print(f"modules {found['modules']}, lines {found['lines']:,}; geocaps.load imports {found['imported']} modules")
    for name in ("load", "load_and_encode"):
        print(f"{name.replace('_', ' ')}: {found[name]['functions']} functions in {found[name]['files']} files")
    if wanted.names:
        for title, functions in (("load", loading), ("encode", encoding - loading)):
            print(f"\n{title}")
            print("\n".join(f"  {file}  {name}" for file, name in sorted(functions)))


def traced(call: Callable[[], Any]) -> tuple[Any, Functions]:
    """The result of a call, and the named functions of geocaps that ran in it."""
    seen: Functions = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        # Bodies of modules and classes are not optimised; what is written inside a function runs as a part of it.
        inside = "<" in getattr(code, "co_qualname", code.co_name)
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not inside and path.is_relative_to(ROOT):
            name = getattr(code, "co_qualname", code.co_name)
            seen.add((path.relative_to(ROOT).as_posix(), f"{code.co_firstlineno}: {name}"))

    sys.setprofile(note)
    try:
        return call(), seen
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
