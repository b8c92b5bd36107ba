"""The processor of a node of an exact run: how long computing takes, where programs take no time by themselves.

With modelled times, computing takes what it does in simulated runs. With measured ones, codecs, sums, optimizers and
measured steps take what the machine's processor needed for them, which only the kernel of exact runs tells
(``host-cputime.patch``).
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
    """Return the event loop of a node of an exact run, for the calling thread, and prepare its process."""
    fill_memory_at_once()
    return precise_loop()


def fill_memory_at_once() -> None:
    """Get the pages of each mapping when it is made, from now on; in the kernel of exact runs only.

    There, to touch a page for the first time takes 16 us. And each one that does not follow its neighbour in the
    guest's memory, as those of tensors that are filled together, is a mapping of its own on the machine. Of these a
    process may have 65 530 (``vm.max_map_count``), beyond which the kernel makes and removes them for ever.
    """
    if Path(_HOST_CPUTIME).exists() and ctypes.CDLL(None, use_errno=True).mlockall(_MCL_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose timers are exact to the microsecond, for the calling thread.

    Those of ``epoll`` are up to 1 ms late, and Linux lets a thread's timers be 50 us late, as long as a message costs.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return asyncio.SelectorEventLoop(_YieldingSelector())


class _YieldingSelector(selectors.SelectSelector):
    """Lets the other nodes have the processor that they share in the kernel of exact runs.

    A system call takes time there, and one that is made for each packet takes all of it at 10 Gbit/s: without yielding,
    the process that reads has the processor for a slice of 3 ms, while nodes that have a processor of their own wait.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        os.sched_yield()
        try:
            return super().select(timeout)
        except ValueError:  # select(2) takes no descriptor above 1023
            return self._poll(timeout)

    def _poll(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Do what ``select`` does, by ppoll(2): the timeouts of ``select.poll`` are whole milliseconds."""
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
    """Return what a descriptor is ready for: one that has ended, for all."""
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
    """Return the value of ``function``, and the seconds that the machine's processor worked for it in an exact run.

    The clock is that of this process, all threads. But virtual time stands still while a thread computes, so no other
    one works meanwhile, unless the first one waits.
    """
    begin_ns = _processor_ns()
    value = function()
    return value, (_processor_ns() - begin_ns) / 1e9


def processor_clock() -> Callable[[], float]:
    """Return a clock of the calling thread's processor time, in s; in an exact run's kernel the host's clock of it."""
    return (lambda: _processor_ns() / 1e9) if Path(_HOST_CPUTIME).exists() else time.thread_time


def _processor_ns() -> int:
    return int(os.pread(_processor_clock(), 32, 0))


@cache
def _processor_clock() -> int:
    """Return a descriptor, which forked processes may use, too: it tells the time of the process that reads it."""
    return os.open(_HOST_CPUTIME, os.O_RDONLY | os.O_CLOEXEC)


class Cores:
    """Two cores: one trains, sums and optimizes, the other runs codecs.

    Each does one piece of work at a time, in the order of the calls. ``now`` is the world's clock, in s. ``measured``:
    what is no training step takes its real time, else that of the model.
    """

    def __init__(self, model: ComputeModel, now: Callable[[], float], measured: bool = False) -> None:
        self._model = model
        self._now = now
        self.measured = measured
        self.copies_cost = measured or model.copies_cost
        self._free_s = {True: 0.0, False: 0.0}  # by whether it is the core of codecs: when it has done its work

    async def free(self) -> None:
        """Wait until the core that trains has done its work."""
        while (left_s := self._free_s[False] - self._now()) > 0:
            await asyncio.sleep(left_s)

    def step_until(self, end_s: float) -> None:
        """Note that the core that trains does a step until then: sums and optimizers wait for its end, as simulated."""
        self._free_s[False] = max(self._free_s[False], end_s)

    async def spend(self, work: Work, pacer: Pacer, real_s: float) -> float:
        """Take the time of a piece of work that is no training step; return that time, in s.

        real_s  that the machine's processor worked for it
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
        """Take the time from the arrival of a message until the role has it."""
        await asyncio.sleep(self._model.message_cost_s)
