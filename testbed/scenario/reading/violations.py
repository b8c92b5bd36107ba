"""Violations of rules for a scenario, and the one error by which a validator reports several of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pydantic_core import PydanticCustomError

T = TypeVar("T")


class Violation(NamedTuple):
    """One violated rule.

    at       path of the value, below the section that is checked
    problem  what is wrong with it
    hint     how to correct it
    """

    at: tuple[str | int, ...]
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{'.'.join(map(str, self.at))}: {self.problem}"
        return f"{text} ({self.hint})" if self.hint else text


def raise_found(found: Iterable[Violation]) -> None:
    """Raise a ``PydanticCustomError`` that holds all of ``found``, unless there are none."""
    found = tuple(found)
    if found:
        raise PydanticCustomError("rules", "{text}", {"found": found, "text": "; ".join(map(str, found))})


def checked(declared: T) -> T:
    """Return the instance of a declared dataclass. Raise an error with the problems that it reports."""
    raise_found(violations_of(declared))
    return declared


def violations_of(declared: Any, *at: str) -> list[Violation]:
    """Return the problems that a declared dataclass reports about values that are valid one by one."""
    return [
        Violation((*at, *(where if isinstance(where, tuple) else (where,))), problem, cure)
        for where, problem, cure in getattr(declared, "problems", tuple)()
    ]
