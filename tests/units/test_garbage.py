"""The garbage collector around runs."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from testbed import garbage
from testbed.garbage import collect_after_fork, collect_garbage, relaxed_garbage_collection

ROOT = Path(__file__).parents[2]


def test_the_end_of_a_run_does_not_look_at_what_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_GROWTH", math.inf)  # else what earlier tests have left is looked for, for seconds
    monkeypatch.setattr(garbage, "_Relaxed", type("Unused", (garbage._Relaxed,), {"uses": 0}))
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    looked: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        looked.append(about["generation"])

    gc.set_threshold(700, 10, 10)  # whatever the suite has chosen
    try:
        with relaxed_garbage_collection():
            left = [[number] for number in range(20_000)]
            gc.callbacks.append(note)
        more = [[number] for number in range(100)]
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        if frozen:  # by the suite
            gc.freeze()
    assert not looked, f"{len(left) + len(more)} objects were looked at"


def test_runs_in_several_threads_leave_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has begun first need not end last."""
    monkeypatch.setattr(garbage, "_GROWTH", math.inf)
    monkeypatch.setattr(garbage, "_Relaxed", type("Unused", (garbage._Relaxed,), {"uses": 0}))
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(700, 10, 10)
    try:
        first, second = relaxed_garbage_collection(), relaxed_garbage_collection()
        for use in (first, second):
            use.__enter__()
        first.__exit__(None, None, None)
        assert gc.get_threshold()[0] > 700, "the second still runs"
        second.__exit__(None, None, None)
        assert gc.get_threshold() == (700, 10, 10) and not gc.get_freeze_count()
    finally:
        gc.set_threshold(*before)
        if frozen:  # by the suite
            gc.freeze()


MANY_RUNS = """
import gc, weakref
from testbed.garbage import frozen_garbage, relaxed_garbage_collection

class Left:
    def __init__(self):
        self.itself = self  # only the collector finds it

left = weakref.WeakSet()
with frozen_garbage():
    size = gc.get_freeze_count() // 20
for _ in range(6):  # each adds a twentieth of the objects that there were, and a tenth more are looked for
    with relaxed_garbage_collection():
        left.update(Left() for _ in range(size))
assert 0 < len(left) < 4 * size, (len(left), size)
"""


def test_what_many_runs_leave_in_cycles_is_collected() -> None:
    """In a process of few objects: this one has millions, and to look at them once takes a second."""
    subprocess.run([sys.executable, "-c", MANY_RUNS], cwd=ROOT, check=True, timeout=240)


def test_garbage_of_the_parent_closes_no_file_of_a_forked_process() -> None:
    with tempfile.TemporaryFile() as other:
        gc.disable()
        try:
            held = os.open(os.devnull, os.O_RDONLY)
            cycle: list[object] = [os.fdopen(held)]
            cycle.append(cycle)  # garbage that only the collector finds
            del cycle
            child = os.fork()
            if child == 0:
                _end_with(other.fileno(), held)
        finally:
            gc.enable()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gc.collect()


def _end_with(other: int, descriptor: int) -> None:
    """Exit with 0 if the collector leaves a descriptor that this process uses for another file."""
    status = 1
    try:
        os.dup2(other, descriptor)
        collect_after_fork()
        gc.collect()
        os.fstat(descriptor)
        status = 0
    finally:
        os._exit(status)


class Interrupting:
    """In a cycle; Ctrl-C comes while it is finalised."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # handlers run between bytecodes


def test_a_signal_during_a_collection_is_not_lost() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background
    try:
        Interrupting()
        with pytest.raises(KeyboardInterrupt):
            collect_garbage()
    finally:
        signal.signal(signal.SIGINT, before)
