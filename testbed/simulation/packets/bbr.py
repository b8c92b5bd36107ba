"""BBR (Cardwell, Cheng, Gunn, Hassas Yeganeh and Jacobson 2016), version 1 as Linux computes it (``tcp_bbr.c``).

The model of the path has a rate, the largest delivery rate of ten round trips, and a round-trip time, the least of ten
seconds. Their product is the bandwidth-delay product (BDP). Segments are paced at a gain times the rate. At most two
BDPs are under way, plus an allowance for bursts and for acknowledgements that arrive gathered.

startup    gain 2/ln 2, until three round trips have not raised the rate by a quarter
drain      gain ln 2 / 2, until no more than a BDP is under way
probe rate  a cycle of eight phases with the gains 5/4, 3/4 and six times 1; each lasts a least round-trip time
probe RTT  only four segments under way for 0.2 s, when the round-trip time has not been as low for ten seconds
policed    if two intervals with a fifth of losses have about the same rate, it is kept for 48 round trips

Rates are in segments per second. A lost segment changes the window only until it is repaired.
"""

from __future__ import annotations

import math

from testbed.simulation.packets.delivery_rate import RateSample, add_rate, begin_delivery, limit_by_application
from testbed.simulation.packets.generator import draw_below_eight
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.scoreboard import in_flight
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.tcp_model import LEAST_RTT_S

# 2/ln 2 and its inverse, as Linux rounds them
_HIGH_GAIN = 739 / 256
_DRAIN_GAIN = 88 / 256
_WINDOW_GAIN = 2.0
_UP_GAIN = 1.25  # of the first phase of a cycle; from the third phase on the gain is 1
_DOWN_GAIN = 0.75  # of the second phase
_PHASES = 8
_FIRST_PHASES = 7  # the cycle begins with a random phase, but never with the second one, which drains
_MARGIN = 0.99  # share of the estimated rate that is used, so that queues drain in the end
_RATE_ROUNDS = 10
_FULL_GROWTH = 1.25
_FULL_ROUNDS = 3
_LEAST_WINDOW = 4
_FIRST_WINDOW = 10
_RTT_KEPT_S = 10.0
_PROBE_RTT_S = 0.2
_BURST_S = 1 / 1024  # a burst has the bytes that the rate sends in this time (sk_pacing_shift)
_BURST_BYTES = 65_536 - 1 - 320  # GSO_LEGACY_MAX_SIZE, less the largest headers
_SMALL_RATE = 150_000  # bytes per second; at lower rates segments leave one by one
_EXTRA_ROUNDS = 5
_EXTRA_S = 0.1
_POLICED_ROUNDS = 4
_POLICED_MOST_ROUNDS = 16
_POLICED_KEPT_ROUNDS = 48
_POLICED_LOSS = 50 / 256
_POLICED_NEAR = 1 / 8
_POLICED_NEAR_BYTES_PER_S = 500

# ``Connection.mode``: what the sender is doing
STARTUP = 0
DRAIN = 1
PROBE_RATE = 2
PROBE_RTT = 3


def begin_bbr(it: Connection, now_s: float) -> None:
    """Begin with the handshake's round-trip times and the first window."""
    begin_delivery(it, now_s)
    it.path_rtt_s = it.least_s
    it.path_rtt_seen_s = now_s
    it.pacing_gain = _HIGH_GAIN
    it.phase_s = now_s
    it.probe_rtt_ends_s = math.inf
    it.extra_epoch_s = now_s
    reset_policer(it)
    it.pacing_bytes_per_s = _paced(it.first_window / max(it.rtt_s, LEAST_RTT_S), _HIGH_GAIN)


def _paced(rate: float, gain: float) -> float:
    return _MARGIN * gain * rate * SEGMENT_BYTES


def burst_segments(it: Connection) -> int:
    """Return the number of segments in a burst."""
    least = 1 if it.pacing_bytes_per_s < _SMALL_RATE else 2
    return max(least, int(min(it.pacing_bytes_per_s * _BURST_S, float(_BURST_BYTES)) / SEGMENT_BYTES))


def _estimate(it: Connection) -> float:
    return it.policed_rate if it.policed_rate > 0.0 else it.best_rate


def paced_for_s(it: Connection, now_s: float) -> float:
    """Return how long the next burst has to wait."""
    return max(0.0, it.pacer_s - now_s)


# ---- events ----------------------------------------------------------------------------------------------------------


def resume_bbr(net: Network, it: Connection) -> None:
    """Begin to send while nothing is under way."""
    if it.application_limited_until == 0:
        return
    it.begins_again = True
    it.extra_epoch_s = net.now
    it.extra_segments = 0
    if it.mode == PROBE_RATE:
        _set_pacing(it, 1.0)
    elif it.mode == PROBE_RTT:
        _end_probe_of_rtt(net, it)


def keep_window(it: Connection) -> None:
    """Keep the present window, to restore it after repairing losses or probing the round-trip time."""
    if it.repairs or it.mode == PROBE_RTT:
        it.kept_window = max(it.kept_window, it.window)
    else:
        it.kept_window = it.window


def bbr_timed_out(it: Connection) -> None:
    it.repairs = True
    it.full_rate = 0.0
    it.round_starts = True
    sample_policer(it, True, False, False)


def bbr_undone(it: Connection) -> None:
    it.full_rate = 0.0
    it.full_rounds = 0
    reset_policer(it)


# ---- the model of the path -------------------------------------------------------------------------------------------


def update_bbr(net: Network, it: Connection, sample: RateSample, repairs: bool) -> None:
    """Update the model, pace and window after an acknowledgement. ``repairs``: whether losses are being repaired."""
    _update_rate(net, it, sample)
    _update_extra(it, sample)
    if it.mode == PROBE_RATE and _phase_is_over(net, it, sample):
        _next_phase(it)
    _look_for_full_path(it, sample)
    _drain(net, it)
    _update_rtt(net, it, sample)
    it.pacing_gain = _mode_gain(it)
    _set_pacing(it, it.pacing_gain)
    _set_window(it, sample, repairs)


def _mode_gain(it: Connection) -> float:
    if it.mode == STARTUP:
        return _HIGH_GAIN
    if it.mode == DRAIN:
        return _DRAIN_GAIN
    if it.mode == PROBE_RTT or it.policed_rate > 0.0:
        return 1.0
    return _phase_gain(it.phase)


def _phase_gain(phase: int) -> float:
    if phase == 0:
        return _UP_GAIN
    return _DOWN_GAIN if phase == 1 else 1.0


def _update_rate(net: Network, it: Connection, sample: RateSample) -> None:
    it.round_starts = False
    if sample.delivered < 0 or sample.interval_s <= 0:
        return
    if sample.prior_delivered >= it.bbr_round_ends:
        it.bbr_round_ends = it.delivered
        it.rounds += 1
        it.round_starts = True
        it.conserves = False
    it.lost_in_all = it.marked
    if sample_policer(it, sample.losses > 0, sample.application_limited, it.mode == PROBE_RATE):
        _begin_probing(net, it)
    rate = sample.delivered / sample.interval_s
    if not sample.application_limited or rate >= it.best_rate:
        add_rate(it, it.rounds, rate, _RATE_ROUNDS)


def _update_extra(it: Connection, sample: RateSample) -> None:
    """Measure how many more segments are acknowledged than the rate explains, as acknowledgements are gathered."""
    if sample.segments <= 0 or sample.delivered < 0 or sample.interval_s <= 0:
        return
    if it.round_starts:
        it.extra_rounds = min(31, it.extra_rounds + 1)
        if it.extra_rounds >= _EXTRA_ROUNDS:
            it.extra_rounds = 0
            it.former_extra = it.extra
            it.extra = 0
    expected = _estimate(it) * (it.delivered_s - it.extra_epoch_s)
    if it.extra_segments <= expected:
        it.extra_segments = 0
        it.extra_epoch_s = it.delivered_s
        expected = 0.0
    it.extra_segments += sample.segments
    it.extra = max(it.extra, min(it.extra_segments - int(expected), it.window))


def _phase_is_over(net: Network, it: Connection, sample: RateSample) -> bool:
    has_lasted = it.delivered_s - it.phase_s > it.path_rtt_s
    if it.pacing_gain == 1.0:
        return has_lasted
    under_way = _in_network(net, it, sample.prior_in_flight)
    if it.pacing_gain > 1.0:
        return has_lasted and (sample.losses > 0 or under_way >= _held(it, it.best_rate, it.pacing_gain))
    return has_lasted or under_way <= _held(it, it.best_rate, 1.0)


def _next_phase(it: Connection) -> None:
    it.phase = (it.phase + 1) % _PHASES
    it.phase_s = it.delivered_s


def _begin_probing(net: Network, it: Connection) -> None:
    it.mode = PROBE_RATE
    it.phase = _PHASES - 1 - draw_below_eight(net, it.generator, _FIRST_PHASES)
    _next_phase(it)


def _look_for_full_path(it: Connection, sample: RateSample) -> None:
    if it.path_is_full or not it.round_starts or sample.application_limited:
        return
    if it.best_rate >= _FULL_GROWTH * it.full_rate:
        it.full_rate = it.best_rate
        it.full_rounds = 0
        return
    it.full_rounds += 1
    it.path_is_full = it.full_rounds >= _FULL_ROUNDS


def _drain(net: Network, it: Connection) -> None:
    if it.mode == STARTUP and it.path_is_full:
        it.mode = DRAIN
    if it.mode == DRAIN and _in_network(net, it, in_flight(it)) <= _held(it, it.best_rate, 1.0):
        _begin_probing(net, it)


def _update_rtt(net: Network, it: Connection, sample: RateSample) -> None:
    has_expired = net.now > it.path_rtt_seen_s + _RTT_KEPT_S
    if sample.rtt_s >= 0 and (sample.rtt_s < it.path_rtt_s or has_expired):
        it.path_rtt_s = sample.rtt_s
        it.path_rtt_seen_s = net.now
    if has_expired and not it.begins_again and it.mode != PROBE_RTT:
        it.mode = PROBE_RTT
        keep_window(it)
        it.probe_rtt_ends_s = math.inf
    if it.mode == PROBE_RTT:
        limit_by_application(it, in_flight(it))
        if it.probe_rtt_ends_s == math.inf and in_flight(it) <= _LEAST_WINDOW:
            it.probe_rtt_ends_s = net.now + _PROBE_RTT_S
            it.probe_round_done = False
            it.bbr_round_ends = it.delivered
        elif it.probe_rtt_ends_s < math.inf:
            it.probe_round_done = it.probe_round_done or it.round_starts
            if it.probe_round_done:
                _end_probe_of_rtt(net, it)
    if sample.delivered > 0:
        it.begins_again = False


def _end_probe_of_rtt(net: Network, it: Connection) -> None:
    if net.now <= it.probe_rtt_ends_s:
        return
    it.path_rtt_seen_s = net.now
    it.window = max(it.window, it.kept_window)
    if it.path_is_full:
        _begin_probing(net, it)
    else:
        it.mode = STARTUP


# ---- the pace and the window -----------------------------------------------------------------------------------------


def _held(it: Connection, rate: float, gain: float) -> int:
    """Return how many segments should be under way: a gain times the BDP, plus the allowance for bursts."""
    return _with_bursts(it, math.ceil(rate * it.path_rtt_s * gain - 1e-6))


def _with_bursts(it: Connection, segments: int) -> int:
    segments += 3 * burst_segments(it)
    segments += segments % 2  # an even number, as every second segment is acknowledged
    return segments + 2 if it.mode == PROBE_RATE and it.phase == 0 else segments


def _in_network(net: Network, it: Connection, under_way: int) -> int:
    """Return how many segments will be under way when the next one leaves."""
    if it.pacing_gain > 1.0:
        under_way += burst_segments(it)
    return max(0, under_way - int(_estimate(it) * paced_for_s(it, net.now)))


def _set_pacing(it: Connection, gain: float) -> None:
    rate = _paced(_estimate(it), gain)
    if it.path_is_full or rate > it.pacing_bytes_per_s:
        it.pacing_bytes_per_s = rate


def _set_window(it: Connection, sample: RateSample, repairs: bool) -> None:
    if sample.segments:
        window = max(it.window - sample.losses, 1) if sample.losses else it.window
        if repairs and not it.repairs:  # for one round trip, send as many segments as arrive
            it.conserves = True
            it.bbr_round_ends = it.delivered
            window = in_flight(it) + sample.segments
        elif it.repairs and not repairs:
            window = max(window, it.kept_window)
            it.conserves = False
        it.repairs = repairs
        if it.conserves:
            window = max(window, in_flight(it) + sample.segments)
        else:
            window = _grown(it, window, sample.segments)
        it.window = window
    if it.mode == PROBE_RTT:
        it.window = min(it.window, _LEAST_WINDOW)


def _grown(it: Connection, window: int, acknowledged: int) -> int:
    gain = _HIGH_GAIN
    if it.mode == PROBE_RATE:
        gain = _WINDOW_GAIN
    elif it.mode == PROBE_RTT:
        gain = 1.0
    target = math.ceil(_estimate(it) * it.path_rtt_s * gain - 1e-6)
    if it.path_is_full:
        target += int(min(float(max(it.extra, it.former_extra)), _estimate(it) * _EXTRA_S))
    target = _with_bursts(it, target)
    if it.path_is_full:
        window = min(window + acknowledged, target)
    elif window < target or it.delivered < _FIRST_WINDOW:
        window += acknowledged
    return max(window, _LEAST_WINDOW)


# ---- detecting a policer, which drops packets above some rate --------------------------------------------------------


def reset_policer(it: Connection) -> None:
    it.policed_rate = 0.0
    it.policed_before = 0.0
    it.policed_samples = False
    _begin_interval(it)


def _begin_interval(it: Connection) -> None:
    it.policed_s = it.delivered_s
    it.policed_delivered = it.delivered
    it.policed_lost = it.lost_in_all
    it.policed_rounds = 0


def sample_policer(it: Connection, has_losses: bool, application_limited: bool, probes: bool) -> bool:
    """Take a rate sample, or a timeout. Return whether the policer's rate has now been used for long enough."""
    if it.policed_rate > 0.0:
        if probes and it.round_starts:
            it.policed_rounds += 1
        is_over = it.policed_rounds >= _POLICED_KEPT_ROUNDS
        if is_over:
            reset_policer(it)
        return is_over
    if not it.policed_samples:
        if not has_losses:
            return False
        _begin_interval(it)
        it.policed_samples = True
    if it.round_starts:
        it.policed_rounds += 1
    if application_limited or it.policed_rounds > _POLICED_MOST_ROUNDS:
        reset_policer(it)
    elif it.policed_rounds >= _POLICED_ROUNDS and has_losses:
        _end_interval(it)
    return False


def _end_interval(it: Connection) -> None:
    delivered = it.delivered - it.policed_delivered
    lost = it.lost_in_all - it.policed_lost
    lasted_s = it.delivered_s - it.policed_s
    if not delivered or lost < _POLICED_LOSS * delivered or lasted_s < 1e-3:
        return
    rate = delivered / lasted_s
    difference = abs(rate - it.policed_before)
    if it.policed_before > 0.0 and (
        difference <= _POLICED_NEAR * it.policed_before or difference * SEGMENT_BYTES <= _POLICED_NEAR_BYTES_PER_S
    ):
        it.policed_rate = (rate + it.policed_before) / 2
        it.policed_rounds = 0
        return
    it.policed_before = rate
    _begin_interval(it)
