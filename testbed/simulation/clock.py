"""Virtual time: a SimPy environment with absolute event times, and the futures and sleeps that roles await.

Roles are coroutines. When they await something, it yields ``VirtualFuture`` objects (or ``None``, for a sleep) to the
``Task`` that runs them; see ``testbed.simulation.task``.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from simpy import Environment, Event
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT

T = TypeVar("T")
Callback = Callable[[Any], None]

_UNSET: Any = object()
_NEVER = (float("inf"), 0)
_BATCH_EVENTS = 64  # between two checks of ``Clock.stopped`` in ``Clock.finish``


class EventSource(Protocol):
    """A second source of events beside the clock. All events share one order: by time, then by the order of scheduling.

    next_s     time of its next event as of the last call of ``run``; infinite: there was none
    peek()     time of its next event, or the present instant if it is unsettled
    events, background_events  number of its scheduled events; number of background events among them
    unsettled  whether it has something to do at the end of the present instant
    numbers_now()              for each event of its next instant, in order: the clock's number when it was scheduled
    run(until_s, until_number) processes its events up to this event of the clock; returns whether there were any
    step()                     processes one event of the present instant
    """

    next_s: float

    def peek(self) -> float: ...
    @property
    def events(self) -> int: ...
    @property
    def background_events(self) -> int: ...
    @property
    def unsettled(self) -> bool: ...
    def numbers_now(self) -> list[int]: ...
    def run(self, until_s: float, until_number: int) -> bool: ...
    def step(self) -> None: ...


class Clock(Environment):  # type: ignore[misc]
    """A SimPy environment with an event queue of its own.

    It overrides the four public members by which SimPy's events, processes and resources reach their environment
    (``now``, ``schedule``, ``peek``, ``step``; ``run`` uses these), as ``simpy.rt.RealtimeEnvironment`` overrides
    ``step``. So SimPy's own processes run here, too. It has its own queue for two reasons:

    * Times are absolute. SimPy schedules by delay, and ``now + (t - now)`` is not ``t`` in floating point: events
      that coincide would no longer do so, and their order would depend on when each was scheduled.
    * An entry is a callback and its argument. That costs about half as much as a SimPy event with its list of
      callbacks, and a simulated message needs about ten entries.

    Events run by time, then in the order of scheduling; urgent events come first within an instant. Half of all events
    are scheduled for the present instant; they wait in a queue of their own instead of the heap.

    A ``source`` has events of its own, most of which it processes without the clock. At an instant at which both have
    events, and while a callback from the source runs, each event of the source has an entry in ``ready``, in order.

    Background events (samples, traces, deadlines) do not mean that the run advances: when only these are left, no
    node can do anything before a deadline expires.
    """

    now: float = 0.0  # virtual seconds; an attribute, because SimPy's property costs a call each time

    def __init__(self, begin_s: float = 0.0) -> None:
        super().__init__(initial_time=begin_s)
        self.now = begin_s
        self.stopped = False  # set by the run: process no further event
        self.stalled = False  # set by the run while only background events are left
        self.current_task: Any = None  # the ``Task`` whose coroutine runs now
        self.on_background: Callable[[], None] = lambda: None  # called before and after each background event
        self._heap: list[tuple[float, int, Callback, Any]] = []  # events of later instants
        self._numbers = itertools.count()
        self.number: Callable[[], int] = self._numbers.__next__  # returns a number that no event of the clock has
        self.source: EventSource | None = None
        self._steps = 0  # number of entries in ``ready`` that stand for events of the source
        self.urgent: deque[tuple[Callback, Any]] = deque()  # events of the present instant, like ``ready``
        self.ready: deque[tuple[Callback, Any]] = deque()
        self._background_events = 0  # number of scheduled background events
        self._at_end_of_instant: list[Callback] = []
        # call ``callback(None)`` after the last event of this instant, even if later events are scheduled for it
        self.at_end_of_instant: Callable[[Callback], None] = self._at_end_of_instant.append

    # ---- scheduling ---------------------------------------------------------------------------------------------

    def at(self, time_s: float, callback: Callback, argument: Any = None) -> None:
        """Call ``callback(argument)`` at ``time_s``, which must not lie in the past."""
        if time_s > self.now:
            heappush(self._heap, (time_s, next(self._numbers), callback, argument))
        else:
            self.ready.append((callback, argument))

    def soon(self, callback: Callback, argument: Any = None, priority: int = NORMAL) -> None:
        """Call ``callback(argument)`` at the present instant."""
        (self.urgent if priority == URGENT else self.ready).append((callback, argument))

    def at_background(self, time_s: float, callback: Callback) -> None:
        """Schedule a background event: call ``callback(None)`` at ``time_s``."""
        self._background_events += 1
        self.at(time_s, self._run_background, callback)

    def follow(self, steps: Iterator[tuple[float, T]], start_s: float, apply: Callable[[float, T], None]) -> None:
        """Call ``apply(at_s, value)`` at ``start_s + at_s`` for each (at_s, value) of ``steps``, as background events.

        Steps that are already due are applied at once.
        """
        for at_s, value in steps:
            if start_s + at_s > self.now:

                def apply_later(_: Any, at_s: float = at_s, value: T = value) -> None:
                    apply(at_s, value)
                    self.follow(steps, start_s, apply)

                self.at_background(start_s + at_s, apply_later)
                return
            apply(at_s, value)

    def schedule(self, event: Event, priority: int = NORMAL, delay: float = 0.0) -> None:
        """Schedule one of SimPy's own events; called by SimPy."""
        if delay:
            self.at(self.now + delay, _process_event, event)
        else:
            self.soon(_process_event, event, priority)

    # ---- running ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Process the next event. Raise ``EmptySchedule`` if there is none."""
        self.advance(1)

    def advance(self, events: int) -> None:
        """Process up to ``events`` events; stop earlier if one of them sets ``stopped``.

        Raise ``EmptySchedule`` if no event is left.
        """
        heap = self._heap
        ready = self.ready
        urgent = self.urgent
        at_end_of_instant = self._at_end_of_instant
        source = self.source
        for _ in range(events):
            if urgent:
                callback, argument = urgent.popleft()
                callback(argument)
            elif ready:
                callback, argument = ready.popleft()
                callback(argument)
            elif at_end_of_instant:
                callbacks = at_end_of_instant.copy()
                at_end_of_instant.clear()
                for callback in callbacks:
                    callback(None)
            elif source is not None and source.run(*(heap[0][:2] if heap else _NEVER)):
                pass
            elif heap:
                now, _, callback, argument = heappop(heap)
                self.now = now
                if source is not None and source.next_s == now:
                    self.gather_instant()
                while heap and heap[0][0] == now:
                    ready.append(heappop(heap)[2:])
                callback(argument)
            else:
                raise EmptySchedule
            if self.stopped:
                return

    def gather_instant(self) -> None:
        """Move the events of this instant to ``ready``, and add an entry there for each event of the source."""
        heap = self._heap
        now = self.now
        if self.source is not None and self.source.next_s == now:
            for number in self.source.numbers_now():
                while heap and heap[0][0] == now and heap[0][1] < number:
                    self.ready.append(heappop(heap)[2:])
                self.add_steps(1)
        while heap and heap[0][0] == now:
            self.ready.append(heappop(heap)[2:])

    def add_steps(self, count: int) -> None:
        """Add ``count`` entries to ``ready``, for the source's next events at this instant."""
        self._steps += count
        self.ready.extend([(self._step_source, None)] * count)

    def _step_source(self, _: Any) -> None:
        assert self.source is not None, "only a source has entries"
        self._steps -= 1
        self.source.step()

    def finish(self) -> None:
        """Process events until none is left or ``stopped`` is set."""
        with suppress(EmptySchedule):
            while not self.stopped:
                self.advance(_BATCH_EVENTS)

    def _run_background(self, callback: Callback) -> None:
        self._background_events -= 1
        self.on_background()
        callback(None)
        self.on_background()

    # ---- scheduled events ---------------------------------------------------------------------------------------

    def peek(self) -> float:
        """Time of the next event; infinite if there is none."""
        if self._at_end_of_instant or self.ready or self.urgent:
            return self.now
        next_s = self._heap[0][0] if self._heap else float("inf")
        return next_s if self.source is None else min(next_s, self.source.peek())

    @property
    def foreground_events(self) -> int:
        """How many events of the clock are scheduled, without background events and events of the source."""
        return len(self._heap) + len(self.ready) + len(self.urgent) - self._steps - self._background_events

    @property
    def idle(self) -> bool:
        """Whether only background events and events of the source are scheduled."""
        return self.foreground_events == 0 and not self._at_end_of_instant

    @property
    def only_background(self) -> bool:
        """Whether only background events are scheduled."""
        source = self.source
        others = 0 if source is None else source.events - source.background_events + source.unsettled
        return others == 0 and self.idle


def _process_event(event: Event) -> None:
    """Run the callbacks of a SimPy event; raise its error if it failed and no callback handled that."""
    callbacks, event.callbacks = event.callbacks, None
    for callback in callbacks:
        callback(event)
    if not event.ok and not event.defused:
        raise event.value


class VirtualFuture(msgspec.Struct, Generic[T], eq=False):
    """A value that is set once; tasks may await it. Implements ``testbed.world.Future``.

    Setting it schedules an event only if a task already waits for it; tasks that await it later get the value at once.
    """

    _clock: Clock
    _result: Any = _UNSET
    error: BaseException | None = None
    callbacks: list[Callback] = msgspec.field(default_factory=list)

    def set_result(self, value: T, /) -> None:
        """Set the value; waiting tasks resume in an event of their own, at this instant."""
        assert self._result is _UNSET, "a future is set only once"
        self._result = value
        if self.callbacks:
            self._clock.ready.append((_resume_waiting, self))

    def set_result_last(self, value: T) -> None:
        """Set the value, as the last action of the caller's event.

        If no other event of this instant comes first, the waiting tasks resume at once, which saves an event.
        """
        clock = self._clock
        if not self.callbacks or clock.ready or clock.urgent:
            self.set_result(value)
            return
        assert self._result is _UNSET, "a future is set only once"
        self._result = value
        _resume_waiting(self)

    def set_exception(self, error: BaseException, /) -> None:
        assert self._result is _UNSET, "a future is set only once"
        self.error = error
        self.set_result(None)  # type: ignore[arg-type]

    def done(self) -> bool:
        return self._result is not _UNSET

    def result(self) -> T:
        """Return the value or raise the error. Call this only when it is done."""
        if self.error is not None:
            raise self.error
        value: T = self._result
        return value

    def __await__(self) -> Generator[VirtualFuture[T], Any, T]:
        if self._result is _UNSET:
            yield self
        return self.result()


def _resume_waiting(future: VirtualFuture[Any]) -> None:
    callbacks, future.callbacks = future.callbacks, []
    for callback in callbacks:
        callback(future)


_YIELD_NONE = (None,)


class Sleep(msgspec.Struct, eq=False):
    """When awaited, lets the running task sleep until ``_until_s``. Await it at once, and only once."""

    _clock: Clock
    _until_s: float

    def __await__(self) -> Generator[None, Any, None]:
        clock = self._clock
        clock.at(self._until_s, clock.current_task.resume)
        return iter(_YIELD_NONE)  # type: ignore[return-value]  # as a generator would yield, but cheaper
