"""How verbs speak: results on standard output (one JSON object with ``--json``), everything else on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

import tyro

if TYPE_CHECKING:
    import rich.console
    from rich.progress import Progress, TaskID

PerhapsText = Optional[str]  # noqa: UP045 - for ``str | None`` tyro imports typeguard, and asyncio with it

UNSET = tyro.conf.arg(help_behavior_hint="")
"""Of an option without a default: its help says what happens when it is left out, and not "(default: None)"."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """Control characters spelled out: a file's name must not command the terminal."""
    return text.translate(_CONTROL)


def say(lines: Iterable[str]) -> None:
    """Lines for people on standard output, as they are: for verbs that draw no tables and should not wait for rich."""
    sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))


def console() -> rich.console.Console:
    """Where tables and sentences for people go."""
    return _plain_console(sys.stdout)


def messages() -> rich.console.Console:
    """Where progress and warnings go, so that standard output stays clean."""
    return _plain_console(sys.stderr)


def _plain_console(file: Any) -> rich.console.Console:
    """A console whose texts cannot hold escape sequences; its own styles and progress bars can."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return PlainConsole(file=file, highlight=False)


@contextmanager
def progress_bar(doing: str = "", is_bytes: bool = False) -> Iterator[tuple[Progress, TaskID]]:
    """A bar on standard error where it is a terminal, of one task whose total is not known yet."""
    from rich import progress as parts

    speaker = messages()
    with parts.Progress(
        parts.TextColumn(doing),
        parts.BarColumn(),
        parts.DownloadColumn() if is_bytes else parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
        console=speaker,
        transient=True,
        disable=not speaker.is_terminal,
    ) as progress:
        yield progress, progress.add_task("", total=None)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object on standard output. Not-a-number and infinity become null: strict JSON has neither."""
    sys.stdout.write(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy's
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
