"""The congestion window of a connection over flows: how much TCP sends into a path.

Notation: C capacity of the path (payload bytes/s), RTT without queues, BDP = C·RTT, Q queue before the narrowest link
(bytes), W window (bytes), W0 its first value, p share of packets lost at random, β share of W that a loss leaves.

slow start      W doubles each round trip, from W0 = 10 segments on, until the first limit (RFC 5681, 3.1; RFC 6928).
                So a message of M bytes that is alone takes δ + K·RTT + (M - W0·(2^K - 1)) / C for the one-way delay δ
                and K = min{k: W0·2^k >= min(BDP, what is left)} (Cardwell, Savage and Anderson 2000, section 3.2,
                without losses and delayed acknowledgements)
growth          acknowledgements of d bytes add d. A window of which less than half is used does not grow (RFC 7661):
                a round after idle time that sends d bytes makes it max(W, 2d). BBR's grows with whatever arrives
first limit     the least of BDP, the receive window, and what losses allow (``loss_limit``). From there on the window
                is ``open``: the flow sends at its share of the capacity, and the rest of W waits in the queue
queue           W grows to BDP + Q, loses packets there, and is multiplied by β. Its mean is (1 + β) / 2·(BDP + Q), so
                (1 + β) / 2·(BDP + Q) - BDP bytes stand in the queue (``standing_queue_bytes``). BBR leaves none
bursts          after idle time a whole window comes at once, at the rate A of the sender's port. The queue takes
                Q / (1 - C/A) of it, as it drains meanwhile, and loses the rest. W then goes on between β times that and
                that, (1 + β) / 2 of it in the mean, and above grows by a segment per round trip (RFC 5681, 3.1)
short queues    where β·(BDP + Q) < BDP the path is not always full: ``sawtooth_share`` of C is used
idle            with ``slow_start_after_idle``, W halves for each retransmission timeout, down to W0 (RFC 2861)
outage          W is one segment after a retransmission timeout (RFC 5681, 3.1); BBR keeps its own
pacing          BBR sends a burst at 2/ln 2 times the best rate at which it was acknowledged so far (Cardwell et al.
                2016: BBR), others as fast as their port allows
"""

from __future__ import annotations

import math
from typing import NamedTuple

from testbed.simulation.tcp_model import LEAST_RTT_S, TcpModel
from testbed.state import Remembering

_MOST_HALVINGS = 60  # of an idle window; more would only underflow
_FULL = 0.95  # a round that sent this share of its window was limited by the window; the rest is rounding
_BBR_GAIN = 2 / math.log(2)
_SHORTEST_RTT_S = 1e-4  # for the response functions, which diverge at 0: what host and switch take
_LONGEST_TIMEOUT_S = 120.0  # Linux: TCP_RTO_MAX


def loss_limit(model: TcpModel, rtt_s: float, loss: float, capacity: float) -> float:
    """Return the rate that random losses allow, in bytes per second: the response function.

    Reno: sqrt(3/2)·MSS / (RTT·sqrt(p)) (Mathis, Semke, Mahdavi and Ott 1997, equation 3). CUBIC: the larger of that and
    (C·(3 + β) / (4·(1 - β)))^(1/4)·(RTT/p)^(3/4)·MSS / RTT, with C = 0.4 and β = 0.7 (RFC 9438, 5.1): the first factor
    is 1.054. BBR: C·(1 - p), as it does not react to single losses. Timeouts are left out.
    """
    if loss <= 0:
        return math.inf
    if not model.loss_based:
        return capacity * (1 - loss)
    rtt_s = max(rtt_s, _SHORTEST_RTT_S)
    mathis = math.sqrt(1.5) * model.segment_bytes / (rtt_s * math.sqrt(loss))
    if model.congestion_control == "reno":
        return mathis
    cubic: float = 1.054 * (rtt_s / loss) ** 0.75 * model.segment_bytes / rtt_s
    return max(mathis, cubic)


def found_again_s(since_s: float, up_s: float, rtt_s: float, floor_s: float) -> float:
    """Return when a sender that hears nothing since ``since_s`` finds the path up again, which is so since ``up_s``.

    A tail loss probe is sent after two round trips (RFC 8985, 7.2). Retransmissions follow, the first after RTO = RTT +
    ``floor_s``, each further one after twice that time (RFC 6298, 5.5).
    """
    at_s = since_s + 2 * rtt_s
    timeout_s = rtt_s + floor_s
    while at_s < up_s:
        at_s += timeout_s
        timeout_s = min(2 * timeout_s, _LONGEST_TIMEOUT_S)
    return at_s


class Pipe(NamedTuple):
    """A path as a window sees it: its capacity (payload bytes per second), round-trip time, queue, and random loss.

    port  rate at which the sender's own port sends (bytes/s)
    """

    capacity: float
    rtt_s: float
    queue_bytes: float
    loss: float = 0.0
    port: float = math.inf

    @property
    def bdp_bytes(self) -> float:
        return self.capacity * self.rtt_s

    @property
    def burst_room_bytes(self) -> float:
        """What the queue takes of a burst, as it drains meanwhile."""
        return self.queue_bytes / (1 - self.capacity / self.port) if self.capacity < self.port else math.inf

    def standing_queue_bytes(self, beta: float) -> float:
        """Return what long transfers leave in the queue, in the mean; see ``queue``."""
        return min(self.queue_bytes, max(0.0, (1 + beta) / 2 * (self.bdp_bytes + self.queue_bytes) - self.bdp_bytes))

    def sawtooth_share(self, beta: float) -> float:
        """Return the share of the capacity that one long transfer uses.

        Its window grows linearly from β·(BDP + Q) to BDP + Q. A round sends W, and takes RTT where W is below BDP, else
        W / C. So the share is ∫ W dW / ∫ max(BDP, W) dW: 0.75 for Reno without a queue.
        """
        bdp_bytes = self.bdp_bytes
        top_bytes = self.bdp_bytes + self.queue_bytes
        if not beta * top_bytes < bdp_bytes < math.inf:
            return 1.0
        sent = (1 - beta**2) * top_bytes**2 / 2
        could = bdp_bytes * (bdp_bytes - beta * top_bytes) + (top_bytes**2 - bdp_bytes**2) / 2
        return sent / could


_REMEMBERED = (
    "_best_rate",
    "_follows_full",
    "_threshold_bytes",
    "network_limited",
    "open",
    "round_end_s",
    "size_bytes",
)


class CongestionWindow(Remembering):
    """``delivered`` arguments are the payload bytes that the connection has carried so far.

    size_bytes       W
    open             the window has reached its first limit: it fills the path
    network_limited  the last round sent less than the window although there was more to send: others limit it
    round_end_s      of this round trip
    round_base       what had been delivered when this round began
    rate_limit       of an open window (bytes/s): what receive window and random losses allow
    """

    __slots__ = (
        *_REMEMBERED,
        "_burst_room_bytes",
        "_first_limit_bytes",
        "_model",
        "_most_bytes",
        "_pipe",
        "rate_limit",
        "round_base",
    )
    remembers = _REMEMBERED

    def __init__(self, model: TcpModel, pipe: Pipe) -> None:
        self._model = model
        self.size_bytes = model.initial_window_bytes
        self.open = self.network_limited = False
        self._threshold_bytes = math.inf  # below it, slow start
        self._follows_full = False  # this round follows one that sent a whole window
        self.round_end_s = -math.inf
        self.round_base = 0.0
        self._best_rate = 0.0  # at which a burst was acknowledged (bytes/s)
        self.path_changed(pipe)

    @property
    def burst_rate(self) -> float:
        """Rate at which a burst leaves that is smaller than the window (bytes/s)."""
        if self._model.loss_based:
            return math.inf
        first_rate = self._model.initial_window_bytes / max(self._pipe.rtt_s, LEAST_RTT_S)
        return _BBR_GAIN * max(first_rate, self._best_rate)

    def left_bytes(self, delivered: float) -> float:
        """Return what may still be sent in this round."""
        return self.size_bytes - (delivered - self.round_base)

    def path_changed(self, pipe: Pipe) -> None:
        model = self._model
        self._pipe = pipe
        receive_limit = model.window_limit_bytes / pipe.rtt_s if pipe.rtt_s > 0 else math.inf
        self.rate_limit = min(receive_limit, loss_limit(model, pipe.rtt_s, pipe.loss, pipe.capacity))
        self._first_limit_bytes = min(pipe.bdp_bytes, self.rate_limit * pipe.rtt_s, model.window_limit_bytes)
        mean_bytes = (1 + model.window_after_loss) / 2 * (pipe.bdp_bytes + pipe.queue_bytes)
        self._most_bytes = min(max(pipe.bdp_bytes, mean_bytes), model.window_limit_bytes)
        self._burst_room_bytes = pipe.burst_room_bytes
        self.open = self.size_bytes >= self._first_limit_bytes

    def begin_burst(self, idle_s: float, delivered: float, burst_bytes: float) -> None:
        """Begin to send so many bytes after at least a round trip without anything to send."""
        self._follows_full = False
        self.network_limited = False
        self.round_end_s = -math.inf
        self.round_base = delivered
        model = self._model
        if not model.loss_based:
            return
        if model.slow_start_after_idle:
            halvings = min(_MOST_HALVINGS, int(idle_s / (self._pipe.rtt_s + model.retransmission_floor_s)))
            least_bytes = min(self.size_bytes, model.initial_window_bytes)
            self.size_bytes = max(least_bytes, self.size_bytes / 2**halvings)
        if min(self.size_bytes, burst_bytes) > self._burst_room_bytes:
            mean_bytes = (1 + model.window_after_loss) / 2 * self._burst_room_bytes
            self.size_bytes = self._threshold_bytes = max(mean_bytes, 2.0 * model.segment_bytes)
        self.open = self.size_bytes >= self._first_limit_bytes

    def next_round(self, now_s: float, delivered: float, round_trip_s: float) -> None:
        """Grow by what the last round has sent, and begin another, which takes ``round_trip_s``."""
        if self.round_end_s > -math.inf:
            sent_bytes = delivered - self.round_base
            full = sent_bytes >= _FULL * self.size_bytes
            self.network_limited = not full
            self._grow(sent_bytes)
            self._follows_full = full
        self.round_end_s = now_s + round_trip_s
        self.round_base = delivered

    def end_burst(self, delivered: float, burst_bytes: float, took_s: float) -> None:
        """Grow by what has been sent until now, as nothing is left to send. The burst has left within ``took_s``."""
        was_open = self.open
        self._grow(delivered - self.round_base)
        self._follows_full = self.network_limited = False
        if was_open:
            self.round_base = delivered  # an open window has no rounds
        if not self._model.loss_based:
            rate = burst_bytes / max(self._pipe.rtt_s + took_s, LEAST_RTT_S)
            self._best_rate = max(self._best_rate, min(rate, self._pipe.capacity))

    def after_outage(self, delivered: float) -> None:
        """Begin again with a retransmission."""
        if self._model.loss_based:
            self.size_bytes = min(self.size_bytes, float(self._model.segment_bytes))
        self._follows_full = False
        self.network_limited = False
        self.open = False
        self.round_end_s = -math.inf
        self.round_base = delivered
        self.open = self.size_bytes >= self._first_limit_bytes

    def _grow(self, sent_bytes: float) -> None:
        """Grow by what was acknowledged, to the mean of a long transfer's window at most."""
        if self.size_bytes >= self._threshold_bytes:
            grown_bytes = self.size_bytes + self._model.segment_bytes * sent_bytes / self.size_bytes
        elif self._follows_full or not self._model.loss_based:
            grown_bytes = min(self.size_bytes + sent_bytes, self._threshold_bytes)
        else:
            grown_bytes = min(2 * sent_bytes, self._threshold_bytes)
        self.size_bytes = max(self.size_bytes, min(grown_bytes, self._most_bytes))
        self.open = self.size_bytes >= self._first_limit_bytes
