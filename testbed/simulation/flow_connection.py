"""A TCP connection over the flow network: set-up, congestion window, and one message after another.

A connection (one per ordered pair of nodes, as in the real transport) is one flow at a time: it sends its messages one
by one, larger priority first. Its rate is its max-min share of the links, and what its window allows (``window``).

set-up    the first message waits 3 RTT: TCP's handshake, then hello, challenge, proof and verdict of ours
          (``handshake``)
sharing   a connection's weight is RTT^-γ, γ by algorithm (``tcp_model``)
LAN       inside a data centre, up to an RTT of 1 ms, there is no window: it opens within some ms, once
queueing  behind the standing queue of other connections, a burst is late by its bytes over C, and so is each of its
          round trips
losses    on a path with random losses a message is late by RTT times the probability that any of its last BDP is lost
priority  a message overtakes none of the U + Q bytes before it: what a socket takes unsent (TCP_NOTSENT_LOWAT), and
          what an open window has in the queue (``send_queue``)
stopped   of a process that is stopped or killed the kernel sends what it has taken (see priority), and no more
outage    a sender into a path that is down, or whose acknowledgements are lost, stands still until its first
          retransmission that gets through. Nothing on its way is lost

Not modelled: single packets, and so the losses and repairs of bursts that overflow a queue, delayed acknowledgements,
and the acknowledgements' own bandwidth; where that may matter, the run says so (``validity``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.handshake import set_up
from testbed.simulation.paths import SitePath, WanLink
from testbed.simulation.send_queue import OnStart, SimulatedSendQueue
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.window import CongestionWindow, Pipe, found_again_s
from testbed.state import Remembering

_STALLED_BYTES_PER_S = 1e-6  # while waiting for a retransmission; not 0, so that every flow has an end
_SHORT_RTT_S = 1e-3  # a window fills such a path (inside a LAN) within a few milliseconds, once; it is not modelled


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """``copies`` connections that always do the same, simulated as one.

    private_capacity  of the ports that each connection has to itself (bytes/s); these are not among its links
    """

    copies: int = 1
    private_capacity: float = math.inf


SINGLE = ConnectionGroup()


class FlowConnection(Remembering):
    """One direction between two nodes. ``deliver(item)`` is called when a message has arrived.

    It may stand for a ``ConnectionGroup``: sizes are of one of its connections, and ``deliver`` is called once for all.

    on_room    called when a message has left the queue
    on_idle    called when nothing is left to send
    unlimited  it has no congestion window: it is a flow and no more
    """

    __slots__ = (
        "_arrival_s", "_burst_begin_s", "_burst_bytes", "_clock", "_copies", "_deliver", "_down_since_s",
        "_earlier_bytes", "_full_bytes", "_idle_since_s", "_item", "_limit", "_links", "_model", "_network",
        "_on_sent_callback", "_path", "_pipe", "_private_capacity", "_queueing_s", "_ready", "_recent_bytes", "_rest",
        "_sending", "_sent_bytes", "_standing_at", "_stopped_until_s", "_timer_s", "_used", "_window", "bursts",
        "flow", "largest_burst_bytes", "on_idle", "on_room", "pauses", "queue", "rtt_s", "unlimited",
    )  # fmt: skip
    # when nothing is to be sent or under way
    remembers = ("_idle_since_s", "_ready", "_used", "_window", "round_base", "cap")

    def __init__(
        self,
        clock: Clock,
        network: FlowNetwork,
        path: SitePath,
        links: tuple[int, ...],
        model: TcpModel,
        deliver: Callable[[Any], None],
        group: ConnectionGroup = SINGLE,
    ) -> None:
        self._clock = clock
        self._network = network
        self._path = path
        self._model = model
        self._deliver = deliver
        self._links = links
        self._copies = group.copies
        self._private_capacity = group.private_capacity
        self.flow = network.flow_class(links, model.weight(path.rtt_s))
        self.queue = SimulatedSendQueue()  # of messages that have not begun
        self.on_room: Callable[[], None] | None = None
        self.on_idle: Callable[[], None] | None = None
        self._used = False
        self._ready = False  # set up
        self._earlier_bytes = 0.0  # of the connections whose place it has taken
        # since training began
        self.largest_burst_bytes = 0.0
        self.bursts = 0
        self.pauses = 0  # likewise: how often nothing was left to send
        self._sending = False
        # of the message being sent
        self._sent_bytes = 0.0
        self._item = None
        self._rest: tuple[float, Any] | None = None  # of a message: what a stopped process has not written
        self._stopped_until_s = -math.inf
        self._down_since_s = math.inf  # since when no acknowledgement of what was sent has come
        self._arrival_s = 0.0  # of the last message: TCP keeps the order even when a trace shortens the path
        self._burst_bytes = 0.0  # a burst lasts from idle to idle
        self._recent_bytes = 0.0  # likewise, but with gaps of less than a round trip
        self._burst_begin_s = self._idle_since_s = 0.0
        self._queueing_s = 0.0  # of this burst, behind other connections
        self._standing_at: WanLink | None = None  # before which this burst has a standing queue
        self._timer_s = math.inf  # for the end of a round
        self.unlimited = not model.slow_start or (not path.links and 2 * path.delay_s <= _SHORT_RTT_S)
        self.rtt_s = path.rtt_s
        self._pipe = self._present_pipe()
        self._window = CongestionWindow(model, self._pipe)
        self._on_sent_callback = self._on_sent  # one bound method for all messages
        self._take_limits()

    @property
    def cap(self) -> float:
        """The most that the network gives it (bytes/s)."""
        return self._network.cap(self.flow)

    @cap.setter
    def cap(self, rate: float) -> None:
        self._network.set_cap(self.flow, rate)

    @property
    def round_base(self) -> float:
        """What had been delivered when the window's round began, counted from what has been by now."""
        return self._window.round_base - self._delivered_bytes()

    @round_base.setter
    def round_base(self, delivered: float) -> None:
        self._window.round_base = delivered

    # ---- what others ask ------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._sending or self.queue.length > 0 or self._rest is not None

    @property
    def idle(self) -> bool:
        return self._ready and not self.busy

    @property
    def carried_bytes(self) -> float:
        """Bytes that all connections of the group have carried until now, and those whose place they have taken."""
        return self._earlier_bytes + self._network.delivered_bytes(self.flow)

    @property
    def worst_loss(self) -> float:
        """The largest share of packets that its path has lost at random."""
        return 1.0 - self._path.least_passing if self._used else 0.0

    @property
    def pipe(self) -> Pipe:
        """Its path, as last known."""
        return self._pipe

    def take_over(self, before: FlowConnection) -> None:
        """Count what ``before`` has carried, whose place it takes."""
        self._earlier_bytes += before.carried_bytes
        self.largest_burst_bytes = max(self.largest_burst_bytes, before.largest_burst_bytes)
        self.bursts += before.bursts
        self.pauses += before.pauses

    def forget_bursts(self) -> None:
        """Count bursts anew, as training begins: first values may be larger than any later."""
        self.largest_burst_bytes = 0.0
        self.bursts = 0
        self.pauses = 0

    # ---- messages -------------------------------------------------------------------------------------------------

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
        if self._sending and not self.unlimited:
            self._limit_round()

    def _set_up(self) -> None:
        self._used = True
        if self._model.setup_round_trips * self.rtt_s <= 0:
            self._ready = True
        else:
            set_up(self._clock, self._path, self._model.setup_round_trips, self._is_killed, self._on_set_up)

    def _on_set_up(self, _: Any) -> None:
        self._ready = True
        self._idle_since_s = self._clock.now
        self._pump()

    def _pump(self) -> None:
        if self._sending or not self._has_next:
            return
        if self._rest is not None:
            (rest_bytes, item), self._rest = self._rest, None
            self._begin(rest_bytes, item, None)
        else:
            self._begin(*self.queue.pop())
        if not self.unlimited:
            self._limit_round()

    @property
    def _has_next(self) -> bool:
        """Whether anything may be sent next."""
        if self._stopped:
            return self._rest is None and self.queue.taken > 0
        return self._rest is not None or self.queue.length > 0

    def _begin(self, size_bytes: float, item: Any, on_start: OnStart | None) -> None:
        if not self._burst_bytes and not self.unlimited:
            self._begin_burst(size_bytes + self.queue.size_bytes)
        self._sending = True
        self._sent_bytes = size_bytes
        self._item = item
        if not (self._path.up and self._path.acknowledged):
            self._stand_still(self._clock.now)
        self._network.start(self.flow, size_bytes, self._on_sent_callback, self._copies)
        if on_start is not None:
            on_start()
        if self.on_room is not None:
            self.on_room()

    def _on_sent(self) -> None:
        item, self._item, self._sending = self._item, None, False
        self._burst_bytes += self._sent_bytes
        now = self._idle_since_s = self._clock.now
        arrival_s = now + self._path.delay_s + self._queueing_s
        if self._path.passing < 1 and not self.unlimited:
            arrival_s += self._repair_s()
        self._arrival_s = max(self._arrival_s, arrival_s)
        if item is not None:  # else the process has not written all of it
            self._clock.at(self._arrival_s, self._deliver, item)
        if self._has_next:
            self._pump()
            return
        self.pauses += 1
        self._recent_bytes += self._burst_bytes
        self.largest_burst_bytes = max(self.largest_burst_bytes, self._recent_bytes)
        if not self.unlimited:
            self._end_burst()
        self._burst_bytes = 0.0
        if self.on_idle is not None:
            self.on_idle()

    def _repair_s(self) -> float:
        """Return what repairing random losses of a message takes after its last byte was sent, in the mean.

        What was lost before its last bandwidth-delay product is repaired meanwhile.
        """
        last_bytes = min(self._sent_bytes, self._pipe.bdp_bytes)
        any_lost = 1.0 - math.pow(self._path.passing, last_bytes / self._model.segment_bytes)
        return self.rtt_s * any_lost

    # ---- the process that writes ------------------------------------------------------------------------------------

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

    def _is_killed(self) -> bool:
        return self._stopped_until_s == math.inf

    def _keep_rest(self) -> None:
        """Let the process keep what the kernel has not taken of what is to be sent."""
        if not self._sending or self._rest is not None:
            return
        left_bytes = self._network.left_bytes(self.flow)
        taken_bytes = max(self._taken_bytes(), 1.0)
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
        queued_bytes = 0.0
        if self._model.loss_based and not self.unlimited and self._path.links and self._window.open:
            queued_bytes = self._pipe.queue_bytes
        return self._model.unsent_limit_bytes + queued_bytes

    # ---- the window -------------------------------------------------------------------------------------------------

    def _delivered_bytes(self) -> float:
        return self._network.delivered_bytes(self.flow) / self._copies

    def _begin_burst(self, size_bytes: float) -> None:
        """Begin a burst after idle time, or go on with one after a gap of less than a round trip."""
        now = self._clock.now
        if now - self._idle_since_s >= self.rtt_s:
            self._burst_begin_s = now
            self._recent_bytes = 0.0
            self.bursts += 1
            self._queueing_s = self._standing_queue_s()
            self._window.begin_burst(now - self._idle_since_s, self._delivered_bytes(), size_bytes)

    def _standing_queue_s(self) -> float:
        """Return what the standing queue of other connections before the narrowest link takes to drain."""
        narrowest = self._path.narrowest
        if narrowest is None:
            return 0.0
        for other, since_s in narrowest.standing.items():  # the first one has stood longest
            if other is not self and since_s + self.rtt_s <= self._clock.now:
                return self._pipe.standing_queue_bytes(self._model.window_after_loss) / self._pipe.capacity
        return 0.0

    def _limit_round(self) -> None:
        """Cap the flow such that it sends what is left of the window in what is left of the round."""
        now = self._clock.now
        window = self._window
        if window.open:
            self._cap(self._open_rate())
            return
        delivered = self._delivered_bytes()
        if now >= window.round_end_s:
            window.next_round(now, delivered, self.rtt_s + self._queueing_s)
            if window.open:
                self._cap(self._open_rate())
                return
        waiting_bytes = self.queue.size_bytes + self._network.left_bytes(self.flow)
        left_bytes = window.left_bytes(delivered)
        if window.network_limited:
            rate = math.inf
        elif waiting_bytes <= left_bytes * (1 + 1e-9):
            rate = window.burst_rate
        else:
            rate = max(left_bytes, 0.0) / (window.round_end_s - now)
            if self._timer_s != window.round_end_s:
                self._timer_s = window.round_end_s
                self._clock.at(self._timer_s, self._on_round_end)
        self._cap(rate)

    def _on_round_end(self, _: Any) -> None:
        if self._clock.now == self._timer_s and self._sending and not self._window.open:
            self._limit_round()

    def _open_rate(self) -> float:
        """Return the rate of a window that fills the path, in bytes per second."""
        burst_bytes = self._burst_bytes + self.queue.size_bytes
        if burst_bytes + self._sent_bytes <= self._full_bytes:  # asked for with every message
            return math.inf
        narrowest = self._path.narrowest
        if burst_bytes + self._network.left_bytes(self.flow) <= self._full_bytes or narrowest is None:
            return math.inf
        if self._standing_at is None:
            self._standing_at = narrowest
            narrowest.standing[self] = self._clock.now
        return self._pipe.capacity * self._pipe.sawtooth_share(self._model.window_after_loss)

    def _cap(self, rate: float) -> None:
        if self._down_since_s == math.inf:  # else it stands still until the retransmission
            self._network.set_cap(self.flow, rate if rate < self._limit else self._limit)

    def _end_burst(self) -> None:
        self._window.end_burst(self._delivered_bytes(), self._burst_bytes, self._clock.now - self._burst_begin_s)
        if self._standing_at is not None:
            del self._standing_at.standing[self]
            self._standing_at = None

    # ---- the path ---------------------------------------------------------------------------------------------------

    def path_changed(self) -> None:
        """Take note of a changed link of the path. While it is down, the sender does not notice."""
        path = self._path
        if not path.up and self._pipe.capacity > 0:
            return
        if path.rtt_s != self.rtt_s:
            self.rtt_s = path.rtt_s
            self._network.set_weight(self.flow, self._model.weight(self.rtt_s))
        self._pipe = self._present_pipe()
        self._window.path_changed(self._pipe)
        self._take_limits()

    def _present_pipe(self) -> Pipe:
        """Return the path as it is now."""
        path = self._path
        capacity = min(map(self._network.capacity, self._links), default=math.inf)
        capacity = min(capacity, self._private_capacity)
        port = self._private_capacity if self._private_capacity < math.inf else self._network.capacity(self._links[0])
        return Pipe(capacity, self.rtt_s, path.queue_bytes * self._model.goodput, path.loss, port)

    def _take_limits(self) -> None:
        """Take what path and window allow."""
        self._limit = min(self._private_capacity, self._window.rate_limit)
        self._full_bytes = self._pipe.bdp_bytes + self._pipe.queue_bytes if self._model.loss_based else math.inf
        if self.unlimited:
            self._cap(math.inf)
        elif self._sending:
            self._limit_round()

    def state_changed(self) -> None:
        """Take note that a link of the path, or of that of its acknowledgements, has gone down or come up."""
        now = self._clock.now
        if not (self._path.up and self._path.acknowledged):
            if self._sending:
                self._stand_still(now + self.rtt_s)  # what was delivered until now is acknowledged a round trip later
        elif self._down_since_s < math.inf:
            found_s = found_again_s(self._down_since_s, now, self.rtt_s, self._model.retransmission_floor_s)
            self._clock.at(found_s, self._on_retransmission)
        else:
            self.path_changed()

    def _stand_still(self, since_s: float) -> None:
        """Hear no acknowledgement after ``since_s``."""
        self._down_since_s = min(since_s, self._down_since_s)
        self._network.set_cap(self.flow, _STALLED_BYTES_PER_S)

    def _on_retransmission(self, _: Any) -> None:
        if not (self._path.up and self._path.acknowledged):
            return  # down again: a later retransmission gets through
        if self._down_since_s < math.inf:
            self._down_since_s = math.inf
            self._window.after_outage(self._delivered_bytes())
            self.path_changed()
