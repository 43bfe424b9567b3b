"""The exceptions a user meets. Each says what was expected, what came, and what to do next, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class GeocapsError(Exception):
    """Base of every error that geocaps raises on purpose."""


class InvalidInputError(GeocapsError, ValueError):
    """The points, poses or options handed over cannot be worked with."""


class FileFormatError(GeocapsError, ValueError):
    """A file cannot be read: unknown format, damaged, hostile or empty."""


class DatasetError(GeocapsError, ValueError):
    """A data set is missing, malformed or lacks what was asked of it."""


class ConfigError(GeocapsError, ValueError):
    """A configuration has a value that cannot be, or that does not fit another."""


class CheckpointError(GeocapsError, RuntimeError):
    """A checkpoint cannot be read, written or resumed."""


class TrainingError(GeocapsError, RuntimeError):
    """Training had to stop: the loss is not finite or diverges."""


class SearchIndexError(GeocapsError, RuntimeError):
    """A search index cannot be opened, written or searched."""


class EncodingError(GeocapsError, RuntimeError):
    """Files could not be encoded or the result not written; ``failed`` lists each file with its reason."""

    def __init__(self, message: str, failed: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.failed = tuple(failed)


class ExportError(GeocapsError, RuntimeError):
    """A model cannot be exported, or its export does not give what the model gives."""


class MissingExtraError(GeocapsError, ImportError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: install it with  pip install 'geocaps[{extra}]'")


class UsageError(InvalidInputError):
    """The call itself was wrong: the command line answers with exit code 2."""
