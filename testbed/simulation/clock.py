"""Virtual time: SimPy's environment with absolute times, an end-of-instant priority, and futures that roles can await.

A coroutine whose awaitables yield SimPy events is a SimPy process, so the engine's roles run here as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

import msgspec
from simpy import Environment, Event
from simpy.core import EmptySchedule

T = TypeVar("T")
Callback = Callable[[Any], None]

NORMAL = 1
_EVENTS = 64  # between two looks at whether it is over
PENDING: Any = object()


class Clock(Environment):  # type: ignore[misc]
    """SimPy's environment; times are absolute, so that coincident events stay coincident.

    ``now + (t - now)`` is not ``t`` in floating point; ``at`` never computes that. Background events (samples, traces,
    deadlines) keep nobody alive: when nothing else is left, the run has come to a stop. In the queue stand functions,
    each with what it is to be called with: that costs much less than SimPy's events, which may stand there as well.
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
                    callback(None)
            elif queue:
                self.now, _, _, callback, argument = heappop(queue)
                callback(argument)
            else:
                raise EmptySchedule
            if self.over:
                return

    def finish(self) -> None:
        """Let all happen that is to happen."""
        with suppress(EmptySchedule):
            while not self.over:
                self.advance(_EVENTS)

    def schedule(self, event: Event, priority: int = NORMAL, delay: float = 0.0) -> None:
        """SimPy's: one of its own events is to happen."""
        heappush(self._queue, (self.now + delay, priority, next(self._eid), _happen, event))

    def at(self, time_s: float, callback: Callback, argument: Any = None) -> None:
        """Call ``callback(argument)`` at that time; equal times in the order of these calls."""
        heappush(self._queue, (time_s, NORMAL, next(self._eid), callback, argument))

    def at_end_of_instant(self, callback: Callback) -> None:
        """Call ``callback(None)`` when nothing else is left to happen now."""
        self.closing.append(callback)

    def at_background(self, time_s: float, callback: Callback) -> None:
        """As ``at``, for an event that does not mean that the run advances."""
        self.background += 1
        self.at(time_s, self._run_background, callback)

    def _run_background(self, callback: Callback) -> None:
        self.background -= 1
        self.on_background()
        callback(None)
        self.on_background()

    @property
    def nothing_but_background(self) -> bool:
        """Whether nobody advances but by a background event, as far as the clock knows."""
        return len(self._queue) == self.background and not self.closing


class VirtualFuture(msgspec.Struct, Generic[T], eq=False):
    """A value that somebody will set once, as ``testbed.world.Future``; fibers wait for it.

    What nobody waits for yet when it is set needs no event: whoever asks later has it at once.
    """

    _clock: Clock
    _value: Any = PENDING
    error: BaseException | None = None
    callbacks: list[Callback] = msgspec.field(default_factory=list)

    def set_result(self, value: T, /) -> None:
        assert self._value is PENDING, "a future is set only once"
        self._value = value
        if self.callbacks:
            clock = self._clock
            heappush(clock._queue, (clock.now, NORMAL, next(clock._eid), _happen, self))

    def set_last(self, value: T) -> None:
        """As ``set_result``, where an event does nothing after it: if it is the last one of this instant so far, who
        waits goes on at once, as they would next."""
        queue = self._clock._queue
        if not self.callbacks or (queue and queue[0][0] <= self._clock.now):
            self.set_result(value)
            return
        assert self._value is PENDING, "a future is set only once"
        self._value = value
        _happen(self)

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

    def __await__(self) -> Generator[VirtualFuture[T], Any, T]:
        if self._value is PENDING:
            yield self
        return self.result()


def _happen(event: Event | VirtualFuture[Any]) -> None:
    callbacks, event.callbacks = event.callbacks, None
    for callback in callbacks:
        callback(event)


_ONCE = (None,)


class Sleep(msgspec.Struct, eq=False):
    """To be awaited once, and at once: until a given time."""

    _clock: Clock
    _until_s: float

    def __await__(self) -> Generator[None, Any, None]:
        clock = self._clock
        heappush(clock._queue, (self._until_s, NORMAL, next(clock._eid), clock.running.resume, None))
        return iter(_ONCE)  # type: ignore[return-value]  # as a generator would yield it, at less cost
