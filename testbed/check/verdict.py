"""Run checks on a technique and collect one result per check: what is demanded, what happened, and what to change."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Check = Callable[[Any], None]


class CheckFailed(AssertionError):
    """A technique breaks its contract."""

    def __init__(self, expected: str, happened: str, cure: str) -> None:
        self.expected, self.happened, self.cure = expected, happened, cure
        super().__init__(f"expected: {expected}; happened: {happened}; cure: {cure}")


def require(condition: object, expected: str, happened: str, cure: str) -> None:
    """Raise ``CheckFailed`` unless ``condition`` holds."""
    if not condition:
        raise CheckFailed(expected, happened, cure)


class Checked(Protocol):
    """What is checked: a technique (``Subject``), or a figure."""

    @property
    def axis_name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def code_path(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Result:
    """One check; ``expected``, ``happened`` and ``cure`` are empty when it passed."""

    check: str
    passed: bool
    expected: str = ""
    happened: str = ""
    cure: str = ""


def name_of(check: Check) -> str:
    """Return the function's name as words, by which messages and tests name a check."""
    return str(getattr(check, "__name__", check)).replace("_", " ")


def run(subject: Checked, checks: Iterable[Check]) -> Iterator[Result]:
    """Yield a result per check, in order. Any exception of the technique fails the check that met it."""
    for check in checks:
        try:
            check(subject)
        except CheckFailed as failure:
            yield Result(name_of(check), False, failure.expected, failure.happened, failure.cure)
        except Exception as error:
            place = _line_of(error, subject)
            happened = f"{place}{type(error).__name__}: {error}"
            yield Result(name_of(check), False, "no exception", happened, "handle this case, or declare it")
        else:
            yield Result(name_of(check), True)


def _line_of(error: Exception, subject: Checked) -> str:
    """Return ``"warm_hfa.py line 12: "``: the innermost line of the technique's own file, empty for others."""
    path = subject.code_path
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if path and frame.filename == path]
    return f"{Path(path).name} line {lines[-1]}: " if lines else ""
