"""A TCP connection over the flow network: set-up, congestion window, and one message after another.

A connection (one per ordered pair of nodes, as in the real transport) is one flow at a time: it sends its messages one
by one, larger priority first. Notation: C capacity of the path (bytes/s), δ one-way delay, RTT = δ and that of the way
back, Q queue before the narrowest link, M message, W congestion window, W0 its initial value (bytes of payload), U
unsent bytes that a socket takes (TCP_NOTSENT_LOWAT).

warm            T = δ + M / r, where r is the connection's max-min share
cold            T = δ + K·RTT + (M - W0·(2^K - 1)) / r with K = min{k: W0·2^k >= min(C·RTT, what is left)}: the
                congestion window W doubles each round trip, from W0 on (``congestion_window``)
pacing          BBR paces, and until it has seen the path full sends at 2/ln 2 times its best delivery rate (``pacing``)
bursts          a burst after idle of a loss-based algorithm comes at the rate A of the links before the narrowest one.
                While the queue drains at C it takes Q / (1 - C/A) of it, and loses the rest (``drop_tail``)
LAN             inside a data centre, up to an RTT of 1 ms, there is no window: it opens within some ms, once
set-up          the first message waits 3 RTT: TCP's handshake, then hello, challenge, proof and verdict of ours. While
                the path is down, a SYN is sent every second (``outage``)
priority        a message overtakes none of the U + min(W - C·RTT, Q) bytes before it (``send_queue``)
stopped         of a process that is stopped or killed the kernel sends what it has taken (see priority), and no more
outage          a sender into a path that is down finds it up again at its next probe or retransmission, with RTO =
                smoothed RTT + 200 ms, doubled each time (``outage``). W is one segment then; with BBR what it was
loss p          r <= sqrt(3/2)·MSS / (RTT·sqrt(p)) for Reno (Mathis et al. 1997); CUBIC the larger of that and RFC
                9438's; both less, by timeouts. BBR r <= C·(1 - p), and a message arrives an RTT later with the
                probability that any of its last C·RTT bytes is lost: ``tcp_model``. A path that loses all is down
sharing         a connection's weight is RTT^-γ, γ by algorithm: ``tcp_model``
emulated links  are simulated by packets, not here (``packets``)

Valid where bytes per transfer >= 16·C·RTT, or alone on the path; for CUBIC and Reno with queues of at least one
bandwidth-delay product and similar RTTs (``validity``). Alone on an emulated path, warm transfers of 0.2 to 400 C·RTT
took the predicted time within 7 % with CUBIC (median 0.9 %), those of 0.02 to 400 C·RTT within 8 % with BBR (median
0.8 %), and messages of 0.5 to 80 KB within 6 % with both.

Not modelled: delayed acknowledgements; acknowledgements' bandwidth; retransmissions of BBR that are lost again, and
timeouts one after another, which take most of the time where more than 20 % are lost; queueing delay of small messages
behind other connections; losses of a connection that sends on and on with a window that fills the path (which is then
taken to be used fully, as with queues of half a bandwidth-delay product).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.plan.instant import ConnectionState
from testbed.simulation.clock import Clock
from testbed.simulation.congestion_window import BurstRepair, CongestionWindow, repair_of
from testbed.simulation.drop_tail import BurstQueue
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.outage import SenderOutage, Timers, set_up, smoothed_queueing_s
from testbed.simulation.pacing import Pacing, Pipe
from testbed.simulation.paths import SitePath
from testbed.simulation.send_queue import OnStart, SimulatedSendQueue
from testbed.simulation.tcp_model import LEAST_RTT_S, TcpModel
from testbed.state import load_state, state_of

_STALLED_BYTES_PER_S = 1e-6  # while waiting for a retransmission; not 0, so that every flow has an end
_SHORT_RTT_S = 1e-3  # a window fills such a path (inside a LAN) within a few milliseconds, once; it is not modelled


_REMEMBERED = ("_burst_begin_s", "_burst_window", "_idle_since_s", "_ready", "_smoothed_queueing_s", "_used")


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """``copies`` connections that always do the same, simulated as one.

    private_capacity  of the ports that each connection has to itself (bytes/s); these are not among its links
    """

    copies: int = 1
    private_capacity: float = math.inf


SINGLE = ConnectionGroup()


class TcpConnection:
    """One direction between two nodes. ``deliver(item)`` is called when a message has arrived.

    It may stand for a ``ConnectionGroup``: sizes are of one of its connections, and ``deliver`` is called once for all.
    """

    __slots__ = (
        "_arrival_s", "_burst_base", "_burst_begin_s", "_burst_bytes", "_burst_window", "_clock", "_copies",
        "_deliver", "_earlier_bytes", "_entered", "_idle_since_s", "_item", "_limit", "_links",
        "_loss", "_lost_s", "_model", "_network", "_on_sent_callback", "_outage", "_pacing", "_path", "_pipe",
        "_private_capacity", "_queues", "_ready", "_recovering", "_rest", "_sending", "_sent_bytes",
        "_smoothed_queueing_s", "_stopped_until_s", "_used", "_waiting_share", "_window", "flow",
        "largest_burst_bytes", "on_idle", "on_room", "queue", "rtt_s", "unlimited",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, network: FlowNetwork, path: SitePath, links: tuple[int, ...], model: TcpModel,
        deliver: Callable[[Any], None], group: ConnectionGroup = SINGLE,
    ) -> None:  # fmt: skip
        self._clock, self._network, self._path, self._model, self._deliver = clock, network, path, model, deliver
        self._links, self._copies, self._private_capacity = links, group.copies, group.private_capacity
        self.flow = network.flow_class(links, model.weight(path.rtt_s))
        self.queue = SimulatedSendQueue()  # of messages that have not begun
        self._used = False
        self._earlier_bytes = 0.0  # of the connections whose place it has taken
        self.largest_burst_bytes = 0.0  # since training began
        self._sending = False
        self._sent_bytes, self._item = 0.0, None  # of the message being sent
        self._rest: tuple[float, Any] | None = None  # of a message: what a stopped process has not written
        self._stopped_until_s = -math.inf
        self._ready = False  # set up
        self._burst_bytes = 0.0  # a burst lasts from idle to idle
        self.on_room: Callable[[], None] | None = None  # called when a message has left the queue
        self.on_idle: Callable[[], None] | None = None  # called when nothing is left to send
        self._arrival_s = 0.0  # of the last message: TCP keeps the order even when a trace shortens the path
        self._idle_since_s = 0.0
        self._burst_begin_s = -math.inf  # of this burst
        self._burst_base = self._burst_window = 0.0  # likewise: what was delivered before, and the window
        self._pacing = None if model.loss_based else Pacing(model.segment_bytes)
        # without a congestion window it is a flow and no more
        self.unlimited = not model.slow_start or (not path.links and 2 * path.delay_s <= _SHORT_RTT_S)
        self.rtt_s, self._pipe = path.rtt_s, Pipe(0.0, 0.0, 0.0)  # set by ``path_changed``
        self._window = CongestionWindow(model, self._pacing, self._pipe)
        self._loss = path.loss  # share of packets lost at random
        self._waiting_share = 0.0  # of a burst, in the narrowest queue when its last byte comes: 1 - C / A
        self._queues: tuple[BurstQueue, ...] = ()  # in which its bursts wait
        self._entered: tuple[BurstQueue, ...] = ()  # those that this burst has entered
        self._lost_s = -math.inf  # when a queue last dropped packets of it
        self._recovering = False  # BBR waits for what a burst has lost
        self._outage, self._smoothed_queueing_s = SenderOutage(), 0.0
        self._on_sent_callback = self._on_sent  # one bound method for all messages
        self.path_changed()

    def state(self) -> ConnectionState:
        """Return what it remembers, as nothing is to be sent or under way; what was delivered counts from now on."""
        delivered = self._delivered_bytes()
        pacing = {} if self._pacing is None else self._pacing.state()
        own = state_of(self, _REMEMBERED) | {"_burst_base": self._burst_base - delivered}
        own["cap"] = str(self._network.cap(self.flow))
        return own | self._window.state(delivered) | pacing

    def load_state(self, state: ConnectionState) -> None:
        """Take the place of the connection that ``state`` is of, before anything is sent."""
        load_state(self, (*_REMEMBERED, "_burst_base"), state)
        self._window.load_state(state)
        if self._pacing is not None:
            self._pacing.load_state(state)
        self._limit = self._rate_limit()
        self._network.set_cap(self.flow, float(state["cap"]))

    @property
    def busy(self) -> bool:
        return self._sending or self.queue.length > 0 or self._rest is not None

    @property
    def carried_bytes(self) -> float:
        """Bytes that all connections of the group have carried until now, and those whose place they have taken."""
        return self._earlier_bytes + self._network.delivered_bytes(self.flow)

    @property
    def worst_loss(self) -> float:
        """The largest share of packets that its path has lost at random."""
        return self._path.worst_loss if self._used else 0.0

    @property
    def largest_burst_bdps(self) -> float:
        """Size of its largest burst, in bandwidth-delay products."""
        bdp_bytes = self._pipe.bdp_bytes
        return self.largest_burst_bytes / bdp_bytes if bdp_bytes > 0 else math.inf

    @property
    def queue_bytes(self) -> float:
        """What the queue before the narrowest link of its path holds."""
        return self._pipe.queue_bytes

    def share_at_once(self, bucket_bytes: int) -> float:
        """Return the share of the time of a burst that a shaper saves whose bucket lets so much pass at once."""
        capacity = self._pipe.capacity
        if not 0 < capacity < math.inf:
            return 0.0
        burst_s = self.rtt_s / 2 + self.largest_burst_bytes / capacity
        return min(self.largest_burst_bytes, bucket_bytes) / capacity / burst_s if burst_s > 0 else 0.0

    def take_over(self, before: TcpConnection) -> None:
        """Count what ``before`` has carried, whose place it takes."""
        self._earlier_bytes += before.carried_bytes
        self.largest_burst_bytes = max(self.largest_burst_bytes, before.largest_burst_bytes)

    @property
    def idle(self) -> bool:
        return self._ready and not self.busy

    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        """Queue a message. ``on_start()`` is called when its first byte leaves."""
        if self._is_killed():
            return
        if not self._used:
            self._set_up()
        if self._ready and not self._sending and not self.queue.length and not self._stopped and self._rest is None:
            self._begin(size_bytes, item, on_start)
        else:
            if self._sending and self.queue.overtakes(priority) and not self._stopped:
                self.queue.take(self._taken_bytes() - self._network.left_bytes(self.flow))
            self.queue.push(size_bytes, priority, item, on_start)
            if self._stopped:
                self._clock.at(self._stopped_until_s, self._continue)
        if self._ready and not self._window.open and not self._window.network_limited:
            self._window.more_to_send(self._clock.now)
            self._update_cap()
        if self._entered and self._clock.now < self._burst_begin_s + self.rtt_s:
            self._enter_queues()  # it sends more in its first round

    def stop(self, until_s: float) -> None:
        """Let the kernel take no more until then; infinity: what it has not taken is lost with the process."""
        if not self._stopped:
            self._keep_rest()
        self._stopped_until_s = max(until_s, self._stopped_until_s)
        if until_s == math.inf:
            self._rest = None
            self.queue.drop_rest()
        elif self.busy:
            self._clock.at(until_s, self._continue)

    @property
    def _stopped(self) -> bool:
        return self._clock.now < self._stopped_until_s

    def _keep_rest(self) -> None:
        """Let the process keep what the kernel has not taken of what is to be sent."""
        if not self._sending or self._rest is not None:
            return
        left_bytes, taken_bytes = self._network.left_bytes(self.flow), max(self._taken_bytes(), 1.0)
        if taken_bytes < left_bytes:
            rest_bytes = left_bytes - taken_bytes
            self._rest, self._item = (rest_bytes, self._item), None
            self._sent_bytes -= rest_bytes
            self._network.shorten(self.flow, rest_bytes)
        else:
            self.queue.take(taken_bytes - left_bytes)

    def _continue(self, _: Any) -> None:
        if self._ready and not self._stopped:
            self._pump()

    def _taken_bytes(self) -> float:
        """Return how much of what is to be sent the kernel has taken at most."""
        pipe, window, queued_bytes = self._pipe, self._window, 0.0
        if self._pacing is None and not self.unlimited and self._path.tier == "wan":  # a LAN has no queue
            queued_bytes = pipe.queue_bytes
            if not window.open:
                queued_bytes = min(queued_bytes, max(0.0, window.size_bytes - pipe.bdp_bytes))
        return self._model.unsent_limit_bytes + queued_bytes

    def path_changed(self) -> None:
        """Take note of a changed link of the path. While it is down, the sender does not notice."""
        path, window = self._path, self._window
        if not path.up and self._pipe.capacity > 0:
            return
        if path.rtt_s != self.rtt_s:
            self.rtt_s = path.rtt_s
            self._network.set_weight(self.flow, self._model.weight(self.rtt_s))
        capacity = min(map(self._network.capacity, self._links), default=math.inf)
        capacity = min(capacity, self._private_capacity)
        self._pipe = Pipe(capacity, self.rtt_s, path.queue_bytes * self._model.goodput)
        self._queues = self._burst_queues()
        self._waiting_share = 1 - min((queue.late_share for queue in self._queues), default=1.0)
        if path.loss != self._loss:
            self._loss_changed(path.loss)
        self._limit = self._rate_limit()
        self._cap(self._limit)
        window.path_changed(self._pipe)
        if self.unlimited:
            window.open = True
        if self._sending and not window.open:
            self._update_cap()

    def _loss_changed(self, loss: float) -> None:
        """Take note that the path loses another share of its packets at random."""
        before, self._loss = self._loss, loss
        windowed = self._model.loss_based and not self.unlimited and self.rtt_s > 0
        if self._used and windowed and (before == 0 or loss == 0):
            least_bytes = self._model.rate_limit(self.rtt_s, loss or before, self._pipe.capacity) * self.rtt_s
            self._window.path_loses(self._clock.now, loss, least_bytes)

    def _rate_limit(self) -> float:
        """Return the rate that the window limit and random losses allow, in bytes per second."""
        loss = 0.0 if self._window.shrinks else self._loss
        return min(self._private_capacity, self._model.rate_limit(self.rtt_s, loss, self._pipe.capacity))

    def state_changed(self) -> None:
        """Take note that a link of the path, or of that of its acknowledgements, has gone down or come up."""
        path, outage, now = self._path, self._outage, self._clock.now
        self._queues = self._burst_queues()
        if not (path.up and path.acknowledged):
            if self._sending:
                sent_bytes = self._burst_bytes + self._sent_bytes - self._network.left_bytes(self.flow)
                # of what leaves the queue now, or what arrives now, the acknowledgement is the last to come
                last_s = now + (self.rtt_s if path.acknowledged else path.rtt_s - path.delay_s)
                self._miss(last_s, self._smoothed_s(sent_bytes), under_way=sent_bytes > 0)
        elif outage.noticed(now):
            self._clock.at(outage.ends_s(now, path.rtt_s), self._on_retransmission)
        else:
            outage.end()
            self.path_changed()

    def _miss(self, since_s: float, queueing_s: float, under_way: bool) -> None:
        """Miss acknowledgements after ``since_s``. ``queueing_s``: that in the smoothed RTT."""
        smoothed_s, outage = self.rtt_s + queueing_s, self._outage
        timers = Timers(since_s, smoothed_s, smoothed_s + self._model.retransmission_floor_s)
        outage.begin(timers, self._clock.now, self._path, under_way)
        if outage.silent:
            self._network.set_cap(self.flow, _STALLED_BYTES_PER_S)
        else:
            self._clock.at(timers.expires_s, self._on_timeout)

    def _on_timeout(self, _: Any) -> None:
        if not self._path.acknowledged and self._outage.noticed(self._clock.now):
            self._outage.silent = True
            self._network.set_cap(self.flow, _STALLED_BYTES_PER_S)

    def _on_retransmission(self, _: Any) -> None:
        if not (self._path.up and self._path.acknowledged) or self._outage.timers is None:
            return  # down again: a later retransmission gets through
        if self._outage.cut:
            self._window.after_outage(self._clock.now, self._delivered_bytes())
        self._outage.end()
        self.path_changed()

    def _smoothed_s(self, burst_bytes: float) -> float:
        """Return the queueing delay in the smoothed RTT after so many bytes of a burst, sent at once."""
        pipe, window = self._pipe, self._window
        waiting_bytes = min(burst_bytes * self._waiting_share, pipe.queue_bytes)  # of the last byte, before itself
        if waiting_bytes and not window.open:
            waiting_bytes = min(waiting_bytes, max(0.0, window.size_bytes - pipe.bdp_bytes))
        segments = burst_bytes / self._model.segment_bytes
        return smoothed_queueing_s(self._smoothed_queueing_s, waiting_bytes / pipe.capacity, segments)

    def _cap(self, rate: float) -> None:
        if not self._outage.silent and not self._recovering:  # else stalled until the retransmission
            self._network.set_cap(self.flow, rate)

    def _set_up(self) -> None:
        self._used = True
        if self._pacing is not None:
            self._pacing.observe(self._model.initial_window_bytes, 0.0, max(self.rtt_s, LEAST_RTT_S))
        if self._model.setup_round_trips * self.rtt_s <= 0:
            self._ready = True
        else:
            set_up(self._clock, self._path, self._model.setup_round_trips, self._is_killed, self._on_set_up)

    def _is_killed(self) -> bool:
        return self._stopped_until_s == math.inf

    def _on_set_up(self, _: Any) -> None:
        self._ready = True
        self._idle_since_s = self._clock.now
        self._pump()
        if not self._window.open:
            self._update_cap()

    def _pump(self) -> None:
        if self._sending or not self._has_next:
            return
        if self._rest is not None:
            (rest_bytes, item), self._rest = self._rest, None
            self._begin(rest_bytes, item, None)
        else:
            self._begin(*self.queue.pop())

    @property
    def _has_next(self) -> bool:
        """Whether anything may be sent next."""
        if self._stopped:
            return self._rest is None and self.queue.taken > 0
        return self._rest is not None or self.queue.length > 0

    def _begin(self, size_bytes: float, item: Any, on_start: OnStart | None) -> None:
        now, path, pacing = self._clock.now, self._path, self._pacing
        if pacing is None and not self.unlimited and not self._burst_bytes:
            self._begin_burst(now)
        elif pacing is not None and not self._burst_bytes:
            pacing.begin(now)
        self._sending, self._sent_bytes, self._item = True, size_bytes, item
        if not (path.up and path.acknowledged):
            self._miss(now, self._smoothed_queueing_s, under_way=False)
        self._network.start(self.flow, size_bytes, self._on_sent_callback, self._copies)
        if pacing is not None and self._window.open and not self.unlimited:
            self._overflow(pacing, size_bytes)
        if on_start is not None:
            on_start()
        if self.on_room is not None:
            self.on_room()

    def _begin_burst(self, now: float) -> None:
        """Begin a burst after idle time, or go on with one after a gap of less than a round trip."""
        idle_s = now - self._idle_since_s
        if 0 < self.rtt_s <= idle_s:
            self._burst_begin_s, self._burst_base = now, self.flow.delivered / self._copies
            timeout_s = self.rtt_s + self._smoothed_queueing_s + self._model.retransmission_floor_s
            self._window.after_idle(now, idle_s, timeout_s, self._burst_base)
            self._burst_window = self._window.size_bytes
        if self._queues and now < self._burst_begin_s + self.rtt_s:
            self._enter_queues()

    def _enter_queues(self) -> None:
        if not self._path.up:
            return  # nothing gets to them, and one of a link that is down would take 10^11 s to drain
        if self._entered is not self._queues:  # else it stays where it is among the senders
            self._leave_queues()
            self._entered = self._queues
        for queue in self._entered:
            queue.drop_tail.burst(queue)

    def _leave_queues(self) -> None:
        entered, self._entered = self._entered, ()
        for queue in entered:
            queue.drop_tail.leave(queue)

    def queued_flight_bytes(self) -> float:
        """Return what it has in the queue at most; see ``drop_tail``."""
        left_bytes = self.queue.size_bytes + self._network.left_bytes(self.flow)
        first_round = self._clock.now < self._burst_begin_s + self.rtt_s  # of which the window was that before a loss
        window_bytes = self._burst_window if first_round else self._window.size_bytes
        return self._copies * max(0.0, min(left_bytes, window_bytes - self._lately_bytes()))

    def _lately_bytes(self) -> float:
        """What has been delivered of this burst in the last round trip."""
        in_burst = self._delivered_bytes() - self._burst_base
        if self._clock.now < self._burst_begin_s + self.rtt_s:
            return in_burst
        return min(in_burst, self._network.rate(self.flow) * self.rtt_s)

    def lose(self, share: float, at: BurstQueue) -> None:
        """The queue has no room for this share of what is queued, of which only what it drains meanwhile gets in.

        What the first queue of the path has dropped is not in the others.
        """
        if self._lost_s == self._clock.now:
            return
        self._lost_s = self._clock.now
        segment_bytes, left_bytes = float(self._model.segment_bytes), self.queue.size_bytes
        left_bytes += self._network.left_bytes(self.flow)
        queued_bytes = self.queued_flight_bytes() / self._copies
        late_bytes = share * queued_bytes * at.late_share
        passed_bytes = max((1 - share) * queued_bytes + late_bytes, segment_bytes)
        if left_bytes > queued_bytes + segment_bytes:  # what follows is acknowledged, too
            after = BurstRepair(self.rtt_s, 2 * passed_bytes)
        else:
            drain_s = at.burst_room_bytes / at.capacity
            after = repair_of(self.rtt_s, drain_s, late_bytes, self._model)
        self._window.lost(self._clock.now, passed_bytes, after, self._delivered_bytes())
        self._update_cap()

    def _overflow(self, pacing: Pacing, size_bytes: float) -> None:
        """Stall for as long as BBR needs to recover what this burst loses in the queue."""
        burst_bytes = self._burst_bytes + size_bytes + self.queue.size_bytes
        recovery_s = pacing.recovery_s(self._burst_bytes, size_bytes, burst_bytes, self._pipe)
        if recovery_s > 0:
            self._network.set_cap(self.flow, _STALLED_BYTES_PER_S)
            self._recovering = True
            self._clock.at(self._clock.now + recovery_s, self._on_recovered)

    def _on_recovered(self, _: Any) -> None:
        self._recovering = False
        self._cap(self._limit)

    def _on_sent(self) -> None:
        item, self._item, self._sending = self._item, None, False
        self._burst_bytes += self._sent_bytes
        now = self._idle_since_s = self._clock.now
        arrival_s = now + self._path.delay_s
        if self._loss:
            arrival_s += self._repair_s()
        self._arrival_s = max(self._arrival_s, arrival_s)
        if item is not None:  # else the process has not written all of it
            self._clock.at(self._arrival_s, self._deliver, item)
        if (self.queue.length or self._rest is not None) and self._has_next:
            self._pump()
        else:
            self.largest_burst_bytes = max(self.largest_burst_bytes, self._burst_bytes)
            if self._waiting_share:
                self._smoothed_queueing_s = self._smoothed_s(self._burst_bytes)
            if not self.unlimited:
                self._end_burst(now)
            self._burst_bytes = 0.0
            if self.on_idle is not None:
                self.on_idle()

    def _repair_s(self) -> float:
        """Return what repairing random losses of a message takes after its last byte was sent, in the mean."""
        if self._pacing is None or self.unlimited:
            return self._window.arrival_delay_s(self._sent_bytes)
        last_bytes = min(self._sent_bytes, self._pipe.bdp_bytes)  # what was lost before is repaired meanwhile
        return self.rtt_s * self._model.any_lost(self._loss, last_bytes)

    def _end_burst(self, now: float) -> None:
        """Let the window grow, and leave the queue, as nothing is left to send."""
        window = self._window
        if window.burst_ended(now, self.flow.delivered / self._copies):
            self._opened()
        if self._entered:
            self._leave_queues()
        if self._pacing is not None:
            self._pacing.ended(now, self._burst_bytes)
            self._pacing.filled(self._burst_bytes, self._pipe)
        window.network_limited = False

    # ---- the window ---------------------------------------------------------------------------------------------

    def _burst_queues(self) -> tuple[BurstQueue, ...]:
        """Return the queues in which bursts wait, in the order of the path."""
        access = self._private_capacity if self._private_capacity < math.inf else self._network.capacity(self._links[0])
        found = []
        for link in self._path.links if not self.unlimited else ():
            capacity = self._network.capacity(link.number)
            if link.drop_tail is not None and capacity < access:
                late_share = capacity / access
                room_bytes = link.plan.queue_bytes * self._model.goodput / (1 - late_share)
                found.append(BurstQueue(self, link.drop_tail, capacity, room_bytes, late_share))
            access = min(access, capacity)
        return tuple(found)

    def _delivered_bytes(self) -> float:
        return self._network.delivered_bytes(self.flow) / self._copies

    def _opened(self) -> None:
        """Send as fast as the path allows: the window limits nothing from now on."""
        self._limit = self._rate_limit()
        self._cap(self._limit)

    def _update_cap(self) -> None:
        """Cap the flow for the rest of this round such that it sends what is left of the window; no cap if the window
        does not limit it."""
        now, window = self._clock.now, self._window
        if not self._sending or self.rtt_s <= 0:
            return
        delivered = self._delivered_bytes()
        if now >= window.round_end_s and window.next_round(now, delivered):
            self._opened()
        if not window.limits:
            return
        window.open = False
        left = window.left_bytes(delivered)
        rate, waiting = math.inf, self.queue.size_bytes + self._network.left_bytes(self.flow)
        if window.network_limited or waiting <= left * (1 + 1e-9):
            if self._pacing is not None:
                rate = self._pacing.rate if window.network_limited else self._paced(self._pacing, waiting)
        else:
            rate = max(left, 0.0) / (window.round_end_s - now)
            if window.needs_timer():
                self._clock.at(window.round_end_s, self._on_round_end)
        self._cap(min(self._limit, rate))

    def _paced(self, pacing: Pacing, waiting: float) -> float:
        """Rate at which ``waiting`` bytes, all that have not left, leave in packet trains (bytes/s)."""
        burst_bytes = self._burst_bytes + self._sent_bytes + self.queue.size_bytes
        left_s = pacing.last_leaves_s(burst_bytes) - self._clock.now
        return waiting / left_s if left_s > 0 else math.inf

    def _on_round_end(self, _: Any) -> None:
        if self._window.timer_is_current(self._clock.now):
            self._update_cap()
