"""Virtual time: SimPy's environment with absolute times, an end-of-instant priority, and futures that roles can await.

A coroutine whose awaitables yield SimPy events is a SimPy process, so the engine's roles run here as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from simpy import Environment, Event
from simpy.core import EmptySchedule
from simpy.events import PENDING

T = TypeVar("T")
Callback = Callable[[Any], None]

NORMAL = 1
LOW = 2  # after everything else of the same instant


class _Call:
    """The least that SimPy's loop needs of an event: a callback at a time."""

    __slots__ = ("callbacks",)
    _ok = True
    _value = None

    def __init__(self, callback: Callback) -> None:
        self.callbacks: list[Callback] | None = [callback]


class Clock(Environment):  # type: ignore[misc]
    """SimPy's environment; times are absolute, so that coincident events stay coincident.

    ``now + (t - now)`` is not ``t`` in floating point; ``at`` never computes that. Background events (samples, traces,
    deadlines) keep nobody alive: when nothing else is left, the run has come to a stop.
    """

    def __init__(self, begin_s: float = 0.0) -> None:
        super().__init__(initial_time=begin_s)
        self.background = 0  # of the pending events, those that do not mean that the run advances
        self.pending = self._queue
        self.stalled = False  # set by the run while nothing but background events is left

    def step(self) -> None:
        """The next event. SimPy's own, less what only its failing and stopping events need: here are none."""
        try:
            self._now, _, _, event = heappop(self._queue)
        except IndexError:
            raise EmptySchedule from None
        callbacks, event.callbacks = event.callbacks, None
        for callback in callbacks:
            callback(event)

    def at(self, time_s: float, callback: Callback, priority: int = NORMAL) -> None:
        """Call ``callback(event)`` at that time; equal times in order of priority, then of this call."""
        heappush(self._queue, (time_s, priority, next(self._eid), _Call(callback)))

    def at_background(self, time_s: float, callback: Callback) -> None:
        """As ``at``, for an event that does not mean that the run advances."""
        self.background += 1
        self.at(time_s, lambda event: self._run_background(callback, event))

    def _run_background(self, callback: Callback, event: Any) -> None:
        self.background -= 1
        callback(event)


class VirtualFuture(Event, Generic[T]):  # type: ignore[misc]
    """A value that somebody will set once, as ``testbed.world.Future``; a SimPy event, so that processes wait for it.

    Errors travel beside SimPy's own failures, which would copy the exception and crash the loop when nobody awaits.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.error: BaseException | None = None

    def set_result(self, value: T, /) -> None:
        assert self._value is PENDING, "a future is set only once"
        self.succeed(value)

    def set_exception(self, error: BaseException, /) -> None:
        assert self._value is PENDING, "a future is set only once"
        self.error = error
        self.succeed(None)

    def done(self) -> bool:
        return self._value is not PENDING

    def result(self) -> T:
        """The value, or raises the error; only when done."""
        if self.error is not None:
            raise self.error
        value: T = self._value
        return value

    def __await__(self) -> Generator[Event, Any, T]:
        if self._value is PENDING:
            yield self
        return self.result()


class Sleep(Event):  # type: ignore[misc]
    """To be awaited once: until a given time."""

    def __init__(self, clock: Clock, until_s: float) -> None:
        super().__init__(clock)
        self._ok = True
        self._value = None
        heappush(clock._queue, (until_s, NORMAL, next(clock._eid), self))

    def __await__(self) -> Generator[Event, Any, None]:
        if self.callbacks is not None:  # not yet processed: it has had a value from the start
            yield self
