"""The round-trip time and the retransmission timeout of a connection (RFC 6298, as Linux computes them).

The timeout uses the largest deviation within a round trip. When later round trips have a smaller one, it approaches
that by a quarter of the difference per round trip (``tcp_rtt_estimator``).
"""

from __future__ import annotations

import math

from testbed.simulation.packets.records import Connection

TICK_S = 0.01  # Linux' timers fire at ticks: HZ is 100 in the kernel of exact runs, and 250 or 1000 in distributions'
LEAST_TIMEOUT_S = 0.2  # TCP_RTO_MIN, the least value of four mean deviations
_PROBE_S = 0.002  # TCP_TIMEOUT_MIN_US
_ROUNDING = 1e-9
_MOST_S = 120.0  # TCP_RTO_MAX
_MOST_TIMEOUTS = 15  # in a row (tcp_retries2)


def begin_round_trips(it: Connection, first_s: float) -> None:
    it.smoothed_s = first_s
    it.least_s = first_s  # the least of all samples
    it.deviation_s = 2 * first_s  # this and the next two are four times a mean deviation
    it.variation_s = max(it.deviation_s, LEAST_TIMEOUT_S)
    it.largest_s = it.variation_s
    it.rtt_round_ends = -1


def observe_round_trip(it: Connection, sample_s: float) -> None:
    """Take a sample of the round-trip time."""
    it.backoff = 0
    it.least_s = min(it.least_s, sample_s)
    error_s = sample_s - it.smoothed_s
    it.smoothed_s += error_s / 8
    if error_s < 0:
        error_s = -error_s - it.deviation_s / 4
        it.deviation_s += error_s / 8 if error_s > 0 else error_s
    else:
        it.deviation_s += error_s - it.deviation_s / 4
    it.largest_s = max(it.largest_s, it.deviation_s)
    it.variation_s = max(it.variation_s, it.largest_s)
    if it.first > it.rtt_round_ends:
        if it.largest_s < it.variation_s:
            it.variation_s -= (it.variation_s - it.largest_s) / 4
        it.rtt_round_ends = it.following
        it.largest_s = LEAST_TIMEOUT_S


def is_hopeless(it: Connection) -> bool:
    """Whether so many timeouts have expired that TCP gives up."""
    return it.backoff > _MOST_TIMEOUTS


def timeout_s(it: Connection) -> float:
    return min((it.smoothed_s + it.variation_s) * 2.0**it.backoff, _MOST_S)


def probe_s(it: Connection) -> float:
    """Return the time after which a tail loss probe is sent (RFC 8985, 7.2)."""
    is_alone = it.following - it.first == 1
    return 2 * it.smoothed_s + (LEAST_TIMEOUT_S if is_alone else _PROBE_S)


def tick_at(at_s: float) -> int:
    """Return the number of the last tick before or at ``at_s``."""
    return math.floor(at_s / TICK_S + _ROUNDING)


def fires_s(now_s: float, at_s: float) -> float:
    """Return when a timer fires if it is set now for ``at_s``. One tick is added, as it must never fire early."""
    ticks = math.ceil((at_s - now_s) / TICK_S - _ROUNDING)
    return (tick_at(now_s) + ticks + 1) * TICK_S
