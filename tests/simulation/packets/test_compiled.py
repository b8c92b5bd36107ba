"""Compiled packets are those of Python: the same events, times and draws, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import CapabilityError
from testbed.simulation.machine import compiled, engine
from testbed.simulation.machine.machine import LOADED
from testbed.simulation.packets.compiled import compiled_enter
from testbed.simulation.packets.program import PROGRAM
from tests.for_each import for_each
from tests.simulation.packets.random_cases import Case, differing


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier test of this process may have loaded the compiled network."""
    monkeypatch.setattr(engine, "LOADED", set())


def test_it_does_what_python_does() -> None:
    assert differing(range(12)) == []


def test_it_is_compiled() -> None:
    engine = Case(0, compiled=True).network.engine
    assert isinstance(engine.machine, compiled.CompiledMachine)
    assert engine.net.most_events == 20_000, "a call of compiled code is worth many events"


def test_it_goes_on_where_python_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOAD_AFTER", 1500)
    assert differing(range(12, 20), compiled=None) == []


@pytest.mark.slow  # 90 s
def test_it_does_what_python_does_in_a_thousand_cases() -> None:
    assert differing(range(1000)) == []


def test_what_numba_has_not_kept_is_made_for_a_long_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_kept", lambda program: False)
    monkeypatch.setattr(engine, "LOAD_AFTER", 100)
    heard: list[tuple[bool, int]] = []
    for make_after in (1000, 10**6):
        monkeypatch.setattr(engine, "MAKE_AFTER", make_after)
        case = Case(1, compiled=None)
        warned: list[str] = []
        case.network.engine.warn = warned.append
        case.result()
        heard.append((isinstance(case.network.engine.machine, compiled.CompiledMachine), len(warned)))
    assert heard == [(True, 1), (False, 0)]


@for_each("packets", [0, 10**6])
def test_where_many_packets_are_predicted_none_is_left_to_python(packets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_kept", lambda program: True)
    case = Case(1, compiled=None)
    case.network.engine.expect(packets)
    case.result()
    assert isinstance(case.network.engine.machine, compiled.CompiledMachine) == (packets > 0)


def test_what_is_loaded_is_used_from_the_first_event_on(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.compiled_by_numba(compiled_enter)
    monkeypatch.setattr(engine, "LOADED", LOADED)
    case = Case(1, compiled=None)
    case.result()
    assert isinstance(case.network.engine.machine, compiled.CompiledMachine)
    assert case.result() == Case(1, compiled=False).result()


def test_where_numba_can_keep_nothing_python_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(make: object) -> None:
        raise CapabilityError("no folder can be written to")

    monkeypatch.setattr(compiled, "compiled_by_numba", fail)
    monkeypatch.setattr(engine, "LOAD_AFTER", 100)
    case = Case(1, compiled=None)
    warned: list[str] = []
    case.network.engine.warn = warned.append
    assert case.result() == Case(1, compiled=False).result()
    assert len(warned) == 1
    assert warned[0].endswith("no folder can be written to")


def test_code_is_kept_in_the_users_cache_where_the_sources_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    marks = [Path("/proc/none/packets.kept"), tmp_path / "testbed" / "packets.kept"]
    monkeypatch.setattr(compiled, "marks", lambda program: marks)
    assert not compiled.is_kept(PROGRAM)
    compiled._note_kept(PROGRAM)
    assert compiled.is_kept(PROGRAM)
    assert marks[1].exists()
