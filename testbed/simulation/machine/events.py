"""The events of a network, ordered by time, and at the same instant by the order in which they were scheduled.

Each event has a number that grows in this order. It is larger than ``EVENT_NUMBERS`` times the number that the run's
latest event had when this one was scheduled.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from testbed.simulation.machine.record import Timeline

EVENT_NUMBERS = 1 << 32  # more than the network schedules between two events of the run
LAST_BACKGROUND = 1  # kinds of events up to this one are background events (``Clock.at_background``)

# Commands of every network, and the statuses that it returns: see ``engine``
RUN = 0  # process all events before an instant, and those at the instant that have a smaller number than given
STEP = 1  # process the next event
DONE = 0
NEEDS_ROOM = 6
NEEDS_LOOK = 7  # the next event is a background event: the run may have stalled
STATUSES = 256  # commands return status + STATUSES * number of events that they scheduled for the present instant


def schedule(net: Timeline, time_s: float, kind: int, who: int) -> None:
    """Schedule an event for ``time_s``, or for the present instant if ``time_s`` has passed."""
    net.number += 1
    if kind <= LAST_BACKGROUND:
        net.background += 1
    if time_s > net.now:
        push_event(net, time_s, kind, who)
    else:
        net.immediate += 1
        push_event(net, net.now, kind, who)


def begin(net: Timeline, run_number: int) -> None:
    """Begin a command. ``run_number``: the number of the run's latest event."""
    net.number = max(net.number, run_number * EVENT_NUMBERS)
    net.immediate = 0


def has_event_before(net: Timeline, until_s: float, until_number: int) -> bool:
    """Whether an event of the network comes before the run's event (``until_s``, ``until_number``)."""
    return net.events > 0 and (net.next_s < until_s or (net.next_s == until_s and net.next_number <= until_number))


# ---- a queue by time and number: Python's own heap. ``compiled`` replaces push_event and pop_event -------------------


def push_event(net: Timeline, time_s: float, kind: int, who: int) -> None:
    """Add an event with the number ``net.number``."""
    events = net.event_list
    heappush(events, (time_s, net.number, kind, who))
    net.next_s, net.next_number, net.next_kind, _ = events[0]
    net.events += 1


def pop_event(net: Timeline) -> int:
    """Remove the next event, whose time, number and kind are in ``net``. Return the index of the record it concerns."""
    events = net.event_list
    _, _, _, who = heappop(events)
    net.events -= 1
    if events:
        net.next_s, net.next_number, net.next_kind, _ = events[0]
    else:
        net.next_s = inf
    return int(who)


def numbers_at(net: Timeline, time_s: float) -> list[int]:
    """Return the numbers of the events at ``time_s``, in order. No event may be scheduled for an earlier time."""
    events = net.event_list
    numbers = []
    places = [0]
    while places:  # in a heap, no event below another one has an earlier time
        place = places.pop()
        if place < len(events) and events[place][0] == time_s:
            numbers.append(events[place][1])
            places += (2 * place + 1, 2 * place + 2)
    return sorted(numbers)
