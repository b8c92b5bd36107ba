"""The garbage collector around runs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from testbed.garbage import collect_after_fork, collect_garbage

ROOT = Path(__file__).parents[2]


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
