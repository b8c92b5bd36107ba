"""Session tests: the launcher against a fake host process that writes given lines to its output."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.execution import session
from testbed.execution.host_process import HostProcess
from tests.results.fake_run import make_plan


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    """The host process of all sessions."""
    with subprocess.Popen(["cat"], stdin=-1, stdout=-1, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        started = HostProcess(process, partial(iter, process.stdout))
        monkeypatch.setattr(session, "_start", lambda plan, directory: started)
        yield started
        process.kill()


def test_a_host_that_cannot_be_recorded_is_ended(
    host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("emulation.journal.Journal.process", record)
    with pytest.raises(OSError, match="the disk is full"):
        session.run(make_plan(back_end="local"), tmp_path, lambda event: None)
    assert host.process.returncode == -signal.SIGKILL


def test_the_alarm_is_given_back(host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STOP_GRACE_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    assert session._stop(host, make_plan(back_end="local"), tmp_path, lambda event: None).status == "interrupted"
    assert signal.getsignal(signal.SIGALRM) == before


def test_what_a_library_prints_is_no_event_even_if_it_is_json() -> None:
    lines = ["3", "null", "{}", "[1]", "half a {", '{"kind": "stage", "name": "training"}']
    assert list(session._events(lines)) == [{"kind": "stage", "name": "training"}]
