"""The exceptions a user meets. Each message says in one sentence what was expected, what came, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def install_hint(*extras: str) -> str:
    """The command that installs extras, from a clone: geocaps is on no package index yet. A release changes it here."""
    return f"pip install '.[{','.join(extras)}]'"


@dataclass(frozen=True)
class Skipped:
    """An object that was left out, and why."""

    name: str
    reason: str
    path: str | None = None
    """Of its file; None for an object that came as an array."""


class GeocapsError(Exception):
    """Base of every error that geocaps raises on purpose."""


class InvalidInputError(GeocapsError, ValueError):
    """The points, poses or options that were given cannot be used."""


class NotFiniteError(InvalidInputError):
    """Points that are NaN or infinite, where that does not mean "no return"; ``what`` is without the advice."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: leave them out with --drop-invalid (in Python: drop_invalid=True)")
        self.what = what


class DroppedPointsWarning(UserWarning):
    """Points that are NaN or infinite were left out; the message says of what, and how many."""


class FileFormatError(GeocapsError, ValueError):
    """A file cannot be read: unknown format, damaged, hostile or empty."""


class DatasetError(GeocapsError, ValueError):
    """A data set is missing, malformed or lacks what was asked of it."""


class ConfigError(GeocapsError, ValueError):
    """A configuration has a value that is impossible, or that does not fit another."""


class CheckpointError(GeocapsError, RuntimeError):
    """A checkpoint cannot be read, written or resumed."""


class TrainingError(GeocapsError, RuntimeError):
    """Training had to stop: the loss is not finite or diverges."""


class SearchIndexError(GeocapsError, RuntimeError):
    """A search index cannot be opened, written or searched."""


class EncodingError(GeocapsError, RuntimeError):
    """Files could not be encoded or the result not written; ``failed`` lists each file with its reason."""

    def __init__(self, message: str, failed: Sequence[Skipped] = ()) -> None:
        super().__init__(message)
        self.failed = tuple(failed)


class ExportError(GeocapsError, RuntimeError):
    """A model cannot be exported, or its export does not give what the model gives."""


class MissingExtraError(GeocapsError, ImportError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra {extra!r}: run  {install_hint(extra)}  in your clone of geocaps")


class UsageError(InvalidInputError):
    """The call itself is wrong: the command line exits with code 2."""
