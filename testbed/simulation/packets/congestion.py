"""Congestion control of packet-level TCP: Reno and CUBIC with HyStart, as Linux computes them, in segments.

Slow start adds what is acknowledged, up to the threshold. After that the window grows by one segment per ``count``
acknowledged ones. Reno: count = W (RFC 5681, 3.1). CUBIC (RFC 9438): W is to be Wm + 0.4·(t - K)³ an RTT from now, t
the time since the last reduction, K = ((Wm - W0) / 0.4)^(1/3); or Reno's window with 3·(1 - β) / (1 + β) segments per
RTT, if that is more; at most half a segment per acknowledged one, and without a loss before at least a twentieth.

HyStart (Ha and Rhee 2011) ends slow start from 16 segments on, when acknowledgements have come in one train, with gaps
of 2 ms at most, for half of the least RTT; or when the least RTT of the first eight samples of a round is larger than
that by an eighth of it, 4 to 16 ms.
"""

from __future__ import annotations

import math
from typing import Protocol

_LOW_WINDOW = 16  # hystart_low_window
_TRAIN_S = 2e-3  # hystart_ack_delta_us
_SAMPLES = 8  # HYSTART_MIN_SAMPLES
_AGGREGATED_BYTES = 4 * 65_536  # hystart_ack_delay: what segmentation offload may hold back, at most for 1 ms
_RECENT_S = 1.0  # after a reduction no delays are measured
_GROWTH = 0.4  # C of RFC 9438, segments per s³
_BETA = 717 / 1024
_RENO_SHARE = 15 / 8  # 1 / (3·(1 - β) / (1 + β)) in eighths, rounded down as Linux does


class CongestionState(Protocol):
    """A connection, as its congestion control sees it. Windows are in segments."""

    window: int
    threshold: float
    now_s: float

    @property
    def pacing_bytes_per_s(self) -> float: ...


class Reno:
    """The congestion control of RFC 5681, and what CUBIC has in common with it."""

    __slots__ = ("_acknowledged",)

    def __init__(self) -> None:
        self._acknowledged = 0

    def acknowledged(self, of: CongestionState, segments: int) -> None:
        """Grow by so many acknowledged segments, while the window limits the connection."""
        if of.window < of.threshold:
            before = of.window
            of.window = int(min(before + segments, of.threshold))
            segments -= of.window - before
            if segments <= 0:
                return
        self._increase(of, segments, self._count(of, segments))

    def _count(self, of: CongestionState, segments: int) -> int:
        return of.window

    def _increase(self, of: CongestionState, segments: int, count: int) -> None:
        if self._acknowledged >= count:
            self._acknowledged = 0
            of.window += 1
        self._acknowledged += segments
        if self._acknowledged >= count:
            of.window += self._acknowledged // count
            self._acknowledged %= count

    def reduced(self, of: CongestionState) -> float:
        """Return the threshold after a loss."""
        self._acknowledged = 0
        return max(of.window // 2, 2)

    def undone(self, of: CongestionState, prior_window: int) -> int:
        """Return the window after a loss that was none, before which it was ``prior_window``."""
        return max(of.window, prior_window)

    def sampled(self, of: CongestionState, rtt_s: float, acknowledged: int, following: int) -> None:
        """Take note of a round-trip time; see ``RoundTripTimes.observe``."""

    def timed_out(self, of: CongestionState, following: int) -> None:
        """Begin anew after a retransmission timeout."""

    def resumed(self, of: CongestionState, now_s: float, idle_s: float) -> None:
        """Sending begins while nothing is under way, after ``idle_s``."""


class Cubic(Reno):
    """The congestion control of RFC 9438."""

    __slots__ = (
        "_cubic_count", "_delay_s", "_epoch_s", "_found", "_k_s", "_last_train_s", "_last_window", "_least_s",
        "_origin", "_peak", "_reno_acknowledged", "_reno_window", "_round_begin_s", "_round_ends", "_samples",
        "_updated_s",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._round_ends = -1
        self._round_begin_s = -math.inf
        self._last_train_s = -math.inf
        # of the round
        self._least_s = math.inf
        self._samples = 0
        self._reset()

    def _reset(self) -> None:
        self._found = False
        self._delay_s = math.inf  # the least since then
        self._epoch_s: float | None = None
        self._peak = self._last_window = self._origin = 0
        self._reno_acknowledged = self._reno_window = 0
        self._k_s = 0.0
        self._updated_s = -math.inf
        self._cubic_count = 1

    def _count(self, of: CongestionState, segments: int) -> int:
        now = of.now_s
        window = of.window
        self._reno_acknowledged += segments
        if self._last_window == window and now - self._updated_s <= 1 / 32:
            return self._cubic_count
        self._last_window = window
        self._updated_s = now
        if self._epoch_s is None:
            self._epoch_s = now
            self._reno_acknowledged = segments
            self._reno_window = window
            self._k_s = (max(self._peak - window, 0) / _GROWTH) ** (1 / 3)
            self._origin = max(self._peak, window)
        delay_s = self._delay_s if self._delay_s < math.inf else 0.0  # as in Linux, while none is known
        target = self._origin + math.trunc(_GROWTH * (now - self._epoch_s + delay_s - self._k_s) ** 3)
        count = window // (target - window) if target > window else 100 * window
        if not self._peak:
            count = min(count, 20)
        per_segment = int(window * _RENO_SHARE)
        while self._reno_acknowledged > per_segment:
            self._reno_acknowledged -= per_segment
            self._reno_window += 1
        if self._reno_window > window:
            count = min(count, window // (self._reno_window - window))
        self._cubic_count = max(count, 2)
        return self._cubic_count

    def reduced(self, of: CongestionState) -> float:
        self._acknowledged = 0
        self._epoch_s = None
        self._peak = int(of.window * (1 + _BETA) / 2) if of.window < self._peak else of.window
        return max(int(of.window * _BETA), 2)

    def timed_out(self, of: CongestionState, following: int) -> None:
        self._reset()
        self._begin_round(of.now_s, following)

    def resumed(self, of: CongestionState, now_s: float, idle_s: float) -> None:
        if idle_s and self._epoch_s is not None:
            self._epoch_s = min(self._epoch_s + idle_s, now_s)

    def sampled(self, of: CongestionState, rtt_s: float, acknowledged: int, following: int) -> None:
        if self._epoch_s is not None and of.now_s - self._epoch_s < _RECENT_S:
            return
        self._delay_s = min(self._delay_s, rtt_s)
        if not self._found and of.window < of.threshold:
            self._look_for_end(of, rtt_s, acknowledged, following)

    def _begin_round(self, now_s: float, following: int) -> None:
        self._round_begin_s = self._last_train_s = now_s
        self._round_ends = following
        self._least_s = math.inf
        self._samples = 0

    def _look_for_end(self, of: CongestionState, rtt_s: float, acknowledged: int, following: int) -> None:
        """HyStart: end slow start if the path seems to be full."""
        now = of.now_s
        delay_s = self._delay_s
        if acknowledged > self._round_ends:
            self._begin_round(now, following)
        if of.window < _LOW_WINDOW:
            return
        if now - self._last_train_s <= _TRAIN_S:
            self._last_train_s = now
            held_s = min(1e-3, _AGGREGATED_BYTES / of.pacing_bytes_per_s)
            self._found = now - self._round_begin_s > (delay_s + held_s) / 2
        self._least_s = min(self._least_s, rtt_s)
        if self._samples < _SAMPLES:
            self._samples += 1
        elif self._least_s > delay_s + min(max(delay_s / 8, 4e-3), 16e-3):
            self._found = True
        if self._found:
            of.threshold = of.window
