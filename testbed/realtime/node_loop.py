"""The event loop of a node: it wakes exactly when a timer is due, and on request before other programs of the machine.

asyncio's own loop rounds its waits up to whole milliseconds, and Linux lets the timers of a thread be 50 us late. A
training round passes through a dozen nodes one after the other, and each delay would make it longer.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import selectors
from contextlib import suppress

_PR_SET_TIMERSLACK = 29  # nanoseconds (linux/prctl.h)
_PRIORITIES = {"worker": 10}  # SCHED_FIFO, below all helpers of an emulation; servers do not wait for workers
_SERVERS_PRIORITY = 11


def node_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose timers are exact to some microseconds, for the calling thread."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return asyncio.SelectorEventLoop(PreciseSelector())


class PreciseSelector(selectors.EpollSelector):
    """epoll with the timeouts of select(2), in microseconds; the timeouts of epoll itself are whole milliseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            with suppress(ValueError):  # select(2) takes no descriptor above 1023
                select.select([self], [], [], timeout)
                timeout = 0
        return super().select(timeout)


def run_before_other_programs(role: str) -> None:
    """Let the calling thread, a node's event loop, run as soon as it has work (SCHED_FIFO; needs root).

    Otherwise it would wait up to 4 ms for the program that computes on its core whenever a message arrives. Threads
    that it starts later, in which the node computes, are scheduled like other programs.
    """
    priority = os.sched_param(_PRIORITIES.get(role, _SERVERS_PRIORITY))
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, priority)
