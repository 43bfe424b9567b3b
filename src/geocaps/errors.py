"""Exceptions. Each message says in one sentence what was expected, what was found, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def install_hint(*extras: str) -> str:
    """The command that installs extras from a clone, as geocaps is not on a package index yet; a release changes it."""
    return f"pip install '.[{','.join(extras)}]'"


@dataclass(frozen=True)
class Skipped:
    """An object that was skipped, and the reason."""

    name: str
    reason: str
    path: str | None = None
    """Path of its file; None for an array."""


class GeocapsError(Exception):
    """Base of every error that geocaps raises on purpose."""


class InvalidInputError(GeocapsError, ValueError):
    """The points, poses or options that were given cannot be used."""


class NotFiniteError(InvalidInputError):
    """Points that are NaN or infinite, in a format where that does not mean "no return"; ``what`` lacks the advice."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: leave them out with --drop-invalid (in Python: drop_invalid=True)")
        self.what = what


class DroppedPointsWarning(UserWarning):
    """NaN or infinite points were left out; the message says how many, and of what."""


class FileFormatError(GeocapsError, ValueError):
    """A file cannot be read: unknown format, damaged, hostile or empty."""


class DatasetError(GeocapsError, ValueError):
    """A data set is missing, malformed, or lacks what was requested."""


class ConfigError(GeocapsError, ValueError):
    """A configuration has an invalid value, or two values that contradict each other."""


class CheckpointError(GeocapsError, RuntimeError):
    """A checkpoint cannot be read, written or resumed."""


class TrainingError(GeocapsError, RuntimeError):
    """Training had to stop: the loss is not finite or diverges."""


class SearchIndexError(GeocapsError, RuntimeError):
    """A search index cannot be opened, written or searched."""


class EncodingError(GeocapsError, RuntimeError):
    """Files could not be encoded, or the result could not be written; ``failed`` lists the files with the reasons."""

    def __init__(self, message: str, failed: Sequence[Skipped] = ()) -> None:
        super().__init__(message)
        self.failed = tuple(failed)


class ExportError(GeocapsError, RuntimeError):
    """A model cannot be exported, or its export gives other results than the model."""


class MissingExtraError(GeocapsError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra {extra!r}: run  {install_hint(extra)}  in your clone of geocaps")


class UsageError(InvalidInputError):
    """A usage error: the command line exits with code 2."""
