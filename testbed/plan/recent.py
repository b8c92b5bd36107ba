"""A cache of values made from the last few Plans, or parts of them, which never change and which all nodes ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

V = TypeVar("V")
_REMEMBERED = 4


class Recent(Generic[V]):
    """``make(part, *more)``, once for the very same part (which may be too large to be compared) and equal ``more``."""

    def __init__(self, make: Callable[..., V]) -> None:
        self._make = make
        self._made: list[tuple[Any, tuple[Any, ...], V]] = []  # the latest first; parts are held, so none is another's

    def __call__(self, part: Any, *more: Any) -> V:
        for known, its_more, value in self._made:
            if known is part and its_more == more:
                return value
        value = self._make(part, *more)
        self._made.insert(0, (part, more, value))
        del self._made[_REMEMBERED:]
        return value
