"""Congestion control of packet-level TCP: Reno and CUBIC with HyStart, as Linux computes them, in segments.

Slow start adds the acknowledged segments to the window W, up to the threshold. Then W grows by one segment per
``count`` acknowledged ones. Reno: count = W (RFC 5681, 3.1). CUBIC (RFC 9438) aims at the larger of two windows:
Wm + 0.4·(t - K)³ an RTT from now, with the time t since the last reduction and K = ((Wm - W0) / 0.4)^(1/3); and
Reno's window if it grows by 3·(1 - β) / (1 + β) segments per RTT. W grows by at most half a segment per acknowledged
one, and by at least a twentieth before the first loss.

HyStart (Ha and Rhee 2011) ends slow start when W is at least 16 segments and the path seems to be full: when a train of
acknowledgements, with gaps of at most 2 ms, has lasted for half of the least RTT; or when the least RTT of a round's
first eight samples exceeds the least RTT by an eighth of it (but no less than 4 ms and no more than 16 ms).
"""

from __future__ import annotations

import math

from testbed.simulation.packets.records import Connection

# ``Connection.control``
RENO = 0
CUBIC = 1
BBR = 2

_LOW_WINDOW = 16  # hystart_low_window
_TRAIN_S = 2e-3  # hystart_ack_delta_us
_SAMPLES = 8  # HYSTART_MIN_SAMPLES
_AGGREGATED_BYTES = 4 * 65_536  # hystart_ack_delay: bytes that segmentation offload may hold back, for at most 1 ms
_RECENT_S = 1.0  # time after a reduction in which delays are not measured
_GROWTH = 0.4  # C of RFC 9438, segments per s³
_BETA = 717 / 1024
_RENO_SHARE = 15 / 8  # 1 / (3·(1 - β) / (1 + β)) in eighths, rounded down as Linux does


def begin_congestion(it: Connection) -> None:
    it.round_ends = -1
    it.round_begin_s = -math.inf
    it.train_s = -math.inf
    it.round_least_s = math.inf
    reset_cubic(it)


def reset_cubic(it: Connection) -> None:
    it.has_found_end = False
    it.delay_s = math.inf  # the least since then
    it.has_epoch = False
    it.peak = 0
    it.last_window = 0
    it.origin = 0
    it.reno_acknowledged = 0
    it.reno_window = 0
    it.k_s = 0.0
    it.updated_s = -math.inf
    it.cubic_count = 1


def grow(it: Connection, now_s: float, segments: int) -> None:
    """Let the window grow after ``segments`` were acknowledged. Call this only if the window limits the connection."""
    if it.window < it.threshold:
        before = it.window
        it.window = int(min(float(before + segments), it.threshold))
        segments -= it.window - before
        if segments <= 0:
            return
    count = cubic_count(it, now_s, segments) if it.control == CUBIC else it.window
    if it.grown >= count:
        it.grown = 0
        it.window += 1
    it.grown += segments
    if it.grown >= count:
        it.window += it.grown // count
        it.grown %= count


def cubic_count(it: Connection, now_s: float, segments: int) -> int:
    window = it.window
    it.reno_acknowledged += segments
    if it.last_window == window and now_s - it.updated_s <= 1 / 32:
        return it.cubic_count
    it.last_window = window
    it.updated_s = now_s
    if not it.has_epoch:
        it.has_epoch = True
        it.epoch_s = now_s
        it.reno_acknowledged = segments
        it.reno_window = window
        it.k_s = (max(it.peak - window, 0) / _GROWTH) ** (1 / 3)
        it.origin = max(it.peak, window)
    delay_s = it.delay_s if it.delay_s < math.inf else 0.0  # 0 while unknown, as in Linux
    target = it.origin + math.trunc(_GROWTH * (now_s - it.epoch_s + delay_s - it.k_s) ** 3.0)
    count = window // (target - window) if target > window else 100 * window
    if not it.peak:
        count = min(count, 20)
    per_segment = int(window * _RENO_SHARE)
    while it.reno_acknowledged > per_segment:
        it.reno_acknowledged -= per_segment
        it.reno_window += 1
    if it.reno_window > window:
        count = min(count, window // (it.reno_window - window))
    it.cubic_count = max(count, 2)
    return it.cubic_count


def reduced_threshold(it: Connection) -> float:
    """Return the threshold after a loss."""
    it.grown = 0
    if it.control == RENO:
        return float(max(it.window // 2, 2))
    it.has_epoch = False
    it.peak = int(it.window * (1 + _BETA) / 2) if it.window < it.peak else it.window
    return float(max(int(it.window * _BETA), 2))


def begin_cubic_anew(it: Connection, now_s: float) -> None:
    """Reset CUBIC and HyStart after a retransmission timeout."""
    reset_cubic(it)
    _begin_round(it, now_s)


def resume_cubic(it: Connection, now_s: float) -> None:
    """Begin to send while nothing is under way."""
    idle_s = now_s - it.last_sent_s
    if idle_s > 0 and it.has_epoch:
        it.epoch_s = min(it.epoch_s + idle_s, now_s)


def observe_delay(it: Connection, now_s: float, rtt_s: float, pacing_bytes_per_s: float) -> None:
    """Take a sample of the round-trip time."""
    if it.has_epoch and now_s - it.epoch_s < _RECENT_S:
        return
    it.delay_s = min(it.delay_s, rtt_s)
    if not it.has_found_end and it.window < it.threshold:
        _look_for_end(it, now_s, rtt_s, pacing_bytes_per_s)


def _begin_round(it: Connection, now_s: float) -> None:
    it.round_begin_s = now_s
    it.train_s = now_s
    it.round_ends = it.following
    it.round_least_s = math.inf
    it.samples = 0


def _look_for_end(it: Connection, now_s: float, rtt_s: float, pacing_bytes_per_s: float) -> None:
    """HyStart: end slow start if the path seems to be full."""
    if it.first > it.round_ends:
        _begin_round(it, now_s)
    if it.window < _LOW_WINDOW:
        return
    if now_s - it.train_s <= _TRAIN_S:
        it.train_s = now_s
        held_s = min(1e-3, _AGGREGATED_BYTES / pacing_bytes_per_s)
        it.has_found_end = now_s - it.round_begin_s > (it.delay_s + held_s) / 2
    it.round_least_s = min(it.round_least_s, rtt_s)
    if it.samples < _SAMPLES:
        it.samples += 1
    elif it.round_least_s > it.delay_s + min(max(it.delay_s / 8, 4e-3), 16e-3):
        it.has_found_end = True
    if it.has_found_end:
        it.threshold = float(it.window)
