"""The segments that a TCP sender has under way: which have arrived, and which count as lost (RACK: RFC 8985).

A segment counts as lost if one that was sent later has arrived, but it has not itself arrived within that one's
round-trip time and the time allowed for reordering.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.congestion import BBR
from testbed.simulation.packets.delivery_rate import note_delivered, take_delivered
from testbed.simulation.packets.pools import free_segment, segment_at
from testbed.simulation.packets.records import Connection, Network, Segment

_ROUNDING_S = 1e-9


class Delivered(NamedTuple):
    """The news in an acknowledgement.

    segments  how many segments it is the first to acknowledge
    advanced  whether the first missing segment is among them
    oldest_s, latest_s  sending times of the first and the last of those segments that were sent only once. If there are
                        none and it advanced, both come from the timestamp (RFC 7323, 4.1; Linux:
                        ``tcp_ack_update_rtt``). NaN: no sample
    """

    segments: int
    advanced: bool
    oldest_s: float
    latest_s: float


def begin_scoreboard(it: Connection) -> None:
    it.head = NONE
    it.tail = NONE
    it.earliest = NONE
    it.latest = NONE
    it.arrived_sent_s = -math.inf
    it.arrived_number = -1
    it.look_from = NONE
    it.beyond_head = NONE
    it.beyond_tail = NONE


def out(it: Connection) -> int:
    """How many segments have not been acknowledged in order."""
    return it.following - it.first


def in_flight(it: Connection) -> int:
    """How many segments TCP believes to be on their way."""
    return it.following - it.first - it.sacked - it.lost + it.again


def add_segment(net: Network, it: Connection, index: int) -> None:
    """Add a segment that is sent for the first time."""
    note_sent(net, it, index)
    segment_at(net, index).next = NONE
    if it.head == NONE:
        it.head = index
    else:
        segment_at(net, it.tail).next = index
    it.tail = index
    it.following += 1


def note_sent(net: Network, it: Connection, index: int) -> None:
    segment = segment_at(net, index)
    if it.control == BBR:
        note_delivered(it, segment, net.now)
    segment.sent_s = net.now
    _leave_order(net, it, segment)
    _enter_order(net, it, index, it.latest)


def note_resent(net: Network, it: Connection, index: int) -> None:
    segment = segment_at(net, index)
    if segment.lost and not segment.again:
        segment.again = True
        it.again += 1
    segment.resent = True
    note_sent(net, it, index)


def _enter_order(net: Network, it: Connection, index: int, earlier: int) -> None:
    """Put a segment behind ``earlier`` in the order of sending."""
    segment = segment_at(net, index)
    later = it.earliest if earlier == NONE else segment_at(net, earlier).later
    segment.in_order = True
    segment.earlier = earlier
    segment.later = later
    if earlier == NONE:
        it.earliest = index
    else:
        segment_at(net, earlier).later = index
    if later == NONE:
        it.latest = index
    else:
        segment_at(net, later).earlier = index


def _leave_order(net: Network, it: Connection, segment: Segment) -> None:
    if not segment.in_order:
        return
    segment.in_order = False
    if segment.earlier == NONE:
        it.earliest = segment.later
    else:
        segment_at(net, segment.earlier).later = segment.later
    if segment.later == NONE:
        it.latest = segment.earlier
    else:
        segment_at(net, segment.later).earlier = segment.earlier


def acknowledge(net: Network, it: Connection, following: int, beyond: int, echo_s: float) -> Delivered:
    """Take an acknowledgement of all segments before ``following``, and of the first ``beyond`` arrivals behind gaps.

    ``echo_s``: sending time of the first segment that it acknowledges in order; infinite: there is none.
    """
    first = it.first
    delivered = 0
    oldest_s = math.nan
    latest_s = math.nan
    number = first
    while True:
        if number < following:
            index = it.head
            it.head = segment_at(net, index).next
            number += 1
        else:
            index = _next_beyond(net, it, beyond, max(first, following))
            if index == NONE:
                break
        segment = segment_at(net, index)
        if _is_first_copy(it, segment):
            latest_s = segment.sent_s
            if not delivered or math.isnan(oldest_s):
                oldest_s = latest_s
        if not segment.sacked:
            delivered += 1
            if it.control == BBR:
                take_delivered(it, segment)
            _take_arrival(it, segment, net.now)
        _leave_order(net, it, segment)
        _keep_or_free(net, it, index, following)
    it.first = max(first, following)
    if it.head == NONE:
        it.tail = NONE
    if following > first and math.isnan(latest_s) and echo_s < math.inf:
        oldest_s = echo_s
        latest_s = echo_s
    return Delivered(delivered, following > first, oldest_s, latest_s)


def _is_first_copy(it: Connection, segment: Segment) -> bool:
    """Clear the loss marks of an acknowledged segment.

    Return whether it was sent only once and is acknowledged for the first time.
    """
    is_first = not segment.again and not segment.sacked and not segment.resent
    if segment.again:
        segment.again = False
        it.again -= 1
    if segment.lost:
        segment.lost = False
        it.lost -= 1
    return is_first


def _keep_or_free(net: Network, it: Connection, index: int, following: int) -> None:
    """Keep an acknowledged segment beyond a gap; free it if it is before ``following``."""
    segment = segment_at(net, index)
    if segment.number >= following:
        segment.sacked = True
        it.sacked += 1
        return
    if segment.sacked:
        it.sacked -= 1
    if it.look_from == index:
        it.look_from = segment.next
    free_segment(net, index)


def _next_beyond(net: Network, it: Connection, beyond: int, least: int) -> int:
    """Return the next of the first ``beyond`` arrivals behind gaps whose number is at least ``least``; -1: none."""
    while it.beyond_told < beyond:
        index = it.beyond_head
        segment = segment_at(net, index)
        it.beyond_head = segment.beyond
        it.beyond_told += 1
        if segment.number >= least:
            return index
    return NONE


def _take_arrival(it: Connection, segment: Segment, now_s: float) -> None:
    rtt_s = now_s - segment.sent_s
    if segment.resent and rtt_s < it.least_s - _ROUNDING_S:
        return  # too early to be the retransmission: the first copy has arrived
    it.arrived_rtt_s = rtt_s
    if not _is_sent_before(segment, it.arrived_sent_s, it.arrived_number):
        it.arrived_sent_s = segment.sent_s
        it.arrived_number = segment.number


def _is_sent_before(segment: Segment, sent_s: float, number: int) -> bool:
    return segment.sent_s < sent_s or (segment.sent_s == sent_s and segment.number < number)


def find_lost(net: Network, it: Connection, settle_s: float) -> float:
    """Mark the segments that count as lost by now. ``settle_s``: the time allowed for reordering.

    Return when to look again; infinite if there is nothing to look for.
    """
    while it.earliest != NONE:
        index = it.earliest
        segment = segment_at(net, index)
        if segment.again or not segment.lost:
            if not _is_sent_before(segment, it.arrived_sent_s, it.arrived_number):
                return math.inf
            if segment.sent_s + it.arrived_rtt_s + settle_s > net.now + _ROUNDING_S:
                return it.arrived_sent_s + it.arrived_rtt_s + settle_s
            _lose(net, it, index)
        _leave_order(net, it, segment)
    return math.inf


def lose_all(net: Network, it: Connection) -> None:
    """Mark all segments as lost that were not sent within the last round-trip time, and the first one in any case."""
    index = it.head
    while index != NONE:
        segment = segment_at(net, index)
        is_recent = segment.number > it.first and segment.sent_s + it.arrived_rtt_s > net.now
        if not segment.sacked and not is_recent:
            _lose(net, it, index)
        index = segment.next


def _lose(net: Network, it: Connection, index: int) -> None:
    segment = segment_at(net, index)
    if segment.again:
        segment.again = False
        it.again -= 1
        it.marked += 1
    elif not segment.lost:
        segment.lost = True
        it.lost += 1
        it.marked += 1
    if it.look_from == NONE or segment.number < segment_at(net, it.look_from).number:
        it.look_from = index


def none_lost(net: Network, it: Connection) -> None:
    """Clear all loss marks, and put back the segments that ``find_lost`` removed from the order of sending."""
    it.lost = 0
    it.again = 0
    last = NONE  # the last segment that was put back
    index = it.head
    while index != NONE:
        segment = segment_at(net, index)
        segment.lost = False
        segment.again = False
        if not segment.sacked and not segment.in_order:
            earlier = last
            while earlier != NONE and segment_at(net, earlier).sent_s > segment.sent_s:
                earlier = segment_at(net, earlier).earlier
            _enter_order(net, it, index, earlier)
            if earlier == last:
                last = index
        index = segment.next


def next_lost(net: Network, it: Connection) -> int:
    """Return the first lost segment that has not been retransmitted; -1: there is none."""
    while it.look_from != NONE:
        segment = segment_at(net, it.look_from)
        if segment.lost and not segment.again:
            return it.look_from
        it.look_from = segment.next
    return NONE
