"""What data in both directions of a link does to TCP: acknowledgements of one wait in the queue of the other.

Notation: C capacity of a direction, W the window of its senders, T = W / C; d one-way delay; Q' what the other
direction has in its queue, and C' its capacity.

A sender may have W under way. Once the other direction sends a burst Q', no acknowledgement passes for Q'/C', and the
next one comes Q'/C' + d later, for all that has arrived meanwhile. Until then a direction can send what is left of W
when those are taken away that have passed the link in the last d: they are not acknowledged yet. If it has more to
send, and has sent that before the acknowledgements come, its link stands idle until then. A window that does not fill
the path yet sends no faster than W per round trip, so it waits hardly longer than it does anyway. The shaper's token
bucket lets bytes pass at once after silence, and shortens the idle time by as much.

All the acknowledgements come at once and let out a burst, behind which those of the other direction wait in turn. So if
both send on and on, a cycle of both windows takes T + T' + RTT, and a link is used for 2·T of it (Zhang, Shenker and
Clark, SIGCOMM 1991: "Observations on the dynamics of a congestion control algorithm: the effects of two-way traffic",
4.2 and 4.3: acknowledgement compression, in- and out-of-phase synchronisation). Smooth flows in both directions are not
stable: they are taken to be in such bunches after a cycle.

Acknowledgements take their own part of the rate, too, one of ``_ACKNOWLEDGEMENT_BYTES`` for every second segment.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowNetwork

_SEGMENT_FRAME_BYTES = 1514  # a full segment: Ethernet 14, IP 20, TCP with timestamps 32, payload 1448
_ACKNOWLEDGEMENT_BYTES = 66  # the same headers without payload
# TCP acknowledges every second full segment (delayed acknowledgements: RFC 1122, 4.2.3.2; RFC 5681, 4.2): 2.2 %.
ACKNOWLEDGEMENT_SHARE = _ACKNOWLEDGEMENT_BYTES / (2 * _SEGMENT_FRAME_BYTES)

_SEGMENT_BYTES = 1448  # with less than one left, nothing waits
_LONGEST_STALL_S = 1.0  # a link that is down would make it endless
_STALLED_SHARE = 1e-6  # of a link whose senders wait; not 0, so that every flow has an end
_LEAST_SHARE = 0.1  # of a link that is so much slower than its reverse that acknowledgements alone would fill it


class Flight(NamedTuple):
    """What one connection, or all over a link, have still to send.

    queued_bytes   wait before the link
    free_bytes     are sent before any further acknowledgement comes: these, and what more the window lets out
    waiting_bytes  the others, which are sent when acknowledgements come
    cap            rate at which windows that do not fill the path let bytes out, in bytes per second
    rtt_s          without queues
    """

    queued_bytes: float
    free_bytes: float
    waiting_bytes: float
    cap: float
    rtt_s: float


class LinkSender(Protocol):
    """A connection that has something to send."""

    def flight(self, since_s: float) -> Flight: ...


class LinkTraffic:
    """One direction of the link, and the connections that are sending over it.

    number         of the link in the flow network
    queue_bytes    before the link, of payload
    bucket_bytes   what passes at once after silence, of payload
    stalls_s       when it will have sent what it may send without acknowledgements
    held_until_s   when acknowledgements come again
    released_s     when they last came all at once
    bunched_s      when they will at the latest, as both directions have more to send than their windows
    """

    __slots__ = (
        "bucket_bytes", "bunched_s", "held_until_s", "number", "queue_bytes", "released_s", "senders", "stalls_s",
    )  # fmt: skip

    def __init__(self, number: int, queue_bytes: float, bucket_bytes: float) -> None:
        self.number, self.queue_bytes, self.bucket_bytes = number, queue_bytes, bucket_bytes
        self.senders: dict[LinkSender, None] = {}
        self.forget()

    def forget(self) -> None:
        """Nothing is left to send."""
        self.stalls_s = self.held_until_s = self.released_s = -math.inf
        self.bunched_s = math.inf

    def flight(self, capacity: float) -> Flight:
        """Return that of all senders. More than the path and the queue hold is never under way."""
        flights = [sender.flight(self.released_s) for sender in self.senders]
        rtt_s = max(flight.rtt_s for flight in flights)
        most_bytes = capacity * rtt_s + self.queue_bytes
        queued_bytes = min(sum(flight.queued_bytes for flight in flights), most_bytes)
        free_bytes = min(sum(flight.free_bytes for flight in flights), most_bytes)
        waiting_bytes = sum(flight.waiting_bytes for flight in flights)
        return Flight(queued_bytes, free_bytes, waiting_bytes, sum(flight.cap for flight in flights), rtt_s)


class TwoWayTraffic:
    """Both directions of a link.

    It is settled at the end of every instant at which a message begins or ends, and when one of them stalls, or its
    acknowledgements come.
    """

    __slots__ = ("_clock", "_directions", "_network", "_settling", "_timer_s")

    def __init__(self, clock: Clock, network: FlowNetwork, directions: tuple[LinkTraffic, LinkTraffic]) -> None:
        self._clock, self._network, self._directions = clock, network, directions
        self._settling, self._timer_s = False, math.inf

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
        if self._clock.now == self._timer_s:
            self._timer_s = math.inf
            self._settle_later()

    def _settle(self, _: Any) -> None:
        self._settling = False
        (there, back), now = self._directions, self._clock.now
        for each in (there, back):
            if each.held_until_s <= now:
                each.released_s = max(each.released_s, each.held_until_s)
            if each.bunched_s <= now:
                each.released_s, each.bunched_s = now, math.inf
        if there.senders and back.senders:
            self._hold(there, back)
            self._hold(back, there)
        there_used, back_used = self._used(there), self._used(back)
        there_capacity, back_capacity = self._network.capacity(there.number), self._network.capacity(back.number)
        self._set_share(there, there_used, back_used * back_capacity / there_capacity if back.senders else 0.0)
        self._set_share(back, back_used, there_used * there_capacity / back_capacity if there.senders else 0.0)
        self._set_timer()

    def _hold(self, direction: LinkTraffic, opposite: LinkTraffic) -> None:
        """Let ``direction`` wait for its acknowledgements, if these come later than it needs them."""
        now = self._clock.now
        if now < direction.held_until_s:
            return
        capacity, opposite_capacity = self._network.capacity(direction.number), self._network.capacity(opposite.number)
        flight, opposite_flight = direction.flight(capacity), opposite.flight(opposite_capacity)
        if flight.waiting_bytes < _SEGMENT_BYTES:
            return
        rate, queued_s = min(capacity, flight.cap), opposite_flight.queued_bytes / opposite_capacity
        sent_s = flight.free_bytes / rate if rate > 0 else math.inf
        acknowledged_s = queued_s + flight.rtt_s / 2 - direction.bucket_bytes / capacity
        if sent_s < acknowledged_s < _LONGEST_STALL_S and opposite_flight.queued_bytes > 2 * _SEGMENT_BYTES:
            direction.stalls_s, direction.held_until_s = now + sent_s, now + acknowledged_s
        elif opposite_flight.waiting_bytes < _SEGMENT_BYTES:
            direction.bunched_s = math.inf
        elif direction.bunched_s == math.inf:
            direction.bunched_s = now + min(sent_s + queued_s + flight.rtt_s, _LONGEST_STALL_S)

    def _used(self, direction: LinkTraffic) -> float:
        """Return the share of the link that it uses at this instant."""
        if not direction.senders:
            direction.forget()
        return 0.0 if direction.stalls_s <= self._clock.now < direction.held_until_s else 1.0

    def _set_timer(self) -> None:
        next_s = math.inf
        for each in self._directions:
            for at_s in (each.stalls_s, each.held_until_s, each.bunched_s):
                if self._clock.now < at_s < next_s:
                    next_s = at_s
        if next_s < self._timer_s:
            self._timer_s = next_s
            self._clock.at_background(next_s, self._on_timer)

    def _set_share(self, direction: LinkTraffic, used: float, acknowledged: float) -> None:
        """``acknowledged``: the rate of the other direction, in capacities of this one."""
        left = used * max(_LEAST_SHARE, 1 - ACKNOWLEDGEMENT_SHARE * acknowledged)
        self._network.set_share(direction.number, left or _STALLED_SHARE)
