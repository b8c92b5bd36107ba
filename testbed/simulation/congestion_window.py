"""The congestion window of a connection, in rounds of one round-trip time.

Notation: C capacity of the path (bytes/s), Q queue before its narrowest link (bytes), W the window (bytes), W0 its
initial value.

slow start  W doubles each round from W0 = 10 segments (RFC 5681, 3.1; RFC 6928), until it reaches C·RTT and fills the
            path. During a round at most W bytes are sent, at the rate that is left of W over what is left of the round
growth      a round that sent d bytes makes it max(W, 2d): acknowledgements of d bytes add d, so a window that is not
            used does not grow (congestion window validation: RFC 7661). A round that sent less than W although there
            was more to send is limited by the network: no cap until the connection is next idle, and W grows by what
            is sent
overflow    W never exceeds C·RTT + Q. Beyond, a loss-based algorithm has lost packets and multiplies it by β:
            W = max(β·(C·RTT + Q), C·RTT), with β 0.5 for Reno (RFC 5681, 3.1), 0.7 for CUBIC (RFC 9438, 4.6)
idle        with ``slow_start_after_idle``, W of a loss-based algorithm halves per RTO of idle time, down to W0
            (RFC 2861; Linux: tcp_cwnd_restart, net.ipv4.tcp_slow_start_after_idle)
bursts      a burst after idle is not paced by loss-based algorithms: no more of it passes in the first round than the
            queue takes (``room_bytes``)
outage      W of a loss-based algorithm is one segment after a retransmission timeout (RFC 5681, 3.1); BBR keeps its own
"""

from __future__ import annotations

import math

from testbed.simulation.pacing import Pacing, Pipe
from testbed.simulation.tcp_model import TcpModel

_MOST_HALVINGS = 60  # of an idle window; more would only underflow
_FULL = 0.95  # a round that sent this share of its window was limited by the window; the rest is rounding


class CongestionWindow:
    """``delivered`` arguments are the payload bytes that the connection has carried so far.

    open             the window fills the path and limits nothing
    network_limited  the last round of this burst was limited by the network, not by the window
    """

    __slots__ = (
        "_bdp_bytes", "_burst_room", "_model", "_most_bytes", "_pacing", "_round_base", "_round_begin_s",
        "_round_bytes", "_rtt_s", "_size_bytes", "_timed_round_s", "network_limited", "open", "round_end_s",
    )  # fmt: skip

    def __init__(self, model: TcpModel, pacing: Pacing | None, pipe: Pipe) -> None:
        self._model, self._pacing = model, pacing
        self._size_bytes = self._round_bytes = model.initial_window_bytes
        self.open = self.network_limited = False
        self._round_begin_s = self.round_end_s = -math.inf
        self._round_base = 0.0  # delivered at the beginning of the round
        self._burst_room = math.inf  # what passes of an unpaced burst in its first round
        self._timed_round_s = math.inf  # end of the last round that needed a timer
        self.path_changed(pipe)

    @property
    def limits(self) -> bool:
        """Whether this round is limited at all."""
        return not self.open or self._round_bytes < self._size_bytes

    def left_bytes(self, delivered: float) -> float:
        """Return what may still be sent in this round."""
        return self._round_bytes - (delivered - self._round_base)

    def needs_timer(self) -> bool:
        """Whether a timer for the end of this round has yet to be set; it is taken to be set now."""
        if self._timed_round_s == self.round_end_s:
            return False
        self._timed_round_s = self.round_end_s
        return True

    def timer_is_current(self, now: float) -> bool:
        """Whether a timer that fires now is the last one that was set, and still of use."""
        return now == self._timed_round_s and not self.open

    def path_changed(self, pipe: Pipe) -> None:
        """Take note of a changed path."""
        self._rtt_s, self._bdp_bytes = pipe.rtt_s, pipe.bdp_bytes
        self._most_bytes = min(pipe.bdp_bytes + pipe.queue_bytes, self._model.window_limit_bytes)
        self.open = self._size_bytes >= pipe.bdp_bytes

    def after_idle(self, idle_s: float, room_bytes: float, delivered: float) -> None:
        """Begin a burst of a loss-based algorithm after at least a round-trip time; ``room_bytes``: see *bursts*."""
        model = self._model
        self._burst_room = room_bytes
        if room_bytes < self._bdp_bytes:
            self.open = False
        if model.slow_start_after_idle:
            halvings = min(_MOST_HALVINGS, int(idle_s / (self._rtt_s + model.retransmission_floor_s)))
            if halvings:
                size_bytes = self._size_bytes
                self._size_bytes = max(min(size_bytes, model.initial_window_bytes), size_bytes / 2**halvings)
                self.open = self._size_bytes >= self._bdp_bytes
                self._round_base = delivered  # the last round no longer counts for growth

    def after_outage(self, delivered: float) -> None:
        """Begin again with a retransmission."""
        if self._model.loss_based:
            self._size_bytes = min(self._size_bytes, float(self._model.segment_bytes))
        self.round_end_s, self._round_base, self.network_limited = -math.inf, delivered, False

    def next_round(self, now: float, delivered: float) -> bool:
        """Grow by what the last round has sent, and begin another. Return whether the window has opened."""
        sent_bytes = delivered - self._round_base
        opened = self.grow(now, delivered)
        self.network_limited = sent_bytes < _FULL * self._round_bytes and self._timed_round_s == self.round_end_s
        self._round_begin_s, self.round_end_s, self._round_base = now, now + self._rtt_s, delivered
        self._round_bytes = min(self._size_bytes, self._burst_room)
        self._burst_room = math.inf
        return opened

    def grow(self, now: float, delivered: float) -> bool:
        """Grow by what the round has sent until now. Return whether the window has opened."""
        if self.open:
            return False
        sent_bytes, size_bytes, most = delivered - self._round_base, self._size_bytes, self._most_bytes
        if self._pacing is not None:
            self._pacing.observe(sent_bytes, now - self._round_begin_s, self._rtt_s)
        size_bytes = size_bytes + sent_bytes if self.network_limited else max(size_bytes, 2 * sent_bytes)
        if size_bytes > most:
            size_bytes = max(self._model.window_after_loss * most, min(self._bdp_bytes, most))
        self._size_bytes = size_bytes
        self.open = size_bytes >= min(self._bdp_bytes, most)
        return self.open
