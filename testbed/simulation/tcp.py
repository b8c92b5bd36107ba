"""A TCP connection over the flow network: set-up, windows, and one message after another.

A connection (one per ordered pair of nodes, as in the real transport) is one flow: it sends its messages one by one,
larger priority first. With C the path's capacity, δ its one-way delay, RTT = 2δ and M the message:

warm            T = δ + M / r, where r is the max-min share of the connection
cold            T = δ + K·RTT + (M - W0·(2^K - 1)) / r with K = min{k: W0·2^k ≥ min(C·RTT, what is left)}
                (slow start in rounds, W0 = 10 segments: RFC 6928, RFC 5681). In round k the rate is capped to W/RTT.
window          kept per connection; after a round that sent d bytes it is max(W, 2d): growth only by need. A round
                that sent less than W although there was more is limited by the network: no cap until the next idle, and
                the window grows by what is sent
overflow        it never exceeds C·RTT + queue; beyond, it falls to β·(C·RTT + queue), not below C·RTT. Of an unpaced
                burst after idle, no more than queue / (1 - C/access rate) passes in the first round
pacing          BBR, until it has seen the path full, sends at g = 2/ln 2 times the best rate it has seen, in trains
                of packets, and loses what overflows the queue (``pacing``; Cardwell et al. 2016; who has nothing more
                to send never leaves STARTUP)
emulated        the first bytes after silence pass at once (``bucket``), acknowledgements of what comes the other way
                go with what is sent (``acknowledgements``)
idle            with slow_start_after_idle and a loss-based algorithm W halves per RTO of idle, down to W0 (RFC 2861)
LAN             inside a data centre, up to a round trip of 1 ms, there are no windows: they open within some ms, once
set-up          the first message waits 3 RTT: connect, hello and answer, proof and verdict
outage          who has sent into a path that is down finds it up again when the next retransmission is due, with an RTO
                of 200 ms + RTT + half a burst's queueing (``outage``); W is one segment then, with BBR what it was
loss p          r ≤ √1.5·MSS/(RTT·√p) (Mathis et al. 1997), CUBIC the larger of that and RFC 9438's; BBR r ≤ C(1 - p)
sharing         weight 1/RTT^γ, γ by algorithm (Reno 1, CUBIC 0.5, BBR 0)

Valid where bytes per transfer ≥ 16·C·RTT, or alone on the path; for CUBIC and Reno with queues ≥ 1 BDP and RTTs that
are alike (``validity`` tells). Alone on an emulated path, warm transfers of 0.2 to 400 C·RTT
took what is said here within 7 % with CUBIC (median 0.9 %), those of 0.02 to 400 C·RTT within 8 % with BBR (median
0.8 %), and messages of 0.5 to 80 KB within 6 % with both (``testbed figure transfers``).
Left out: delayed acknowledgements, their bandwidth in any but emulated networks, time in loss recovery, queueing delay
of small messages behind other connections, CUBIC's growth after a loss (a link is taken to be used fully): where bursts
overflow the queue, the first rounds of a run are longer than predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.emulated import EmulatedLink
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.outage import found_again_s
from testbed.simulation.pacing import Pacing, Pipe
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel

OnStart = Callable[[], None]

_HALVINGS = 60
_SILENT_BYTES_PER_S = 1e-6  # of who waits for a retransmission: no rate of 0, so that every flow has an end
_SHORT_RTT_S = 1e-3  # inside a LAN: a window fills such a path within a few milliseconds, once, and is not followed
_FULL = 0.95  # a round that sent this share of its window was limited by the window


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """So many connections that always do the same, as one. ``port``: the capacity of those ends of each connection
    that it shares with none of the others, and that are therefore not among its links."""

    copies: int = 1
    port: float = math.inf


class TcpConnection:
    """One direction between two nodes. ``deliver(item)`` is called when a message has arrived.

    Sizes are of one connection of the crowd; ``deliver`` is called once for all of them.
    """

    __slots__ = (
        "_arrival_s", "_burst_bytes", "_burst_room", "_bursts", "_capacity", "_clock", "_copies", "_cruising",
        "_deliver", "_emulated", "_idle_since_s", "_item", "_limit", "_links", "_model", "_network", "_open", "_pacing",
        "_path", "_plain", "_port", "_queue", "_ready", "_recovering", "_round_base", "_round_end_s", "_round_s",
        "_round_window", "_sending", "_sent_bytes", "_sequence", "_silent_s", "_timer_s", "_when_sent", "_window",
        "flow", "largest_burst_bytes", "on_idle", "on_room", "queued_bytes", "room_bytes", "rtt_s", "weight",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, network: FlowNetwork, path: SitePath, links: tuple[int, ...], model: TcpModel,
        deliver: Callable[[Any], None], crowd: ConnectionGroup = ConnectionGroup(),
    ) -> None:  # fmt: skip
        self._clock, self._network, self._path, self._model, self._deliver = clock, network, path, model, deliver
        self._links, self._copies, self._port = links, crowd.copies, crowd.port
        self.weight = model.weight(2 * path.delay_s)
        self.flow = network.flow_class(links, self.weight)
        self._queue: list[tuple[float, int, float, Any, OnStart | None]] = []  # by priority, then as they came
        self._sequence = self._bursts = 0
        self._sending = False
        self._sent_bytes, self._item = 0.0, None  # of the message that is being sent
        self._ready = False  # set up
        self.queued_bytes = 0.0  # not yet begun
        self._burst_bytes = self.largest_burst_bytes = 0.0  # from idle to idle
        self.on_room: Callable[[], None] | None = None  # called when a message has left the queue
        self.on_idle: Callable[[], None] | None = None  # called when nothing is left to send
        self._arrival_s = 0.0  # of the latest message: TCP keeps the order even when a trace shortens the path
        self._window = model.initial_window_bytes
        self._open = False  # the window fills the path
        self._cruising = False  # limited by the network, not by the window, since this burst's last round
        self._round_s, self._round_end_s, self._round_base = -math.inf, -math.inf, 0.0
        self._round_window = self._window
        self._burst_room = math.inf
        self._idle_since_s = 0.0
        self._timer_s = math.inf
        self._pacing = None if model.loss_based else Pacing(model.segment_bytes)
        self._emulated: EmulatedLink | None = None  # before which this message waits
        self._recovering = False
        self._silent_s = math.inf  # since when it has sent into a path that was down, and does not know better
        self._when_sent = self._on_sent  # made once
        self.path_changed()

    @property
    def busy(self) -> bool:
        """Whether anything has not left yet."""
        return self._sending or bool(self._queue)

    @property
    def carried_bytes(self) -> float:
        """By all connections of the crowd, until now."""
        return self._network.delivered_bytes(self.flow)

    @property
    def products(self) -> float:
        """Bandwidth-delay products that it has sent at a time, from idle to idle, on average."""
        pipe = self._capacity * self.rtt_s
        return self._delivered_bytes() / max(1, self._bursts) / pipe if pipe > 0 else math.inf

    @property
    def plain(self) -> bool:
        """Whether there are no windows: it is a flow and no more."""
        return self._plain

    @property
    def idle(self) -> bool:
        """Whether a message would leave at once."""
        return self._ready and not self._sending and not self._queue

    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        """Queue a message; ``on_start`` is called when its first byte leaves."""
        if not self._sequence:
            self._set_up()
        self._sequence += 1
        if self._ready and not self._sending and not self._queue:
            self._begin(size_bytes, item, on_start)
        else:
            heappush(self._queue, (-priority, self._sequence, size_bytes, item, on_start))
            self.queued_bytes += size_bytes
        if self._ready and not self._open and not self._cruising:
            self._review()

    def path_changed(self) -> None:
        """A trace has changed a link of the path."""
        self.rtt_s = 2 * self._path.delay_s
        capacity = min(map(self._network.capacity, self._links), default=math.inf)
        capacity = self._capacity = min(capacity, self._port)
        self.room_bytes = self._room()
        self._limit = min(self._port, self._model.rate_limit(self.rtt_s, self._path.loss, capacity))
        self._cap(self._limit)
        self._plain = not self._model.slow_start or (not self._path.links and self.rtt_s <= _SHORT_RTT_S)
        self._open = self._plain or self._window >= capacity * self.rtt_s
        if self._sending and not self._open:
            self._review()

    def state_changed(self) -> None:
        """A link of the path went down, or came up."""
        self.room_bytes = self._room()
        if not self._path.up:
            if self._sending:
                self._fall_silent(self._clock.now - self._path.delay_s)
        elif self._silent_s < math.inf:
            self._clock.at(found_again_s(self._silent_s, self._clock.now, self._timeout_s()), self._on_found)

    def _timeout_s(self) -> float:
        """Linux: the smoothed round trip and 200 ms. An unpaced burst waits behind itself, half of it on average."""
        burst_bytes = min(self.largest_burst_bytes, self._path.queue_bytes) if self._model.loss_based else 0.0
        return self.rtt_s + burst_bytes / 2 / self._capacity + self._model.retransmission_floor_s

    def _fall_silent(self, since_s: float) -> None:
        self._silent_s = min(self._silent_s, since_s)
        self._network.set_cap(self.flow, _SILENT_BYTES_PER_S)

    def _on_found(self, _: Any) -> None:
        if not self._path.up or self._silent_s == math.inf:
            return  # it is down again: found later
        self._silent_s = math.inf
        if self._model.loss_based and not self._plain:
            self._window = min(self._window, float(self._model.segment_bytes))
        self._round_end_s, self._round_base, self._cruising = -math.inf, self._delivered_bytes(), False
        self.path_changed()

    def _cap(self, rate: float) -> None:
        if self._silent_s == math.inf and not self._recovering:  # else nothing, until the path is found again
            self._network.set_cap(self.flow, rate)

    def _set_up(self) -> None:
        if self._pacing is not None and self.rtt_s > 0:
            self._pacing.saw(self._model.initial_window_bytes, 0.0, self.rtt_s)
        setup_s = self._model.setup_round_trips * self.rtt_s
        if setup_s <= 0:
            self._ready = True
        else:
            self._clock.at(self._clock.now + setup_s, self._on_set_up)

    def _on_set_up(self, _: Any) -> None:
        self._ready = True
        self._idle_since_s = self._clock.now
        self._pump()
        if not self._open:
            self._review()

    def _pump(self) -> None:
        if not self._sending and self._queue:
            _, _, size_bytes, item, on_start = heappop(self._queue)
            self.queued_bytes -= size_bytes
            self._begin(size_bytes, item, on_start)

    def _begin(self, size_bytes: float, item: Any, on_start: OnStart | None) -> None:
        now, path, pacing = self._clock.now, self._path, self._pacing
        if pacing is None and not self._plain and self._idle_since_s < now:
            self._after_idle(now - self._idle_since_s)
        elif pacing is not None and not self._burst_bytes:
            pacing.begin(now)
        self._sending, self._sent_bytes, self._item = True, size_bytes, item
        if not path.up:
            self._fall_silent(now)
        at_once_bytes = more_bytes = 0.0
        link = path.narrowest
        if link is not None and link.emulated is not None:
            at_once_bytes, more_bytes = self._enter(link.emulated, link.rate_bps, size_bytes)
        self._network.start(self.flow, size_bytes + more_bytes, self._when_sent, self._copies, at_once_bytes)
        if pacing is not None and self._open and not self._plain:
            self._overflow(pacing, size_bytes)
        if on_start is not None:
            on_start()
        if self.on_room is not None:
            self.on_room()

    def _overflow(self, pacing: Pacing, size_bytes: float) -> None:
        """Wait for what a burst loses in the queue."""
        burst_bytes = self._burst_bytes + size_bytes + self.queued_bytes
        pipe = Pipe(self._capacity, self.rtt_s, self._path.queue_bytes)
        recovery_s = pacing.recovery_s(self._burst_bytes, size_bytes, burst_bytes, pipe)
        if recovery_s > 0:
            self._network.set_cap(self.flow, _SILENT_BYTES_PER_S)
            self._recovering = True
            self._clock.at(self._clock.now + recovery_s, self._on_recovered)

    def _on_recovered(self, _: Any) -> None:
        self._recovering = False
        self._cap(self._limit)

    def _enter(self, link: EmulatedLink, rate_bps: float, size_bytes: float) -> tuple[float, float]:
        """How much of a message passes an emulated link at once, and how many bytes go with it."""
        now = self._clock.now
        if not self._plain and not self._open and now >= self._round_end_s:
            self._next_round(now, self._delivered_bytes())  # so that what passes at once is of this round
        self._emulated = link
        return link.enter(now, size_bytes, rate_bps)

    def _on_sent(self) -> None:
        item, self._item, self._sending = self._item, None, False
        if self._emulated is not None:
            self._emulated.leave(self._clock.now, self._sent_bytes)
        self._burst_bytes += self._sent_bytes
        now = self._idle_since_s = self._clock.now
        arrival_s = now + self._path.delay_s
        self._arrival_s = max(self._arrival_s, arrival_s)
        self._clock.at(self._arrival_s, self._deliver, item)
        if self._queue:
            self._pump()
        else:
            self._bursts += 1
            self.largest_burst_bytes = max(self.largest_burst_bytes, self._burst_bytes)
            if not self._open:
                self._grow(self._delivered_bytes() - self._round_base)
            if self._pacing is not None and not self._plain:
                self._pacing.ended(now, self._burst_bytes)
                self._pacing.filled(self._burst_bytes, self._capacity * self.rtt_s, self._path.queue_bytes)
            self._burst_bytes = 0.0
            self._cruising = False
            if self.on_idle is not None:
                self.on_idle()

    # ---- the window ---------------------------------------------------------------------------------------------

    def _after_idle(self, idle_s: float) -> None:
        """Of a loss-based algorithm: what the burst to come meets, and whether it may begin as the last one ended."""
        model, rtt_s = self._model, self.rtt_s
        if rtt_s <= 0 or idle_s < rtt_s:
            return
        self._burst_room = self.room_bytes
        if self._burst_room < self._capacity * rtt_s:
            self._open = False
        if model.slow_start_after_idle:
            halvings = min(_HALVINGS, int(idle_s / (rtt_s + model.retransmission_floor_s)))
            if halvings:
                self._window = max(min(self._window, model.initial_window_bytes), self._window / 2**halvings)
                self._open = self._window >= self._capacity * rtt_s
                self._round_base = self._delivered_bytes()  # the last round's growth is forgotten

    def _room(self) -> float:
        """How much of an unpaced burst a byte-limited bottleneck queue takes while it drains."""
        access = self._port if self._port < math.inf else self._network.capacity(self._links[0])
        return self._path.queue_bytes / (1 - self._capacity / access) if self._capacity < access else math.inf

    def _next_round(self, now: float, delivered: float) -> None:
        sent = delivered - self._round_base
        self._grow(sent)
        self._cruising = sent < _FULL * self._round_window and self._timer_s == self._round_end_s
        self._round_s, self._round_end_s, self._round_base = now, now + self.rtt_s, delivered
        self._round_window = min(self._window, self._burst_room)
        self._burst_room = math.inf

    def _delivered_bytes(self) -> float:
        return self._network.delivered_bytes(self.flow) / self._copies

    def _review(self) -> None:
        """Let the flow run, or cap it for the rest of this round, by what the window has left."""
        now, rtt_s = self._clock.now, self.rtt_s
        if not self._sending or rtt_s <= 0:
            return
        delivered = self._delivered_bytes()
        if now >= self._round_end_s:
            self._next_round(now, delivered)
        if self._open and self._round_window >= self._window:
            return
        self._open = False
        left = self._round_window - (delivered - self._round_base)
        rate, waiting = math.inf, self.queued_bytes + self._network.left_bytes(self.flow)
        if self._cruising or waiting <= left * (1 + 1e-9):
            if self._pacing is not None:
                rate = self._pacing.rate if self._cruising else self._paced(self._pacing, waiting)
        else:
            rate = max(left, 0.0) / (self._round_end_s - now)
            if self._timer_s != self._round_end_s:
                self._timer_s = self._round_end_s
                self._clock.at(self._round_end_s, self._on_round_end)
        self._cap(min(self._limit, rate))

    def _paced(self, pacing: Pacing, waiting: float) -> float:
        """The rate at which these bytes, all that have not left, are sent where the window allows them."""
        burst_bytes = self._burst_bytes + self._sent_bytes + self.queued_bytes
        left_s = pacing.last_leaves_s(burst_bytes) - self._clock.now
        return waiting / left_s if left_s > 0 else math.inf

    def _on_round_end(self, _: Any) -> None:
        if self._clock.now == self._timer_s and not self._open:
            self._review()

    def _grow(self, sent: float) -> None:
        """After (a part of) a round: acknowledgements of d bytes grow the window to 2d, if it was smaller."""
        if self._open:
            return
        pipe = self._capacity * self.rtt_s
        if self._pacing is not None:
            self._pacing.saw(sent, self._clock.now - self._round_s, self.rtt_s)
        self._window = self._window + sent if self._cruising else max(self._window, 2 * sent)
        most = min(pipe + self._path.queue_bytes, self._model.window_limit_bytes)
        if self._window > most:
            self._window = max(self._model.window_after_loss * most, min(pipe, most))
        self._open = self._window >= min(pipe, most)
        if self._open:
            self._cap(self._limit)
