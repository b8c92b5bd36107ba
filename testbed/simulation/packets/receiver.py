"""The receiving end of a TCP connection. It decides when to send acknowledgements, function by function as Linux 7.3.

Second     acknowledges at once when more than one full segment is unacknowledged (RFC 1122, 4.2.3.2), unless the
           window would shrink
Gaps       acknowledges at once segments out of order, segments that fill a gap, and duplicates (RFC 5681, 4.2). From
           the fourth acknowledgement of a gap on, gathers them for 1 ms, or for 5/4 of a third of the round-trip time
           if that is less
Quick      acknowledges at once each of sixteen segments at the beginning and after silence, and segments that let the
           window grow (``receive_window``), unless the receiver is in ping-pong mode
Ping-pong  the mode of an end that answers, as this one did in the handshake: it waits, as the next answer might carry
           the acknowledgement. The first delayed acknowledgement ends the mode, and so does a duplicate segment
Read       acknowledges when the program has read everything, if a segment was pushed (except in ping-pong mode), if two
           small ones were received, or if more than one full segment is unacknowledged
Late       otherwise acknowledges after at least 40 ms, in the clock's ticks, and later if segments come slowly

Programs read at the end of an instant. A burst that arrives here at one instant takes a microsecond or two in Linux, so
that a program may read within it: in exact runs, a quarter of the programs have read when three segments have arrived.
"""

from __future__ import annotations

import math

from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.events import DELAY_TIMER, READ
from testbed.simulation.packets.links import ACKNOWLEDGEMENT, send_packet
from testbed.simulation.packets.pools import packet_at, segment_at, take_packet
from testbed.simulation.packets.receive_window import (
    adjust_buffer,
    announce_window,
    begin_window,
    grow_buffer,
    grow_window,
    measure_segment,
    next_window,
    time_by_stamp,
    time_by_window,
)
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES
from testbed.simulation.packets.timers import LEAST_TIMEOUT_S, TICK_S, tick_at

_SELECTIVE_BYTES = 12  # size of the option that acknowledges one block beyond a gap (RFC 2018)
_LEAST_TICKS = round(0.04 / TICK_S)  # TCP_ATO_MIN, TCP_DELACK_MIN
_MOST_TICKS = round(LEAST_TIMEOUT_S / TICK_S)  # TCP_DELACK_MAX
_MOST_UNPUSHED_TICKS = round(0.5 / TICK_S)
_QUICK = 16  # TCP_MAX_QUICKACKS
_QUICK_AFTER_HANDSHAKE = 14  # the handshake has used two of the sixteen
_GROWING_BYTES = 128  # smaller segments do not let the window grow
_SOON_BYTES = 2 * SEGMENT_BYTES  # if more is unread, a quarter of the programs read at once
_SOON = 16_384  # this quarter, of 65 536
_AT_ONCE = 3  # acknowledgements of a gap that are sent before gathering begins (TCP_FASTRETRANS_THRESH)
_GATHERED_S = 1e-3  # tcp_comp_sack_delay_ns
_GATHERED_SHARE = 1.25 * 0.33  # of the round-trip time (tcp_comp_sack_rtt_percent)
_GATHERED = 44  # tcp_comp_sack_nr


def begin_receiver(it: Connection, now_s: float) -> None:
    """Begin after the handshake. The last bytes that this end answered arrived half a round-trip time ago."""
    it.echo_s = math.inf
    it.gathered_at = -1
    it.delay_timer_s = math.inf
    it.quick = _QUICK_AFTER_HANDSHAKE
    it.ping_pong = True
    it.delay_ticks = _LEAST_TICKS
    it.heard_s = now_s - 1.5 * it.rtt_s
    _adapt_delay(it, now_s - 0.5 * it.rtt_s)
    it.arrived_s = now_s
    begin_window(it, now_s)


# ---- segments that arrive --------------------------------------------------------------------------------------------


def receive(net: Network, it: Connection, packet: int) -> None:
    """Take a segment that has arrived (``tcp_rcv_established``, ``tcp_data_queue``)."""
    arrival = packet_at(net, packet)
    size_bytes = arrival.size_bytes - HEADER_BYTES
    if net.now > it.arrived_s:
        _read(it)
        it.arrived_s = net.now
    time_by_stamp(it, net.now, arrival.stamp_s, size_bytes)
    if arrival.number == it.expected:
        it.echo_s = min(it.echo_s, arrival.time_s)
        _take(net, it, arrival.segment, arrival.flag)
    elif arrival.number > it.expected and not segment_at(net, arrival.segment).arrived:
        _keep(net, it, arrival.segment, arrival.flag)
    else:
        _enter_quick_mode(it)
        it.owes = True
        _acknowledge(net, it, True)
        return
    _decide(net, it)


def _take(net: Network, it: Connection, index: int, pushed: bool) -> None:
    """Take the expected segment, and those behind it that had arrived before (``tcp_ofo_queue``)."""
    segment = segment_at(net, index)
    _take_next(it, segment.size_bytes)
    _note_arrival(it, net.now, segment.size_bytes, pushed)
    if not it.gaps:
        return
    index = segment.next
    while it.gaps and index != NONE and segment_at(net, index).arrived:
        segment = segment_at(net, index)
        it.gaps -= 1
        _take_next(it, segment.size_bytes)
        index = segment.next
    if not it.gaps:
        it.at_once = True


def _take_next(it: Connection, size_bytes: int) -> None:
    it.expected += 1
    it.received_bytes += size_bytes
    it.unread_bytes += size_bytes


def _note_arrival(it: Connection, now_s: float, size_bytes: int, pushed: bool) -> None:
    """``tcp_event_data_recv``"""
    it.owes = True
    measure_segment(it, size_bytes, pushed)
    time_by_window(it, now_s)
    _adapt_delay(it, now_s)
    if size_bytes >= _GROWING_BYTES:
        grow_window(it, size_bytes)


def _adapt_delay(it: Connection, now_s: float) -> None:
    """Adapt the delay to the time between segments. After silence, acknowledge without delay."""
    ticks = tick_at(now_s) - tick_at(it.heard_s)
    it.heard_s = now_s
    timeout_ticks = math.ceil((it.rtt_s + LEAST_TIMEOUT_S) / TICK_S)
    if ticks <= _LEAST_TICKS // 2:
        it.delay_ticks = it.delay_ticks // 2 + _LEAST_TICKS // 2
    elif ticks < it.delay_ticks:
        it.delay_ticks = min(it.delay_ticks // 2 + ticks, timeout_ticks, _MOST_TICKS)
    elif ticks > timeout_ticks:
        _add_quick(it)


def _add_quick(it: Connection) -> None:
    """``tcp_incr_quickack``"""
    windows = it.window_bytes // (2 * it.full_bytes)
    it.quick = max(it.quick, min(windows, _QUICK) if windows else 2)


def _enter_quick_mode(it: Connection) -> None:
    """``tcp_enter_quickack_mode``"""
    _add_quick(it)
    it.ping_pong = False
    it.delay_ticks = _LEAST_TICKS


def _keep(net: Network, it: Connection, index: int, pushed: bool) -> None:
    """Keep a segment that arrived while an earlier one is missing (``tcp_data_queue_ofo``)."""
    segment = segment_at(net, index)
    it.owes = True
    measure_segment(it, segment.size_bytes, pushed)
    grow_window(it, segment.size_bytes)
    segment.arrived = True
    segment.beyond = NONE
    it.gaps += 1
    it.arrived_beyond += 1
    it.farthest = max(it.farthest, segment.number)
    if it.beyond_head == NONE:
        it.beyond_head = index
    else:
        segment_at(net, it.beyond_tail).beyond = index
    it.beyond_tail = index
    grow_buffer(it, it.space_bytes)


# ---- acknowledge now or later ----------------------------------------------------------------------------------------


def _decide(net: Network, it: Connection) -> None:
    """``__tcp_ack_snd_check``"""
    is_second = it.received_bytes - it.told_bytes > it.full_bytes
    if (is_second and next_window(it) >= it.window_bytes) or (it.quick and not it.ping_pong) or it.at_once:
        _acknowledge(net, it, False)
    elif it.gaps:
        _gather(net, it)
    else:
        _delay(net, it)
    if it.owes and _acknowledges_what_is_read(it):
        if it.unread_bytes > _SOON_BYTES and _reads_soon(it):
            on_read(net, it)
        else:
            schedule(net, net.now, READ, it.index)


def _gather(net: Network, it: Connection) -> None:
    if it.gathered >= _GATHERED:
        _acknowledge(net, it, False)
        return
    if it.gathered_at != it.expected:
        it.gathered_at = it.expected
        it.of_gap = 0
    if it.of_gap < _AT_ONCE:
        it.of_gap += 1
        _acknowledge(net, it, False)
        return
    it.gathered += 1
    if it.gathered == 1:
        rtt_s = min(it.receive_rtt_s, it.rtt_s) if it.receive_rtt_s else it.rtt_s
        _set_timer(net, it, net.now + min(_GATHERED_S, _GATHERED_SHARE * rtt_s))


def _delay(net: Network, it: Connection) -> None:
    """``tcp_send_delayed_ack``"""
    ticks = it.delay_ticks
    if ticks > _LEAST_TICKS:
        most_ticks = _MOST_TICKS if it.ping_pong or it.pushes else _MOST_UNPUSHED_TICKS
        rtt_ticks = max(math.ceil(it.rtt_s / TICK_S), _LEAST_TICKS)
        ticks = min(ticks, most_ticks, rtt_ticks)
    ticks = min(ticks, _MOST_TICKS - 1)  # less than the least retransmission timeout
    now = tick_at(net.now)
    if it.delay_timer_s <= (now + ticks // 4 + 1) * TICK_S:  # the timer is about to expire
        _acknowledge(net, it, False)
        return
    _set_timer(net, it, (now + ticks + 1) * TICK_S)  # a timer never fires early


def _set_timer(net: Network, it: Connection, at_s: float) -> None:
    if at_s < it.delay_timer_s:
        it.delay_timer_s = at_s
        schedule(net, at_s, DELAY_TIMER, it.index)


def on_delay_timer(net: Network, it: Connection) -> None:
    """``tcp_delack_timer_handler``, ``tcp_compressed_ack_kick``"""
    if net.now != it.delay_timer_s:
        return
    if not it.gathered:
        if it.ping_pong:
            it.ping_pong = False
            it.delay_ticks = _LEAST_TICKS
        else:
            timeout_ticks = math.ceil((it.rtt_s + LEAST_TIMEOUT_S) / TICK_S)
            it.delay_ticks = min(2 * it.delay_ticks, timeout_ticks, _MOST_TICKS)
    if net.now > it.arrived_s:
        _read(it)
    _acknowledge(net, it, False)


# ---- the program reads -----------------------------------------------------------------------------------------------


def on_read(net: Network, it: Connection) -> None:
    """Let the program read everything, at the end of an instant (``__tcp_cleanup_rbuf``)."""
    _read(it)
    if it.owes and _acknowledges_what_is_read(it):
        _acknowledge(net, it, False)


def _reads_soon(it: Connection) -> bool:
    """Decide at random for each segment, by a Weyl sequence that begins at the connection's ``chance``."""
    return (it.expected * 40_503 + it.chance) % 65_536 < _SOON


def _read(it: Connection) -> None:
    if it.unread_bytes:
        it.unread_bytes = 0
        adjust_buffer(it, it.arrived_s)


def _acknowledges_what_is_read(it: Connection) -> bool:
    if it.received_bytes - it.told_bytes > it.full_bytes or it.pushes > 1:
        return True
    return it.pushes > 0 and not it.ping_pong


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def _acknowledge(net: Network, it: Connection, duplicate: bool) -> None:
    packet = take_packet(net)
    acknowledgement = packet_at(net, packet)
    acknowledgement.size_bytes = HEADER_BYTES + (_SELECTIVE_BYTES if it.gaps or duplicate else 0)
    acknowledgement.channel = 0
    acknowledgement.kind = ACKNOWLEDGEMENT
    acknowledgement.owner = it.index
    acknowledgement.number = it.expected
    acknowledgement.beyond = it.arrived_beyond
    acknowledgement.time_s = it.echo_s
    acknowledgement.stamp_s = net.now
    acknowledgement.edge_bytes = announce_window(it)
    acknowledgement.flag = duplicate
    it.echo_s = math.inf
    _note_acknowledged(it)
    send_packet(net, it.back, packet)


def _note_acknowledged(it: Connection) -> None:
    """``tcp_event_ack_sent``"""
    if it.quick == 1:
        it.delay_ticks = _LEAST_TICKS
    it.quick = max(it.quick - 1, 0)
    it.delay_timer_s = math.inf
    it.gathered = 0
    it.owes = False
    it.at_once = False
    it.pushes = 0
