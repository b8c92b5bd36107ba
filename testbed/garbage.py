"""Settings of the garbage collector around runs, so that it does not scan long-lived objects again and again."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NODE_THRESHOLD = 10_000  # allocations; reference counting frees a node's messages long before
_RELAXED_THRESHOLD = 1_000_000  # allocations; a run makes hardly any garbage that only the collector finds
_GROWTH = 1.1  # growth of the process after which the garbage of earlier runs is collected


class _Blocks:
    """The number of allocated memory blocks of this process after the last collection here.

    Counting objects instead would take a hundred times as long: 20 ms if torch is imported.
    """

    process_id = os.getpid()
    collected = 0


def _freeze() -> None:
    """Freeze all present objects. If earlier runs may have left much garbage, collect it first.

    The collector would never scan frozen objects again by itself, as they do not count as new afterwards. So a process
    with many runs, or with a run that restarts often, would grow without end. In a forked process, no garbage is
    collected: see ``collect_after_fork``.
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
    """Make the collector skip all objects that exist now, as before a fork.

    Garbage among them is rarely collected before, as this would cost more than a short run. There is no effect inside
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
    """The number of active uses of ``relaxed_garbage_collection``, and the thresholds from before the first one."""

    lock = threading.Lock()
    uses = 0
    before: tuple[int, int, int]


@contextmanager
def relaxed_garbage_collection() -> Iterator[None]:
    """Make the collector skip the objects that exist now, and run rarely.

    Nested uses have no effect. If several threads use it, the last one to end restores the settings.
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
        gc.freeze()  # otherwise the next allocation would scan all objects that the block has left
        with _Relaxed.lock:
            _Relaxed.uses -= 1
            if not _Relaxed.uses:
                gc.set_threshold(*_Relaxed.before)
                gc.unfreeze()


def collect_after_fork() -> None:
    """Make the collector of a forked process run less often, and never scan the objects of its parent.

    Cyclic garbage is rare, and each scan takes time. Collecting garbage of the parent here could close descriptors that
    belong to other files of this process by then.
    """
    gc.freeze()
    gc.set_threshold(_NODE_THRESHOLD, *gc.get_threshold()[1:])


def collect_garbage() -> None:
    """Collect garbage now. Signals wait meanwhile, as an exception of a handler within a finalizer would be lost."""
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
