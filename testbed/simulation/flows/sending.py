"""A TCP connection over the flow network: congestion window, and one message after another.

A connection (one per ordered pair of nodes, as in the real transport) is one flow at a time: it sends its messages one
by one, larger priority first. Its rate is its max-min share of the links, limited by its window (``window``).

set-up    the first message waits 3 RTT: TCP's handshake, then the testbed's hello, challenge, proof and verdict
          (``handshake``)
sharing   a connection's weight is RTT^-γ; γ depends on the congestion control (``tcp_model``)
LAN       inside a data centre, up to an RTT of 1 ms, there is no window, as it would open once, within some ms
queueing  if other connections keep a standing queue, each burst and each of its round trips is late by the bytes of
          that queue over C
losses    on a path with random losses a message is late by RTT times the probability that any of its last BDP is lost
priority  a message cannot overtake the U + Q bytes before it: the U bytes that a socket takes unsent
          (TCP_NOTSENT_LOWAT), and the Q bytes that an open window has in the queue (``waiting``)
stopped   when a process is stopped or killed, the kernel still sends the bytes that it has taken (see priority)
outage    if the path is down, or its acknowledgements are lost, the sender stands still until a retransmission gets
          through. Nothing under way is lost

Not modelled: single packets, and therefore losses and repairs of bursts that overflow a queue; delayed
acknowledgements; and the acknowledgements' own bandwidth. Where these may matter, the run says so (``validity``).
"""

from __future__ import annotations

import math

from testbed.simulation.flows.classes import delivered_by, left_bytes, set_cap, set_weight, shorten, start
from testbed.simulation.flows.pools import (
    connection_at,
    flow_class_at,
    hop_at,
    link_at,
    model_at,
    notice_at,
    path_at,
    pipe_at,
    transfer_at,
)
from testbed.simulation.flows.records import Connection, Model, Network
from testbed.simulation.flows.waiting import (
    add_message,
    drop_rest,
    drop_transfer,
    next_message,
    overtakes,
    take_messages,
)
from testbed.simulation.flows.window import (
    bdp_bytes,
    begin_after_outage,
    begin_window_burst,
    burst_rate,
    end_window_burst,
    follow_pipe,
    found_again_s,
    next_round,
    sawtooth_share,
    standing_queue_bytes,
)
from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.tcp_model import LEAST_RTT_S

# Events: a message arrives, a window's round ends, a retransmission may get through
ARRIVAL = 3
ROUND_END = 4
RETRANSMISSION = 5

# Notices: the first byte of a message leaves, a message has left the queue, nothing is left to send
HAS_STARTED = 0
HAS_ROOM = 1
IS_IDLE = 2

_STALLED_BYTES_PER_S = 1e-6  # cap while waiting for a retransmission; not 0, so that every flow has an end


def note(net: Network, kind: int, who: int) -> None:
    """Add a notice, which Python handles at the end of this event."""
    it = notice_at(net, net.notices)
    it.kind = kind
    it.who = who
    net.notices += 1


# ---- messages --------------------------------------------------------------------------------------------------------


def send(net: Network, it: Connection, number: int, size_bytes: float, priority: float) -> None:
    """Queue a message, as the transfer ``number``."""
    message = transfer_at(net, number)
    message.size_bytes = size_bytes
    message.connection = it.index
    message.flows = it.copies
    message.is_part = False
    stopped = _is_stopped(net, it)
    if it.is_open and it.sending == NONE and not it.waiting and not stopped and it.rest == NONE:
        _begin(net, it, number)
    else:
        if it.sending != NONE and overtakes(it, priority) and not stopped:
            take_messages(net, it, _taken_bytes(net, it) - left_bytes(net, flow_class_at(net, it.flow_class)))
        add_message(net, it, number, priority)
    if it.sending != NONE and not it.unlimited:
        _limit_round(net, it)


def open_connection(net: Network, it: Connection) -> None:
    """Open a connection that has been set up."""
    it.is_open = True
    it.idle_since_s = net.now
    pump(net, it)


def pump(net: Network, it: Connection) -> None:
    """Begin to send the next message that may be sent, if none is being sent."""
    if not it.is_open or it.sending != NONE or not _has_next(net, it):
        return
    if it.rest != NONE:
        number = it.rest
        it.rest = NONE
        _begin(net, it, number)
    else:
        _begin(net, it, next_message(net, it))
    if not it.unlimited:
        _limit_round(net, it)


def _has_next(net: Network, it: Connection) -> bool:
    """Whether there is a message that may be sent next."""
    if _is_stopped(net, it):
        return it.rest == NONE and it.taken > 0
    return it.rest != NONE or it.waiting > 0


def _begin(net: Network, it: Connection, number: int) -> None:
    message = transfer_at(net, number)
    if not it.burst_bytes and not it.unlimited:
        _begin_burst(net, it, message.size_bytes + it.waiting_bytes)
    it.sending = number
    it.sent_bytes = message.size_bytes
    if not path_at(net, it.path).works:
        _stand_still(net, it, net.now)
    start(net, it.flow_class, number)
    if message.tells_start:
        message.tells_start = False
        note(net, HAS_STARTED, number)
    if it.tells_room:
        note(net, HAS_ROOM, it.index)


def on_sent(net: Network, number: int) -> None:
    """Handle that the last byte of a message has left: schedule its arrival, and begin the next message."""
    message = transfer_at(net, number)
    it = connection_at(net, message.connection)
    it.sending = NONE
    it.burst_bytes += it.sent_bytes
    it.idle_since_s = net.now
    path = path_at(net, it.path)
    arrival_s = net.now + path.delay_s + it.queueing_s
    if path.passing < 1 and not it.unlimited:
        arrival_s += _repair_s(net, it, path.passing)
    it.arrival_s = max(it.arrival_s, arrival_s)
    if message.is_part:
        drop_transfer(net, number)
    else:
        schedule(net, it.arrival_s, ARRIVAL, number)
    if _has_next(net, it):
        pump(net, it)
        return
    it.pauses += 1
    it.recent_bytes += it.burst_bytes
    it.largest_burst_bytes = max(it.largest_burst_bytes, it.recent_bytes)
    if not it.unlimited:
        _end_burst(net, it)
    it.burst_bytes = 0.0
    if it.tells_idle:
        note(net, IS_IDLE, it.index)


def _repair_s(net: Network, it: Connection, passing: float) -> float:
    """Return the mean time that repairing random losses takes after the last byte of a message was sent.

    Only losses in its last bandwidth-delay product count, as earlier ones are repaired by then.
    """
    last_bytes = min(it.sent_bytes, bdp_bytes(pipe_at(net, it.index)))
    any_lost = 1.0 - math.pow(passing, last_bytes / model_at(net, it.model).segment_bytes)
    return it.rtt_s * any_lost


# ---- the process that writes -----------------------------------------------------------------------------------------


def stop(net: Network, it: Connection, spare: int, until_s: float) -> None:
    """Let the kernel take no more until ``until_s``. If that is infinite, bytes that it has not taken are lost.

    ``spare``: a transfer for the part of the present message that the kernel has not taken; freed if there is none.
    """
    if _is_stopped(net, it) or not _keep_rest(net, it, spare):
        drop_transfer(net, spare)
    it.stopped_until_s = max(until_s, it.stopped_until_s)
    if until_s == math.inf:
        if it.rest != NONE:
            drop_transfer(net, it.rest)
            it.rest = NONE
        drop_rest(net, it)


def _is_stopped(net: Network, it: Connection) -> bool:
    return net.now < it.stopped_until_s


def _keep_rest(net: Network, it: Connection, spare: int) -> bool:
    """Let the process keep the part of the present message that the kernel has not taken, as the transfer ``spare``.

    Return whether there is such a part.
    """
    if it.sending == NONE or it.rest != NONE:
        return False
    flow = flow_class_at(net, it.flow_class)
    left = left_bytes(net, flow)
    taken_bytes = max(_taken_bytes(net, it), 1.0)
    if taken_bytes < left:
        rest_bytes = left - taken_bytes
        message = transfer_at(net, it.sending)
        message.is_part = True
        rest = transfer_at(net, spare)
        rest.size_bytes = rest_bytes
        rest.connection = it.index
        rest.flows = message.flows
        rest.is_part = False
        rest.tells_start = False
        it.rest = spare
        it.sent_bytes -= rest_bytes
        shorten(net, it.flow_class, rest_bytes)
        return True
    take_messages(net, it, taken_bytes - left)
    return False


def _taken_bytes(net: Network, it: Connection) -> float:
    """Return how many bytes to be sent the kernel has taken, at most."""
    model = model_at(net, it.model)
    queued_bytes = 0.0
    if model.loss_based and not it.unlimited and path_at(net, it.path).is_wan and it.open:
        queued_bytes = pipe_at(net, it.index).queue_bytes
    return model.unsent_limit_bytes + queued_bytes


# ---- the window ------------------------------------------------------------------------------------------------------


def _delivered(net: Network, it: Connection) -> float:
    return delivered_by(net.now, flow_class_at(net, it.flow_class)) / it.copies


def _begin_burst(net: Network, it: Connection, size_bytes: float) -> None:
    """Begin a burst after idle time. After a gap of less than a round trip, the former burst continues."""
    if net.now - it.idle_since_s >= it.rtt_s:
        it.burst_begin_s = net.now
        it.recent_bytes = 0.0
        it.bursts += 1
        it.queueing_s = _standing_queue_s(net, it)
        begin_window_burst(net, it, net.now - it.idle_since_s, _delivered(net, it), size_bytes)


def _standing_queue_s(net: Network, it: Connection) -> float:
    """Return the time in which the other connections' standing queue before the narrowest link drains."""
    narrowest = path_at(net, it.path).narrowest
    if narrowest == NONE:
        return 0.0
    number = link_at(net, narrowest).first_standing  # the connection that has had a standing queue for longest
    if number == it.index:
        number = it.standing_after
    if number == NONE or connection_at(net, number).standing_since_s + it.rtt_s > net.now:
        return 0.0
    pipe = pipe_at(net, it.index)
    return standing_queue_bytes(pipe, model_at(net, it.model).window_after_loss) / pipe.capacity


def _stand_before(net: Network, it: Connection, number: int) -> None:
    """Note that this connection keeps a standing queue before a link, from now on."""
    link = link_at(net, number)
    it.standing_at = number
    it.standing_since_s = net.now
    it.standing_after = NONE
    it.standing_before = link.last_standing
    if link.last_standing == NONE:
        link.first_standing = it.index
    else:
        connection_at(net, link.last_standing).standing_after = it.index
    link.last_standing = it.index


def _stand_no_more(net: Network, it: Connection) -> None:
    link = link_at(net, it.standing_at)
    if it.standing_before == NONE:
        link.first_standing = it.standing_after
    else:
        connection_at(net, it.standing_before).standing_after = it.standing_after
    if it.standing_after == NONE:
        link.last_standing = it.standing_before
    else:
        connection_at(net, it.standing_after).standing_before = it.standing_before
    it.standing_at = NONE


def _limit_round(net: Network, it: Connection) -> None:
    """Cap the flow so that it sends the rest of the window in the rest of the round."""
    if it.open:
        _cap(net, it, _open_rate(net, it))
        return
    delivered = _delivered(net, it)
    if net.now >= it.round_end_s:
        next_round(net, it, delivered, it.rtt_s + it.queueing_s)
        if it.open:
            _cap(net, it, _open_rate(net, it))
            return
    waiting_bytes = it.waiting_bytes + left_bytes(net, flow_class_at(net, it.flow_class))
    left = it.window_bytes - (delivered - it.round_base)  # bytes that may still be sent in this round
    if it.network_limited:
        rate = math.inf
    elif waiting_bytes <= left * (1 + 1e-9):
        rate = burst_rate(net, it)
    else:
        rate = max(left, 0.0) / (it.round_end_s - net.now)
        if it.timer_s != it.round_end_s:
            it.timer_s = it.round_end_s
            schedule(net, it.timer_s, ROUND_END, it.index)
    _cap(net, it, rate)


def on_round_end(net: Network, it: Connection) -> None:
    if net.now == it.timer_s and it.sending != NONE and not it.open:
        _limit_round(net, it)


def _open_rate(net: Network, it: Connection) -> float:
    """Return the rate that an open window allows."""
    burst_bytes = it.burst_bytes + it.waiting_bytes
    if burst_bytes + it.sent_bytes <= it.full_bytes:  # a quick test, as every message calls this
        return math.inf
    narrowest = path_at(net, it.path).narrowest
    if narrowest == NONE or burst_bytes + left_bytes(net, flow_class_at(net, it.flow_class)) <= it.full_bytes:
        return math.inf
    if it.standing_at == NONE:
        _stand_before(net, it, narrowest)
    pipe = pipe_at(net, it.index)
    return pipe.capacity * sawtooth_share(pipe, model_at(net, it.model).window_after_loss)


def _cap(net: Network, it: Connection, rate: float) -> None:
    if it.down_since_s == math.inf:  # otherwise the sender stands still until the retransmission
        set_cap(net, it.flow_class, rate if rate < it.limit else it.limit)


def _end_burst(net: Network, it: Connection) -> None:
    end_window_burst(net, it, _delivered(net, it), it.burst_bytes, net.now - it.burst_begin_s)
    if it.standing_at != NONE:
        _stand_no_more(net, it)


# ---- the path --------------------------------------------------------------------------------------------------------


def path_changed(net: Network, it: Connection) -> None:
    """Follow a changed link of the path. While the path is down, the sender does not notice changes."""
    path = path_at(net, it.path)
    if not path.is_up and pipe_at(net, it.index).capacity > 0:
        return
    if path.rtt_s != it.rtt_s:
        it.rtt_s = path.rtt_s
        set_weight(net, it.flow_class, weight_at(model_at(net, it.model), it.rtt_s))
    see_path(net, it)
    follow_pipe(net, it)
    take_limits(net, it)


def weight_at(model: Model, rtt_s: float) -> float:
    """Return the weight of a connection in max-min sharing, RTT^-γ."""
    return float(max(rtt_s, LEAST_RTT_S) ** -model.sharing_exponent) if model.sharing_exponent else 1.0


def see_path(net: Network, it: Connection) -> None:
    """Update the connection's pipe from the present state of the path."""
    path = path_at(net, it.path)
    pipe = pipe_at(net, it.index)
    flow = flow_class_at(net, it.flow_class)
    capacity = it.private_capacity
    for place in range(flow.first_hop, flow.last_hop):
        capacity = min(capacity, link_at(net, hop_at(net, place).link).capacity)
    pipe.port = it.private_capacity
    if it.private_capacity == math.inf:
        pipe.port = link_at(net, hop_at(net, flow.first_hop).link).capacity
    pipe.capacity = capacity
    pipe.rtt_s = it.rtt_s
    pipe.queue_bytes = path.queue_bytes * model_at(net, it.model).goodput
    pipe.loss = 1.0 - path.passing


def take_limits(net: Network, it: Connection) -> None:
    """Update the connection's limits from path and window, and the cap of its flow."""
    pipe = pipe_at(net, it.index)
    it.limit = min(it.private_capacity, it.rate_limit)
    it.full_bytes = bdp_bytes(pipe) + pipe.queue_bytes if model_at(net, it.model).loss_based else math.inf
    if it.unlimited:
        _cap(net, it, math.inf)
    elif it.sending != NONE:
        _limit_round(net, it)


def state_changed(net: Network, it: Connection) -> None:
    """Handle that a link of the path, or of the path of its acknowledgements, has gone down or come up."""
    if not path_at(net, it.path).works:
        if it.sending != NONE:
            # acknowledgements for bytes delivered until now still arrive, within a round trip
            _stand_still(net, it, net.now + it.rtt_s)
    elif it.down_since_s < math.inf:
        floor_s = model_at(net, it.model).retransmission_floor_s
        schedule(net, found_again_s(it.down_since_s, net.now, it.rtt_s, floor_s), RETRANSMISSION, it.index)
    else:
        path_changed(net, it)


def _stand_still(net: Network, it: Connection, since_s: float) -> None:
    """Stop sending. The sender gets no acknowledgement after ``since_s``."""
    it.down_since_s = min(since_s, it.down_since_s)
    set_cap(net, it.flow_class, _STALLED_BYTES_PER_S)


def on_retransmission(net: Network, it: Connection) -> None:
    if not path_at(net, it.path).works:
        return  # down again: a later retransmission gets through
    if it.down_since_s < math.inf:
        it.down_since_s = math.inf
        begin_after_outage(net, it, _delivered(net, it))
        path_changed(net, it)
