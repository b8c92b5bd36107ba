"""Pacing of a BBR connection that has not yet seen its path full (STARTUP), packet by packet.

From Linux' tcp_bbr.c and tcp_output.c (BBR: Cardwell et al., ACM Queue 2016):

* Packets leave in trains of two segments; of one below 1.2 Mbit/s (bbr_min_tso_segs), of a millisecond's worth above
  23 Mbit/s (tcp_tso_autosize). The first train leaves at once, each further one when the one before has been paid for
  at the pacing rate; a connection that has been idle gets half of its first train for free (tcp_update_skb_after_send).
  So n trains take n - 1.5 times what one costs, and a message that fits into one train costs nothing.
* The pacing rate is g = 2/ln 2 = 2.885 times the best delivery rate so far (bbr_high_gain), less 1 %
  (bbr_pacing_margin_percent). A burst of B bytes whose last train left after T is delivered at B / (RTT + T). The rate
  begins at the initial window per RTT, and never falls before the path was seen full, which a sender of short bursts
  never sees.

Longer bursts arrive g times faster than the path takes them. They overflow the queue Q: Q / (1 - 1/g) bytes pass, then
one packet in g. What was lost arrives two round trips after what had passed. That continues until three bursts have
filled the path (bbr_full_bw_cnt), or one has filled path and queue 1.5 times. (Law and counts from 35 series of
emulated transfers, 0.75 to 10 bandwidth-delay products: the penalty was 2.0 to 2.1 round trips in 17 of 21 bursts that
lost packets.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from testbed.plan.instant import ConnectionState
from testbed.state import load_state, state_of

_WIRE = 1500 / 1448  # IP packet per payload: BBR counts rates with headers
_GAIN = 2.885 * 0.99 * _WIRE  # of payload: bbr_high_gain, bbr_pacing_margin_percent
_TWO_SEGMENTS_FROM = 150_000 / _WIRE  # payload bytes per second: bbr_min_tso_rate, 1.2 Mbit/s
_TRAIN_S = 1 / 1024  # sk_pacing_shift = 10: a train is at most rate >> 10
_RECOVERY_ROUND_TRIPS = 2.0
_BURSTS_TO_KNOW = 3
_FILLS_TO_KNOW = 1.5
_REMEMBERED = ("_begin_s", "_free_s", "_full_bursts", "rate")


class Pipe(NamedTuple):
    """A path: its capacity (payload bytes per second), round-trip time, and the queue before it."""

    capacity: float
    rtt_s: float
    queue_bytes: float

    @property
    def bdp_bytes(self) -> float:
        return self.capacity * self.rtt_s


class Pacing:
    """When the packet trains of one connection leave. ``rate``: the pacing rate, in payload bytes per second."""

    __slots__ = ("_begin_s", "_free_s", "_full_bursts", "_segment_bytes", "rate")

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.rate = 0.0
        self._full_bursts = 0
        self._begin_s = -math.inf  # of this burst
        self._free_s = -math.inf  # when the last train has been paid for

    def state(self) -> ConnectionState:
        return state_of(self, _REMEMBERED)

    def load_state(self, state: ConnectionState) -> None:
        load_state(self, _REMEMBERED, state)

    def observe(self, size_bytes: float, took_s: float, rtt_s: float) -> None:
        """Raise the rate by a delivery: ``size_bytes`` left within ``took_s`` and were acknowledged an RTT later."""
        self.rate = max(self.rate, _GAIN * size_bytes / (rtt_s + min(took_s, rtt_s / (_GAIN - 1))))

    def begin(self, now_s: float) -> None:
        self._begin_s = now_s

    def last_leaves_s(self, burst_bytes: float) -> float:
        """Return when the last byte of a burst of ``burst_bytes`` leaves, if pacing alone delays it."""
        train = self._train_bytes()
        before = self._before_last(burst_bytes, train)
        first_s = max(self._begin_s, self._free_s)
        return first_s + before * train / self.rate - self._credit_s(train) if before else first_s

    def ended(self, now_s: float, burst_bytes: float) -> None:
        """The burst has left: another train may leave when its last one has been paid for."""
        train = self._train_bytes()
        before = self._before_last(burst_bytes, train)
        last_bytes = burst_bytes - before * train
        self._free_s = now_s + last_bytes / self.rate - (0.0 if before else self._credit_s(last_bytes))

    def filled(self, burst_bytes: float, path: Pipe) -> None:
        """Count a burst that has filled the path (and its queue)."""
        if burst_bytes >= _FILLS_TO_KNOW * (path.bdp_bytes + path.queue_bytes):
            self._full_bursts = _BURSTS_TO_KNOW
        elif burst_bytes >= path.bdp_bytes:
            self._full_bursts += 1

    def recovery_s(self, sent_bytes: float, message_bytes: float, burst_bytes: float, path: Pipe) -> float:
        """Return by how much losses delay a message, in seconds. 0 unless it is the first of its burst to overflow the
        queue. ``sent_bytes`` of the burst were sent before it.
        """
        room = path.queue_bytes / (1 - 1 / _GAIN)
        if self._full_bursts >= _BURSTS_TO_KNOW or not sent_bytes <= room < sent_bytes + message_bytes:
            return 0.0
        lost_bytes = (burst_bytes - room) * (1 - 1 / _GAIN)
        return max(0.0, _RECOVERY_ROUND_TRIPS * path.rtt_s - lost_bytes / path.capacity)

    def _credit_s(self, train_bytes: float) -> float:
        """Time that the first train of the burst need not pay for."""
        return min(train_bytes / self.rate / 2, max(0.0, self._begin_s - self._free_s))

    def _train_bytes(self) -> float:
        segments = 1 if self.rate < _TWO_SEGMENTS_FROM else max(2, int(self.rate * _TRAIN_S / self._segment_bytes))
        return float(segments * self._segment_bytes)

    @staticmethod
    def _before_last(burst_bytes: float, train: float) -> int:
        """Number of full trains before the last one."""
        return max(0, math.ceil(burst_bytes / train) - 1)
