"""The event loop of a node: it wakes when a timer is due, and before other programs of a busy machine.

asyncio's own loop rounds its waits up to whole milliseconds, and Linux lets the timers of a thread be 50 us late. A
training round crosses a dozen nodes, one after the other, so each of them would make it longer by that.
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
    """epoll, whose own timeouts are whole milliseconds, with the timeouts of select(2), which are microseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            with suppress(ValueError):  # select(2) takes no descriptor above 1023
                select.select([self], [], [], timeout)
                timeout = 0
        return super().select(timeout)


def run_before_other_programs(role: str) -> None:
    """Let the calling thread, a node's event loop, run as soon as it has something to do (SCHED_FIFO; needs root).

    Else it waits for what computes on its core, up to 4 ms, whenever a message arrives. Threads that it starts later,
    in which the node computes, are scheduled as other programs are.
    """
    priority = os.sched_param(_PRIORITIES.get(role, _SERVERS_PRIORITY))
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, priority)
