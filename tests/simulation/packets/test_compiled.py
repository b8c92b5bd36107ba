"""Compiled packets are those of Python: the same events, times and draws, to the bit."""

from __future__ import annotations

import pytest

from testbed.simulation.packets import compiled, engine
from tests.simulation.packets.random_cases import Case, differing


def test_it_does_what_python_does() -> None:
    assert differing(range(12)) == []


def test_it_goes_on_where_python_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOAD_AFTER", 1500)
    assert differing(range(12, 20), compiled=None) == []


@pytest.mark.slow  # 90 s
def test_it_does_what_python_does_in_a_thousand_cases() -> None:
    assert differing(range(1000)) == []


def test_what_numba_has_not_kept_is_made_for_a_long_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_kept", lambda: False)
    monkeypatch.setattr(engine, "_LOAD_AFTER", 100)
    heard: list[tuple[bool, int]] = []
    for make_after in (1000, 10**6):
        monkeypatch.setattr(engine, "_MAKE_AFTER", make_after)
        case = Case(1, compiled=None)
        warned: list[str] = []
        case.network.engine.warn = warned.append
        case.result()
        heard.append((isinstance(case.network.engine.machine, compiled.CompiledMachine), len(warned)))
    assert heard == [(True, 1), (False, 0)]
