"""The event log: what survives a kill, several processes of one node, threads, and how times are rounded."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.results import events
from testbed.results.events import EventLog, microseconds, parts, read
from tests.for_each import for_each


def test_what_is_half_a_second_old_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, whose clock goes on by five milliseconds whenever it is read."""
    pid = os.fork()
    if pid == 0:
        clock = itertools.count()
        monkeypatch.setattr(events.time, "monotonic", lambda: next(clock) * 0.005)
        log = EventLog(tmp_path, "a/worker0")
        for number in range(300):
            log.write("round", number * 0.005, round=0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    times = [event["t"] for event in read(tmp_path)]
    assert len(times) > 100 and times == sorted(times)
    assert max(times) > 300 * 0.005 - 0.5


@for_each("many", [False, True])
def test_logs_beside_each_other_share_a_file_and_threads_a_log(tmp_path: Path, many: bool) -> None:
    shared = EventLog(tmp_path, "simulation", many=many)
    logs = [EventLog(tmp_path, f"a/worker{number}", beside=shared) for number in range(4)]

    def write(log: EventLog) -> None:
        for number in range(2000):
            log.write("round", number * 0.001, round=number)
            if number % 100 == 0:
                log.flush()

    threads = [threading.Thread(target=write, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    (part,) = parts(tmp_path)
    assert part.name.startswith("simulation.")
    for number in range(4):
        assert [event["round"] for event in read(tmp_path, f"a/worker{number}")] == list(range(2000))


class _FullDisk(io.FileIO):
    """A file on a disk with room for so many bytes: the kernel takes those first, and says nothing."""

    room = 0

    def write(self, data: Any) -> int:
        if not _FullDisk.room:
            raise OSError(28, "full")
        taken = bytes(data)[: _FullDisk.room]
        _FullDisk.room -= len(taken)
        return super().write(taken)


@for_each("part_bytes", [1, events.PART_BYTES])
@for_each("room", [1, 40, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 100, 120])
def test_a_disk_that_becomes_full_loses_no_event_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, part_bytes: int
) -> None:
    """Wherever it becomes full: within the lines, or within the end of a part."""
    monkeypatch.setattr(events, "PART_BYTES", part_bytes)
    log = EventLog(tmp_path, "a/worker0")
    _FullDisk.room = room
    with monkeypatch.context() as patched:
        patched.setattr(events, "open", lambda path, *_, **__: _FullDisk(path, "ab"), raising=False)
        for number in range(3):
            with contextlib.suppress(OSError):
                log.write("round", float(number), round=number, loss=math.sqrt(number))
                log.flush()
        assert not _FullDisk.room
    log.write("round", 3.0, round=3)
    log.close()
    assert [event["round"] for event in read(tmp_path)] == [0, 1, 2, 3]


@for_each("many", [False, True])
def test_a_path_that_is_no_utf8_is_written_with_escapes(many: bool, tmp_path: Path) -> None:
    """A warning that names such a file must not end its node, nor damage the events around it."""
    log = EventLog(tmp_path, "a/scheduler", many=many)
    log.write("round", 1.0, round=0)
    log.write("warning", 2.0, message="no checkpoint: /runs/gr\udcfcn")
    log.write("round", 3.0, round=1)
    log.close()
    told = [event.get("message", event.get("round")) for event in read(tmp_path)]
    assert told == [0, "no checkpoint: /runs/gr\\udcfcn", 1]


@given(st.one_of(st.floats(0, 1e3), st.floats(0, 1e12), st.floats(-1, 1)))
def test_any_time_is_rounded_as_python_rounds(t: float) -> None:
    assert microseconds(t) == round(t, 6)


@given(st.integers(0, 10**14), st.integers(-4, 4))
def test_also_about_half_way_between_two_microseconds(whole: int, steps: int) -> None:
    t = (whole + 0.5) / 1e6
    for _ in range(abs(steps)):
        t = math.nextafter(t, math.copysign(math.inf, steps))
    assert microseconds(t) == round(t, 6)
