"""The command line: parse, call, print. Exit codes: 0 done, 1 the work failed, 2 the call was wrong.

Each verb is a typed function in a module of this package; heavy imports stand inside the functions, so that
``geocaps --help`` is quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Union

from geocaps.errors import GeocapsError, UsageError


def commands() -> dict[str, Any]:
    """Every verb of the command line; a nested dictionary is a verb with sub-verbs."""
    from geocaps.cli import align, bench, canonical, data, demo, encode, export, index, info, parts, train, view
    from geocaps.cli import eval as evaluation

    return {
        "demo": demo.demo,
        "align": align.align,
        "canonical": canonical.canonical,
        "parts": parts.parts,
        "encode": encode.encode,
        "info": info.info,
        "export": export.export,
        "view": view.view,
        "train": train.train,
        "eval": evaluation.evaluate,
        "bench": bench.bench,
        "index": {"add": index.add, "search": index.search, "info": index.info, "remove": index.remove},
        "data": {"info": data.info, "pack": data.pack, "download": data.download},
    }


def main(args: list[str] | None = None) -> None:
    """Entry point of the ``geocaps`` command and of ``python -m geocaps``."""
    raise SystemExit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit code (tyro itself exits with 2 on a wrong call)."""
    import tyro

    try:
        tyro.cli(
            _union(commands()),
            prog="geocaps",
            args=args,
            description=DESCRIPTION,
            config=(tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
        )
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


def _union(verbs: dict[str, Any]) -> Any:
    """Verbs as the union of sub-commands that tyro parses, to any depth."""
    import tyro

    choices = [
        Annotated[_union(verb), tyro.conf.subcommand(name=name, description=f"{name}: {', '.join(verb)}")]
        if isinstance(verb, dict)
        else Annotated[Any, tyro.conf.subcommand(name=name, constructor=verb)]
        for name, verb in verbs.items()
    ]
    return Union[tuple(choices)]  # noqa: UP007 - built at run time


def _fail(message: object, code: int) -> int:
    from geocaps.cli.output import visible

    sys.stderr.write(f"geocaps: {visible(str(message))}\n")
    return code


DESCRIPTION = "Parse 3D point clouds into part capsules and one object capsule, without labels, on a CPU."
