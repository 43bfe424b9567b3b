"""What all browsers of one page share, none of which ever changes: model, files, index, principal directions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from geocaps.apps.encode import Model
from geocaps.viewer.clouds import EXAMPLE, ShownCloud, embedded_cloud, embedded_names
from geocaps.viewer.principal import Principal, embedded_principal


@dataclass
class Shared:
    """``files`` are the clouds named on the command line; ``index`` is an open ``geocaps.Index`` or None."""

    model: Model
    files: dict[str, ShownCloud]
    index: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def minimum(self) -> int:
        """Points that a cloud must have."""
        return self.model.config.parts.parts

    @property
    def first(self) -> str:
        """What a browser shows at first."""
        return next(iter(self.files), EXAMPLE)

    @property
    def names(self) -> tuple[str, ...]:
        """What every browser can choose: the files first."""
        return (*self.files, *(name for name in embedded_names() if name not in self.files))

    def cloud(self, name: str) -> ShownCloud:
        return self.files[name] if name in self.files else embedded_cloud(name, self.minimum)

    def principal(self) -> Principal:
        """Computed when first asked for, once for all browsers."""
        with self._lock:
            return self._principal

    @cached_property
    def _principal(self) -> Principal:
        return embedded_principal(self.model)


def by_name(clouds: Sequence[ShownCloud]) -> dict[str, ShownCloud]:
    """Clouds by names that differ: files of the same name from different folders are numbered."""
    named: dict[str, ShownCloud] = {}
    for cloud in clouds:
        name = next(n for n in _numbered(cloud.name) if n not in named)
        named[name] = replace(cloud, name=name)
    return named


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({count})" for count in itertools.count(2))
