"""The sending end of a TCP connection, segment by segment, as Linux sends with SACK, RACK, PRR and tail loss probes.

Recovery  PRR (RFC 6937): sending follows the acknowledgements, so that the window is β·W in the end
Tail      two RTTs after the last acknowledgement, new data or the last segment again is sent as a probe (RFC 8985, 7)
Timeout   all segments under way count as lost, and the window becomes one segment (RFC 5681, 3.1)
Undo      if a segment acknowledged in order was sent before the loss was noted, nothing was lost (Eifel detection by
          timestamps, RFC 3522), and the window is restored
Growth    the window grows only while it limits the connection (RFC 7661; Linux: ``tcp_cwnd_validate``)
Host      a connection may have two bursts waiting at the node's port, or what the estimated rate sends in 1 ms if that
          is more (``host_queue``), so that data written meanwhile fills the last segment

With BBR, sending is paced, and delivery rates set the window and the pace:

Pacing    a burst has the segments that the rate sends in 1 ms, but at most half a window (Linux' internal pacing)
Window    every acknowledgement sets it, also while losses are repaired; neither idle time nor PRR shrinks it

Not modelled: packets that wait to become larger (segmentation offload), and undoing by duplicate acknowledgements.
"""

from __future__ import annotations

import math

from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.bbr import (
    bbr_timed_out,
    bbr_undone,
    begin_bbr,
    burst_segments,
    keep_window,
    resume_bbr,
    update_bbr,
)
from testbed.simulation.packets.congestion import (
    BBR,
    CUBIC,
    begin_congestion,
    begin_cubic_anew,
    grow,
    observe_delay,
    reduced_threshold,
    resume_cubic,
)
from testbed.simulation.packets.delivery_rate import limit_by_application, rate_sample
from testbed.simulation.packets.events import PACER, SENDER_TIMER
from testbed.simulation.packets.host_queue import forget_left, is_port_full, send_frame
from testbed.simulation.packets.links import DATA
from testbed.simulation.packets.pools import keep_room, packet_at, segment_at, take_packet, take_segment
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.scoreboard import (
    Delivered,
    acknowledge,
    add_segment,
    begin_scoreboard,
    find_lost,
    in_flight,
    lose_all,
    next_lost,
    none_lost,
    note_resent,
    out,
)
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES
from testbed.simulation.packets.timers import (
    fires_s,
    is_hopeless,
    observe_round_trip,
    probe_s,
    timeout_s,
)
from testbed.simulation.tcp_model import LEAST_RTT_S

# ``Connection.recovery``: no recovery, recovery from lost segments, recovery from a timeout
OPEN = 0
RECOVERY = 1
LOSS = 2

_DUPLICATES = 3  # segments beyond a gap after which the gap counts as a loss (RFC 5681, 3.2)
_HOST_S = 1 / 1024  # sk_pacing_shift
_HOST_BURSTS = 2
_LARGEST_BYTES = 65_536.0  # largest packet that a host hands to its port
_SHORT_S = 512e-6  # the extra size on a short path halves with each such part of its round-trip time (tcp_tso_rtt_log)
_MOST_HALVINGS = 32  # after so many halvings nothing is left
_UNPACED_SEGMENTS = 10  # the first segments of a connection are not paced


def begin_sender(net: Network, it: Connection) -> None:
    """Begin to send over a connection that has been set up."""
    now = net.now
    begin_scoreboard(it)
    begin_congestion(it)
    it.last_sent_s = now
    it.stamp_s = now - 0.5 * it.rtt_s
    it.edge_bytes = it.window_bytes
    it.window = it.first_window
    it.threshold = math.inf
    it.prior_threshold = math.inf
    it.noted_s = -math.inf
    it.probe_ends = NONE
    it.window_used_s = now
    it.timer_s = math.inf
    it.reordering_at_s = math.inf
    it.wakes_s = math.inf
    it.pacer_s = -math.inf
    it.pacer_segments = it.setup_segments
    if it.control == BBR:
        begin_bbr(it, now)
        it.window += it.setup_segments  # BBR's window has grown in the handshake, even though nothing filled it
    elif it.control == CUBIC:
        observe_delay(it, now, it.least_s, _pacing_bytes_per_s(it))
    keep_room(net, it.window)


def _pacing_bytes_per_s(it: Connection) -> float:
    """Return BBR's pace; otherwise Linux' estimate of the rate, doubled in slow start (``tcp_update_pacing_rate``)."""
    if it.control == BBR:
        return it.pacing_bytes_per_s
    factor = 2.0 if it.window < it.threshold / 2 else 1.2
    rtt_s = max(it.smoothed_s, LEAST_RTT_S)
    return factor * max(it.window, out(it)) * SEGMENT_BYTES / rtt_s


# ---- sending ---------------------------------------------------------------------------------------------------------


def write_stream(net: Network, it: Connection, size_bytes: int) -> None:
    """Append bytes to the stream."""
    if it.control == BBR:
        if _is_application_limited(net, it):
            limit_by_application(it, in_flight(it))
    elif it.restarts and not out(it) and not it.unsent_bytes:
        _shrink_after_idle(net, it)
    it.unsent_bytes += size_bytes


def _is_application_limited(net: Network, it: Connection) -> bool:
    """Whether neither the host nor the window limits the rate (``tcp_rate_check_app_limited``)."""
    if it.unsent_bytes >= SEGMENT_BYTES:
        return False
    forget_left(net, it)
    return it.frame_head == NONE and in_flight(it) < it.window and it.lost <= it.again


def push_segments(net: Network, it: Connection, more: bool) -> None:
    """Send new segments as the window allows. ``more``: send full segments only, as more is being written."""
    sent = 0
    limited = False
    joined = 0  # segments still to be sent of the packet that the host hands to its port (segmentation offload)
    is_joined = False
    least_bytes = SEGMENT_BYTES if more else 1
    while it.unsent_bytes >= least_bytes:
        if in_flight(it) >= it.window or out(it) >= it.limit:
            limited = in_flight(it) >= it.window
            break
        if it.sent_bytes + min(it.unsent_bytes, SEGMENT_BYTES) > it.edge_bytes:
            break
        if not joined:
            joined = _joined_segments(it)
            is_joined = joined > 1
        segments = joined if it.control == BBR else 1
        if _is_paced(net, it) or _is_host_full(net, it, segments):
            break
        joined -= segments
        sent += _send_burst(net, it, segments, least_bytes, is_joined and not joined)
    if sent or limited:
        _validate(net, it, limited or in_flight(it) >= it.window)
    if sent:
        it.resent += sent
        _set_timer(net, it, True)


def _joined_segments(it: Connection) -> int:
    """Return how many segments leave as one packet: those that the rate sends in 1 ms, more on a short path
    (``tcp_tso_autosize``), but at most half the window (``tcp_cwnd_test``)."""
    if it.control == BBR:
        segments = burst_segments(it)
    else:
        size_bytes = _pacing_bytes_per_s(it) * _HOST_S
        halvings = it.least_s // _SHORT_S
        if halvings < _MOST_HALVINGS:
            size_bytes += _LARGEST_BYTES / 2.0**halvings
        segments = max(int(min(size_bytes, _LARGEST_BYTES)) // SEGMENT_BYTES, 2)
    return min(segments, max(it.window // 2, 1), it.window - in_flight(it))


def _send_burst(net: Network, it: Connection, segments: int, least_bytes: int, is_pushed: bool) -> int:
    """Send up to ``segments`` new ones. ``is_pushed``: set TCP's PSH in the last one. Return how many were sent."""
    sent = 0
    size_bytes = 0
    while sent < segments and it.unsent_bytes >= least_bytes:
        size_bytes += _send_new(net, it, is_pushed and sent == segments - 1)
        sent += 1
    note_paced(net, it, sent, size_bytes)
    return sent


def note_paced(net: Network, it: Connection, segments: int, size_bytes: int) -> None:
    """Note when the next burst may leave, after one of this size (``tcp_update_skb_after_send``).

    If this burst is late, the pause after it is shorter by its delay, but by no more than half.
    """
    if it.control != BBR:
        return
    it.pacer_segments += segments
    late_s = max(0.0, net.now - it.pacer_s)
    it.pacer_s = max(it.pacer_s, net.now)
    if it.pacer_segments >= _UNPACED_SEGMENTS:
        pause_s = size_bytes / it.pacing_bytes_per_s
        it.pacer_s += pause_s - min(pause_s / 2, late_s)


def _is_paced(net: Network, it: Connection) -> bool:
    """Whether the next burst has to wait. If so, PACER happens when it may leave."""
    if it.control != BBR or it.pacer_s <= net.now:
        return False
    if not it.waits_for_pacer:
        it.waits_for_pacer = True
        schedule(net, it.pacer_s, PACER, it.index)
    return True


def _is_host_full(net: Network, it: Connection, segments: int) -> bool:
    """Whether the port has no room for more. If so, PORT_HAS_ROOM happens when it has."""
    bursts_bytes = float(_HOST_BURSTS * segments * (SEGMENT_BYTES + HEADER_BYTES))
    return is_port_full(net, it, max(bursts_bytes, _pacing_bytes_per_s(it) * _HOST_S))


def _send_new(net: Network, it: Connection, is_pushed: bool) -> int:
    size_bytes = min(it.unsent_bytes, SEGMENT_BYTES)
    it.unsent_bytes -= size_bytes
    it.sent_bytes += size_bytes
    index = take_segment(net)
    segment = segment_at(net, index)
    segment.number = it.following
    segment.size_bytes = size_bytes
    segment.pushed = is_pushed or it.unsent_bytes == 0
    segment.sacked = False
    segment.lost = False
    segment.again = False
    segment.resent = False
    segment.arrived = False
    segment.in_order = False
    if in_flight(it) == 0:
        if it.control == BBR:
            resume_bbr(net, it)
        elif it.control == CUBIC:
            resume_cubic(it, net.now)
    add_segment(net, it, index)
    _transmit(net, it, index)
    return size_bytes


def _transmit(net: Network, it: Connection, index: int) -> None:
    it.last_sent_s = net.now
    segment = segment_at(net, index)
    number = take_packet(net)
    packet = packet_at(net, number)
    packet.size_bytes = segment.size_bytes + HEADER_BYTES
    packet.channel = 0
    packet.kind = DATA
    packet.owner = it.index
    packet.segment = index
    packet.number = segment.number
    packet.time_s = net.now
    packet.stamp_s = it.stamp_s
    packet.flag = segment.pushed
    send_frame(net, it, number)


def _resend(net: Network, it: Connection, index: int) -> None:
    note_resent(net, it, index)
    _transmit(net, it, index)


def _resend_lost(net: Network, it: Connection) -> None:
    """Retransmit lost segments as far as the window allows."""
    while it.again < it.lost and in_flight(it) < it.window:
        index = next_lost(net, it)
        if index == NONE or _is_paced(net, it):
            return
        _resend(net, it, index)
        it.resent += 1
        note_paced(net, it, 1, segment_at(net, index).size_bytes)


# ---- validating that the window is used ------------------------------------------------------------------------------


def _validate(net: Network, it: Connection, limited: bool) -> None:
    """Note whether the window limits the connection; shrink a window that has long not been used."""
    if it.first >= it.limited_until or limited or (not it.is_limited and out(it) > it.most_out):
        it.is_limited = limited
        it.most_out = out(it)
        it.limited_until = it.following
    if _uses_window(it):
        it.window_used = 0
        it.window_used_s = net.now
        return
    it.window_used = max(it.window_used, out(it))
    if it.restarts and net.now - it.window_used_s >= timeout_s(it):
        _shrink_unused(net, it)


def _uses_window(it: Connection) -> bool:
    return it.is_limited or (it.window < it.threshold and it.window < 2 * it.most_out)


def _shrink_unused(net: Network, it: Connection) -> None:
    """Drop half of the unused part of the window, after a timeout's time of using only a part (RFC 2861)."""
    used = max(it.window_used, it.first_window)
    if it.recovery == OPEN and used < it.window:
        it.threshold = _present_threshold(it)
        it.window = (it.window + used) // 2
    it.window_used = 0
    it.window_used_s = net.now


def _shrink_after_idle(net: Network, it: Connection) -> None:
    """Halve the window for each timeout in which nothing was sent (RFC 2861; Linux: ``tcp_cwnd_restart``)."""
    timeout = timeout_s(it)
    idle_s = net.now - it.last_sent_s
    if idle_s <= timeout:
        return
    it.threshold = _present_threshold(it)
    least = min(it.first_window, it.window)
    idle_s -= timeout
    while idle_s > 0 and it.window > least:
        it.window //= 2
        idle_s -= timeout
    it.window = max(it.window, least)
    it.window_used = 0
    it.window_used_s = net.now


def _present_threshold(it: Connection) -> float:
    if it.recovery == RECOVERY:
        return it.threshold
    return max(it.threshold, float(it.window // 2 + it.window // 4))


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def take_acknowledgement(net: Network, it: Connection, packet: int) -> None:
    """Take an acknowledgement, and retransmit the segments that it shows to be lost."""
    told = packet_at(net, packet)
    now = net.now
    prior_lost = it.lost
    prior_marked = it.marked
    prior_in_flight = in_flight(it)
    it.stamp_s = max(it.stamp_s, told.stamp_s)
    it.edge_bytes = max(it.edge_bytes, told.edge_bytes)
    delivered = acknowledge(net, it, told.number, told.beyond, told.time_s)
    if delivered.oldest_s <= now:  # otherwise NaN: there is no sample
        observe_round_trip(it, now - delivered.oldest_s)
        if it.control == CUBIC:
            observe_delay(it, now, now - delivered.latest_s, _pacing_bytes_per_s(it))
    if 0 <= it.probe_ends <= told.number:
        _take_answer_of_probe(it, told.number, told.flag)
    if not delivered.segments or it.sacked or it.lost or it.recovery != OPEN:
        _recover(net, it, delivered.advanced and told.time_s < it.noted_s)
    if delivered.segments:
        _set_timer(net, it, False)
    if it.control == BBR:
        rtt_s = now - delivered.latest_s if delivered.latest_s <= now else -1.0
        sample = rate_sample(it, now, delivered.segments, it.marked - prior_marked, prior_in_flight, rtt_s)
        update_bbr(net, it, sample, it.recovery != OPEN)
    else:
        _set_window(net, it, delivered, prior_lost)
    keep_room(net, it.window)
    _resend_lost(net, it)


def _set_window(net: Network, it: Connection, delivered: Delivered, prior_lost: int) -> None:
    if it.recovery == RECOVERY:
        _reduce(it, delivered.segments, delivered.advanced and it.lost <= prior_lost)
    elif delivered.advanced and _uses_window(it):
        grow(it, net.now, delivered.segments)


# ---- recovery --------------------------------------------------------------------------------------------------------


def _recover(net: Network, it: Connection, spurious: bool) -> None:
    """Begin, end or undo recovery. ``spurious``: the segment acknowledged was sent before the last loss was noted."""
    if it.recovery != OPEN and spurious:
        _undo(net, it)
    elif it.recovery != OPEN and it.first >= it.high:
        if it.recovery == RECOVERY:
            _end_reduction(it)
        it.recovery = OPEN
    _find_lost(net, it)


def _find_lost(net: Network, it: Connection) -> None:
    settle_s = 0.0
    if it.recovery == OPEN and it.sacked < _DUPLICATES:
        settle_s = min(it.least_s / 4, it.smoothed_s)
    it.reordering_at_s = find_lost(net, it, settle_s)
    if it.lost and it.recovery == OPEN:
        it.recovery = RECOVERY
        it.high = it.following
        it.probe_ends = NONE
        it.recovered = 0
        it.resent = 0
        _note_loss(net, it)


def _note_loss(net: Network, it: Connection) -> None:
    it.prior_window = it.window
    it.prior_threshold = it.threshold
    it.noted_s = net.now
    _lower_threshold(it)


def _lower_threshold(it: Connection) -> None:
    if it.control == BBR:
        keep_window(it)  # BBR has no threshold
    else:
        it.threshold = reduced_threshold(it)


def _reduce(it: Connection, delivered: int, advanced: bool) -> None:
    """Let the window follow the delivered segments (PRR).

    ``advanced``: the acknowledgement advanced in order, and no more segments are lost than before.
    """
    if delivered <= 0:
        return
    under_way = in_flight(it)
    threshold = int(it.threshold)
    it.recovered += delivered
    if under_way > threshold:
        send = math.ceil(threshold * it.recovered / it.prior_window) - it.resent
    else:
        send = max(it.recovered - it.resent, delivered) + (1 if advanced else 0)
        send = min(threshold - under_way, send)
    it.window = under_way + max(send, 0 if it.resent else 1)


def _end_reduction(it: Connection) -> None:
    if it.control != BBR:
        it.window = int(it.threshold)


def _take_answer_of_probe(it: Connection, number: int, duplicate: bool) -> None:
    if not it.probe_resent or duplicate:
        it.probe_ends = NONE
    elif number > it.probe_ends:  # the probe has repaired a loss
        it.probe_ends = NONE
        _lower_threshold(it)
        _end_reduction(it)


def _time_out(net: Network, it: Connection) -> None:
    """Mark the segments under way as lost, and begin again with a window of one segment."""
    if it.recovery == OPEN or it.high <= it.first:
        _note_loss(net, it)
    lose_all(net, it)
    if it.control == BBR:
        bbr_timed_out(it)
    elif it.control == CUBIC:
        begin_cubic_anew(it, net.now)
    it.recovery = LOSS
    it.high = it.following
    it.probe_ends = NONE
    it.window = in_flight(it) + 1
    it.backoff += 1
    if is_hopeless(it):
        it.timer_s = math.inf
        return
    _resend_lost(net, it)
    it.timer_s = fires_s(net.now, net.now + timeout_s(it))


def _undo(net: Network, it: Connection) -> None:
    """Nothing was lost: restore the state from before the loss was noted."""
    none_lost(net, it)
    if it.control == BBR:
        bbr_undone(it)
    else:
        it.window = max(it.window, it.prior_window)
    it.threshold = it.prior_threshold
    it.recovery = OPEN


# ---- timers ----------------------------------------------------------------------------------------------------------


def _set_timer(net: Network, it: Connection, after_sending: bool) -> None:
    now = net.now
    if not out(it):
        it.timer_s = math.inf
        it.reordering_at_s = math.inf
        return
    if after_sending and it.timer_s < math.inf and it.recovery != OPEN:
        return  # the oldest segment's timer keeps running
    at_s = (segment_at(net, it.head).sent_s if after_sending else now) + timeout_s(it)
    if it.recovery == OPEN:  # a timeout in the past does not limit the probe (``tcp_schedule_loss_probe``)
        probe_at_s = now + probe_s(it)
        if at_s <= now:
            at_s = probe_at_s
        elif it.probe_ends < 0:
            at_s = min(at_s, probe_at_s)
    it.timer_s = fires_s(now, max(at_s, now))
    wake_sender(net, it)


def wake_sender(net: Network, it: Connection) -> None:
    """Schedule an event for when the sender's next timer expires."""
    at_s = min(it.timer_s, it.reordering_at_s)
    if at_s < it.wakes_s:
        it.wakes_s = at_s
        schedule(net, at_s, SENDER_TIMER, it.index)


def on_sender_timer(net: Network, it: Connection) -> bool:
    """Handle timers that have expired. Return whether the window may have room now.

    The caller then calls ``wake_sender``, after using the room.
    """
    it.wakes_s = math.inf
    if it.reordering_at_s <= net.now:
        _find_lost(net, it)
        if it.recovery == RECOVERY and not it.recovered and it.control != BBR:
            _reduce(it, 1, False)
        _resend_lost(net, it)
        if it.recovery == RECOVERY:  # the timer is no longer that of a probe (``tcp_rack_reo_timeout``)
            it.timer_s = fires_s(net.now, max(segment_at(net, it.head).sent_s + timeout_s(it), net.now))
        return True
    if it.timer_s <= net.now and out(it):
        if it.recovery == OPEN and it.probe_ends < 0:  # a probe comes before the timeout
            _probe(net, it)
        else:
            _time_out(net, it)
    return False


def on_pacer(net: Network, it: Connection) -> None:
    it.waits_for_pacer = False
    _resend_lost(net, it)


def _probe(net: Network, it: Connection) -> None:
    """Send a tail loss probe, after two round trips without an acknowledgement: new data, or the last segment again."""
    it.probe_resent = not it.unsent_bytes or out(it) >= it.limit
    if it.probe_resent:
        _resend(net, it, it.tail)
    else:
        _send_new(net, it, True)
    it.probe_ends = it.following
    it.timer_s = fires_s(net.now, net.now + timeout_s(it))
