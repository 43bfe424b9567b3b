"""Shared parts of commands: options, results on standard output, messages and progress on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from geocaps.errors import InvalidInputError, Skipped

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")

# ── options. Optional[...]: for ``str | None`` tyro imports typeguard, and asyncio with it ────────────────────────────

UNSET = arg(help_behavior_hint="")
"""For an option without a default value: its help text explains what happens instead of "(default: None)"."""
Text = Annotated[Optional[str], UNSET]  # noqa: UP045
Count = Annotated[Optional[int], UNSET]  # noqa: UP045
OutFile = Annotated[Optional[Path], arg(metavar="FILE", help_behavior_hint="")]  # noqa: UP045
OutFolder = Annotated[Optional[Path], arg(metavar="DIR", help_behavior_hint="")]  # noqa: UP045
_WEIGHTS = "Checkpoint folder (default: the weights that ship with the package)."
Weights = Annotated[Optional[Path], arg(metavar="FOLDER", help=_WEIGHTS, help_behavior_hint="")]  # noqa: UP045
Flag = Annotated[bool, FlagCreatePairsOff]
Json = Annotated[bool, FlagCreatePairsOff, arg(help="Print one JSON object on standard output.")]
_DROP_INVALID = "Leave out NaN and infinite points; otherwise they are an error, except in PCD files."
DropInvalid = Annotated[bool, FlagCreatePairsOff, arg(help=_DROP_INVALID)]
Sources = Annotated[tuple[str, ...], Positional, arg(metavar="SOURCE ...", help_behavior_hint="(required)")]

# ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """The text with control characters escaped: a file name must not control the terminal."""
    return text.translate(_CONTROL)


def say(*lines: str, style: str | None = None) -> None:
    """Lines of text on standard output; rich is imported only if there is a style."""
    if style is None:
        sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
    else:
        _console(sys.stdout).print("\n".join(lines), style=style, markup=False, soft_wrap=True)


def tell(*lines: str) -> None:
    """Messages on standard error; standard output is for results."""
    sys.stderr.write("".join(f"{visible(line)}\n" for line in lines))


def show(as_json: bool, record: Any, lines: Iterable[str]) -> None:
    """The result of a command: one JSON object, or lines of text."""
    if as_json:
        print_json(record)
    else:
        say(*lines)


def print_json(record: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json_text(record))


def json_text(record: Any) -> str:
    """One JSON object on one line. NaN and infinity become null, because strict JSON has neither."""
    return json.dumps(_plain(record), ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # an array or a number of numpy's
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def record(found: Any, *names: str) -> dict[str, Any]:
    """Attributes by name, for JSON; a pose is written as its translation and its quaternion."""
    entries: dict[str, Any] = {}
    for name in names:
        value = getattr(found, name)
        entries |= {"translation": value.translation, "wxyz": value.wxyz} if name == "pose" else {name: value}
    return entries


# ── tables and progress, by rich ──────────────────────────────────────────────────────────────────────────────────────


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table on standard output; cells are plain text, never markup."""
    from rich import table, text

    made = table.Table(*columns, title=title)
    for row in rows:
        made.add_row(*(text.Text(cell) if isinstance(cell, str) else cell for cell in row))
    _console(sys.stdout).print(made)


@contextmanager
def progress_bar(doing: str = "", is_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on standard error if that is a terminal; yields a function of the amount done and the total."""
    from rich import progress as parts

    console = _console(sys.stderr)
    with parts.Progress(
        parts.TextColumn(doing),
        parts.BarColumn(),
        parts.DownloadColumn() if is_bytes else parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def worked(
    title: str, jobs: Sequence[Any], results: Iterable[Result | Skipped], skipped: list[dict[str, Any]]
) -> Iterator[tuple[int, Result]]:
    """Results with their indices, as they come. An object that fails is reported and listed; a single one raises."""
    with progress_bar(title) as advance:
        for index, found in enumerate(results):
            advance(index + 1, len(jobs))
            if not isinstance(found, Skipped):
                yield index, found
                continue
            if len(jobs) == 1:
                raise InvalidInputError(found.reason)
            skipped.append({"file": found.name, "reason": found.reason})
            tell(f"skipped: {found.reason}")


def say_written(objects: Sequence[Any], skipped: Sequence[Any], *places: Path | None) -> None:
    say(
        f"{len(objects)} objects" + (f", {len(skipped)} skipped (see above)" if skipped else ""),
        *(f"wrote {where}" for where in places if where is not None),
    )


def spinner(doing: str) -> AbstractContextManager[Any]:
    return _console(sys.stderr).status(doing)


def _console(file: Any) -> Console:
    """A console that escapes control characters in its texts, but not in its own styles and progress bars."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return PlainConsole(file=file, highlight=False)
