"""Run checks on a technique and collect one result per check: what is demanded, what happened, and what to change."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.state import State, Stateful

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


def plain_state(part: Stateful) -> State:
    """Return the state of a part, as a checkpoint gives it back. Require that it holds numbers and texts by name."""
    state = part.state()
    others = {name: type(each).__name__ for name, each in state.items()
              if not isinstance(name, str) or not isinstance(each, int | float | str)}  # fmt: skip
    require(not others, "a state of numbers and texts by name", str(others), "write lists with json.dumps")
    return dict(state)


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
