"""The thread that makes all MPI calls of a worker. MPI moves bytes only while it is called (its "progress").

MPICH's own waiting polls and keeps a core busy, and here many workers share few cores. So this thread sleeps until
data have arrived on MPI's connections, or until ``BUSY_MS`` have passed, in which full send buffers may have drained.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from testbed.errors import RunFailed

GAP_S = 1e-4  # least time between two MPI calls: data for a later operation stay unread and keep the poll ready
BUSY_MS = 2  # most time between two MPI calls while an operation is under way
IDLE_MS = 50  # and while none is: this rank may still hold data that others wait for


class MpiProgress:
    """Made inside the event loop; ends with the process. ``idle``, once set, is called while nothing is under way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.idle: Callable[[], object] = lambda: None
        self._new: deque[tuple[Callable[[], Any], asyncio.Future[None]]] = deque()
        self._running: list[tuple[Any, asyncio.Future[None]]] = []  # requests
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._busy, self._awaiting_jobs = select.poll(), select.poll()
        for poll in (self._busy, self._awaiting_jobs):
            poll.register(self._wake, select.POLLIN)
        threading.Thread(target=self._run, name="mpi", daemon=True).start()

    def start(self, begin: Callable[[], Any]) -> asyncio.Future[None]:
        """Begin an operation after all earlier ones; the future is done when it is.

        ``begin`` is called in the thread. It returns a request (``Test``), or None when there is nothing to wait for.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._new.append((begin, done))
        os.eventfd_write(self._wake, 1)
        return done

    def listen_to(self, descriptors: Iterable[int]) -> None:
        """Call MPI when data arrive on these while an operation is under way. To be called while none is."""
        for descriptor in descriptors:
            self._busy.register(descriptor, select.POLLIN | select.POLLRDHUP)

    def _run(self) -> None:
        pause_ms = IDLE_MS
        while True:
            self._sleep(pause_ms)
            while self._new:
                self._begin(*self._new.popleft())
            self._look()
            pause_ms = BUSY_MS if self._running else min(IDLE_MS, 2 * pause_ms)

    def _sleep(self, at_most_ms: int) -> None:
        if self._running:
            time.sleep(GAP_S)
            for descriptor, what in self._busy.poll(at_most_ms):
                if what != select.POLLIN:
                    self._busy.unregister(descriptor)  # closed by the other end, it would stay ready
        else:
            self._awaiting_jobs.poll(at_most_ms)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _begin(self, begin: Callable[[], Any], done: asyncio.Future[None]) -> None:
        try:
            request = begin()
        except Exception as error:
            self._end(done, error)
            return
        if request is None:
            self._end(done)
        else:
            self._running.append((request, done))

    def _look(self) -> None:
        if not self._running:
            with suppress(Exception):  # an operation gets the error, when there is one
                self.idle()
        self._running = [(request, done) for request, done in self._running if not self._ended(request, done)]

    def _ended(self, request: Any, done: asyncio.Future[None]) -> bool:
        try:
            if not request.Test():
                return False
        except Exception as error:
            self._end(done, error)
        else:
            self._end(done)
        return True

    def _end(self, done: asyncio.Future[None], error: Exception | None = None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error if isinstance(error, RunFailed) else RunFailed(f"MPI: {error}"))
