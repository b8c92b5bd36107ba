"""The events of a packet network: by time, and at one instant in the order in which they were scheduled."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from testbed.simulation.packets.records import Network

# Of timers, which are background events (``Clock.at_background``)
SENDER_TIMER = 0
DELAY_TIMER = 1
LAST_BACKGROUND = 1
# A packet gets to a link, gets to the port of its receiver, has passed that
AT_LINK = 2
AT_PORT = 3
ARRIVED = 4
# A link looks at its queues
LINK_TIMER = 5
# A connection: its node's port has room again, the process writes, the next burst may leave
PORT_HAS_ROOM = 6
WRITE = 7
PACER = 8


def schedule(net: Network, time_s: float, kind: int, who: int) -> None:
    """Let an event happen at ``time_s``, or at this instant if that has passed."""
    net.number += 1
    if kind <= LAST_BACKGROUND:
        net.background += 1
    if time_s > net.now:
        push_event(net, time_s, kind, who)
    else:
        net.immediate += 1
        push_event(net, net.now, kind, who)


# ---- a queue by time and number: Python's own heap. Compiled, ``compiled`` has the same two functions ----------------


def push_event(net: Network, time_s: float, kind: int, who: int) -> None:
    """Add an event, of the number ``net.number``."""
    events = net.event_list
    heappush(events, (time_s, net.number, kind, who))
    net.next_s, net.next_number, net.next_kind, _ = events[0]
    net.events += 1


def pop_event(net: Network) -> int:
    """Remove the next event, of which ``net`` has told time, number and kind. Return of what it is."""
    events = net.event_list
    _, _, _, who = heappop(events)
    net.events -= 1
    if events:
        net.next_s, net.next_number, net.next_kind, _ = events[0]
    else:
        net.next_s = inf
    return int(who)


def numbers_at(net: Network, time_s: float) -> list[int]:
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
