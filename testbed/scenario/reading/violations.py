"""Violations of rules for a scenario, and the one error by which a validator reports several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Violation:
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


def series_violations(times_s: Sequence[float], repeat_after_s: float | None) -> Iterator[Violation]:
    """Yield the violations of a series of ``points``.

    Its times must rise strictly from 0 s, and a repetition must begin after the last of them.
    """
    if times_s[0] != 0:
        yield Violation(("points", 0, "at"), f"the first time is {times_s[0]:g} s, and must be 0 s")
    for index, (before, after) in enumerate(pairwise(times_s), start=1):
        if after <= before:
            yield Violation(("points", index, "at"), f"{after:g} s does not come after {before:g} s")
    if repeat_after_s is not None and repeat_after_s <= times_s[-1]:
        yield Violation(("repeat_after",), f"{repeat_after_s:g} s is not after the last point ({times_s[-1]:g} s)")
