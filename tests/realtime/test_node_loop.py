"""The event loop of a node: what it does with timeouts, and what it and the threads of the node are scheduled as."""

from __future__ import annotations

import os
import select
import threading

import pytest

from testbed.realtime.node_loop import PreciseSelector, run_before_other_programs


def test_timeouts_are_not_rounded_up_to_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []
    monkeypatch.setattr(select, "select", lambda read, write, failed, timeout: waits_s.append(timeout))
    with PreciseSelector() as selector:
        assert selector.select(0.0123456) == []
    assert waits_s == [0.0123456]


def test_only_the_event_loop_runs_before_other_programs() -> None:
    """In a thread of its own, as the test's process goes on after it."""
    found: list[int] = []

    def event_loop() -> None:
        try:
            run_before_other_programs("worker")
        except PermissionError:
            return
        found.append(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)
        compute = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        compute.start()
        compute.join()

    thread = threading.Thread(target=event_loop)
    thread.start()
    thread.join()
    if not found:
        pytest.skip("real-time priorities need root")
    assert found == [os.SCHED_FIFO, os.SCHED_OTHER]
