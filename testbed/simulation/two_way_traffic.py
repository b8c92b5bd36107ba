"""What data in both directions of a link does to TCP: acknowledgements of one wait in the queue of the other.

Notation: C capacity of a direction; W what its senders have under way at most (their windows, or what is left to send);
T = W / C; T' that of the other direction; RTT without queues.

Windows that fill the path keep W - C·RTT in the queue before their link. Once the other direction sends a burst W', no
acknowledgement passes for T'. Meanwhile the queue drains, and then the link stands idle for RTT + T' - T. All the
acknowledgements come at once and let out a burst, behind which those of the other direction wait in turn; the next such
burst comes T + T' + RTT after the first. So a link is used for a share

    U = 2·T / (T + T' + RTT)    where T and T' differ by less than RTT: both links stand idle at times
    U = T / T'                  where T' > T + RTT: the other's queue never empties, and delays by T' - RTT

(Zhang, Shenker and Clark, SIGCOMM 1991: "Observations on the dynamics of a congestion control algorithm: the effects of
two-way traffic", 4.2 and 4.3: acknowledgement compression, in- and out-of-phase synchronisation.) What the shapers'
token buckets hold after silence passes at once, and shortens the idle time by as much.

A direction is slower as long as it has more to send than W: then no acknowledgement lets anything out.

Acknowledgements take their own part of the rate, too, one of ``_ACKNOWLEDGEMENT_BYTES`` for every second segment.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowNetwork

_SEGMENT_FRAME_BYTES = 1514  # a full segment: Ethernet 14, IP 20, TCP with timestamps 32, payload 1448
_ACKNOWLEDGEMENT_BYTES = 66  # the same headers without payload
# TCP acknowledges every second full segment (delayed acknowledgements: RFC 1122, 4.2.3.2; RFC 5681, 4.2): 2.2 %.
ACKNOWLEDGEMENT_SHARE = _ACKNOWLEDGEMENT_BYTES / (2 * _SEGMENT_FRAME_BYTES)

_SEGMENT_BYTES = 1448  # with less than one left, nothing waits
_LONGEST_CYCLE_S = 1.0  # a link that is down would make it endless
_LEAST_SHARE = 0.1  # of a link that is so much slower than its reverse that acknowledgements alone would fill it


class Flight(NamedTuple):
    """What one connection, or all over a link, have still to send.

    size_bytes     under way at most
    waiting_bytes  the others, which are sent when acknowledgements come
    rtt_s          without queues
    """

    size_bytes: float
    waiting_bytes: float
    rtt_s: float


class LinkSender(Protocol):
    """A connection that has something to send."""

    def flight(self) -> Flight: ...


class LinkTraffic:
    """One direction of the link, and the connections that are sending over it.

    number        of the link in the flow network
    queue_bytes   before the link, of payload
    bucket_bytes  what passes at once after silence, of payload
    """

    __slots__ = ("bucket_bytes", "number", "queue_bytes", "senders")

    def __init__(self, number: int, queue_bytes: float, bucket_bytes: float) -> None:
        self.number, self.queue_bytes, self.bucket_bytes = number, queue_bytes, bucket_bytes
        self.senders: dict[LinkSender, None] = {}

    def flight(self, capacity: float) -> Flight:
        """Return that of all senders. More than the path and the queue hold is never under way."""
        flights = [sender.flight() for sender in self.senders]
        rtt_s = max(flight.rtt_s for flight in flights)
        size_bytes = sum(flight.size_bytes for flight in flights)
        waiting_bytes = sum(flight.waiting_bytes for flight in flights)
        if waiting_bytes < _SEGMENT_BYTES:
            waiting_bytes = 0.0
        return Flight(min(size_bytes, capacity * rtt_s + self.queue_bytes), waiting_bytes, rtt_s)


class TwoWayTraffic:
    """Both directions of a link.

    Shares are settled at the end of every instant at which a message begins or ends, when nothing is left that waits,
    and after each cycle, as windows grow.
    """

    __slots__ = ("_clock", "_directions", "_network", "_settling", "_timer")

    def __init__(self, clock: Clock, network: FlowNetwork, directions: tuple[LinkTraffic, LinkTraffic]) -> None:
        self._clock, self._network, self._directions = clock, network, directions
        self._settling = self._timer = False

    def enter(self, direction: LinkTraffic, sender: LinkSender) -> None:
        """A message of ``sender`` begins."""
        direction.senders[sender] = None
        self._settle_later()

    def leave(self, direction: LinkTraffic, sender: LinkSender) -> None:
        """A message of ``sender`` has been sent."""
        del direction.senders[sender]
        self._settle_later()

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            self._clock.at_end_of_instant(self._settle)

    def _on_timer(self, _: Any) -> None:
        self._timer = False
        self._settle_later()

    def _settle(self, _: Any) -> None:
        self._settling = False
        there, back = self._directions
        if there.senders and back.senders:
            self._share(there, back)
        else:
            self._network.set_share(there.number, 1.0)
            self._network.set_share(back.number, 1.0)

    def _share(self, there: LinkTraffic, back: LinkTraffic) -> None:
        capacity, capacity_back = self._network.capacity(there.number), self._network.capacity(back.number)
        flight, flight_back = there.flight(capacity), back.flight(capacity_back)
        window_s, window_back_s = flight.size_bytes / capacity, flight_back.size_bytes / capacity_back
        passing_s = there.bucket_bytes / capacity + back.bucket_bytes / capacity_back
        wait_s, wait_back_s = flight.waiting_bytes / capacity, flight_back.waiting_bytes / capacity_back
        used = used_share(window_s, window_back_s, flight.rtt_s - passing_s) if wait_s else 1.0
        used_back = used_share(window_back_s, window_s, flight_back.rtt_s - passing_s) if wait_back_s else 1.0
        self._set_share(there, used, used_back * capacity_back / capacity)
        self._set_share(back, used_back, used * capacity / capacity_back)
        if (wait_s or wait_back_s) and not self._timer:
            self._timer = True
            cycle_s = window_s + window_back_s + flight.rtt_s
            soon_s = min(cycle_s, wait_s or cycle_s, wait_back_s or cycle_s, _LONGEST_CYCLE_S)
            self._clock.at_background(self._clock.now + soon_s, self._on_timer)

    def _set_share(self, direction: LinkTraffic, used: float, acknowledged: float) -> None:
        """``acknowledged``: the rate of the other direction, in capacities of this one."""
        left = used * (1 - ACKNOWLEDGEMENT_SHARE * acknowledged)
        self._network.set_share(direction.number, max(_LEAST_SHARE, left))


def used_share(window_s: float, opposite_s: float, rtt_s: float) -> float:
    """Return U for T and T'. ``rtt_s``: less what token buckets let pass."""
    rtt_s = max(0.0, rtt_s)
    if opposite_s > window_s + rtt_s:
        return window_s / opposite_s
    return min(1.0, 2 * window_s / (window_s + opposite_s + rtt_s))
