"""The congestion window of a connection over flows: how much TCP sends into a path.

Notation: C capacity of the path (payload bytes/s), RTT without queues, BDP = C·RTT, Q queue before the narrowest link
(bytes), W window (bytes), W0 its first value, p share of packets lost at random, β share of W that a loss leaves.

slow start      W doubles each round trip, from W0 = 10 segments on, until the first limit (RFC 5681, 3.1; RFC 6928).
                So a message of M bytes that is alone takes δ + K·RTT + (M - W0·(2^K - 1)) / C for the one-way delay δ
                and K = min{k: W0·2^k >= min(BDP, bytes left)} (Cardwell, Savage and Anderson 2000, section 3.2,
                without losses and delayed acknowledgements)
growth          acknowledgements of d bytes add d. If less than half of a window is used, it does not grow (RFC 7661):
                a round after idle time that sends d bytes makes W max(W, 2d). BBR's W grows with all that arrives
first limit     the least of BDP, the receive window, and what losses allow (``loss_limit``). From there on the window
                is ``open``: the flow sends at its share of the capacity, and the rest of W waits in the queue
queue           W grows to BDP + Q, loses packets there, and is multiplied by β. Its mean is (1 + β) / 2·(BDP + Q), so
                (1 + β) / 2·(BDP + Q) - BDP bytes stand in the queue (``standing_queue_bytes``). BBR leaves none
bursts          after idle time a whole window comes at once, at the rate A of the sender's port. The queue, which
                drains meanwhile, takes B = Q / (1 - C/A) of it and loses the rest. Then W varies between β·B and B, so
                it is set to the mean (1 + β) / 2·B; from there it grows by a segment per round trip (RFC 5681, 3.1)
short queues    if β·(BDP + Q) < BDP, the path is not always full: ``sawtooth_share`` of C is used
idle            with ``slow_start_after_idle``, W halves for each retransmission timeout, down to W0 (RFC 2861)
outage          W is one segment after a retransmission timeout (RFC 5681, 3.1); BBR keeps its own
pacing          BBR sends a burst at 2/ln 2 times the best rate at which it was acknowledged so far (Cardwell et al.
                2016: BBR), others as fast as their port allows
"""

from __future__ import annotations

import math

from testbed.simulation.flows.pools import model_at, pipe_at
from testbed.simulation.flows.records import Connection, Model, Network, Pipe
from testbed.simulation.tcp_model import LEAST_RTT_S, TcpModel

_MOST_HALVINGS = 60  # halvings of an idle window; more would only underflow
_FULL = 0.95  # the window limited a round that sent at least this share of it; the missing part is rounding
_BBR_GAIN = 2 / math.log(2)
_SHORTEST_RTT_S = 1e-4  # time in host and switch; a lower bound for the response functions, which diverge at 0
_LONGEST_TIMEOUT_S = 120.0  # Linux: TCP_RTO_MAX


def loss_limit(model: Model | TcpModel, rtt_s: float, loss: float, capacity: float) -> float:
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
    if model.is_reno:
        return mathis
    cubic: float = 1.054 * (rtt_s / loss) ** 0.75 * model.segment_bytes / rtt_s
    return max(mathis, cubic)


def found_again_s(since_s: float, up_s: float, rtt_s: float, floor_s: float) -> float:
    """Return when a sender gets through again that had its last acknowledgement at ``since_s``.

    The path works again from ``up_s`` on.

    A tail loss probe is sent after two round trips (RFC 8985, 7.2). Retransmissions follow, the first after RTO = RTT +
    ``floor_s``, each further one after twice that time (RFC 6298, 5.5).
    """
    at_s = since_s + 2 * rtt_s
    timeout_s = rtt_s + floor_s
    while at_s < up_s:
        at_s += timeout_s
        timeout_s = min(2 * timeout_s, _LONGEST_TIMEOUT_S)
    return at_s


# ---- quantities of the path ------------------------------------------------------------------------------------------


def bdp_bytes(pipe: Pipe) -> float:
    """Return the bandwidth-delay product."""
    return pipe.capacity * pipe.rtt_s


def _burst_room_bytes(pipe: Pipe) -> float:
    """Return how many bytes of a burst the queue takes without loss, as it drains meanwhile."""
    return pipe.queue_bytes / (1 - pipe.capacity / pipe.port) if pipe.capacity < pipe.port else math.inf


def standing_queue_bytes(pipe: Pipe, beta: float) -> float:
    """Return the mean number of bytes that long transfers keep in the queue; see "queue" above."""
    bdp = bdp_bytes(pipe)
    return min(pipe.queue_bytes, max(0.0, (1 + beta) / 2 * (bdp + pipe.queue_bytes) - bdp))


def sawtooth_share(pipe: Pipe, beta: float) -> float:
    """Return the share of the capacity that one long transfer uses.

    Its window grows linearly from β·(BDP + Q) to BDP + Q. A round sends W, and takes RTT where W is below BDP, else
    W / C. So the share is ∫ W dW / ∫ max(BDP, W) dW: 0.75 for Reno without a queue.
    """
    bdp = bdp_bytes(pipe)
    top = bdp + pipe.queue_bytes
    if not beta * top < bdp < math.inf:
        return 1.0
    sent = (1 - beta * beta) * (top * top) / 2
    could = bdp * (bdp - beta * top) + (top * top - bdp * bdp) / 2
    return sent / could


# ---- the window. ``delivered``: the payload bytes that the connection has carried so far -----------------------------


def begin_window(net: Network, it: Connection) -> None:
    it.window_bytes = model_at(net, it.model).initial_window_bytes
    it.threshold_bytes = math.inf
    it.round_end_s = -math.inf
    follow_pipe(net, it)


def burst_rate(net: Network, it: Connection) -> float:
    """Return the rate at which a burst leaves if it is smaller than the window."""
    model = model_at(net, it.model)
    if model.loss_based:
        return math.inf
    first_rate = model.initial_window_bytes / max(pipe_at(net, it.index).rtt_s, LEAST_RTT_S)
    return _BBR_GAIN * max(first_rate, it.best_rate)


def follow_pipe(net: Network, it: Connection) -> None:
    """Update the window's limits from the connection's pipe, which has changed."""
    model = model_at(net, it.model)
    pipe = pipe_at(net, it.index)
    receive_limit = model.window_limit_bytes / pipe.rtt_s if pipe.rtt_s > 0 else math.inf
    it.rate_limit = min(receive_limit, loss_limit(model, pipe.rtt_s, pipe.loss, pipe.capacity))
    bdp = bdp_bytes(pipe)
    it.first_limit_bytes = min(bdp, it.rate_limit * pipe.rtt_s, model.window_limit_bytes)
    mean_bytes = (1 + model.window_after_loss) / 2 * (bdp + pipe.queue_bytes)
    it.most_bytes = min(max(bdp, mean_bytes), model.window_limit_bytes)
    it.burst_room_bytes = _burst_room_bytes(pipe)
    it.open = it.window_bytes >= it.first_limit_bytes


def begin_window_burst(net: Network, it: Connection, idle_s: float, delivered: float, burst_bytes: float) -> None:
    """Begin a burst of ``burst_bytes``, after at least a round trip with nothing to send."""
    it.follows_full = False
    it.network_limited = False
    it.round_end_s = -math.inf
    it.round_base = delivered
    model = model_at(net, it.model)
    if not model.loss_based:
        return
    if model.slow_start_after_idle:
        halvings = min(_MOST_HALVINGS, int(idle_s / (pipe_at(net, it.index).rtt_s + model.retransmission_floor_s)))
        least_bytes = min(it.window_bytes, model.initial_window_bytes)
        it.window_bytes = max(least_bytes, it.window_bytes / 2.0**halvings)
    if min(it.window_bytes, burst_bytes) > it.burst_room_bytes:
        mean_bytes = (1 + model.window_after_loss) / 2 * it.burst_room_bytes
        it.threshold_bytes = max(mean_bytes, 2.0 * model.segment_bytes)
        it.window_bytes = it.threshold_bytes
    it.open = it.window_bytes >= it.first_limit_bytes


def next_round(net: Network, it: Connection, delivered: float, round_trip_s: float) -> None:
    """Let the window grow by the bytes of the last round, and begin a new round of ``round_trip_s``."""
    if it.round_end_s > -math.inf:
        sent_bytes = delivered - it.round_base
        full = sent_bytes >= _FULL * it.window_bytes
        it.network_limited = not full
        _grow(net, it, sent_bytes)
        it.follows_full = full
    it.round_end_s = net.now + round_trip_s
    it.round_base = delivered


def end_window_burst(net: Network, it: Connection, delivered: float, burst_bytes: float, took_s: float) -> None:
    """Let the window grow at the end of a burst, which took ``took_s`` to leave."""
    was_open = it.open
    _grow(net, it, delivered - it.round_base)
    it.follows_full = False
    it.network_limited = False
    if was_open:
        it.round_base = delivered  # an open window has no rounds
    if not model_at(net, it.model).loss_based:
        pipe = pipe_at(net, it.index)
        rate = burst_bytes / max(pipe.rtt_s + took_s, LEAST_RTT_S)
        it.best_rate = max(it.best_rate, min(rate, pipe.capacity))


def begin_after_outage(net: Network, it: Connection, delivered: float) -> None:
    """Begin again after an outage, with a retransmission."""
    model = model_at(net, it.model)
    if model.loss_based:
        it.window_bytes = min(it.window_bytes, model.segment_bytes)
    it.follows_full = False
    it.network_limited = False
    it.round_end_s = -math.inf
    it.round_base = delivered
    it.open = it.window_bytes >= it.first_limit_bytes


def _grow(net: Network, it: Connection, sent_bytes: float) -> None:
    """Let the window grow after ``sent_bytes``, but not above the mean window of a long transfer."""
    model = model_at(net, it.model)
    if it.window_bytes >= it.threshold_bytes:
        grown_bytes = it.window_bytes + model.segment_bytes * sent_bytes / it.window_bytes
    elif it.follows_full or not model.loss_based:
        grown_bytes = min(it.window_bytes + sent_bytes, it.threshold_bytes)
    else:
        grown_bytes = min(2 * sent_bytes, it.threshold_bytes)
    it.window_bytes = max(it.window_bytes, min(grown_bytes, it.most_bytes))
    it.open = it.window_bytes >= it.first_limit_bytes
