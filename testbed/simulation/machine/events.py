"""The events of a network: by time, and at one instant in the order in which they were scheduled.

An event has a number, which is larger than the run's number (times ``EVENT_NUMBERS``) when it was scheduled.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from testbed.simulation.machine.record import Timeline

EVENT_NUMBERS = 1 << 32  # events of the network between two of the run, at most
LAST_BACKGROUND = 1  # kinds of events up to this one are background events (``Clock.at_background``)

# Commands of every network, and the statuses that it returns: see ``engine``
RUN = 0  # let all events happen before an instant, and at it those of a smaller number
STEP = 1  # let the next event happen
DONE = 0
NEEDS_ROOM = 6
NEEDS_LOOK = 7  # the next event is of the background: the run may have stalled
STATUSES = 256  # a status plus so many times the events that were scheduled for the present instant is returned


def schedule(net: Timeline, time_s: float, kind: int, who: int) -> None:
    """Let an event happen at ``time_s``, or at this instant if that has passed."""
    net.number += 1
    if kind <= LAST_BACKGROUND:
        net.background += 1
    if time_s > net.now:
        push_event(net, time_s, kind, who)
    else:
        net.immediate += 1
        push_event(net, net.now, kind, who)


def begin(net: Timeline, run_number: int) -> None:
    """Begin a command; ``run_number``: the last number of the run's events."""
    net.number = max(net.number, run_number * EVENT_NUMBERS)
    net.immediate = 0


def has_event_before(net: Timeline, until_s: float, until_number: int) -> bool:
    """Whether an event precedes this one of the run."""
    return net.events > 0 and (net.next_s < until_s or (net.next_s == until_s and net.next_number <= until_number))


# ---- a queue by time and number: Python's own heap. Compiled, ``compiled`` has the same two functions ----------------


def push_event(net: Timeline, time_s: float, kind: int, who: int) -> None:
    """Add an event, of the number ``net.number``."""
    events = net.event_list
    heappush(events, (time_s, net.number, kind, who))
    net.next_s, net.next_number, net.next_kind, _ = events[0]
    net.events += 1


def pop_event(net: Timeline) -> int:
    """Remove the next event, of which ``net`` has told time, number and kind. Return of what it is."""
    events = net.event_list
    _, _, _, who = heappop(events)
    net.events -= 1
    if events:
        net.next_s, net.next_number, net.next_kind, _ = events[0]
    else:
        net.next_s = inf
    return int(who)


def numbers_at(net: Timeline, time_s: float) -> list[int]:
    """Return the numbers of the events at ``time_s``, in order, if none is scheduled for an earlier time."""
    events = net.event_list
    numbers = []
    places = [0]
    while places:  # below an event of a heap there are none of an earlier time
        place = places.pop()
        if place < len(events) and events[place][0] == time_s:
            numbers.append(events[place][1])
            places += (2 * place + 1, 2 * place + 2)
    return sorted(numbers)
