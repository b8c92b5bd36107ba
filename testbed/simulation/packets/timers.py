"""The round-trip time and the retransmission timeout of a connection (RFC 6298, as Linux computes them)."""

from __future__ import annotations

import math

_TICK_S = 0.004  # Linux' timers fire at ticks (HZ = 250)
_LEAST_S = 0.2  # TCP_RTO_MIN, of four mean deviations
_MOST_S = 120.0  # TCP_RTO_MAX
_MOST_TIMEOUTS = 15  # one after another (tcp_retries2)


class RoundTripTimes:
    """``least_s``: of all samples.

    The deviation is the largest one of a round trip, and falls by a quarter per round trip (``tcp_rtt_estimator``).
    """

    __slots__ = ("_backoff", "_deviation_s", "_largest_s", "_round_ends", "_variation_s", "least_s", "smoothed_s")

    def __init__(self, first_s: float) -> None:
        self.smoothed_s = self.least_s = first_s
        self._deviation_s = 2 * first_s  # four times the mean deviation, as are the others
        self._variation_s = max(self._deviation_s, _LEAST_S)
        self._largest_s = _LEAST_S
        self._round_ends = 0
        self._backoff = 0

    def observe(self, sample_s: float, acknowledged: int, following: int) -> None:
        """Take a sample. ``acknowledged`` and ``following``: numbers of the first segments that are not acknowledged,
        and that are yet to be sent."""
        self._backoff = 0
        self.least_s = min(self.least_s, sample_s)
        error_s = sample_s - self.smoothed_s
        self.smoothed_s += error_s / 8
        if error_s < 0:
            error_s = -error_s - self._deviation_s / 4
            self._deviation_s += error_s / 8 if error_s > 0 else error_s
        else:
            self._deviation_s += error_s - self._deviation_s / 4
        self._largest_s = max(self._largest_s, self._deviation_s)
        self._variation_s = max(self._variation_s, self._largest_s)
        if acknowledged > self._round_ends:
            if self._largest_s < self._variation_s:
                self._variation_s -= (self._variation_s - self._largest_s) / 4
            self._round_ends = following
            self._largest_s = _LEAST_S

    def back_off(self) -> None:
        self._backoff += 1

    @property
    def hopeless(self) -> bool:
        """Whether so many timeouts have expired that TCP gives up."""
        return self._backoff > _MOST_TIMEOUTS

    @property
    def timeout_s(self) -> float:
        return min((self.smoothed_s + self._variation_s) * 2.0**self._backoff, _MOST_S)

    def probe_s(self, alone: bool) -> float:
        """Return after which time a tail loss probe is sent (RFC 8985, 7.2). ``alone``: one segment is under way."""
        return 2 * self.smoothed_s + (_LEAST_S if alone else 2 * _TICK_S)


def tick_after(at_s: float) -> float:
    """Return the first tick that is not before ``at_s``."""
    return math.ceil(at_s / _TICK_S - 1e-9) * _TICK_S
