"""The garbage collector around runs: objects that live as long as the process are not looked at again and again."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NODE_THRESHOLD = 10_000  # allocations: a node's messages are garbage of reference counts long before
_RELAXED_THRESHOLD = 1_000_000  # allocations; hardly anything in a run is garbage that only the collector finds
_GROWTH = 1.1  # of a process, after which what earlier runs have left is collected


class _Blocks:
    """How many blocks of memory the objects of this process had when garbage was last collected here.

    To count the objects themselves takes a hundred times as long: 20 ms where torch is imported.
    """

    process_id = os.getpid()
    collected = 0


def _freeze() -> None:
    """Freeze all objects of now, without the garbage that earlier runs have left, if there may be much of it.

    What was frozen once does not count as new afterwards, so the collector itself would never look at it again: a
    process with many runs, or one whose run restarts often, would grow without end. No garbage is collected in a
    forked process: see ``collect_after_fork``.
    """
    gc.freeze()
    if os.getpid() != _Blocks.process_id:
        return
    count = sys.getallocatedblocks()
    if count > _GROWTH * _Blocks.collected:
        if _Blocks.collected:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            count = sys.getallocatedblocks()
        _Blocks.collected = count


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Let the collector pass over all objects of now, as before a fork.

    Seldom are they looked at before, which would cost more than a short run. No effect inside
    ``relaxed_garbage_collection``.
    """
    if gc.get_threshold()[0] == _RELAXED_THRESHOLD:
        yield
        return
    _freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Relaxed:
    """Uses of ``relaxed_garbage_collection`` under way, and the thresholds from before the first."""

    lock = threading.Lock()
    uses = 0
    before: tuple[int, int, int]


@contextmanager
def relaxed_garbage_collection() -> Iterator[None]:
    """Let the collector pass over the objects that exist now, and run seldom.

    Nested uses have no effect. Of those in several threads, the last to end restores what the first has found.
    """
    with _Relaxed.lock:
        if not _Relaxed.uses:
            _freeze()
            _Relaxed.before = gc.get_threshold()
            gc.set_threshold(_RELAXED_THRESHOLD, *_Relaxed.before[1:])
        _Relaxed.uses += 1
    try:
        yield
    finally:
        gc.freeze()  # else the next allocation would look at all that the block has left
        with _Relaxed.lock:
            _Relaxed.uses -= 1
            if not _Relaxed.uses:
                gc.set_threshold(*_Relaxed.before)
                gc.unfreeze()


def collect_after_fork() -> None:
    """Let the collector of a forked process run less often, and never look at what its parent has left.

    What it looks for is rare, and looking costs each time. Garbage of the parent, collected here, would close files
    whose descriptors belong to other files of this process by then.
    """
    gc.freeze()
    gc.set_threshold(_NODE_THRESHOLD, *gc.get_threshold()[1:])


def collect_garbage() -> None:
    """Collect garbage now. Signals wait meanwhile: what a handler raises within a finalizer would be lost."""
    came: list[signal.Signals] = []
    # not by a mask: the kernel would give the signal to another thread, and the main one would run the handler
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    held = before if threading.current_thread() is threading.main_thread() else {}  # others run no handlers
    for number in held:
        signal.signal(number, lambda number, _: came.append(signal.Signals(number)))
    try:
        gc.collect()
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)
