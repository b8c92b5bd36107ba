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


class _Happened:
    """What a plain callback is given in the place of an event: one that went well, with no value."""

    _ok = True
    _value = None


_HAPPENED = _Happened()


class Clock(Environment):  # type: ignore[misc]
    """SimPy's environment; times are absolute, so that coincident events stay coincident.

    ``now + (t - now)`` is not ``t`` in floating point; ``at`` never computes that. Background events (samples, traces,
    deadlines) keep nobody alive: when nothing else is left, the run has come to a stop. In the queue stand SimPy's
    events, and plain callbacks, which cost much less.
    """

    now: float = 0.0  # as SimPy's property, which is a call each time

    def __init__(self, begin_s: float = 0.0) -> None:
        super().__init__(initial_time=begin_s)
        self.now = begin_s
        self.background = 0  # of the pending events, those that do not mean that the run advances
        self.pending = self._queue
        self.closing: list[Callback] = []  # to be called at the end of this instant
        self.stalled = False  # set by the run while nothing but background events is left
        self.on_background: Callable[[], None] = lambda: None  # called before and after each of them
        self.running: Any = None  # the fiber that runs
        self.over = False  # set by the run: nothing more is to happen

    def step(self) -> None:
        """The next event. SimPy's own, less what only its failing and stopping events need: here are none."""
        self.advance(1)

    def advance(self, events: int) -> None:
        """The next so many events, or fewer if one of them says ``over``. ``EmptySchedule`` when there are no more."""
        queue = self._queue
        for _ in range(events):
            if self.closing and (not queue or queue[0][0] > self.now):
                closing, self.closing = self.closing, []
                for callback in closing:
                    callback(_HAPPENED)
            elif queue:
                now, _, _, event = heappop(queue)
                self._now = self.now = now
                if isinstance(event, Event):
                    callbacks, event.callbacks = event.callbacks, None
                    for callback in callbacks:
                        callback(event)
                else:
                    event(_HAPPENED)
            else:
                raise EmptySchedule
            if self.over:
                return

    def at(self, time_s: float, callback: Callback) -> None:
        """Call ``callback(event)`` at that time; equal times in the order of these calls."""
        heappush(self._queue, (time_s, NORMAL, next(self._eid), callback))

    def at_end_of_instant(self, callback: Callback) -> None:
        """Call ``callback(event)`` when nothing else is left to happen now."""
        self.closing.append(callback)

    def at_background(self, time_s: float, callback: Callback) -> None:
        """As ``at``, for an event that does not mean that the run advances."""
        self.background += 1
        self.at(time_s, lambda event: self._run_background(callback, event))

    def _run_background(self, callback: Callback, event: Any) -> None:
        self.background -= 1
        self.on_background()
        callback(event)
        self.on_background()

    @property
    def nothing_but_background(self) -> bool:
        """Whether nobody advances but by a background event, as far as the clock knows."""
        return len(self._queue) == self.background and not self.closing


class VirtualFuture(Event, Generic[T]):  # type: ignore[misc]
    """A value that somebody will set once, as ``testbed.world.Future``; a SimPy event, so that fibers wait for it.

    Errors travel beside SimPy's own failures, which would copy the exception and crash the loop when nobody awaits.
    What nobody waits for yet when it is set needs no event: whoever asks later has it at once.
    """

    error: BaseException | None = None
    _ok = True
    _value: Any = PENDING

    def __init__(self, clock: Clock) -> None:
        self.env = clock
        self.callbacks: list[Callback] = []

    def set_result(self, value: T, /) -> None:
        assert self._value is PENDING, "a future is set only once"
        self._value = value
        if self.callbacks:
            clock = self.env
            heappush(clock._queue, (clock.now, NORMAL, next(clock._eid), self))

    def set_last(self, value: T) -> None:
        """As ``set_result``, where an event does nothing after it: if it is the last one of this instant so far, who
        waits goes on at once, as they would next."""
        callbacks, queue = self.callbacks, self.env._queue
        if not callbacks or (queue and queue[0][0] <= self.env.now):
            self.set_result(value)
            return
        assert self._value is PENDING, "a future is set only once"
        self._value, self.callbacks = value, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(self)

    def set_exception(self, error: BaseException, /) -> None:
        assert self._value is PENDING, "a future is set only once"
        self.error = error
        self.set_result(None)  # type: ignore[arg-type]

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

    _ok = True
    _value = None

    def __init__(self, clock: Clock, until_s: float) -> None:
        self.env = clock
        self.callbacks: list[Callback] = []
        heappush(clock._queue, (until_s, NORMAL, next(clock._eid), self))

    def __await__(self) -> Generator[Event, Any, None]:
        if self.callbacks is not None:  # not yet processed: it has had a value from the start
            yield self
