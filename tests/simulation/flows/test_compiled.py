"""Compiled flows are those of Python: the same events and times, to the bit."""

from __future__ import annotations

import pytest

from testbed.simulation.machine import compiled, engine
from tests.simulation.flows.random_cases import Case, differing


def test_they_do_what_python_does() -> None:
    assert differing(range(20)) == []


def test_they_are_compiled() -> None:
    assert Case(0, compiled=True).flows.is_compiled


def test_they_go_on_where_python_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOADED", set())
    monkeypatch.setattr(engine, "LOAD_AFTER", 30)
    monkeypatch.setattr(compiled, "is_kept", lambda program: True)
    assert differing(range(20, 32), compiled=None) == []


@pytest.mark.slow  # 20 s
def test_they_do_what_python_does_in_a_thousand_cases() -> None:
    assert differing(range(1000)) == []
