"""A broken rule, and how a validator reports several of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Violation:
    """One broken rule; ``at`` is the path below the section that is checked."""

    at: tuple[str | int, ...]
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{'.'.join(map(str, self.at))}: {self.problem}"
        return f"{text} ({self.hint})" if self.hint else text


def raise_found(found: Iterable[Violation]) -> None:
    """Raise one error that carries all of ``found``, if there are any."""
    found = tuple(found)
    if found:
        raise PydanticCustomError("rules", "rules", {"found": found})
