"""The watch of scripts lets ``faulthandler`` end a process whose script holds the interpreter, and no other."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.engine.script import watch
from testbed.results.failures import FailureFiles


class _Script:
    node = "a/worker0"
    thread = threading.main_thread()

    def fail(self, error: BaseException) -> None:
        raise error


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The calls of ``faulthandler``: after how many seconds it is to end the process; None where that is cancelled."""
    told: list[float | None] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda after_s, **_: told.append(after_s))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: told.append(None))
    monkeypatch.setattr(watch, "_INTERVAL_S", 0.001)
    return told


def _until(done: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 240
    while not done() and time.monotonic() < end_s:
        time.sleep(0.001)
    return done()


def _watch(folder: Path) -> watch.ScriptWatch:
    return watch.ScriptWatch(FailureFiles(folder, folder / "mine.py"), "process", own=True)


def test_a_hang_is_watched_for_in_turns_and_not_between_them(tmp_path: Path, calls: list[float | None]) -> None:
    watched = _watch(tmp_path)
    try:
        watched.begin_turn(_Script(), 60.0)
        assert calls == [61.0]
        watched.end_turn()
        assert _until(lambda: calls == [61.0, None]), "what waits for its peers may wait for as long as it likes"
        watched.begin_turn(_Script(), 30.0)
        assert calls == [61.0, None, 31.0]
    finally:
        watched.close()
    assert calls == [61.0, None, 31.0, None]


def test_turns_that_follow_each_other_put_the_deadline_off(
    tmp_path: Path, calls: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_WATCHED_ANEW_S", 0.0)
    watched = _watch(tmp_path)
    try:
        watched.begin_turn(_Script(), 60.0)
        assert _until(lambda: len(calls) > 2)
        assert set(calls) == {61.0}
    finally:
        watched.close()


def test_a_turn_costs_no_thread(tmp_path: Path, calls: list[float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_INTERVAL_S", 60.0)
    watched = _watch(tmp_path)
    try:
        for _ in range(10):
            watched.begin_turn(_Script(), 60.0)
            watched.end_turn()
        assert calls == [61.0]
    finally:
        watched.close()
