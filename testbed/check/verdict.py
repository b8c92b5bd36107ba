"""Run checks on a technique and collect one result per check."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.check.failure import CheckFailed
from testbed.check.subject import Subject

Check = Callable[[Subject], None]


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


def run(subject: Subject, checks: Iterable[Check]) -> Iterator[Result]:
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


def _line_of(error: Exception, subject: Subject) -> str:
    """Return ``"warm_hfa.py line 12: "``: the innermost line of the technique's own file, empty for others."""
    code = subject.axis.code_of(subject.kind)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.path]
    return f"{Path(code.path).name} line {lines[-1]}: " if code is not None and lines else ""
