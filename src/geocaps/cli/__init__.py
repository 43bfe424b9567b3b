"""The command line: parse, call, print. Exit codes: 0 done, 1 the work failed, 2 the call was wrong.

Each verb is a typed function in a module of this package. Only the verb that is called is imported, and heavy imports
stand inside the functions: ``geocaps --help`` and the quick verbs do not wait for torch.
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
class Verb:
    """Where the function of a verb is, and the first line of its docstring."""

    module: str
    function: str
    says: str

    def load(self) -> Callable[..., None]:
        return getattr(importlib.import_module(f"geocaps.cli.{self.module}"), self.function)


VERBS: dict[str, Verb | dict[str, Verb]] = {
    "demo": Verb(
        "demo",
        "demo",
        "Rotate embedded objects at random, encode, align and retrieve them; writes a picture and an HTML page.",
    ),
    "align": Verb("align", "align", "Find the pose that lays cloud A on cloud B, whatever way they are turned."),
    "canonical": Verb(
        "canonical",
        "canonical",
        "Bring objects to their canonical poses, whatever way they came; writes files and one picture.",
    ),
    "parts": Verb(
        "parts",
        "parts",
        "Cut a cloud or mesh into parts, without labels; writes them as coloured points or faces, surfaces and a "
        "picture.",
    ),
    "encode": Verb(
        "encode",
        "encode",
        "Encode files, folders and data sets into capsules: one row for each object, in Parquet or NPZ.",
    ),
    "info": Verb(
        "info",
        "info",
        "Versions, extras and the shipped weights; or what a checkpoint folder or a file of points holds.",
    ),
    "export": Verb("export", "export", "Write the encoder as one ONNX graph, for clouds of a fixed number of points."),
    "view": Verb(
        "view",
        "view",
        "Look at objects, their parts and poses in a web page, turn them, align two, search an index.",
    ),
    "train": Verb(
        "train", "train", "Train a model. Several processes: torchrun --nproc_per_node 2 -m geocaps train ..."
    ),
    "eval": Verb(
        "eval",
        "evaluate",
        "Measure a model: rotation error and retrieval between two views of each object, with the chance floors.",
    ),
    "bench": Verb(
        "bench", "bench", "Measure speed and memory against the paper's formulas taken literally, side by side."
    ),
    "index": {
        "add": Verb("index", "add", "Add folders and files to an index; it is made when it is not there."),
        "search": Verb(
            "index", "search", "Find the objects most like a cloud or mesh, and the poses that bring them onto it."
        ),
        "info": Verb("index", "info", "What an index holds: objects, classes, the weights that it was made with."),
        "remove": Verb(
            "index",
            "remove",
            "Take objects out of an index: those that fit everything given. No file of theirs is touched.",
        ),
    },
    "data": {
        "info": Verb(
            "data", "info", "What a data set holds, and what is wrong with it; or what a single cloud or mesh is."
        ),
        "pack": Verb("data", "pack", "Sample a folder of meshes or clouds into one .npz data set."),
        "download": Verb(
            "data", "download", "Fetch a public data set, or say how to get it; without a name, list the known ones."
        ),
    },
}
"""Every verb of the command line; a nested dictionary is a verb with sub-verbs."""


def main(args: list[str] | None = None) -> None:
    """Entry point of the ``geocaps`` command and of ``python -m geocaps``."""
    raise SystemExit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit code (tyro itself exits with 2 on a wrong call)."""
    if args == ["--version"]:
        sys.stdout.write(f"geocaps {geocaps.__version__}\n")
        return 0
    try:
        with _dropped_points_said():
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
        # PyTorch says it with a RuntimeError.
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        return _fail("this machine has too little memory for that: ask for fewer points or objects at a time", 1)
    return 0


@contextmanager
def _dropped_points_said() -> Iterator[None]:
    """Points that are left out are said in a line on standard error, each time; other warnings are left as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DroppedPointsWarning)
        show = warnings.showwarning

        def said(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, DroppedPointsWarning):
                _fail(f"warning: {message}", 0)
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = said
        yield


def _parse_and_call(args: list[str]) -> None:
    """Goes down to the verb that is called, and lets tyro see that one alone; above it, the list of verbs."""
    import tyro

    found: Verb | Mapping[str, Verb | dict[str, Verb]] = VERBS
    names = ["geocaps"]
    while isinstance(found, Mapping) and args and args[0] in found:
        names, found, args = [*names, args[0]], found[args[0]], args[1:]
    tyro.cli(
        found.load() if isinstance(found, Verb) else _listed(found),
        prog=" ".join(names),
        args=args,
        description=None if isinstance(found, Verb) else _description(names[1:], found),
        config=(tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
    )


def _listed(verbs: Mapping[str, Verb | dict[str, Verb]]) -> Any:
    """The list of verbs, for a help page or for saying that there is no such verb."""
    import tyro

    choices = []
    for name, verb in verbs.items():
        says = verb.says if isinstance(verb, Verb) else _description([name], verb)
        choices.append(Annotated[_Named, tyro.conf.subcommand(name=name, description=says)])
    return Union[tuple(choices)]  # noqa: UP007 - built at run time


def _description(names: list[str], verbs: Mapping[str, Any]) -> str:
    return f"{names[-1]}: {', '.join(verbs)}" if names else DESCRIPTION


@dataclass
class _Named:
    """What stands for a verb in the list: a class, as tyro imports typeguard, and asyncio with it, for a function."""

    def __post_init__(self) -> None:
        raise UsageError("the command must come first: geocaps --help lists them all")


def _fail(message: object, code: int) -> int:
    from geocaps.cli.output import visible

    sys.stderr.write(f"geocaps: {visible(str(message))}\n")
    return code
