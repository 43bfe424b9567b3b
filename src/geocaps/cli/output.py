"""How verbs speak: results on standard output (one JSON object with ``--json``), everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

UNSET = tyro.conf.arg(help_behavior_hint="")
"""Of an option without a default: its help says what happens when it is left out, and not "(default: None)"."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """Control characters spelled out: a file's name must not command the terminal."""
    return text.translate(_CONTROL)


class _PlainConsole(Console):
    """A console whose texts cannot hold escape sequences; its own styles and progress bars can."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console() -> Console:
    """Where tables and sentences for people go."""
    return _PlainConsole(file=sys.stdout, highlight=False)


def messages() -> Console:
    """Where progress and warnings go, so that standard output stays clean."""
    return _PlainConsole(file=sys.stderr, highlight=False)


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
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
