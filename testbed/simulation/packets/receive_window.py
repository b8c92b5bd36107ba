"""The receive window, which Linux grows with the segments that arrive and with the program's reading speed.

A segment takes more memory than its payload. So the window is the receive buffer's memory times the share of payload in
a full segment's memory. It begins at 64 kB and grows by two segments for each one that arrives, up to what the buffer
holds (``tcp_grow_window``). The buffer grows when the program reads more in a round-trip time than in any before, so
that a sender can double its rate ("dynamic right-sizing": ``tcp_rcv_space_adjust``). While its window grows, a receiver
acknowledges without delay; therefore this module also sets ``quick``.
"""

from __future__ import annotations

import math

from testbed.simulation.packets.records import Connection
from testbed.simulation.packets.segment import SEGMENT_BYTES

_FIRST_BUFFER_BYTES = 131_072  # tcp_rmem
_FIRST_WINDOW_BYTES = 65_280  # announced in the handshake
_FIRST_GOAL_BYTES = 64_088  # half of the buffer, without one segment
_FIRST_SPACE_BYTES = 10 * SEGMENT_BYTES
_FIRST_FULL_BYTES = 536  # TCP_MSS_DEFAULT: assumed size of a full segment until one has arrived
_WINDOW_UNIT_BYTES = 256  # unit of the window in a header, for buffers of up to 8 MB
_RATIO_BITS = 8  # TCP_RMEM_TO_WIN_SCALE: shares are in 256ths
_OVERHEAD_BYTES = 960  # memory beside the payload, of one segment or of several joined ones (``skb->truesize``)
_HEADER_BYTES = 32  # of TCP with timestamps
_WAKE_UP_S = 1e-5  # time to wake a program: reads one round trip apart are really further apart by this
_LEAST_RTT_S = 1e-3  # tcp_rcvbuf_low_rtt: at shorter round-trip times a buffer grows less
_PUSHED = 1  # ICSK_ACK_PUSHED: acknowledge once the program has read
_PUSHED_TWICE = 2  # ICSK_ACK_PUSHED2


def begin_window(it: Connection, now_s: float) -> None:
    it.receive_buffer_bytes = min(_FIRST_BUFFER_BYTES, it.most_buffer_bytes)
    it.window_share = 1 << (_RATIO_BITS - 1)
    it.window_clamp_bytes = min(_FIRST_GOAL_BYTES, _window_of(it, it.receive_buffer_bytes))
    it.window_goal_bytes = it.window_clamp_bytes
    it.window_bytes = min(_FIRST_WINDOW_BYTES, it.receive_buffer_bytes // 2)
    it.full_bytes = _FIRST_FULL_BYTES
    it.space_bytes = _FIRST_SPACE_BYTES
    it.space_from_s = now_s - 2 * it.rtt_s  # when the connection was made
    it.window_timed_from_s = now_s - 1.5 * it.rtt_s  # when the first bytes arrived
    it.window_timed_until_bytes = it.window_bytes
    it.stamp_heard_s = -math.inf


def _window_of(it: Connection, memory_bytes: int) -> int:
    """``tcp_win_from_space``"""
    return (memory_bytes * it.window_share) >> _RATIO_BITS


def _free_bytes(it: Connection) -> int:
    """Return the payload that fits into the buffer's free memory (``tcp_space``)."""
    used_bytes = it.unread_bytes + it.gaps * SEGMENT_BYTES
    if it.unread_bytes:
        used_bytes += _OVERHEAD_BYTES
    if it.gaps:
        used_bytes += _OVERHEAD_BYTES
    return _window_of(it, it.receive_buffer_bytes - used_bytes)


def _in_units(size_bytes: int) -> int:
    return -(-size_bytes // _WINDOW_UNIT_BYTES) * _WINDOW_UNIT_BYTES


# ---- the announced window --------------------------------------------------------------------------------------------


def next_window(it: Connection) -> int:
    """Return the window that could be announced now (``__tcp_select_window``)."""
    free_bytes = _free_bytes(it)
    if 2 * free_bytes < min(it.window_clamp_bytes, _window_of(it, it.receive_buffer_bytes)):
        it.quick = 0
    return _in_units(min(free_bytes, it.window_goal_bytes))


def announce_window(it: Connection) -> int:
    """Return the end of the window, as a position in the stream (``tcp_select_window``). It never moves back."""
    left_bytes = max(it.told_bytes + it.window_bytes - it.received_bytes, 0)
    it.window_bytes = max(next_window(it), _in_units(left_bytes))
    it.told_bytes = it.received_bytes
    return it.told_bytes + it.window_bytes


# ---- segments that arrive --------------------------------------------------------------------------------------------


def measure_segment(it: Connection, size_bytes: int, pushed: bool) -> None:
    """Update the size of a full segment, and ``pushes`` for a pushed or small one (``tcp_measure_rcv_mss``)."""
    last_bytes = it.last_small_bytes
    it.last_small_bytes = 0
    if size_bytes >= it.full_bytes:
        if size_bytes != it.full_bytes:
            _measure_share(it, size_bytes)
        it.full_bytes = size_bytes
        if pushed:
            it.pushes = max(it.pushes, _PUSHED)
        return
    with_header_bytes = size_bytes + _HEADER_BYTES
    if with_header_bytes >= 556 or (with_header_bytes >= 108 and not pushed):
        it.last_small_bytes = size_bytes
        if size_bytes == last_bytes:
            it.full_bytes = size_bytes
            return
    it.pushes = _PUSHED_TWICE if it.pushes else _PUSHED


def _measure_share(it: Connection, size_bytes: int) -> None:
    share = (size_bytes << _RATIO_BITS) // (size_bytes + _OVERHEAD_BYTES)
    if share != it.window_share:
        it.window_share = share
        it.window_clamp_bytes = _window_of(it, it.receive_buffer_bytes)
        it.space_bytes = min(it.space_bytes, it.window_clamp_bytes)


def grow_window(it: Connection, size_bytes: int) -> None:
    """Let the window grow after a segment has arrived, if the buffer has room (``tcp_grow_window``)."""
    room_bytes = min(it.window_clamp_bytes, _free_bytes(it)) - it.window_goal_bytes
    if room_bytes <= 0:
        return
    it.window_goal_bytes += min(room_bytes, 2 * max(size_bytes, SEGMENT_BYTES))
    it.quick |= 1


# ---- the receiver's round-trip time, and the buffer ------------------------------------------------------------------


def time_by_stamp(it: Connection, now_s: float, stamp_s: float, size_bytes: int) -> None:
    """Measure the round-trip time from an acknowledgement at ``stamp_s`` to the segment that answers it, in whole ms.

    Linux: ``tcp_rcv_rtt_measure_ts``.
    """
    if stamp_s == it.stamp_heard_s:
        return
    it.stamp_heard_s = stamp_s
    if size_bytes >= it.full_bytes:
        took_s = (math.floor(now_s * 1e3) - math.floor(stamp_s * 1e3)) / 1e3
        if took_s > 0:
            if it.receive_rtt_s == 0.0 or took_s < it.receive_rtt_s:
                it.receive_rtt_s = took_s
            elif not it.unread_bytes:
                it.receive_rtt_s += (took_s - it.receive_rtt_s) / 8


def time_by_window(it: Connection, now_s: float) -> None:
    """Measure the round-trip time as the time in which a whole window arrives (``tcp_rcv_rtt_measure``).

    A window takes at least a round-trip time, so only the shortest such time counts.
    """
    if it.received_bytes < it.window_timed_until_bytes:
        return
    took_s = now_s - it.window_timed_from_s
    if it.receive_rtt_s == 0.0 or took_s < it.receive_rtt_s:
        it.receive_rtt_s = max(took_s, 1e-6)
    it.window_timed_until_bytes = it.received_bytes + it.window_bytes
    it.window_timed_from_s = now_s


def adjust_buffer(it: Connection, now_s: float) -> None:
    """After the program has read everything, grow the buffer to hold two round trips of reading.

    Linux: ``tcp_rcv_space_adjust``.
    """
    if it.receive_rtt_s == 0.0 or now_s - it.space_from_s < it.receive_rtt_s - _WAKE_UP_S:
        return
    read_bytes = it.received_bytes - it.space_from_bytes
    if read_bytes > it.space_bytes:
        grow_buffer(it, read_bytes)
    it.space_from_bytes = it.received_bytes
    it.space_from_s = now_s


def grow_buffer(it: Connection, space_bytes: int) -> None:
    """``tcp_rcvbuf_grow``"""
    before_bytes = it.space_bytes
    it.space_bytes = space_bytes
    window_bytes = 2 * space_bytes
    if it.receive_rtt_s < _LEAST_RTT_S:
        window_bytes += int(window_bytes * it.receive_rtt_s / _LEAST_RTT_S)
    else:
        window_bytes += 2 * window_bytes * (space_bytes - before_bytes) // before_bytes
    if it.gaps:
        window_bytes += (it.farthest + 1 - it.expected) * SEGMENT_BYTES
    memory_bytes = min((window_bytes << _RATIO_BITS) // it.window_share, it.most_buffer_bytes)
    if memory_bytes > it.receive_buffer_bytes:
        it.receive_buffer_bytes = memory_bytes
        it.window_clamp_bytes = _window_of(it, memory_bytes)
