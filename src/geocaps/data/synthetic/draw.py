"""The seeded choices behind an object."""

import random
from typing import TypeVar

Option = TypeVar("Option")


class Draw:
    """Repeatable choices for one object.

    Python's `random.Random.random` is guaranteed to give the same numbers for the same key in every release and on
    every machine, which numpy and torch do not promise; everything here is built from it alone.
    """

    def __init__(self, key: str) -> None:
        self._next = random.Random(key).random

    def between(self, low: float | int, high: float | int) -> float:
        return low + (high - low) * self._next()

    def whole(self, low: int, high: int) -> int:
        """A whole number in [low, high], both ends included."""
        return low + int(self._next() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self._next() < probability

    def pick(self, *options: Option) -> Option:
        return options[int(self._next() * len(options))]
