"""One test of many small cases: ``@for_each`` is ``pytest.mark.parametrize`` in one test, set up once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run the test once for each case, in their order; the first failure names its case.

    Each case has a ``tmp_path`` and a ``monkeypatch`` of its own, and sees only its own output (``capsys``). Other
    fixtures are shared. A case that skips leaves out itself.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [_values(case, len(arguments)) for case in cases]
    assert values, "there is nothing to test"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = {name for name in signature.parameters if name not in arguments}

        @functools.wraps(test)
        def run(*positional: Any, **given: Any) -> None:
            skipped = []
            for number, case in enumerate(values):
                try:
                    with pytest.MonkeyPatch.context() as patch:
                        test(*positional, **_fresh(given, number, patch), **dict(zip(arguments, case, strict=True)))
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:
                    error.add_note(f"case {number}: {dict(zip(arguments, case, strict=True))}")
                    raise
            if len(skipped) == len(values):
                raise skipped[0]

        kept = [parameter for name, parameter in signature.parameters.items() if name in fixtures]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


def _values(case: Any, number: int) -> tuple[Any, ...]:
    if hasattr(case, "marks") and hasattr(case, "values"):
        assert not case.marks, "a case with a mark has to be a test of its own"
        return tuple(case.values)
    return (case,) if number == 1 else tuple(case)


def _fresh(given: dict[str, Any], number: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    own = dict(given)
    if "tmp_path" in own:
        own["tmp_path"] = given["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "monkeypatch" in own:
        own["monkeypatch"] = patch
    if "capsys" in own:
        own["capsys"].readouterr()
    return own
