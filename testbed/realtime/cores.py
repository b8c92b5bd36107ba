"""The processor of a node of an exact run: how long computation takes where programs themselves take no time.

With modelled times, computation takes as long as in simulated runs. With measured times, codecs, sums, optimizers and
measured steps take the time that the machine's processor needed for them. Only the kernel of exact runs reports that
time (``host-cputime.patch``).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import select
import selectors
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from testbed.compute_model import ComputeModel
from testbed.costs import CODING
from testbed.plan.pace import Pacer
from testbed.world import Work

T = TypeVar("T")
_HOST_CPUTIME = "/proc/host_cputime"
_PR_SET_TIMERSLACK = 29  # nanoseconds (linux/prctl.h)
_MCL_FUTURE = 2  # of mlockall (asm-generic/mman.h)
_POLLED = {
    selectors.EVENT_READ: select.POLLIN,
    selectors.EVENT_WRITE: select.POLLOUT,
    selectors.EVENT_READ | selectors.EVENT_WRITE: select.POLLIN | select.POLLOUT,
}


def exact_loop() -> asyncio.AbstractEventLoop:
    """Prepare the process of a node of an exact run; return an event loop for the calling thread."""
    fill_memory_at_once()
    return precise_loop()


def fill_memory_at_once() -> None:
    """In the kernel of exact runs, allocate the pages of each new mapping at once from now on. Elsewhere do nothing.

    In that kernel, the first access to a page takes 16 us. And each page that does not follow its neighbour in the
    guest's memory becomes a separate mapping on the machine; this happens when several tensors are filled at the same
    time. A process may have 65 530 mappings (``vm.max_map_count``); beyond that, the kernel makes and removes them
    without end.
    """
    if Path(_HOST_CPUTIME).exists() and ctypes.CDLL(None, use_errno=True).mlockall(_MCL_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose timers are exact to the microsecond, for the calling thread.

    Timers of ``epoll`` are up to 1 ms late, and Linux by default lets a thread's timers be 50 us late, which is as long
    as a message takes.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return asyncio.SelectorEventLoop(_YieldingSelector())


class _YieldingSelector(selectors.SelectSelector):
    """Yields to the other nodes, which share one processor in the kernel of exact runs.

    A system call takes time in that kernel. At 10 Gbit/s, a reader that makes one for each packet uses all processor
    time: without yielding, it would keep the processor for a slice of 3 ms, while other nodes, which are modelled with
    processors of their own, would wait.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        os.sched_yield()
        try:
            return super().select(timeout)
        except ValueError:  # select(2) takes no descriptor above 1023
            return self._poll(timeout)

    def _poll(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Do what ``select`` does, with ppoll(2), because the timeouts of ``select.poll`` are whole milliseconds."""
        keys = list(self.get_map().values())
        watched = (_Watched * len(keys))(*(_Watched(key.fd, _POLLED[key.events]) for key in keys))
        limit = None if timeout_s is None else _Timespec(*divmod(round(max(0.0, timeout_s) * 1e9), 10**9))
        if ctypes.CDLL(None, use_errno=True).ppoll(watched, len(keys), limit and ctypes.byref(limit), None) < 0:
            if ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "ppoll")
            return []
        ready = ((key, key.events & _events(each.revents)) for key, each in zip(keys, watched, strict=True))
        return [(key, events) for key, events in ready if events]


def _events(found: int) -> int:
    """Return the selector events of a descriptor; one that has ended or failed is ready for reading and writing."""
    can_read = bool(found & ~select.POLLOUT)
    can_write = bool(found & ~select.POLLIN)
    return can_read * selectors.EVENT_READ | can_write * selectors.EVENT_WRITE


class _Watched(ctypes.Structure):
    """``struct pollfd``"""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class _Timespec(ctypes.Structure):
    """``struct timespec``"""

    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def processor_timed(function: Callable[[], T]) -> tuple[T, float]:
    """In an exact run, return the value of ``function`` and the processor time of the machine that it took, in s.

    The clock counts all threads of this process. But virtual time stands still while a thread computes, so no other
    thread runs meanwhile unless this one waits.
    """
    begin_ns = _processor_ns()
    value = function()
    return value, (_processor_ns() - begin_ns) / 1e9


def processor_clock() -> Callable[[], float]:
    """Return a clock of the thread's processor time, in s; in the kernel of exact runs, of the process' on the host."""
    return (lambda: _processor_ns() / 1e9) if Path(_HOST_CPUTIME).exists() else time.thread_time


def _processor_ns() -> int:
    return int(os.pread(_processor_clock(), 32, 0))


@cache
def _processor_clock() -> int:
    """Return a descriptor of the clock. Forked processes may use it, too: each reads its own time."""
    return os.open(_HOST_CPUTIME, os.O_RDONLY | os.O_CLOEXEC)


class Cores:
    """Two cores: one trains, sums and optimizes, the other runs codecs.

    Each does one piece of work at a time, in the order of the calls. ``now`` is the world's clock, in s. ``measured``
    says whether work other than training steps takes its real time; else it takes the time of the model.
    """

    def __init__(self, model: ComputeModel, now: Callable[[], float], measured: bool = False) -> None:
        self._model = model
        self._now = now
        self.measured = measured
        self.copies_cost = measured or model.copies_cost
        self._free_s = {True: 0.0, False: 0.0}  # when the core of codecs (True), and the other one, becomes free

    async def free(self) -> None:
        """Wait until the core that trains is free."""
        while (left_s := self._free_s[False] - self._now()) > 0:
            await asyncio.sleep(left_s)

    def step_until(self, end_s: float) -> None:
        """Keep the core that trains busy with a step until ``end_s``: sums and optimizers wait, as in simulations."""
        self._free_s[False] = max(self._free_s[False], end_s)

    async def spend(self, work: Work, pacer: Pacer, real_s: float) -> float:
        """Wait as long as a piece of work other than a training step takes; return its duration, in s.

        real_s  processor time of the machine that the work took
        """
        core = work.kind in CODING
        now_s = self._now()
        if self.measured:
            duration_s = real_s / pacer.codec_speed if core else real_s
        else:
            duration_s = self._model.duration_s(work, pacer, now_s)
        end_s = self._free_s[core] = max(now_s, self._free_s[core]) + duration_s
        await asyncio.sleep(end_s - now_s)
        return duration_s

    async def read_message(self) -> None:
        """Wait as long as a node takes to pass an arrived message to its role."""
        await asyncio.sleep(self._model.message_cost_s)
