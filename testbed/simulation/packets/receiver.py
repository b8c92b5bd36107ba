"""The receiving end of a TCP connection: order, acknowledgements at once and delayed ones.

Linux acknowledges at once when more than one full segment has not been acknowledged (RFC 1122, 4.2.3.2), when a segment
is pushed and the program has read all (``tcp_cleanup_rbuf``), the first segments of a connection and of a burst after
silence (quick acknowledgements), what arrives out of order, what fills a gap, and what had arrived before (RFC 5681,
4.2). Else after 40 ms. From the fourth one of a gap on, acknowledgements of what is out of order are gathered for 1 ms,
or 5/4 of a third of the round-trip time if that is less (``tcp_comp_sack_delay_ns``). Programs read at once.
"""

from __future__ import annotations

import math

from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.events import DELAY_TIMER
from testbed.simulation.packets.links import ACKNOWLEDGEMENT, send_packet
from testbed.simulation.packets.pools import packet_at, segment_at, take_packet
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES

_SELECTIVE_BYTES = 12  # of the option that acknowledges one block beyond a gap (RFC 2018)
_DELAY_S = 0.04  # TCP_DELACK_MIN
_QUICK = 16  # TCP_MAX_QUICKACKS
_AT_ONCE = 3  # acknowledgements of one gap that are not gathered (TCP_FASTRETRANS_THRESH)
_GATHERED_S = 1e-3  # tcp_comp_sack_delay_ns
_GATHERED_SHARE = 1.25 * 0.33  # of the round-trip time (tcp_comp_sack_rtt_percent)
_GATHERED = 44  # tcp_comp_sack_nr


def begin_receiver(it: Connection, now_s: float) -> None:
    it.quick = _QUICK
    it.heard_s = now_s
    it.echo_s = math.inf
    it.gathered_at = -1
    it.delay_timer_s = math.inf


def receive(net: Network, it: Connection, packet: int) -> None:
    """Take a segment, and when it was sent."""
    arrival = packet_at(net, packet)
    if net.now - it.heard_s > it.rtt_s + 0.2:  # longer than the retransmission timeout
        it.quick = _QUICK
    it.heard_s = net.now
    if arrival.number == it.expected:
        it.echo_s = min(it.echo_s, arrival.time_s)
        _take(net, it, arrival.segment, arrival.flag)
    elif arrival.number > it.expected and not segment_at(net, arrival.segment).arrived:
        _keep(net, it, arrival.segment)
        _tell_of_gap(net, it)
    else:
        _acknowledge(net, it, True)


def _keep(net: Network, it: Connection, index: int) -> None:
    """Keep a segment that misses one before."""
    segment = segment_at(net, index)
    segment.arrived = True
    segment.beyond = NONE
    it.gaps += 1
    it.arrived_beyond += 1
    if it.beyond_head == NONE:
        it.beyond_head = index
    else:
        segment_at(net, it.beyond_tail).beyond = index
    it.beyond_tail = index


def _take(net: Network, it: Connection, index: int, pushed: bool) -> None:
    """Take the one that was expected, and what had arrived behind it."""
    fills = it.gaps > 0
    while True:
        segment = segment_at(net, index)
        it.expected += 1
        it.unacknowledged_bytes += segment.size_bytes
        it.received_bytes += segment.size_bytes
        index = segment.next
        if not it.gaps or index == NONE or not segment_at(net, index).arrived:
            break
        it.gaps -= 1
    if it.gaps:
        _tell_of_gap(net, it)
    elif fills or it.quick or pushed or it.unacknowledged_bytes > SEGMENT_BYTES:
        _acknowledge(net, it, False)
    else:
        _acknowledge_after(net, it, _DELAY_S)


def _tell_of_gap(net: Network, it: Connection) -> None:
    if it.gathered_at != it.expected:
        it.gathered_at = it.expected
        it.of_gap = 0
    it.of_gap += 1
    if it.of_gap <= _AT_ONCE or it.gathered >= _GATHERED:
        _acknowledge(net, it, False)
    else:
        it.gathered += 1
        _acknowledge_after(net, it, min(_GATHERED_S, _GATHERED_SHARE * it.rtt_s))


def _acknowledge_after(net: Network, it: Connection, delay_s: float) -> None:
    at_s = net.now + delay_s
    if at_s < it.delay_timer_s:
        it.delay_timer_s = at_s
        schedule(net, at_s, DELAY_TIMER, it.index)


def on_delay_timer(net: Network, it: Connection) -> None:
    if net.now == it.delay_timer_s:
        _acknowledge(net, it, False)


def _acknowledge(net: Network, it: Connection, duplicate: bool) -> None:
    it.delay_timer_s = math.inf
    it.unacknowledged_bytes = 0
    it.gathered = 0
    it.quick = max(0, it.quick - 1)
    packet = take_packet(net)
    acknowledgement = packet_at(net, packet)
    acknowledgement.size_bytes = HEADER_BYTES + (_SELECTIVE_BYTES if it.gaps or duplicate else 0)
    acknowledgement.channel = 0
    acknowledgement.kind = ACKNOWLEDGEMENT
    acknowledgement.owner = it.index
    acknowledgement.number = it.expected
    acknowledgement.beyond = it.arrived_beyond
    acknowledgement.time_s = it.echo_s
    acknowledgement.flag = duplicate
    it.echo_s = math.inf
    send_packet(net, it.back, packet)
