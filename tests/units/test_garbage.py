"""The garbage collector around runs."""

from __future__ import annotations

import gc
import math
import os
import tempfile
import weakref

import pytest

from testbed import garbage
from testbed.garbage import collect_after_fork, frozen_garbage, relaxed_garbage_collection


def test_the_end_of_a_run_does_not_look_at_what_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_GROWTH", math.inf)  # else what earlier tests have left is looked for, for seconds
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


def test_what_many_runs_leave_in_cycles_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a smaller growth than a run's: this process has millions of objects, and a tenth of them takes seconds."""
    monkeypatch.setattr(garbage, "_GROWTH", 1.01)
    before, frozen, left = gc.get_threshold(), gc.get_freeze_count(), weakref.WeakSet[_Left]()
    gc.set_threshold(700, 10, 10)  # whatever the suite has chosen
    try:
        with frozen_garbage():
            size = gc.get_freeze_count() // 200
        for _ in range(6):  # each adds half a hundredth of the objects that there were
            with relaxed_garbage_collection():
                left.update(_Left() for _ in range(size))
        assert 0 < len(left) < 4 * size
    finally:
        gc.set_threshold(*before)
        if frozen:  # by the suite
            gc.freeze()


class _Left:
    """An object that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


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
