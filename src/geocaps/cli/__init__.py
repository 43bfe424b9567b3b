"""The command line: parse, call, print. Exit codes: 0 success, 1 failure, 2 usage error.

Each command is a typed function in a module of this package. Only the command being run is imported, and heavy imports
are inside the functions, so ``geocaps --help`` and the quick commands do not wait for torch.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Union

import geocaps
from geocaps.errors import DroppedPointsWarning, GeocapsError, UsageError

DESCRIPTION = """Parse 3D point clouds into part capsules and one object capsule, without labels, on a CPU.

geocaps COMMAND --help explains a command, geocaps --version prints the version."""


@dataclass(frozen=True)
class Command:
    """Module and name of a command's function."""

    module: str
    function: str

    def load(self) -> Callable[..., None]:
        return getattr(importlib.import_module(f"geocaps.cli.{self.module}"), self.function)

    def summary(self) -> str:
        return (self.load().__doc__ or "").partition("\n")[0]


COMMANDS: dict[str, Command | dict[str, Command]] = {
    "demo": Command("models", "demo"),
    "align": Command("poses", "align"),
    "canonical": Command("poses", "canonical"),
    "complete": Command("objects", "complete"),
    "parts": Command("objects", "parts"),
    "transfer": Command("objects", "transfer"),
    "track": Command("scenes", "track"),
    "locate": Command("scenes", "locate"),
    "scene": Command("scenes", "scene"),
    "encode": Command("objects", "encode"),
    "info": Command("data", "info"),
    "export": Command("objects", "export"),
    "view": Command("view", "view"),
    "train": Command("models", "train"),
    "eval": Command("models", "evaluate"),
    "bench": Command("models", "bench"),
    "index": {name: Command("index", name) for name in ("add", "search", "info", "remove")},
    "data": {
        "info": Command("data", "survey"),
        "pack": Command("data", "pack"),
        "download": Command("data", "download"),
    },
}
"""All commands; a nested dictionary is a command with subcommands."""


def main(args: list[str] | None = None) -> None:
    """Entry point of the ``geocaps`` command and of ``python -m geocaps``."""
    raise SystemExit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit code; tyro itself exits with 2 on a usage error."""
    if args == ["--version"]:
        sys.stdout.write(f"geocaps {geocaps.__version__}\n")
        return 0
    try:
        with _dropped_points_shown():
            _parse_and_call(args)
    except UsageError as error:
        return _fail(error, 2)
    except GeocapsError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("stopped", 1)
    except BrokenPipeError:
        return 1
    except (MemoryError, RuntimeError) as error:
        # PyTorch raises a RuntimeError for it.
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        return _fail("not enough memory: use fewer points or objects at a time", 1)
    return 0


@contextmanager
def _dropped_points_shown() -> Iterator[None]:
    """Reports dropped points on standard error every time; other warnings are shown as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DroppedPointsWarning)
        show = warnings.showwarning

        def shown(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, DroppedPointsWarning):
                _fail(f"warning: {message}", 0)
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = shown
        yield


def _parse_and_call(args: list[str]) -> None:
    """Finds the command and passes only that one to tyro; without a command, the list of them."""
    import tyro

    found: Command | Mapping[str, Command | dict[str, Command]] = COMMANDS
    names = ["geocaps"]
    while isinstance(found, Mapping) and args and args[0] in found:
        names, found, args = [*names, args[0]], found[args[0]], args[1:]
    tyro.cli(
        found.load() if isinstance(found, Command) else _listed(found),
        prog=" ".join(names),
        args=args,
        description=None if isinstance(found, Command) else _description(names[1:], found),
        config=(tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
    )


def _listed(commands: Mapping[str, Command | dict[str, Command]]) -> Any:
    """The list of commands, for the help page and for reporting an unknown command."""
    import tyro

    choices = []
    for name, command in commands.items():
        summary = command.summary() if isinstance(command, Command) else _description([name], command)
        choices.append(Annotated[_Named, tyro.conf.subcommand(name=name, description=summary)])
    return Union[tuple(choices)]  # noqa: UP007 - built at run time


def _description(names: list[str], commands: Mapping[str, Any]) -> str:
    return f"{names[-1]}: {', '.join(commands)}" if names else DESCRIPTION


@dataclass
class _Named:
    """A command in the list. It is a class because tyro imports typeguard, and asyncio with it, for functions."""

    def __post_init__(self) -> None:
        raise UsageError("the command must come first: geocaps --help lists them all")


def _fail(message: object, code: int) -> int:
    from geocaps.cli.output import tell

    tell(f"geocaps: {message}")
    return code
