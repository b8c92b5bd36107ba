"""The congestion window of a connection, in rounds of one round-trip time.

Notation: C capacity of the path (bytes/s), Q queue before its narrowest link (bytes), W the window (bytes), W0 its
initial value.

slow start  W doubles each round from W0 = 10 segments (RFC 5681, 3.1; RFC 6928), until it reaches C·RTT and fills the
            path. During a round at most W bytes are sent, at the rate that is left of W over what is left of the round
growth      acknowledgements of d bytes add d, but a window of which less than half is used does not grow (RFC 7661;
            Linux: tcp_is_cwnd_limited). So after idle time a round that sent d bytes makes it max(W, 2d), and one that
            follows a full round W + d. A round that sent less than W although there was more to send is limited by the
            network: no cap until the connection is next idle, and W grows by what is sent
open        a window of a loss-based algorithm grows in slow start beyond C·RTT as well: a burst of d bytes after idle
            time that it lets out at once makes it max(W, 2d), so the next burst may be larger than the queue
hystart     CUBIC leaves slow start when acknowledgements have come in one train for RTT/2 (Ha and Rhee 2011; Linux'
            tcp_cubic.c): in the round that reaches C·RTT/2 W grows by no more than that, if the link takes two segments
            within 2 ms, the longest gap of a train. And it does where the queue delays the first packets of a round:
            behind a full one of three quarters of C·RTT, as acknowledgements come in bunches. Until the first loss W
            then grows by a twentieth of what is sent (Linux: bictcp_update)
overflow    W never exceeds C·RTT + Q. Beyond, and where bursts of all connections together overflow the queue
            (``drop_tail``), a loss-based algorithm has lost packets. Once per round W is multiplied by β: 0.5
            for Reno (RFC 5681, 3.1), 0.7 for CUBIC (RFC 9438, 4.6)
repair      what a burst has lost is sent in the next rounds. The first has 2P bytes if P have passed and more was to be
            sent, and follows ``repair_of`` if all was under way; each further one sends twice as much, up to W
growing     after a repair W grows with the time t for which the connection has sent since: by a segment per RTT with
            Reno. With CUBIC W = 0.4·(t - K)³ + Wm segments: Wm is W at the loss and K = ((1 - β)·Wm / 0.4)^(1/3); or,
            if that is more, as with Reno but by 3·(1 - β) / (1 + β) segments (RFC 9438, 4.2 and 4.3). After a loss
            below the former Wm, Wm = W·(1 + β)/2 (4.7)
idle        with ``slow_start_after_idle``, W of a loss-based algorithm halves per RTO of idle time, down to W0
            (RFC 2861; Linux: tcp_cwnd_restart, net.ipv4.tcp_slow_start_after_idle), and if it has lost packets before,
            it then doubles until it has three quarters of its size before the idle time
outage      W of a loss-based algorithm is one segment after a retransmission timeout (RFC 5681, 3.1); BBR keeps its own
losses      a path begins to lose a share p of its packets at random: a round of n packets loses some of them with
            probability q = 1 - (1 - p)^n, so W of a loss-based algorithm becomes W·(1 - (1 - β)·q) until it is what p
            allows (``TcpModel.rate_limit``). A message of n packets arrives q·RTT later meanwhile, after the repair.
            When the path loses nothing any more, W grows from there as after a repair
"""

from __future__ import annotations

import math
from typing import NamedTuple

from testbed.plan.instant import ConnectionState
from testbed.simulation.pacing import Pacing, Pipe
from testbed.simulation.tcp_model import TcpModel
from testbed.state import load_state, state_of

_MOST_HALVINGS = 60  # of an idle window; more would only underflow
_FULL = 0.95  # a round that sent this share of its window was limited by the window; the rest is rounding
_TRAIN_S = 0.002  # between two acknowledgements of a train, of two segments each (hystart_ack_delta_us)
_DELAYS = 0.75  # a full round of this share of C·RTT leaves a queue (exact runs: 0.65 did not, 0.8 did)
_SLOWEST_GROWTH = 20  # acknowledged segments per segment
_CUBIC = 0.4  # C of RFC 9438, in segments per s³


class BurstRepair(NamedTuple):
    """How losses of a burst are repaired: after ``wait_s``, ``first_bytes`` in a round trip, doubling from then on."""

    wait_s: float
    first_bytes: float


def repair_of(rtt_s: float, drain_s: float, late_bytes: float, model: TcpModel) -> BurstRepair:
    """Return how a sender recovers that has nothing to send behind the lost end of a burst.

    drain_s     what the full queue takes to drain
    late_bytes  what got into the queue while it was full: their acknowledgements tell of the loss

    With any, the sender knows RTT/4 after the last acknowledgement (RACK's reordering window: RFC 8985, 6.2). With none
    it sends a probe two smoothed round trips after it (tail loss probe: 7.2), or after the timeout if that is sooner,
    and knows by the answer. A part of a segment is the chance that one gets in. As hardly any acknowledgements are
    left, it begins with as many segments as there are (proportional rate reduction: RFC 6937).
    """
    smoothed_s = rtt_s + drain_s / 2
    probe_s = min(2 * smoothed_s, smoothed_s + model.retransmission_floor_s)
    told = min(1.0, late_bytes / model.segment_bytes)
    wait_s = rtt_s + drain_s + (told * rtt_s / 4 + (1 - told) * probe_s)
    if late_bytes < 3 * model.segment_bytes:
        return BurstRepair(wait_s + rtt_s, model.segment_bytes)
    return BurstRepair(wait_s, late_bytes)


# but for the path's, which ``path_changed`` sets
_REMEMBERED = (
    "_base_bytes", "_continues", "_epoch_s", "_least_bytes", "_loss", "_lost_s", "_passed_bytes", "_peak_bytes",
    "_repair_bytes", "_round_begin_s", "_round_bytes", "_threshold_bytes", "_timed_round_s", "network_limited", "open",
    "round_end_s", "size_bytes",
)  # fmt: skip


class CongestionWindow:
    """``delivered`` arguments are the payload bytes that the connection has carried so far.

    size_bytes       W
    open             the window fills the path and limits nothing
    slow_start       W doubles: no packet has been lost yet, or idle time or an outage has made it small since
    network_limited  the last round of this burst was limited by the network, not by the window
    """

    __slots__ = (
        *_REMEMBERED, "_bdp_bytes", "_hystart", "_loss_based", "_model", "_pacing", "_pipe_bytes", "_round_base",
        "_rtt_s", "_trains",
    )  # fmt: skip

    def __init__(self, model: TcpModel, pacing: Pacing | None, pipe: Pipe) -> None:
        self._model, self._pacing = model, pacing
        self._loss_based, self._hystart = model.loss_based, model.hystart  # asked for with every burst
        self.size_bytes = self._round_bytes = model.initial_window_bytes
        self.open = self.network_limited = False
        self._threshold_bytes = math.inf  # below it, slow start
        self._trains = False  # acknowledgements come in trains, by which CUBIC sees that it fills the path
        self._continues = False  # the round follows one that sent a whole window
        self._round_begin_s = self.round_end_s = -math.inf
        self._round_base = 0.0  # delivered at the beginning of the round
        self._timed_round_s = math.inf  # end of the last round that needed a timer
        self._passed_bytes = 0.0  # of the last burst that lost anything
        self._repair_bytes = math.inf  # after a loss: no more is sent in the next round
        self._lost_s = -math.inf  # when a packet was last lost
        self._epoch_s = 0.0  # likewise, later by the idle time since
        self._base_bytes = self._peak_bytes = 0.0  # after the last loss: W, and Wm
        self._loss = self._least_bytes = 0.0  # share of packets that the path has begun to lose; W that it allows
        self.path_changed(pipe)

    def state(self, delivered: float) -> ConnectionState:
        """Return what it remembers; what had been delivered counts from the present."""
        return state_of(self, _REMEMBERED) | {"_round_base": self._round_base - delivered}

    def load_state(self, state: ConnectionState) -> None:
        load_state(self, (*_REMEMBERED, "_round_base"), state)

    @property
    def slow_start(self) -> bool:
        return self.size_bytes < self._threshold_bytes

    @property
    def shrinks(self) -> bool:
        """Whether W still falls to what the path's random losses allow."""
        return self._loss > 0 and not self.open

    @property
    def limits(self) -> bool:
        """Whether this round is limited at all."""
        return not self.open or self._round_bytes < self.size_bytes

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
        self._rtt_s, self._bdp_bytes = pipe.rtt_s, pipe.bdp_bytes
        self._trains = self._hystart and pipe.capacity * _TRAIN_S >= 2 * self._model.segment_bytes
        self._pipe_bytes = pipe.bdp_bytes + pipe.queue_bytes
        if self._repair_bytes == math.inf and not self._loss:  # else what was lost still has to be sent again
            self.open = self.size_bytes >= pipe.bdp_bytes

    def path_loses(self, now: float, loss: float, least_bytes: float) -> None:
        """Take note of the share of packets that the path loses at random from now on; ``path_changed`` follows."""
        if loss > 0:
            self.open = self.size_bytes <= least_bytes
        else:
            least_bytes = min(least_bytes, self.size_bytes)
            self._grow_from(now, max(self.size_bytes if self._loss else least_bytes, 2.0 * self._model.segment_bytes))
        self._loss, self._least_bytes = loss, least_bytes

    def _grow_from(self, now: float, size_bytes: float) -> None:
        """Let W be ``size_bytes`` after a loss that followed others."""
        beta = self._model.window_after_loss
        self.size_bytes = self._base_bytes = self._threshold_bytes = size_bytes
        self._peak_bytes = size_bytes / beta * (1 + beta) / 2
        self._epoch_s = now

    def arrival_delay_s(self, size_bytes: float) -> float:
        """Return what repairing the losses of a message takes, in the mean, where W ``shrinks``."""
        return self._rtt_s * self._model.any_lost(self._loss, size_bytes) if self.shrinks else 0.0

    def after_idle(self, now: float, idle_s: float, timeout_s: float, delivered: float) -> None:
        """Begin a burst of a loss-based algorithm after at least a round-trip time. ``timeout_s``: RTO."""
        model = self._model
        self._epoch_s += idle_s
        self._continues = False
        self._repair_bytes = math.inf
        if self.open:
            self._round_base = delivered  # an open window has no rounds of its own
        if not self.slow_start:
            self._recover(now)
        if model.slow_start_after_idle:
            halvings = min(_MOST_HALVINGS, int(idle_s / timeout_s))
            if halvings:
                size_bytes = self.size_bytes
                if self._threshold_bytes < math.inf:
                    self._threshold_bytes = max(self._threshold_bytes, 0.75 * size_bytes)
                self.size_bytes = max(min(size_bytes, model.initial_window_bytes), size_bytes / 2**halvings)
                self.open = self.size_bytes >= self._bdp_bytes
                self._round_base = delivered  # the last round no longer counts for growth

    def after_outage(self, now: float, delivered: float) -> None:
        """Begin again with a retransmission: in slow start, up to what W is after any loss."""
        if self._loss_based:
            self._shrink(now, self.size_bytes)
            self.size_bytes = min(self.size_bytes, float(self._model.segment_bytes))
        self.round_end_s, self._round_base, self.network_limited = -math.inf, delivered, False

    def lost(self, now: float, passed_bytes: float, after: BurstRepair, delivered: float) -> None:
        """A burst that has just begun overflows the queue: ``passed_bytes`` of it pass, and arrive in this round."""
        grows = self.slow_start and not self._hystart  # which its acknowledgements, in one train, would end
        self._shrink(now, self.size_bytes + (passed_bytes if grows else 0.0))
        self._round_begin_s, self.round_end_s = now, now + after.wait_s
        self._passed_bytes = passed_bytes
        self._round_base, self._round_bytes, self._repair_bytes = delivered, passed_bytes, after.first_bytes
        self.open = self.network_limited = False

    def more_to_send(self, now: float) -> None:
        """Something follows what was lost: its acknowledgements tell of the loss, a round trip from now."""
        if self._repair_bytes < 2 * self._passed_bytes:
            self._repair_bytes = 2 * self._passed_bytes
            self.round_end_s = min(self.round_end_s, now + self._rtt_s)

    def _shrink(self, now: float, size_bytes: float) -> None:
        """Multiply a window of ``size_bytes`` by β, unless that was done for another loss of this round."""
        if now < self._lost_s + self._rtt_s:
            return
        beta, segment_bytes = self._model.window_after_loss, self._model.segment_bytes
        self._peak_bytes = size_bytes if size_bytes >= self._peak_bytes else size_bytes * (1 + beta) / 2
        self.size_bytes = self._base_bytes = max(beta * size_bytes, 2.0 * segment_bytes)
        self._threshold_bytes = self.size_bytes
        self._lost_s = self._epoch_s = now

    def _recover(self, now: float) -> None:
        """Grow to what the time since the last loss allows."""
        if self._loss:
            return
        model, elapsed_s = self._model, now - self._epoch_s
        segment_bytes, beta = model.segment_bytes, model.window_after_loss
        growth = 3 * (1 - beta) / (1 + beta)  # segments per round; 1 for Reno
        size_bytes = self._base_bytes + growth * segment_bytes * elapsed_s / self._rtt_s
        if model.congestion_control != "reno":
            flat_bytes = max(self._peak_bytes, self._base_bytes)  # W is two segments at least, which may be above Wm
            flat_s = ((flat_bytes - self._base_bytes) / segment_bytes / _CUBIC) ** (1 / 3)
            size_bytes = max(size_bytes, flat_bytes + _CUBIC * (elapsed_s - flat_s) ** 3 * segment_bytes)
        self.size_bytes = max(self.size_bytes, min(size_bytes, model.window_limit_bytes))
        self.open = self.size_bytes >= self._bdp_bytes

    def next_round(self, now: float, delivered: float) -> bool:
        """Grow by what the last round has sent, and begin another. Return whether the window has opened."""
        sent_bytes = delivered - self._round_base
        opened = self.grow(now, delivered)
        full = sent_bytes >= _FULL * self._round_bytes
        self.network_limited = not full and self.slow_start and self._timed_round_s == self.round_end_s
        self._continues = full and self._loss_based
        self._round_begin_s, self.round_end_s, self._round_base = now, now + self._rtt_s, delivered
        self._round_bytes = self.size_bytes
        if self._repair_bytes < math.inf:
            self._epoch_s = self.round_end_s  # it grows again when all is repaired
            self._round_bytes = min(self.size_bytes, self._repair_bytes)
            self._repair_bytes = 2 * self._repair_bytes if self._repair_bytes < self.size_bytes else math.inf
        return opened

    def burst_ended(self, now: float, delivered: float) -> bool:
        """Grow by what has been sent until now, as nothing is left to send. Return whether the window has opened."""
        if not self.open:
            return self.grow(now, delivered)
        sent_bytes, self._round_base = delivered - self._round_base, delivered
        if self._loss_based and self.size_bytes < self._threshold_bytes:  # slow start, without a call for each burst
            self._grow_open(now, sent_bytes)
        elif self._hystart and self._lost_s == -math.inf and sent_bytes >= self.size_bytes:
            self.size_bytes += sent_bytes / _SLOWEST_GROWTH
        return False

    def _grow_open(self, now: float, left_bytes: float) -> None:
        """Grow as the rounds did that have sent ``left_bytes``; see ``open`` and ``hystart``."""
        model = self._model
        before_bytes = self.size_bytes / 2 if self._continues else 0.0  # the window of the round before
        while left_bytes > 0:
            if self._hystart and before_bytes > _DELAYS * self._bdp_bytes:
                self._leave_slow_start(now)
                return
            sent_bytes = min(self.size_bytes, left_bytes)
            grown_bytes = self.size_bytes + sent_bytes if self._continues else 2 * sent_bytes
            if self._trains and sent_bytes > self._bdp_bytes / 2:
                grown_bytes = min(grown_bytes, max(self.size_bytes, sent_bytes) + self._bdp_bytes / 2)
            before_bytes = self.size_bytes
            left_bytes -= sent_bytes
            self._continues = True
            self.size_bytes = min(max(self.size_bytes, grown_bytes), max(self.size_bytes, self._threshold_bytes))
            if left_bytes > 0 and self.size_bytes > self._pipe_bytes:
                self._shrink(now, self._pipe_bytes)
                return
        self.size_bytes = min(self.size_bytes, model.window_limit_bytes)

    def _leave_slow_start(self, now: float) -> None:
        self._threshold_bytes = self._base_bytes = self.size_bytes
        self._epoch_s = now

    def grow(self, now: float, delivered: float) -> bool:
        """Grow by what the round has sent until now. Return whether the window has opened."""
        if self.open:
            return False
        if self._loss:
            lost = self._model.any_lost(self._loss, delivered - self._round_base)
            size_bytes = self.size_bytes * (1 - (1 - self._model.window_after_loss) * lost)
            self._grow_from(now, max(size_bytes, self._least_bytes))
            self.open = self.size_bytes == self._least_bytes
            return self.open
        model = self._model
        sent_bytes, size_bytes = delivered - self._round_base, self.size_bytes
        if self._pacing is not None:
            self._pacing.observe(sent_bytes, now - self._round_begin_s, self._rtt_s)
        if not self.slow_start:
            self._recover(now)
        else:
            if self.network_limited or self._continues:
                grown_bytes = size_bytes + sent_bytes
            else:
                grown_bytes = 2 * sent_bytes
            if self._trains and sent_bytes > self._bdp_bytes / 2:
                grown_bytes = min(grown_bytes, sent_bytes + self._bdp_bytes / 2)
            self.size_bytes = max(size_bytes, min(grown_bytes, self._threshold_bytes))
        if self._loss_based and self.size_bytes > self._pipe_bytes:
            self._shrink(now, self._pipe_bytes)
        self.size_bytes = min(self.size_bytes, self._pipe_bytes, model.window_limit_bytes)
        self.open = self.size_bytes >= min(self._bdp_bytes, model.window_limit_bytes)
        return self.open
