"""A coroutine that runs in virtual time: SimPy's process, less what only its interrupts and failures need.

An awaitable yields the event that it waits for, and only one that has not happened yet. Whoever is spawned runs at the
end of the present instant's urgent events, as a SimPy process does, and nothing happens when it has ended but
``on_end``. Half as many events as with SimPy's own, which begin and end with one each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from heapq import heappush
from typing import Any

from simpy import Event
from simpy.events import URGENT

from testbed.simulation.clock import Clock


def _nothing(_: Any) -> None:
    pass


class Fiber:
    """``on_end`` is called with it when the coroutine has returned; the coroutine must not raise."""

    __slots__ = ("_clock", "_on_end", "_send", "closed", "coroutine", "resume", "target")

    def __init__(self, clock: Clock, coroutine: Coroutine[Event, Any, None], on_end: Callable[[Fiber], None]) -> None:
        self._clock, self.coroutine, self._on_end = clock, coroutine, on_end
        self._send = coroutine.send
        self.resume: Callable[[Any], None] = self._resume  # one object, so that it is found among callbacks
        self.target: Event | None = None  # what it waits for
        self.closed = False
        heappush(clock._queue, (clock.now, URGENT, next(clock._eid), self.resume))

    def _resume(self, _: Any) -> None:
        if self.closed:
            return
        clock = self._clock
        before, clock.running = clock.running, self
        try:
            target = self._send(None)
        except StopIteration:
            self._end()
            self._on_end(self)
        else:
            target.callbacks.append(self.resume)
            self.target = target
        finally:
            clock.running = before

    def leave_target(self) -> None:
        """Do not wait any longer for what it waits for."""
        if self.target is not None and self.target.callbacks and self.resume in self.target.callbacks:
            self.target.callbacks.remove(self.resume)

    def close(self) -> None:
        """End it where it stands."""
        self.leave_target()
        self._end()
        self.coroutine.close()

    def _end(self) -> None:
        self.closed, self.target = True, None
        self.resume = _nothing  # else it and its method would keep each other alive
