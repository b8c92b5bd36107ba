"""Pacing of a BBR connection that has not yet seen its path full (STARTUP), packet by packet.

Linux' tcp_bbr.c and tcp_output.c: packets leave in trains of two segments (one below 1.2 Mbit/s, a millisecond's worth
above 23). The first train leaves at once, each other when the one before has been paid for at the pacing rate; who has
been idle gets half of the first one for nothing. So n trains take n - 1.5 times what one costs, and whatever fits into
one costs nothing. The pacing rate is g = 2/ln 2 times the best delivery rate: B / (RTT + T) after a burst of B bytes
whose last train left after T. It begins at the initial window per RTT, and never falls before the path was seen full,
which who sends short bursts never sees.

Longer ones overflow the queue Q, as they come g times faster than the path takes them: Q / (1 - 1/g) pass, then one
packet in g. What was lost is there two round trips after what had passed. So it goes until three bursts have filled
the path, or one has filled path and queue one and a half times over. (Law and counts from 35 series of emulated
transfers, 0.75 to 10 bandwidth-delay products: the penalty was 2.0 to 2.1 round trips in 17 of 21 bursts that lost.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

_WIRE = 1500 / 1448  # rates are counted with headers
_GAIN = 2.885 * 0.99 * _WIRE  # bbr_high_gain, bbr_pacing_margin_percent
_TWO_SEGMENTS_FROM = 150_000 / _WIRE  # bytes per second: bbr_min_tso_rate
_TRAIN_S = 1 / 1024  # sk_pacing_shift
_RECOVERY_ROUND_TRIPS = 2.0
_BURSTS_TO_KNOW = 3
_FILLS_TO_KNOW = 1.5


class Pipe(NamedTuple):
    """A path: bytes of payload per second, round trip, and the queue before it."""

    capacity: float
    rtt_s: float
    queue_bytes: float


class Pacing:
    """When the trains of one connection leave. ``rate``: bytes of payload per second."""

    __slots__ = ("_begin_s", "_free_s", "_full_bursts", "_segment_bytes", "rate")

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.rate = 0.0
        self._full_bursts = 0
        self._begin_s = self._free_s = -math.inf  # of this burst; from when on another train may leave

    def saw(self, size_bytes: float, took_s: float, rtt_s: float) -> None:
        """So many bytes left within ``took_s``: they are delivered a round trip later."""
        self.rate = max(self.rate, _GAIN * size_bytes / (rtt_s + min(took_s, rtt_s / (_GAIN - 1))))

    def begin(self, now_s: float) -> None:
        """A burst begins."""
        self._begin_s = now_s

    def last_leaves_s(self, burst_bytes: float) -> float:
        """When the last byte leaves of a burst of that size in all, should nothing else be in its way."""
        train = self._train_bytes()
        before = self._before_last(burst_bytes, train)
        first_s = max(self._begin_s, self._free_s)
        return first_s + before * train / self.rate - self._credit_s(train) if before else first_s

    def ended(self, now_s: float, burst_bytes: float) -> None:
        """The burst has left: the next one may when its last train has been paid for."""
        train = self._train_bytes()
        before = self._before_last(burst_bytes, train)
        last_bytes = burst_bytes - before * train
        self._free_s = now_s + last_bytes / self.rate - (0.0 if before else self._credit_s(last_bytes))

    def filled(self, burst_bytes: float, pipe_bytes: float, queue_bytes: float) -> None:
        """A burst is over; did it fill the path?"""
        if burst_bytes >= _FILLS_TO_KNOW * (pipe_bytes + queue_bytes):
            self._full_bursts = _BURSTS_TO_KNOW
        elif burst_bytes >= pipe_bytes:
            self._full_bursts += 1

    def recovery_s(self, sent_bytes: float, message_bytes: float, burst_bytes: float, path: Pipe) -> float:
        """How much later a message is there, which is the first of its burst that does not wholly fit into the queue.

        ``sent_bytes`` of the burst have been sent before it. 0 for all other messages.
        """
        room = path.queue_bytes / (1 - 1 / _GAIN)
        if self._full_bursts >= _BURSTS_TO_KNOW or not sent_bytes <= room < sent_bytes + message_bytes:
            return 0.0
        lost_bytes = (burst_bytes - room) * (1 - 1 / _GAIN)
        return max(0.0, _RECOVERY_ROUND_TRIPS * path.rtt_s - lost_bytes / path.capacity)

    def _credit_s(self, train_bytes: float) -> float:
        """What the first train of the burst needs not pay."""
        return min(train_bytes / self.rate / 2, max(0.0, self._begin_s - self._free_s))

    def _train_bytes(self) -> float:
        segments = 1 if self.rate < _TWO_SEGMENTS_FROM else max(2, int(self.rate * _TRAIN_S / self._segment_bytes))
        return float(segments * self._segment_bytes)

    @staticmethod
    def _before_last(burst_bytes: float, train: float) -> int:
        """Full trains before the last one."""
        return max(0, math.ceil(burst_bytes / train) - 1)
