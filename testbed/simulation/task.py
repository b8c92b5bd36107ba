"""A coroutine that runs in virtual time: SimPy's process, less what only its interrupts need.

An awaitable yields the event that it waits for, and only one that has not happened yet. Whoever is spawned runs at the
end of the present instant's urgent events, as a SimPy process does, and nothing happens when it has ended but
``on_end``. Half as many events as with SimPy's own, which begin and end with one each; and what the coroutine raises
is handed over, where SimPy's would copy it and end the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from heapq import heappush
from typing import Any

from simpy.events import URGENT

from testbed.simulation.clock import Clock, VirtualFuture

OnEnd = Callable[["Task", Any, BaseException | None], None]


def _nothing(_: Any) -> None:
    pass


class Task:
    """``on_end(fiber, result, error)`` is called when the coroutine has ended. ``of``: its maker's own."""

    __slots__ = ("_clock", "_on_end", "_send", "closed", "coroutine", "of", "resume", "target")

    def __init__(
        self, clock: Clock, coroutine: Coroutine[VirtualFuture[Any] | None, Any, Any], on_end: OnEnd, of: Any = None
    ) -> None:
        self._clock, self.coroutine, self._on_end, self.of = clock, coroutine, on_end, of
        self._send = coroutine.send
        self.resume: Callable[[Any], None] = self._resume  # one object, so that it is found among callbacks
        self.target: VirtualFuture[Any] | None = None  # what it waits for; not when it sleeps
        self.closed = False
        heappush(clock._queue, (clock.now, URGENT, next(clock._eid), self.resume, None))

    def _resume(self, _: Any) -> None:
        if self.closed:
            return
        clock = self._clock
        before, clock.running = clock.running, self
        try:
            target = self.target = self._send(None)
            if target is not None:  # else it sleeps
                target.callbacks.append(self.resume)
        except StopIteration as stop:
            self._end(stop.value, None)
        except (Exception, KeyboardInterrupt) as error:
            self._end(None, error)
        finally:
            clock.running = before

    def leave_target(self) -> None:
        """Do not wait any longer for what it waits for."""
        if self.target is not None and self.target.callbacks and self.resume in self.target.callbacks:
            self.target.callbacks.remove(self.resume)

    def close(self) -> None:
        """End it where it stands; nobody is told."""
        self.leave_target()
        self._forget()
        self.coroutine.close()

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._forget()
        self._on_end(self, result, error)

    def _forget(self) -> None:
        self.closed, self.target = True, None
        self.resume = _nothing  # else it and its method would keep each other alive
